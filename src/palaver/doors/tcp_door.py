"""A door that listens at a configured address: it opens, moves and closes while the daemon runs.

If the address cannot be used, `trouble` says why and the daemon continues.
"""

import asyncio
import errno
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from palaver.config import Settings
from palaver.doors.address import Address, DoorKind, format_address, parse_address
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from palaver.services.services import Services

_BACKLOG: Final = 128

_logger: Final = logging.getLogger("palaver.doors")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server on one socket."""

    scheme: str
    """The beginning of its URL."""
    stop: Callable[[], Awaitable[None]]


StartServer = Callable[["Services", socket.socket, Address], Awaitable[RunningServer]]
"""Starts a server on a bound socket, and returns once clients can connect."""


class TcpDoor(ABC):
    """A door, open or closed. Use it only on the event loop's thread."""

    def __init__(self, kind: DoorKind) -> None:
        self._kind = kind
        self._lock = asyncio.Lock()
        self._server: RunningServer | None = None
        self._address: Address | None = None
        self.where = ""
        """The URL it listens at; empty if it is closed."""
        self.trouble = ""
        """Why it cannot listen as configured, as a sentence; empty if there is no problem."""
        self.changed: dict[str, str | int] = {}
        """Settings changed since the daemon started; they replace those of the start."""

    @abstractmethod
    async def _prepare(self, wanted: Address, settings: Settings) -> StartServer:
        """Check the settings, and load everything that a start needs. Raises PalaverError or OSError."""

    def describe(self) -> dict[str, str]:
        """Return its entry in the list of doors; empty if it is closed and should be.

        A door that could not move to another address has a second entry that says so.
        """
        shown = self.where or self.trouble
        moved = {f"{self._kind.key}_problem": self.trouble} if self.where and self.trouble else {}
        return ({self._kind.key: shown} if shown else {}) | moved

    async def open(self, services: "Services", settings: Settings) -> None:
        """Listen at the configured address instead of the current one; close the door if none is set.

        A failure is in `trouble` and in the daemon's log. The door then keeps its current address, unless it
        had to give it up to try the new one.
        """
        written = str(getattr(settings, self._kind.key))
        async with self._lock:
            if not written:
                await self._shut()
                return
            try:
                await self._listen(services, settings, parse_address(written, self._kind))
            except (PalaverError, OSError) as error:
                reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
                reason = reason.partition(" (while ")[0]  # Python repeats the address
                still = f"; it listens at {self.where} as before" if self.where else ""
                self.trouble = f"the {self._kind.title} door cannot listen at {written}: {reason}{still}"
                _logger.error("%s", self.trouble)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        async with self._lock:
            await self._shut()

    async def _listen(self, services: "Services", settings: Settings, wanted: Address) -> None:
        start = await self._prepare(wanted, settings)
        try:
            listener = await asyncio.to_thread(_bind, wanted)
        except OSError as error:
            is_own = self._address is not None and wanted.port == self._address.port
            if not is_own or error.errno != errno.EADDRINUSE:
                raise
            await self._shut()  # its own listener may be in the way
            listener = await asyncio.to_thread(_bind, wanted)
        await self._shut()
        address = Address(wanted.host, listener.getsockname()[1])
        self._server = await start(services, listener, address)
        self._address = address
        self.where = f"{self._server.scheme}://{format_address(address)}"
        _logger.info("listening at %s", self.where)

    async def _shut(self) -> None:
        self.where = self.trouble = ""
        self._address = None
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()


def _bind(address: Address) -> socket.socket:
    """Bind a socket. Runs in a thread, because resolving a name may take a while."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    # Its connections inherit this. Otherwise the body of a response waits 40 ms for the receipt of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
