"""Which harness marks a process was started with, and whether it is a harness itself. Looks only.

Nothing but the marks and the home is kept or handed on: an environment holds keys and tokens. What may not be
read counts as unmarked: its children inherited its marks and can be read, and a harness is known by its name
as well.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from palaver.harness.marks import MARKS, SEAT_MARK, SESSION_MARKS
from palaver.links.process import Process, read_process

if sys.platform == "darwin":  # pragma: no cover - macOS
    from palaver.links import process_darwin

HARNESS_WORDS: Final = frozenset(SESSION_MARKS)
_NAMES: Final = frozenset(name.encode() for name in (*MARKS, SEAT_MARK))
_HOME: Final = frozenset({b"HOME"})
_INTERPRETER: Final = re.compile(r"(node|nodejs|bun|deno|python|sh|bash)[\d.]*")
_PACKAGES: Final = {"claude-code": "claude", "gemini-cli": "gemini", "opencode-ai": "opencode"}
"""Folders out of which an interpreter runs a harness whose file is named otherwise."""
_LIMIT_ARGUMENTS: Final = 8
_LIMIT_READ_BYTES: Final = 8 * 1024 * 1024
"""More than the system lets arguments and environment have together."""
_CHUNK_BYTES: Final = 64 * 1024
HOLDER_MODULE: Final = "palaver.agents.holder"
"""What a holder of Palaver's runs, as its command line shows."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one process shows of a harness."""

    marks: Mapping[str, str]
    """The marks in the environment it was started with."""
    harness: str | None
    """The harness that it is itself, by its name."""
    is_known: bool = True
    """False when it ended before it could be looked at."""
    is_holder: bool = False
    """It is a holder of Palaver's: whatever runs below it is an agent's."""

    @property
    def can_be_harness(self) -> bool:
        """True when it carries a mark, is a harness or holder, or is gone: then nobody knows what it was."""
        return bool(self.marks) or self.harness is not None or self.is_holder or not self.is_known


_GONE: Final = Surroundings(MappingProxyType({}), None, is_known=False)


@dataclass(slots=True)
class Environments:
    """Reads surroundings and remembers them, as they change only by an exec.

    Remembers at most `limit` processes and then forgets the one it met first. Belongs to one thread.
    """

    limit: int = 4096
    _known: dict[tuple[int, int, int, str], Surroundings] = field(default_factory=dict, init=False)

    def look(self, process: Process) -> Surroundings:
        """Give the surroundings of the process as it was read, or say that it is gone.

        Not remembered when it ended, ran another program meanwhile, or could do so unnoticed.
        """
        key = process.pid, process.start, process.image, process.name
        known = self._known.get(key)
        if known is not None:
            return known
        arguments = read_arguments(process.pid)
        found = Surroundings(
            MappingProxyType(read_marks(process.pid)),
            _harness_named(process.name, arguments),
            is_holder=_is_holder(arguments),
        )
        again = read_process(process.pid)
        if again is None or again.start != process.start or again.is_zombie:
            return _GONE
        if process.image >= 0 and again.image == process.image:
            if len(self._known) >= self.limit:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found


def read_marks(pid: int) -> dict[str, str]:
    """Read the marks a process was started with. Empty is no mark; of a double entry the first counts."""
    return _read_variables(pid, _NAMES)


def read_home(pid: int) -> str:
    """Read which folder a process was told is its person's; empty when that may not be seen."""
    return _read_variables(pid, _HOME).get("HOME", "") if pid > 0 else ""


def _read_variables(pid: int, names: Set[bytes]) -> dict[str, str]:
    if sys.platform == "darwin":  # pragma: no cover - macOS
        known = {name.decode() for name in names}
        return {
            name: value for name, value in process_darwin.read_environment(pid) if name in known and value
        }
    found: dict[str, str] = {}
    for entry in _read_all(b"/proc/%d/environ" % pid).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and name in names:
            found.setdefault(name.decode(), os.fsdecode(value))
    return found


def read_arguments(pid: int) -> list[str]:
    """Read the first arguments a process was started with; empty when they may not be seen."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return process_darwin.read_arguments(pid)[:_LIMIT_ARGUMENTS]
    parts = _read_all(b"/proc/%d/cmdline" % pid).split(b"\0", _LIMIT_ARGUMENTS)
    return [os.fsdecode(part) for part in parts[:_LIMIT_ARGUMENTS]]


def runs_holder(pid: int) -> bool:
    """Tell whether a process is a holder of Palaver's, by what it was started with."""
    return _is_holder(read_arguments(pid))


def _is_holder(arguments: Sequence[str]) -> bool:
    return ("-m", HOLDER_MODULE) in pairwise(arguments)


def _harness_named(name: str, arguments: Sequence[str]) -> str | None:
    """Name the harness a command line runs: directly, or as the program of an interpreter."""
    program = PurePath(next(iter(arguments), "")).name
    words = [name, program]
    if _INTERPRETER.fullmatch(program):
        script = PurePath(next((part for part in arguments[1:] if part[:1] != "-"), ""))
        words += [script.stem, *(_PACKAGES.get(part, "") for part in script.parts)]
    return next((word for word in words if word in HARNESS_WORDS), None)


def _read_all(path: bytes) -> bytes:
    """Read a file of /proc up to the limit; empty when it is gone or not ours to read."""
    parts: list[bytes] = []
    size = 0
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while size < _LIMIT_READ_BYTES and (part := os.read(file, _CHUNK_BYTES)):
                parts.append(part)
                size += len(part)
        finally:
            os.close(file)
    except OSError:
        return b""
    return b"".join(parts)
