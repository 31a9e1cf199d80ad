"""Codex's own way in: its app-server, its threads, and what brings mail into them."""
