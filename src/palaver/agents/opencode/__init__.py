"""OpenCode's own way in: its server, its sessions, and what brings mail into them."""
