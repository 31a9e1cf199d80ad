"""Claude Code 2.1."""
