"""The daemon: one per home. `daemon.py` puts all parts together; `__main__.py` starts the process."""
