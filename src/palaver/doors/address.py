"""The addresses of the HTTP and IRC doors, and the host names that a request over HTTP may use. Pure.

Names are checked because a web page can make a browser call this machine under a name that the page
controls.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from palaver.errors import BadRequest


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
    return scheme in ("http", "https") and endpoint.lower() == host.lower() and _name_of(header) in names


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
