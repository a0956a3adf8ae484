"""What services use: headers, ASGI, hooks and metrics, driven time, and the examples."""
