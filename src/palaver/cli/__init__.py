"""Commands that run in the client's own process."""
