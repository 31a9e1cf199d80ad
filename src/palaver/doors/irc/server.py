"""The IRC door: listens at the configured address in the daemon's loop, and reports when it cannot."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from palaver.config import Settings
from palaver.doors.address import IRC, Address, check_reach, format_address, parse_address
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from palaver.services.services import Services

_logger: Final = logging.getLogger("palaver.doors")


class IrcDoor:
    """The IRC door, open or closed. Use it only on the event loop's thread."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self.where = ""
        self.trouble = ""
        self.changed: dict[str, str | int] = {}

    def describe(self) -> dict[str, str]:
        """Return its entry in the list of doors; empty if it is closed and should be."""
        shown = self.where or self.trouble
        moved = {"irc_problem": self.trouble} if self.where and self.trouble else {}
        return ({"irc": shown} if shown else {}) | moved

    async def open(self, services: "Services", settings: Settings) -> None:
        """Listen at the configured address instead of the current one; close the door if none is set."""
        async with self._lock:
            if not settings.irc:
                await self._shut()
                return
            try:
                wanted = parse_address(settings.irc, IRC)
                has_tls = bool(settings.irc_tls_cert and settings.irc_tls_key)
                check_reach(wanted, IRC, is_remote=bool(settings.irc_remote), has_tls=has_tls)
                server = await asyncio.start_server(self._serve, wanted.host, wanted.port)
            except (PalaverError, OSError) as error:
                reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
                still = f"; it listens at {self.where} as before" if self.where else ""
                self.trouble = f"the IRC door cannot listen at {settings.irc}: {reason}{still}"
                _logger.error("%s", self.trouble)
                return
            await self._shut()
            self._server = server
            self.where = f"irc://{format_address(Address(wanted.host, server.sockets[0].getsockname()[1]))}"
            _logger.info("listening at %s", self.where)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        async with self._lock:
            await self._shut()

    async def _shut(self) -> None:
        self.where = self.trouble = ""
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
