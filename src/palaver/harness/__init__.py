"""Knowledge about each harness: marks, hooks, screens, transcripts and start commands.

Pure, except each `integration.py` in the folder of a harness.
"""
