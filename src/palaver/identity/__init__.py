"""Callers: processes, seats, presence, workspaces and tokens."""
