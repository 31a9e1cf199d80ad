"""`pal attach`: a user's view of one agent's terminal, with a line to write to it."""
