"""Stored formats and wire formats, typed. Pure."""
