"""Waiting for the end of an agent that its holder was asked for. Decides nothing about who may ask.

A holder whose lane breaks while its program ends makes a new connection to say how that went. Whoever waits
for the end waits for that too: what counts is the end, not the connection.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Final

from palaver.doors.argv.call import Call
from palaver.errors import Unavailable, error_from_wire
from palaver.model.agent import Agent
from palaver.model.envelope import Event

BACK_S: Final = 10.0
"""So long a holder that was lost may take to come back, or its agent to be found gone."""
_WRITTEN_S: Final = 2.0
"""So long the word of an end may take into the log, once the program has ended."""


async def end_of(call: Call, agent: Agent, verb: str) -> str:
    """Ask the holder and pass on what it says on the way; give how the program ended.

    Raises Unavailable when the holder is lost, and neither it nor word of the agent's end comes after.
    """
    with _watching(call, agent.name) as changed:
        while True:
            try:
                reason = await _asked(call, agent, verb)
                await _until_left(call, agent, changed)
                return reason
            except Unavailable as lost:
                last_word = await _after(call, agent, changed, lost)
            if last_word is not None:
                return last_word


async def wait_for_holder(call: Call, name: str) -> None:
    """Wait until the holder of an agent is connected, for at most BACK_S; return at once if it has none.

    After a start of the daemon every holder reconnects by itself. A command may come before it does.
    """
    with _watching(call, name) as changed, suppress(TimeoutError):
        async with asyncio.timeout(BACK_S):
            while True:
                changed.clear()
                known = call.services.broker.directory.get(name)
                if known is None or known.left or not known.holder:
                    return
                if call.services.holds.get(name) is not None:
                    return
                await changed.wait()


async def _asked(call: Call, agent: Agent, verb: str) -> str:
    async with aclosing(call.services.holds.ask(agent.name, verb, by=call.caller.name)) as words:
        with call.connection.waiting():
            async for told in words:
                if told.error:
                    raise error_from_wire(told.error, told.message, {})
                if told.done:
                    return str(told.ok.get("reason", "ended"))
                call.warn(f"{agent.name}: {told.message}")
    raise AssertionError("the last word is done, or an error")


async def _until_left(call: Call, agent: Agent, changed: asyncio.Event) -> None:
    """Wait, for a little, until the end is written too: who looks now should find that it has left."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_WRITTEN_S):
            while True:
                changed.clear()
                known = call.services.broker.directory.get(agent.name)
                if known is None or known.left:
                    return
                await changed.wait()


async def _after(call: Call, agent: Agent, changed: asyncio.Event, lost: Unavailable) -> str | None:
    """Wait until the agent has left, and give its last word; None when its holder is back to be asked."""
    try:
        async with asyncio.timeout(BACK_S):
            while True:
                changed.clear()
                known = call.services.broker.directory.get(agent.name)
                if known is None or known.left:
                    return known.detail if known is not None else "ended"
                if call.services.holds.get(agent.name) is not None:
                    return None
                await changed.wait()
    except TimeoutError:
        raise lost from None


@contextmanager
def _watching(call: Call, name: str) -> Iterator[asyncio.Event]:
    """Give an event that is set whenever an agent may have left, or may have a holder again."""
    changed = asyncio.Event()

    def hear(events: Sequence[Event]) -> None:
        if any(event.sender == name for event in events):
            changed.set()

    unsubscribe = call.services.log.subscribe(hear)
    unwatch = call.services.holds.watch(changed.set)
    try:
        yield changed
    finally:
        unwatch()
        unsubscribe()
