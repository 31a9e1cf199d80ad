"""Ask a holder to end its agent, and wait for the end. Does not check the caller's rights.

A holder whose connection breaks while its program ends connects again to report the end. The caller waits for
that too: the end counts, not the connection.
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
"""Seconds that a lost holder may take to reconnect, or that the end of its agent may take to be noticed."""
_WRITTEN_S: Final = 2.0
"""Seconds that the end of an agent may take to be stored, after its program has ended."""


async def end_of(call: Call, agent: Agent, verb: str) -> str:
    """Ask the holder to end the agent, print its progress, and return how the program ended.

    Raises Unavailable if the holder is lost, and it neither reconnects nor is the agent's end stored in time.
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
    """Wait until the holder of an agent is connected, for at most BACK_S; return at once without a holder.

    After a start of the daemon every holder reconnects by itself, and a command may come before that.
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
    """Wait a short time until the end is stored, so that the next command sees that the agent has left."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_WRITTEN_S):
            while True:
                changed.clear()
                known = call.services.broker.directory.get(agent.name)
                if known is None or known.left:
                    return
                await changed.wait()


async def _after(call: Call, agent: Agent, changed: asyncio.Event, lost: Unavailable) -> str | None:
    """Wait until the agent has left, and return its last detail; None if its holder has reconnected."""
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
    """Yield an event that is set whenever an agent may have left, or may have a holder again."""
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
