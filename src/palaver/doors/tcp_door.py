"""The common parts of the TCP doors: addresses and host names, and how a door opens, moves and closes."""

import asyncio
import errno
import ipaddress
import logging
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from palaver.config import Settings
from palaver.errors import BadRequest, PalaverError

# --------------------
# The addresses of the HTTP and IRC doors, and the host names that a request over HTTP may use. Pure.
#
# Names are checked because a web page can make a browser call this machine under a name that the page
# controls.


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorKind:
    """A door that listens at an address."""

    key: str
    """The setting with its address, and the option of `pal up`. With `_remote`: those for other machines."""
    title: str
    default: str
    """The address of `pal up` without one."""


HTTP: Final = DoorKind(key="http", title="HTTP", default="127.0.0.1:7420")
IRC: Final = DoorKind(key="irc", title="IRC", default="127.0.0.1:6667")

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


def parse_address(written: str, kind: DoorKind = HTTP) -> Address:
    """Parse `HOST:PORT`, `HOST` or `PORT`. Raise BadRequest."""
    found = _WRITTEN.fullmatch(written.strip())
    if found is None or int(found[2] or 0) > 65_535:
        raise BadRequest(f"{written[:100]!r} is not an address: write HOST:PORT, such as {kind.default}")
    host = (found[1] or found[3] or "127.0.0.1").strip("[]").lower()
    return Address(host, int(found[2] or kind.default.rpartition(":")[2]))


def format_address(address: Address) -> str:
    """Format an address so that `parse_address` reads it back."""
    return f"{_bracketed(address.host)}:{address.port}"


def check_reach(address: Address, kind: DoorKind = HTTP, *, is_remote: bool, has_tls: bool = False) -> None:
    """Raise BadRequest for an address that other machines can reach, unless the settings allow that.

    `has_tls` is whether a certificate and its key are configured. The IRC door needs them for other machines.
    """
    if address.is_loopback:
        return
    if not is_remote:
        why = ", and the connection is not encrypted" if kind is HTTP else ""
        raise BadRequest(
            f"{address.host} can be reached by other machines{why}: to allow this, add --{kind.key}-remote"
        )
    if kind is IRC and not has_tls:
        raise BadRequest(
            f"{address.host} can be reached by other machines, and IRC accepts them only with TLS: first set "
            "both files, with 'pal config set irc_tls_cert FILE' and 'pal config set irc_tls_key FILE'"
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
    scheme, _, endpoint = header.partition("://")
    # With the port, because another program on this machine can serve a page too.
    return scheme in ("http", "https") and endpoint.lower() == host.lower() and _name_of(header) in names


def _name_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port  # `port` raises ValueError if it is not a number
    except ValueError:
        return ""
    # For `urlsplit`, `evil@localhost` has the host `localhost`. So nothing but a host and a port is accepted.
    if parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return ""
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


# --------------------
# A door that listens at a configured address: it opens, moves and closes while the daemon runs.
#
# If the address cannot be used, `trouble` says why and the daemon continues.

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
        # Before the old server stops, so that a failure leaves it open.
        start = await self._prepare(wanted, settings)
        try:
            listener = await asyncio.to_thread(_bind, wanted)
        except OSError as error:
            is_own = self._address is not None and wanted.port == self._address.port
            if not is_own or error.errno != errno.EADDRINUSE:
                raise
            # Only the host changes, such as to 0.0.0.0: the door's own listener is in the way.
            await self._shut()
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


# --------------------
# A response that a part of the HTTP door makes itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """A status and the fields of a JSON object."""

    status: int
    fields: dict[str, object]
    headers: tuple[tuple[bytes, bytes], ...] = ()
