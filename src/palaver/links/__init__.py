"""Callers and connections: processes, seats, identity, presence, outboxes. Handles no requests."""
