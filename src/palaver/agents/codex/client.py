"""A client of a Codex app-server, in addition to the user's own terminal UI: sends requests, receives news.

The server also sends requests to its clients, mostly for permissions. Only the user may answer those: this
client receives them and passes the user's decision on. It never answers by itself.
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
    """The app-server refused a request. This error is handled inside the lane."""

    def __init__(self, refusal: wire.Refusal) -> None:
        super().__init__(refusal.message)
        self.message = refusal.message
        self.is_unknown = refusal.code == _NO_METHOD
        """Whether the app-server does not know the method: a different version of Codex."""

    def __str__(self) -> str:
        return self.message or "the app-server refused without a word"


class CodexClient:
    """One connection. `on_news` receives everything except results; `on_lost` is called once, at the end."""

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
        """Connect and initialize; raises Disconnected, or Refused if the server rejects this client."""
        self._socket = await open_websocket(self._path, self._hear, self._lose)
        await self.ask(*wire.initialize(__version__))
        self._socket.send(wire.to_json(wire.INITIALIZED))

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()

    async def ask(self, method: str, params: dict[str, object]) -> msgspec.Raw:
        """Send a request and return its result; raises Refused, or Disconnected if the outcome is unknown."""
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
        """Send the user's decision on a request of the server; raises Disconnected.

        The server reports separately when it has accepted the decision.
        """
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
