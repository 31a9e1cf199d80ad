"""Print the size of the terminal, at the start and after each change."""

import os
import signal


def say(*_: object) -> None:
    size = os.get_terminal_size(0)
    os.write(1, f"size {size.columns}x{size.lines}\r\n".encode())


signal.signal(signal.SIGWINCH, say)
say()
while True:
    signal.pause()
