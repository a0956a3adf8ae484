"""What the documentation says is true."""
