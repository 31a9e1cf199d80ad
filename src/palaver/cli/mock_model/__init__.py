"""A scripted model on loopback: harnesses talk to it in tests and self-tests; nothing leaves the machine."""
