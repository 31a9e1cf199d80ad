"""Client side of the bus: reach or start the daemon, and the Python SDK."""
