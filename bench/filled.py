"""Fill a home with agents and events. The daemon is stopped meanwhile: through it that would take an hour."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.home import body
from bench.palaver_home import PalaverHome

from palaver.clock import SystemClock
from palaver.ids import UlidSource, ulid_ms
from palaver.log.api import Decide
from palaver.log.sqlite import SqliteLog
from palaver.protocol.envelope import Draft
from palaver.state.fold import apply

_AT_ONCE = 2000
_SEEN_EVERY = 4
"""Of this many messages all but one are seen; the last one waits."""


def fill_home(home: PalaverHome, *, agents: int, events: int) -> None:
    """Let agents join, and add messages between neighbours until the log has `events` events."""
    home.command("down").run()
    asyncio.run(_fill(home.home, agents, events))
    home.command("up").run()


def agent_name(number: int) -> str:
    """Return the name of an agent that `fill_home` adds, from 0 on."""
    return f"agent{number:05}"


async def _fill(folder: Path, agents: int, events: int) -> None:
    log = await SqliteLog.open(folder, apply=apply, clock=SystemClock())
    try:
        ids = UlidSource(SystemClock(), secrets.token_bytes)
        ids.start_above(log.largest_id())
        hellos = (_hello(ids, number) for number in range(agents))
        await _commit(log, hellos, agents)
        talk = _talk(ids, agents, log.last)
        await _commit(log, talk, events - log.last())
    finally:
        await log.close()


async def _commit(log: SqliteLog, drafts: Iterator[Draft], count: int) -> None:
    while count > 0:
        batch = [next(drafts) for _ in range(min(count, _AT_ONCE))]
        count -= len(batch)
        await log.commit_all([(None, _always(draft)) for draft in batch])


def _talk(ids: UlidSource, agents: int, last: Callable[[], int]) -> Iterator[Draft]:
    """Yield messages of each agent to the next one, most of them followed by the report that it was seen."""
    begin, number, made = last(), 0, 0
    while True:
        sender, to = agent_name(number % agents), agent_name((number + 1) % agents)
        made += 1
        yield _message(ids, sender, to, number)
        if number % _SEEN_EVERY:
            yield _seen(ids, to, begin + made)
            made += 1
        number += 1


def _hello(ids: UlidSource, number: int) -> Draft:
    made, name = ids.next(), agent_name(number)
    agent = {
        "name": name,
        "base": name,
        "harness": "claude",
        "runtime": "claude",
        "by": "script",
        "cwd": f"/src/project{number % 100}",
    }
    payload: dict[str, object] = {"runtime": "claude", "version": "1", "agent": agent}
    return Draft(type="agent.hello", id=made, sender=name, ts=ulid_ms(made), payload=payload)


def _message(ids: UlidSource, sender: str, to: str, number: int) -> Draft:
    made = ids.next()
    payload: dict[str, object] = {
        "text": body(number),
        "scope": "mentions",
        "mentions": [to],
        "sender_kind": "instance",
        "delivered_to": [to],
    }
    return Draft(type="message", id=made, sender=sender, to=(f"@{to}",), ts=ulid_ms(made), payload=payload)


def _seen(ids: UlidSource, name: str, seq: int) -> Draft:
    made = ids.next()
    payload: dict[str, object] = {
        "agent": name,
        "messages": [seq],
        "state": "seen",
        "lane": "recv",
        "grade": "flushed",
    }
    return Draft(type="delivery", id=made, sender=name, ts=ulid_ms(made), payload=payload)


def _always(draft: Draft) -> Decide:
    return lambda rows: draft
