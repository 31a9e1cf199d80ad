"""Send many events to one room while many clients follow it in different ways. Also used for benchmarks."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import palaver

LIMIT_S = 60.0
IN_FLIGHT = 128
END = "the end"


class Seen:
    """The events that one follower received: seqs in order of arrival, and the delay of each."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.late_ms: list[float] = []
        self.is_over = False

    def take(self, seq: int, made_ms: int, text: object) -> None:
        self.places.append(seq)
        self.late_ms.append(time.time() * 1000 - made_ms)
        self.is_over = text == END


async def follow_by_command(client: str, home: Path, room: str, after: int) -> Seen:
    """Follow with `pal events --follow`, in a separate process."""
    seen = Seen()
    process = await asyncio.create_subprocess_exec(
        *(client, "events", "--follow", "--room", room, "--type", "message"),
        *("--after", str(after), "--json"),
        env={"PALAVER_HOME": str(home), "PATH": "/usr/bin:/bin"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        while not seen.is_over:
            event = json.loads(await process.stdout.readuntil(b"\n"))
            seen.take(event["seq"], event["ts"], event["payload"]["text"])
    finally:
        process.terminate()
        await process.wait()
    return seen


async def follow_by_lines(me: palaver.Connection, room: str, after: int) -> Seen:
    """Follow with the SDK, on a separate connection."""
    seen = Seen()
    async with aclosing(me.follow(rooms=[room], types=["message"], after=after)) as events:
        async for event in events:
            seen.take(event.seq, event.ts, event.payload["text"])
            if seen.is_over:
                break
    return seen


async def follow_by_waiting(me: palaver.Connection, room: str, after: int) -> Seen:
    """Follow with consecutive `wait_for_events` calls, as a model makes them."""
    seen = Seen()
    while not seen.is_over:
        found: dict[str, Any] = await me.call(
            "wait_for_events",
            room_id=room,
            after_event_seq=after,
            event_type="message_sent",
            target_agent_id="any",
        )
        for event in found["events"]:
            seen.take(event["event_seq"], event["created_at"], event["payload"]["body"])
        after = found["cursor_event_seq"]
    return seen


async def send_all(
    me: palaver.Connection, room: str, count: int, pace: Callable[[int], Awaitable[None]] | None
) -> list[int]:
    """Send `count` messages to a room, several at the same time. Return their seqs in order."""
    seqs: list[int] = []
    window = asyncio.Semaphore(IN_FLIGHT)

    async def send(number: int) -> None:
        async with window:
            sent: dict[str, Any] = await me.call("send_message", room_id=room, body=f"event {number}")
            seqs.append(sent["event_seq"])

    async with asyncio.TaskGroup() as sending:
        for number in range(count):
            if pace is not None:
                await pace(number)
            sending.create_task(send(number))
    return sorted(seqs)


async def flood(
    client: str,
    home: Path,
    folder: Path,
    *,
    count: int,
    commands: int,
    lines: int,
    waits: int,
    pace: Callable[[int], Awaitable[None]] | None = None,
) -> tuple[list[int], list[Seen], float]:
    """Run the given number of followers of each kind while `count` messages are sent.

    Return the seqs of the messages, the events each follower received, and the seconds the sending took.
    """
    async with AsyncExitStack() as ends, asyncio.timeout(LIMIT_S):
        talker = await ends.enter_async_context(palaver.connect("talker", home=home))
        waiters = [
            await ends.enter_async_context(palaver.connect(f"waiter{number}", home=home))
            for number in range(waits)
        ]
        joined: dict[str, Any] = await talker.call("join_path", context_path=str(folder))
        room, after = joined["room_id"], joined["cursor_event_seq"]
        following = [
            *(follow_by_command(client, home, room, after) for _ in range(commands)),
            *(follow_by_lines(talker, room, after) for _ in range(lines)),
            *(follow_by_waiting(waiter, room, after) for waiter in waiters),
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in following]
            begin_s = time.monotonic()
            sent = await send_all(talker, room, count, pace)
            took_s = time.monotonic() - begin_s
            # Sent alone, after all others: when it arrives, everything has arrived.
            end: dict[str, Any] = await talker.call("send_message", room_id=room, body=END)
        return [*sent, end["event_seq"]], [task.result() for task in tasks], took_s
