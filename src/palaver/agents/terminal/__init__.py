"""What a terminal shows, and whether something may be typed into it: bytes, cells, keys, processes."""
