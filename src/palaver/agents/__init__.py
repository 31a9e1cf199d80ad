"""What stands near an agent: the holder of its terminal, its screen, its gates, its own lanes."""
