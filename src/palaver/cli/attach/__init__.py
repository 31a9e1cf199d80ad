"""`pal attach`: an agent's terminal on a person's own, with a status line and an input bar."""
