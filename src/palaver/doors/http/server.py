"""The HTTP door: listens at the configured address in the daemon's loop, and reports when it cannot.

Its libraries are imported only when it is opened. If the port is in use, `trouble` says so and the daemon
continues without this door.
"""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from palaver.config import Settings
from palaver.doors.mcp.loading import quietly
from palaver.errors import BadRequest, PalaverError

if TYPE_CHECKING:
    from palaver.doors.http.listening import Listening
    from palaver.services.services import Services

# --------------------
# The address of the HTTP door, and the host names that a request may use for it. Pure.
#
# Names are checked because a web page can make a browser call this machine under a name that the page
# controls.

DEFAULT: Final = "127.0.0.1:7420"
DEFAULT_PORT: Final = 7420

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_WRITTEN: Final = re.compile(
    r"(?:(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):)?([0-9]{1,5})|(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port. An IPv6 host is stored without brackets."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(written: str) -> Address:
    """Parse `HOST:PORT`, `HOST` or `PORT`. Raise BadRequest."""
    found = _WRITTEN.fullmatch(written.strip())
    if found is None or int(found[2] or 0) > 65_535:
        raise BadRequest(f"{written[:100]!r} is not an address: write HOST:PORT, such as {DEFAULT}")
    host = (found[1] or found[3] or "127.0.0.1").strip("[]").lower()
    return Address(host, int(found[2]) if found[2] else DEFAULT_PORT)


def format_address(address: Address) -> str:
    """Format an address so that `parse_address` reads it back."""
    return f"{_bracketed(address.host)}:{address.port}"


def check_reach(address: Address, *, is_remote: bool) -> None:
    """Raise BadRequest for an address that other machines can reach, unless the setting allows that."""
    if not address.is_loopback and not is_remote:
        raise BadRequest(
            f"{address.host} can be reached by other machines, and the connection is not encrypted: "
            "if you want that, say so with --http-remote"
        )


def allowed_names(address: Address, more: str) -> frozenset[str]:
    """Return the names that a request may use: those of this machine, the address, and configured ones."""
    own = {_bracketed(address.host)} if not _is_any(address.host) else set()
    added = (name.strip().lower() for name in more.split(","))
    return _LOOPBACK_NAMES | own | {name for name in added if name}


def is_allowed_host(header: str, names: Iterable[str]) -> bool:
    """Return whether a Host header names this door. The port is not compared."""
    return _name_of(f"//{header}") in names


def is_allowed_origin(header: str, host: str, names: Iterable[str]) -> bool:
    """Return whether an Origin header names this door: the same host and port as the Host header."""
    scheme, _, place = header.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower() and _name_of(header) in names


def _name_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return ""
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


# --------------------
# The door: it opens and closes the listener.

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
        """Return its entry in the list of doors; empty if it is closed and should be."""
        shown = self.where or self.trouble
        return {"http": shown} if shown else {}

    async def open(self, services: "Services", settings: Settings) -> None:
        """Listen at the configured address instead of the current one; close the door if none is set.

        A failure is in `trouble` and in the daemon's log. The door then keeps its current address, unless the
        new address has the same port.
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
        """Stop listening and close all connections."""
        async with self._lock:
            await self._shut()

    async def _listen(self, services: "Services", settings: Settings) -> None:
        wanted = parse_address(settings.http)
        check_reach(wanted, is_remote=bool(settings.http_remote))
        if self._address is not None and wanted.port == self._address.port:  # its own listener is in the way
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
    """Import the server and bind the socket. Runs in a thread, because resolving a name may take a while."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return quietly(_import_listening), listener


def _import_listening() -> "type[Listening]":
    from palaver.doors.http.listening import Listening

    return Listening
