"""What stands near an agent: the holder of its terminal, its screen, its gates, and the screen people attach to."""
