"""Requests to the daemon as lines of JSON: clients and the door import the same definitions."""
