"""Leave an orphaned process that exits when its pipe closes, and continue."""

import os
import sys

reading, writing = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(7)
    os._exit(0)
os.close(reading)
os.wait()
os.write(1, b"left\r\n")
for line in sys.stdin:
    if line.strip() == "end it":
        os.close(writing)
        os.write(1, b"told\r\n")
