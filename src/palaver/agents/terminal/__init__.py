"""The content of a terminal, and whether a text may be typed into it: bytes, cells, keys, processes."""
