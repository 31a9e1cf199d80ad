"""A second client of a Codex app-server, beside the person's own screen: it asks, and it hears.

The server asks its clients too, for permissions above all. Those are a person's to answer: here they are
heard, and what a person has said is passed on. Nothing is answered by itself.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from palaver import __version__
from palaver.agents.codex import wire
from palaver.agents.net.websocket import WebSocket, open_websocket
from palaver.errors import BadRequest, Disconnected

_NO_METHOD: Final = -32601

_logger: Final = logging.getLogger("palaver.holder")


class Refused(Exception):
    """The app-server did not do what it was asked, and said why. It never leaves the lane."""

    def __init__(self, refusal: wire.Refusal) -> None:
        super().__init__(refusal.message)
        self.message = refusal.message
        self.is_unknown = refusal.code == _NO_METHOD
        """It does not know the question: another version."""

    def __str__(self) -> str:
        return self.message or "the app-server refused without a word"


class CodexClient:
    """One connection. `on_news` hears what nobody asked for; `on_lost` the end, once."""

    def __init__(
        self, path: Path, on_news: Callable[[wire.Said], None], on_lost: Callable[[Disconnected], None]
    ) -> None:
        self._path = path
        self._on_news = on_news
        self._on_lost = on_lost
        self._numbers = count(1)
        self._calls: dict[int | str | None, asyncio.Future[msgspec.Raw]] = {}
        self._socket: WebSocket | None = None

    async def open(self) -> None:
        """Connect and say who we are; raises Disconnected, or Refused when we are not wanted."""
        self._socket = await open_websocket(self._path, self._hear, self._lose)
        await self.ask(*wire.initialize(__version__))
        self._socket.send(wire.to_json(wire.INITIALIZED))

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()

    async def ask(self, method: str, params: dict[str, object]) -> msgspec.Raw:
        """Ask, and give the answer; raises Refused, or Disconnected when nobody knows if it was heard."""
        if self._socket is None:
            raise Disconnected("the app-server is gone")
        number = next(self._numbers)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self._socket.send(wire.to_json(wire.Call(id=number, method=method, params=params)))
            return await answer
        finally:
            del self._calls[number]

    def answer(self, question: int | str, result: dict[str, object]) -> None:
        """Pass on a person's word on what the server asks; raises Disconnected. It says when it is taken."""
        if self._socket is None:
            raise Disconnected("the app-server is gone")
        self._socket.send(wire.to_json(wire.Reply(id=question, result=result)))

    def _hear(self, data: bytes) -> None:
        try:
            said = wire.said_from_json(data)
        except BadRequest as error:
            _logger.warning("%s", error)
            return
        if said.method:
            self._on_news(said)
        elif (answer := self._calls.get(said.id)) is not None and not answer.done():
            if said.error is not None:
                answer.set_exception(Refused(said.error))
            else:
                answer.set_result(said.result)

    def _lose(self, error: Disconnected) -> None:
        self._socket = None
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)
        self._on_lost(error)
