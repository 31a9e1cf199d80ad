"""The HTTP door: listens where the settings say, in the daemon's own loop, and reports when it cannot.

Nothing of its libraries is imported until it is opened. A port that is taken is told to whoever looks, and
stops nothing.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from palaver.config import Settings
from palaver.doors.http.address import (
    Address,
    allowed_names,
    check_reach,
    format_address,
    parse_address,
)
from palaver.doors.mcp.loading import quietly
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from palaver.doors.http.listening import Listening
    from palaver.doors.services import Services

_BACKLOG: Final = 128

_logger: Final = logging.getLogger("palaver.doors")


class HttpDoor:
    """Open or shut. Belongs to the loop's thread."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._listening: Listening | None = None
        self._address: Address | None = None
        self.where = ""
        """The address it listens at, as a URL; nothing when it is shut."""
        self.trouble = ""
        """Why it is shut although it should be open: a sentence, or nothing."""
        self.changed: dict[str, str | int] = {}
        """The settings that it was given since the daemon started, in the place of those of the start."""

    def describe(self) -> dict[str, str]:
        """Give what a person sees of it among the doors; nothing when it is shut and should be."""
        shown = self.where or self.trouble
        return {"http": shown} if shown else {}

    async def open(self, services: "Services", settings: Settings) -> None:
        """Listen where settings say, in the place of where it did; shut it where they say nothing.

        What goes wrong is in `trouble`, and in the daemon's log; then it goes on listening where it did.
        """
        async with self._lock:
            if not settings.http:
                await self._shut()
                return
            try:
                await self._listen(services, settings)
            except (PalaverError, OSError) as error:
                reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
                self.trouble = f"the HTTP door cannot listen at {settings.http}: {reason}"
                _logger.error("%s", self.trouble)

    async def close(self) -> None:
        """Listen no more, and let go of everybody."""
        async with self._lock:
            await self._shut()

    async def _listen(self, services: "Services", settings: Settings) -> None:
        wanted = parse_address(settings.http)
        check_reach(wanted, is_remote=bool(settings.http_remote))
        if self._address is not None and wanted.port == self._address.port:  # it stands in its own way
            await self._shut()
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
    """Import what serves, and bind; a name may take a while to be looked up."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return quietly(_import_listening), listener


def _import_listening() -> "type[Listening]":
    from palaver.doors.http.listening import Listening

    return Listening
