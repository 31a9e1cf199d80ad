"""Push messages to many WebSockets while one client does not read: none may be lost or repeated.

    python bench/listeners.py --dir FOLDER     the home is made in FOLDER, and removed

All clients listen to one agent, and an SDK connection sends to it. A client that is disconnected because it
reads too slowly continues from its last seq, as the page says. The stopped client begins to read when all
others have everything.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    # The first entry of the path is the folder of this file; `import bench` needs the root of the repository.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.palaver_home import PalaverHome
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import palaver

_ROOT = Path(__file__).resolve().parents[1]
_NAME = "luna"
_WINDOW = 64
_TOO_SLOW = 4008
_NO_PONG = 1011
"""Codes with which a client that does not read is disconnected, depending on what happens first."""


@dataclass
class Reader:
    """A client that listens, and continues where it was when it is disconnected."""

    url: str
    token: str
    seqs: list[int] = field(default_factory=list)
    reconnects: int = 0
    _socket: ClientConnection | None = None

    async def listen(self) -> None:
        """Connect, and listen from the last seq."""
        self._socket = await connect(self.url, compression=None, max_queue=1, ping_interval=None)
        after = {"after": self.seqs[-1]} if self.seqs else {}
        for frame in (
            {"type": "auth", "token": self.token},
            {"type": "msg.listen", "agentId": _NAME, **after},
        ):
            await self._socket.send(json.dumps(frame))
            assert json.loads(await self._socket.recv())["type"].endswith(".ok")

    async def read(self, number: int) -> None:
        """Read until it has this many messages."""
        assert self._socket is not None
        while len(self.seqs) < number:
            try:
                while len(self.seqs) < number:
                    text = await self._socket.recv()
                    assert isinstance(text, str)
                    self.seqs.append(int(text.rpartition(":")[2].rstrip("}")))
            except ConnectionClosed as closed:
                if closed.rcvd is None or closed.rcvd.code not in (_TOO_SLOW, _NO_PONG):
                    raise
                self.reconnects += 1
                await self.listen()

    async def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            await self._socket.close()


def main() -> int:
    """Measure and print. Return 1 if a message was lost or repeated."""
    parser = argparse.ArgumentParser(prog="bench/listeners.py", description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="where the home is, with a short name")
    parser.add_argument("--listeners", type=int, default=200)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--pal", type=Path, default=_ROOT / ".venv" / "bin" / "pal")
    asked = parser.parse_args()
    root = asked.dir / "listeners"
    (root / "p").mkdir(parents=True, mode=0o700)
    (root / "p" / "config.toml").write_text('http = "127.0.0.1:0"\n')
    home = PalaverHome(root, asked.pal)
    try:
        return asyncio.run(measure(home, asked.pal, asked.listeners, asked.messages))
    finally:
        home.close()


async def measure(home: PalaverHome, pal: Path, listeners: int, messages: int) -> int:
    """Send while all but one read, then let that one read too."""
    environment = {"PALAVER_HOME": str(home.home), "HOME": str(home.home.parent), "PATH": "/usr/bin:/bin"}

    def run(*words: str) -> dict[str, object]:
        done = subprocess.run([pal, *words, "--json"], env=environment, check=True, stdout=subprocess.PIPE)
        found: dict[str, object] = json.loads(done.stdout)
        return found

    run("join", "--name", _NAME)
    token = str(run("token", "create")["token"])
    doors = run("status")["doors"]
    assert isinstance(doors, dict)
    url = f"{doors['http'].replace('http', 'ws', 1)}/ws"
    readers = [Reader(url, token) for _ in range(listeners)]
    for reader in readers:
        await reader.listen()
    stopped, *others = readers
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send(home, messages))
        for reader in others:
            tasks.create_task(reader.read(messages))
    took_s = time.perf_counter() - began
    await stopped.read(messages)
    for reader in readers:
        with suppress(ConnectionClosed):
            await reader.close()
    return show(readers, messages, took_s)


async def send(home: PalaverHome, messages: int) -> None:
    """Send to the agent, with many messages in flight."""
    numbers = iter(range(messages))
    async with palaver.connect("sender", home=home.home) as sender:

        async def line() -> None:
            for number in numbers:
                await sender.route(f"agent/{_NAME}", "work", {"n": number})

        async with asyncio.TaskGroup() as lines:
            for _ in range(_WINDOW):
                lines.create_task(line())


def show(readers: list[Reader], messages: int, took_s: float) -> int:
    """Print the result."""
    wanted = sorted(set().union(*(reader.seqs for reader in readers)))
    are_right = [reader.seqs == wanted for reader in readers]
    pushes = (len(readers) - 1) * messages
    print(f"{len(readers)} listeners, {messages:,} messages, one of them stopped while they were sent")
    print(f"{pushes:,} pushes to the others in {took_s:.1f} s: {pushes / took_s:,.0f} a second")
    others = sum(reader.reconnects for reader in readers[1:])
    print(f"disconnected: the stopped client {readers[0].reconnects}, the others {others} times")
    is_met = all(are_right) and len(wanted) == messages
    print("each client got each message once, in order: " + ("yes" if is_met else "**no**"))
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
