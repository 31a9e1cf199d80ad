"""One terminal: its pty, emulator, screen, gates, keyboard, typist and viewers."""
