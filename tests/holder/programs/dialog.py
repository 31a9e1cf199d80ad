"""A composer with a dialog: every byte that is read goes to a file, labelled with its reader.

    dialog.py FILE WHEN

`WHEN` is `now`: the dialog opens at the start; `paste`: it opens when something is pasted. `SIGUSR1` closes
it.
"""

import os
import signal
import sys
import tty

path, when = sys.argv[1:]
QUESTION = b"\r\nProceed? [y/n] "
record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
text = b""
asking: list[bool] = []


def ask() -> None:
    asking.append(True)
    os.write(1, QUESTION)


def answer(*_: object) -> None:
    asking.clear()
    os.write(1, b"\r\n\x1b[2J\x1b[Hgone\r\n" + text)


tty.setraw(0)
signal.signal(signal.SIGUSR1, answer)
os.write(1, b"ready\r\n\x1b[?2004h")
if when == "now":
    ask()
has_asked = when == "now"
while True:
    data = os.read(0, 4096).replace(b"\x1b[200~", b"").replace(b"\x1b[201~", b"")
    os.write(record, (b"DIALOG:" if asking else b"COMPOSER:") + data + b"\n")
    if asking:
        continue
    text += data
    if text.endswith(b"\r"):
        os.write(1, b"\r\nsent " + text + b"\n")
        text = b""
    elif not has_asked:
        has_asked = True
        ask()
    else:
        os.write(1, data)
