"""The IRC door."""
