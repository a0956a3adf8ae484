"""The stores over real servers."""
