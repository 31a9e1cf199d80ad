"""Open views of a home on request, and read them or stop reading. Runs as a script.

Usage: view_readers.py HOME
Lines of standard input: `open N` opens N views that read, `stop N` opens N views that stop reading after
their snapshot, `resume` lets these read again until each got a new snapshot, `close` ends all. Each is
answered by one line: the bytes that were read since the last one.
"""

import asyncio
import sys

from palaver.client.wire import ReplyLine, Wire, open_wire
from palaver.protocol.lines import ViewOp, op_to_json


class View:
    """One open view, which reads and drops everything."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.has_new_snapshot = asyncio.Event()
        self.read_bytes = 0
        self.wire: Wire | None = None

    async def open(self, home: str) -> Wire:
        """Connect, and wait for the snapshot."""
        self.wire = await open_wire(home, self._hear, lambda wire: None)
        self.wire.write(op_to_json(1, ViewOp()))
        await self.has_begun.wait()
        return self.wire

    def _hear(self, line: ReplyLine) -> None:
        if line.req == 1:
            self.has_begun.set()
        elif line.push == "view":
            is_snapshot = bytes(line.changes) == b"null"
            self.read_bytes += len(bytes(line.snapshot if is_snapshot else line.changes))
            if is_snapshot:
                self.has_new_snapshot.set()


async def _obey(home: str, views: list[View], words: list[str]) -> None:
    if words[0] in ("open", "stop"):
        for _ in range(int(words[1])):
            views.append(View())
            wire = await views[-1].open(home)
            if words[0] == "stop":
                wire.pause_reading()
    elif words[0] == "resume":
        for view in views:
            assert view.wire is not None
            view.wire.resume_reading()
            await view.has_new_snapshot.wait()
    elif words[0] == "close":
        for view in views:
            assert view.wire is not None
            view.wire.close()
            await view.wire.wait_closed()
        views.clear()


async def _main(home: str) -> None:
    views: list[View] = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        before = sum(view.read_bytes for view in views)
        await _obey(home, views, line.split())
        print(sum(view.read_bytes for view in views) - before, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
