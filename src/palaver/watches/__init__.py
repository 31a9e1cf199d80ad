"""Notifications about events: request watches and subscriptions. Reads the log; writes through the broker."""
