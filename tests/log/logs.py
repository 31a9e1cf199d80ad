"""Parts of the contract suite: a fold, drafts, and logs in their own directories."""

import asyncio
import resource
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import TypeAlias

from palaver.ids import ulid
from palaver.log.api import Decide, Log
from palaver.log.writer import CommitPace
from palaver.protocol.envelope import Draft, Event
from palaver.state.rows import Change, Rows

Engine: TypeAlias = Callable[[Path], Awaitable[Log]]

TS = 1_700_000_000_000

_numbers = count(1)


def fold(rows: Rows, event: Event) -> Sequence[Change]:
    """A small fold: mail per recipient, a counter, owned sticks, and a purge that scans."""
    changes: list[Change] = [("count", event.type, b"%d" % (int(rows.get("count", event.type) or b"0") + 1))]
    if event.type == "message":
        changes += [("mail", f"{name}/{event.seq:012d}", event.id.encode()) for name in event.to]
    elif event.type == "claim":
        changes.append(("stick", str(event.payload["room"]), event.sender.encode()))
    elif event.type == "release":
        changes.append(("stick", str(event.payload["room"]), None))
    elif event.type == "purge":
        changes += [("mail", key, None) for key, _ in rows.scan("mail", f"{event.sender}/")]
    elif event.type == "broken fold":
        raise ZeroDivisionError
    return changes


def draft(
    text: str = "hello",
    *,
    type: str = "message",
    sender: str = "luna",
    to: tuple[str, ...] = ("nova",),
    id: str | None = None,
    sent_ts: int | None = None,
    **payload: object,
) -> Draft:
    number = next(_numbers)
    return Draft(
        type=type,
        sender=sender,
        to=to,
        id=id or ulid(TS + number, number),
        ts=TS + number,
        payload={"text": text, **payload},
        sent_ts=sent_ts,
    )


class AtOnce(CommitPace):
    """Make every commit on the event loop, as if no other commit waits."""

    def came(self, now_s: float) -> bool:
        return True


def writes(made: Draft | None) -> Decide:
    return lambda rows: made


async def put(log: Log, text: str = "hello", **fields: object) -> Event:
    """Commit one message and return its event."""
    commit = await log.commit(None, writes(draft(text, **fields)))  # type: ignore[arg-type]  # fields of a draft
    assert commit.event is not None
    return commit.event


@asynccontextmanager
async def opened(engine: Engine) -> AsyncIterator[Log]:
    """Open a log in its own directory, for tests that need a fresh one per example."""
    with tempfile.TemporaryDirectory() as directory:
        log = await engine(Path(directory))
        try:
            yield log
        finally:
            await log.close()


@contextmanager
def files_no_larger_than(limit_bytes: int) -> Iterator[None]:
    """Simulate a full disk: within the block, no file of this process grows past the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def all_rows(log: Log) -> dict[str, list[tuple[str, bytes]]]:
    return {table: log.rows.scan(table, "", limit=100_000) for table in ("count", "mail", "stick")}


async def begun() -> None:
    """Wait until every task created before this call has started."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
