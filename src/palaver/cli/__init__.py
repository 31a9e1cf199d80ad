"""What runs in the client's own process."""
