"""Knowledge about each harness: marks, hooks, screens, transcripts and start commands. Pure."""
