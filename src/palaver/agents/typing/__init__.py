"""Typing a message into a terminal: the plan of keystrokes, and the code that presses them."""
