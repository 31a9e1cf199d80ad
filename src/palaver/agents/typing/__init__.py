"""Typing a message into a terminal: the plan of its keys, and whoever presses them."""
