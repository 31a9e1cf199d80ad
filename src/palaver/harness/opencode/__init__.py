"""OpenCode 1.18."""
