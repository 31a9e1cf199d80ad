"""The hook door: reads the hooks of harnesses and replies with instructions and messages."""
