"""The holder process of an agent: its terminal, its screen, its gates and its native lanes."""
