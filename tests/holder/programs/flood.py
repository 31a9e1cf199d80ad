"""Write the given number of megabytes as fast as possible, then `flooded`, and wait for a line."""

import os
import sys

piece = b"\x1b[31m" + b"0123456789" * 100 + b"\x1b[0m\r\n"
left = int(sys.argv[1]) * 1024 * 1024
sys.stdin.readline()
while left > 0:
    left -= os.write(1, piece)
os.write(1, b"flooded\r\n")
sys.stdin.readline()
