"""Rooms: one stick, members, handoffs and notes. Pure: decisions and their effects."""
