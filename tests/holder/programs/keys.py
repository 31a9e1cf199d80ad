"""Read single keys, as a composer does, and write every byte that is read to a file.

    keys.py FILE [paste] [eat-enter] [only-z]

The typed text is echoed; Enter prints `sent <text>`. Bracketed paste is on, and with `paste` the file
contains the paste marks too; with `single` bracketed paste stays off, as in a program that reads single keys.
With `eat-enter` the first Enter is ignored, and with two of them the second one too. With `only-z` Enter
works only for a text that contains a Z.
"""

import os
import sys
import termios
import tty

path, *words = sys.argv[1:]
settings = termios.tcgetattr(0)
tty.setraw(0)
record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
eats = words.count("eat-enter")
text = b""
os.write(1, b"ready\r\n" + (b"" if "single" in words else b"\x1b[?2004h"))
while data := os.read(0, 4096):
    bare = data.replace(b"\x1b[200~", b"").replace(b"\x1b[201~", b"")
    os.write(record, data if "paste" in words else bare)
    for byte in bare:
        if byte == 13 and eats:
            eats -= 1
        elif byte == 13 and "only-z" in words and b"Z" not in text:
            pass
        elif byte == 13:
            os.write(1, b"\r\nsent " + text + b"\r\n")
            text = b""
        elif byte == 4:
            termios.tcsetattr(0, termios.TCSANOW, settings)
            sys.exit(0)
        else:
            text += bytes((byte,))
            os.write(1, bytes((byte,)))
