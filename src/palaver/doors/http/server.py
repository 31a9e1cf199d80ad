"""The HTTP door: listens at the configured address in the daemon's loop, and reports when it cannot.

Its libraries are imported only when it is opened. If the port is in use, `trouble` says so and the daemon
continues without this door.
"""

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Final

from palaver.config import Settings
from palaver.doors.address import Address, allowed_names, check_reach, format_address, parse_address
from palaver.doors.mcp.pump import quietly
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from palaver.doors.http.listening import Listening
    from palaver.services.services import Services

_BACKLOG: Final = 128

_logger: Final = logging.getLogger("palaver.doors")


class HttpDoor:
    """The HTTP door, open or closed. Use it only on the event loop's thread."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._listening: Listening | None = None
        self._address: Address | None = None
        self.where = ""
        """The URL it listens at; empty if it is closed."""
        self.trouble = ""
        """Why it cannot listen as configured, as a sentence; empty if there is no problem."""
        self.changed: dict[str, str | int] = {}
        """Settings changed since the daemon started; they replace those of the start."""

    def describe(self) -> dict[str, str]:
        """Return its entry in the list of doors; empty if it is closed and should be.

        A door that could not move to another address has a second entry that says so.
        """
        shown = self.where or self.trouble
        moved = {"http_problem": self.trouble} if self.where and self.trouble else {}
        return ({"http": shown} if shown else {}) | moved

    async def open(self, services: "Services", settings: Settings) -> None:
        """Listen at the configured address instead of the current one; close the door if none is set.

        A failure is in `trouble` and in the daemon's log. The door then keeps its current address, unless it
        had to give it up to try the new one.
        """
        async with self._lock:
            if not settings.http:
                await self._shut()
                return
            try:
                await self._listen(services, settings)
            except (PalaverError, OSError) as error:
                reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
                reason = reason.partition(" (while ")[0]  # Python repeats the address
                still = f"; it listens at {self.where} as before" if self.where else ""
                self.trouble = f"the HTTP door cannot listen at {settings.http}: {reason}{still}"
                _logger.error("%s", self.trouble)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        async with self._lock:
            await self._shut()

    async def _listen(self, services: "Services", settings: Settings) -> None:
        wanted = parse_address(settings.http)
        check_reach(wanted, is_remote=bool(settings.http_remote))
        try:
            listening_class, listener = await asyncio.to_thread(_prepare, wanted)
        except OSError as error:
            is_own = self._address is not None and wanted.port == self._address.port
            if not is_own or error.errno != errno.EADDRINUSE:
                raise
            await self._shut()  # its own listener may be in the way
            listening_class, listener = await asyncio.to_thread(_prepare, wanted)
        await self._shut()
        address = Address(wanted.host, listener.getsockname()[1])
        names = allowed_names(address, settings.http_hosts)
        self._listening = listening_class(services, names, listener, self._tasks)
        self._address = address
        await self._listening.start()
        self.where = f"http://{format_address(address)}"
        _logger.info("listening at %s", self.where)

    async def _shut(self) -> None:
        self.where = self.trouble = ""
        self._address = None
        if self._listening is not None:
            listening, self._listening = self._listening, None
            await listening.stop()


def _prepare(address: Address) -> "tuple[type[Listening], socket.socket]":
    """Import the server and bind the socket. Runs in a thread, because resolving a name may take a while."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    # Its connections inherit this. Otherwise the body of a response waits 40 ms for the receipt of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return quietly(_import_listening), listener


def _import_listening() -> "type[Listening]":
    from palaver.doors.http.listening import Listening

    return Listening
