"""Takes keys one by one, as a composer does, and writes every byte it reads to a file.

    keys.py FILE [paste] [eat-enter] [only-z]

It shows what is typed, and at Enter `sent <text>`. It asks for bracketed paste, and with `paste` the file has
the marks of a paste too; with `single` it does not ask, as a program that takes single keys. With `eat-enter`
it does not take the first Enter, and with two of them not the second either. With `only-z` it takes Enter
only for a text with a Z in it.
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
