"""Small clients for the local servers of harnesses: HTTP and WebSocket."""
