"""Use cases shared by all doors."""
