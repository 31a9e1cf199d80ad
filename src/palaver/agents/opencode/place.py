"""The address and password of an OpenCode server, stored in its own directory.

The directory is in the Palaver home and readable only by its owner. It is removed with the agent. Directories
of servers that no longer run are removed when a new one is made.
"""

import os
import secrets
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palaver.harness.instructions import instructions
from palaver.harness.opencode_launch import Began
from palaver.model.native_place import HOLDER_FILE, NATIVE_FOLDER, Holder, format_holder, parse_holder

_PREFIX: Final = "opencode-"
_FILE: Final = "server.json"
_TOLD: Final = "instructions.md"
_STALE_S: Final = 300.0
_BUSY_S: Final = 1.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The address and password of a server, chosen before it starts, and how its session began."""

    port: int
    user: str
    password: str
    began: Began


def new_place(home: str) -> Path:
    """Create a directory for a server and return the path of its file. Raises OSError."""
    above = Path(home) / NATIVE_FOLDER
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tidy(above)
    folder = above / f"{_PREFIX}{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    return folder / _FILE


def write_place(path: Path, place: Place) -> None:
    """Store the address of a server. Raises OSError."""
    _write(path, msgspec.json.encode(place))


def read_place(path: Path) -> Place | None:
    """Return a stored address; None if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Place)
    except (OSError, msgspec.DecodeError):
        return None


def told_path(path: Path) -> Path:
    """Return the path of the agent's instructions about the bus."""
    return path.with_name(_TOLD)


def write_told(path: Path, name: str) -> None:
    """Write the agent's instructions with its name. Raises OSError."""
    _write(told_path(path), instructions(name).encode() + b"\n")


def write_holder(path: Path) -> None:
    """Record that this process removes the directory; if it is killed, the daemon does. Raises OSError."""
    said = format_holder(Holder(pid=os.getpid(), start=_stat(os.getpid())[1]))
    _write(path.with_name(HOLDER_FILE), said.encode("ascii"))


def is_held(home: str, pid: int) -> bool:
    """Return whether a holder with a stored server started this process; False if the system has no /proc."""
    above = _stat(pid)[0]
    holder = Holder(pid=above, start=_stat(above)[1])
    return above > 0 and any(
        _read_holder(folder) == holder for folder in Path(home, NATIVE_FOLDER).glob(f"{_PREFIX}*")
    )


def _read_holder(folder: Path) -> Holder | None:
    try:
        return parse_holder((folder / HOLDER_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _stat(pid: int) -> tuple[int, int]:
    """Return a process's parent pid and its start time in ticks since boot; 0 if the system has no /proc."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return int(words[1]), int(words[19])
    except (OSError, ValueError, IndexError):
        return 0, 0


def _write(path: Path, content: bytes) -> None:
    beside = path.with_suffix(".new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - a mode
        file.write(content)
    beside.replace(path)


def _tidy(above: Path) -> None:
    """Remove old directories of servers that no longer run."""
    for folder in above.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            place = read_place(folder / _FILE)
            is_old = time.time() - folder.stat().st_mtime > _STALE_S
            if is_old and (place is None or not _listens(place.port)):
                shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        asking.settimeout(_BUSY_S)
        return asking.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a local port that is free now."""
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])
