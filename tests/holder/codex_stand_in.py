"""A stand-in for the program `codex`: an app-server that speaks the real protocol, or an empty screen.

    python -m tests.holder.codex_stand_in app-server --listen unix://PATH ...
    python -m tests.holder.codex_stand_in --remote unix://PATH ...

The server appends each text that starts a turn to the file named in `CODEX_TEXTS`, one per line.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.holder.codex_fake import FakeCodex, Fields


async def serve(path: Path, texts: Path) -> None:
    """Run the server until the process is ended."""
    server = FakeCodex(path)
    server.add_thread("one")

    def take(asked: Fields) -> None:
        with texts.open("a") as file:
            file.write(json.dumps(asked["input"][0]["text"]) + "\n")
        server.begin_turn(asked)
        server.end_turn("one")

    server.on_turn = take
    await server.open()
    await asyncio.Event().wait()


def main(words: list[str]) -> None:
    if "app-server" in words:
        address = words[words.index("--listen") + 1].removeprefix("unix://")
        asyncio.run(serve(Path(address), Path(os.environ["CODEX_TEXTS"])))
    else:
        sys.stdout.write("\x1b[?2004h\x1b]7501;state=idle:app=codex\x07› ")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
