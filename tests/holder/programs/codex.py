"""A program that starts like Codex: a listening server, or a screen that records how it was started.

The path of a server controls it: with `broken` in it, the server exits at once; with `stubborn`, it ignores
SIGTERM.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def serve(path: str) -> None:
    if "broken" in path:
        sys.exit("I cannot start")
    if "stubborn" in path:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    Path(path).with_name("pid").write_text(str(os.getpid()))
    while True:
        signal.pause()


def show(words: list[str]) -> None:
    found = {"words": words, "pid": os.getpid(), "seat": os.environ.get("PALAVER_SEAT", "")}
    Path(os.environ["RECORD"]).write_text(json.dumps(found))
    if "wait" in words:
        signal.pause()


if sys.argv[1] == "app-server":
    serve(sys.argv[3].removeprefix("unix://"))
else:
    show(sys.argv[1:])
