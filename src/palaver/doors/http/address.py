"""Where the HTTP door listens, and which names a caller may use for it. Pure.

Names are checked because a web page can make a browser call this machine under a name of its own.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from palaver.errors import BadRequest

DEFAULT: Final = "127.0.0.1:7420"
DEFAULT_PORT: Final = 7420

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_WRITTEN: Final = re.compile(
    r"(?:(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):)?([0-9]{1,5})|(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port. An IPv6 host stands without its brackets."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True when only this machine can come in."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(written: str) -> Address:
    """Read `HOST:PORT`, `HOST` or `PORT`; raises BadRequest."""
    found = _WRITTEN.fullmatch(written.strip())
    if found is None or int(found[2] or 0) > 65_535:
        raise BadRequest(f"{written[:100]!r} is no address: write HOST:PORT, such as {DEFAULT}")
    host = (found[1] or found[3] or "127.0.0.1").strip("[]").lower()
    return Address(host, int(found[2]) if found[2] else DEFAULT_PORT)


def format_address(address: Address) -> str:
    """Write an address as it is read."""
    return f"{_bracketed(address.host)}:{address.port}"


def check_reach(address: Address, *, is_remote: bool) -> None:
    """Refuse an address that other machines can reach, unless that was asked for."""
    if not address.is_loopback and not is_remote:
        raise BadRequest(
            f"{address.host} can be reached by other machines, and what goes there is not encrypted: "
            "if you want that, say so with --http-remote"
        )


def allowed_names(address: Address, more: str) -> frozenset[str]:
    """Give the names under which a caller may come: this machine's, the address itself, and those set."""
    own = {_bracketed(address.host)} if not _is_any(address.host) else set()
    added = (name.strip().lower() for name in more.split(","))
    return _LOOPBACK_NAMES | own | {name for name in added if name}


def is_allowed_host(header: str, names: Iterable[str]) -> bool:
    """Tell whether a Host header names this door; its port does not matter."""
    return _name_of(f"//{header}") in names


def is_allowed_origin(header: str, host: str, names: Iterable[str]) -> bool:
    """Tell whether a page that calls comes from this door itself: from where it calls, port and all."""
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
