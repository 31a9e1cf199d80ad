"""A scripted model on loopback for tests and self-tests; nothing leaves the machine."""
