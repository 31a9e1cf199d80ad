"""Follow an agent's page on the bus for its status line, and whether the bus can be reached.

It requests the page again only after an event about the agent's messages.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.wire import Line, Wire
from palaver.home import connect_socket
from palaver.model.lines.program_ops import EventsOp, ListOp
from palaver.model.lines.wire import Op, op_to_json

_PAUSE_S: Final = 0.5
_CALM_S: Final = 0.05
"""Seconds to wait for more events before the next request: a burst causes one request."""
_TYPES: Final = ("message", "delivery", "agent.paused", "agent.unpaused")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an agent's page."""

    queue: dict[str, int] = {}
    paused: bool = False


class _Listed(msgspec.Struct, frozen=True):
    agents: list[Page]


class _Found(msgspec.Struct, frozen=True):
    last: int


_listed: Final = msgspec.json.Decoder(_Listed).decode
_found: Final = msgspec.json.Decoder(_Found).decode

Tell = Callable[[Page | None], None]
"""Called with the current page; None if the bus does not respond."""


async def watch(home: str, name: str, tell: Tell) -> None:
    """Report changes until cancelled. It starts no bus: the agent's holder does."""
    while True:
        wire = await _open(home, watcher := _Watcher(name, tell))
        if wire is not None:
            try:
                await watcher.run(wire)
            except msgspec.DecodeError:  # another version with another format
                pass
            finally:
                wire.close()
        tell(None)
        await asyncio.sleep(_PAUSE_S)


async def _open(home: str, watcher: "_Watcher") -> Wire | None:
    try:
        plain = connect_socket(Path(home) / "daemon.sock", can_wait=False)
    except OSError:
        return None
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(lambda: Wire(watcher.hear, watcher.lose), sock=plain)
    return wire


class _Watcher:
    """One connection to the bus."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name = name
        self._tell = tell
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._has_news = asyncio.Event()
        self._is_lost = False

    async def run(self, wire: Wire) -> None:
        """Request the page after each event; return if the connection is lost or the bus cannot do it."""
        answer = await self._ask(wire, EventsOp(last=1, limit=1))
        if answer is None:
            return
        follow = EventsOp(types=_TYPES, agents=(self._name,), after=_found(answer).last, follow=True)
        await self._ask(wire, follow)
        while True:
            self._has_news.clear()
            answer = await self._ask(wire, ListOp(agent=self._name))
            if answer is None:
                return
            pages = _listed(answer).agents
            self._tell(pages[0] if len(pages) == 1 else Page())
            await self._has_news.wait()
            await asyncio.sleep(_CALM_S)

    async def _ask(self, wire: Wire, request: Op) -> msgspec.Raw | None:
        if self._is_lost:
            return None
        number = next(self._numbers)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        wire.write(op_to_json(number, request))
        try:
            return await answer
        except ConnectionError:
            return None

    def hear(self, line: Line) -> None:
        """Handle a line of the bus."""
        if line.push:
            self._has_news.set()
        elif (answer := self._calls.pop(line.req, None)) is not None and not answer.done():
            answer.set_exception(ConnectionError(line.error)) if line.error else answer.set_result(line.ok)

    def lose(self, wire: Wire) -> None:
        """Handle the end of the connection."""
        self._is_lost = True
        self._has_news.set()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the bus was lost"))
