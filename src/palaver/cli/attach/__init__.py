"""`pal attach`: an agent's terminal on a person's terminal, with a status line and an input bar."""
