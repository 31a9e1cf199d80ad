"""A person who begins drafts at many terminals at once and deletes them, until interrupted.

    drafts.py HOME SEED NAME...

A draft consists of `~`; it stays for a while, then Ctrl-U deletes it. It is never sent.
"""

import asyncio
import contextlib
import json
import random
import signal
import sys
from pathlib import Path


async def draft(path: Path, chance: random.Random, is_over: asyncio.Event) -> int:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(json.dumps({"type": "attach", "cols": 80, "rows": 24}).encode() + b"\n")
    reply = json.loads(await reader.readline())
    assert reply["ok"] is True, reply
    reading = asyncio.create_task(pass_over(reader))
    count = 0
    while not is_over.is_set():
        await pause(is_over, chance.uniform(0.2, 2.0))
        for _ in range(chance.randint(1, 5)):
            writer.write(b"\0" + (1).to_bytes(4, "big") + b"~")
            await pause(is_over, 0.02)
        count += 1
        await pause(is_over, chance.uniform(0.1, 1.2))
        writer.write(b"\0" + (1).to_bytes(4, "big") + b"\x15")
        await writer.drain()
    writer.write_eof()  # the holder reads all input before it sees the end of the stream and closes
    await reading
    writer.close()
    return count


async def pass_over(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def pause(is_over: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await is_over.wait()


async def main(home: str, seed: str, *names: str) -> None:
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, is_over.set)
    chance = random.Random(seed)
    paths = [Path(home) / "agents" / f"{name}.sock" for name in names]
    sys.stdout.write("sitting\n")
    sys.stdout.flush()
    counts = await asyncio.gather(*(draft(path, random.Random(chance.random()), is_over) for path in paths))
    sys.stdout.write(f"drafts {sum(counts)}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
