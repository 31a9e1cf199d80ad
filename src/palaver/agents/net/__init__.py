"""Small clients for the servers that harnesses have on this machine: HTTP and WebSocket."""
