"""The log: every event in its place, the rows folded from them, and nothing that decides."""
