"""Rooms: one stick, members, hand-overs, notes. Pure: what is decided, and what it changes."""
