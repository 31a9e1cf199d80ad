"""Ask one question after the other and write every byte that is read to a file.

    asking.py RECORD QUESTIONS MODE

`QUESTIONS` is a JSON file with a list of prompts. The first is shown at the start and the next at each
SIGUSR1, on a clear screen below a line `question N`. `MODE` is `line`: the terminal delivers whole lines;
`keys`: the terminal delivers single keys; `readline`: as `keys`, with readline loaded; `paste`: as `keys`,
with bracketed paste on.
"""

import itertools
import json
import os
import signal
import sys
import tty
from pathlib import Path

record_path, questions_path, mode = sys.argv[1:]
record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
questions = enumerate(json.loads(Path(questions_path).read_text()))
if mode == "readline":
    import readline  # noqa: F401 - loaded, as in a program that uses it
if mode != "line":
    tty.setcbreak(0)
if mode == "paste":
    os.write(1, b"\x1b[?2004h")


def ask(*_: object) -> None:
    for number, question in itertools.islice(questions, 1):
        os.write(1, f"\x1b[2J\x1b[Hready\r\nquestion {number:03}\r\n\r\n{question}".encode())


signal.signal(signal.SIGUSR1, ask)
ask()
while data := os.read(0, 4096):
    os.write(record, data)
