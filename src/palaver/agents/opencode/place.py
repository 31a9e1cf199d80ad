"""Where an OpenCode's server is and what lets us in, kept in a folder of its own.

The folder is in the home of the bus and for its owner alone. It goes with the agent; one whose server is gone
is taken away when the next is made.
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
    """What is known of a server before it listens."""

    port: int
    user: str
    password: str
    began: Began


def new_place(home: str) -> Path:
    """Choose a file for a place, in a folder that is made with it. Raises OSError."""
    above = Path(home) / NATIVE_FOLDER
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tidy(above)
    folder = above / f"{_PREFIX}{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    return folder / _FILE


def write_place(path: Path, place: Place) -> None:
    """Keep a place. Raises OSError."""
    _write(path, msgspec.json.encode(place))


def read_place(path: Path) -> Place | None:
    """Give a place that was kept; None when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Place)
    except (OSError, msgspec.DecodeError):
        return None


def told_path(path: Path) -> Path:
    """Where the agent of a place is told about the bus."""
    return path.with_name(_TOLD)


def write_told(path: Path, name: str) -> None:
    """Tell the agent of a place its name. Raises OSError."""
    _write(told_path(path), instructions(name).encode() + b"\n")


def write_holder(path: Path) -> None:
    """Say that this process takes the place away; where it is killed, the daemon does. Raises OSError."""
    said = format_holder(Holder(pid=os.getpid(), start=_stat(os.getpid())[1]))
    _write(path.with_name(HOLDER_FILE), said.encode("ascii"))


def is_held(home: str, pid: int) -> bool:
    """Whether the holder of a place in this home has started a process; no, where the system does not say."""
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
    """Give the parent of a process and the ticks from boot to its start; 0 where the system does not say."""
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
    """Take away the folders of servers that nobody holds any more."""
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
    """Give a port of this machine that nobody has now."""
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])
