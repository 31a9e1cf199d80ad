"""Where requests come in: a door turns bytes into requests, answers in its own wire, and decides nothing."""
