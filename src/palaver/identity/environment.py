"""Read the harness marks of a process, and whether it is a harness itself. Read-only.

Only the marks and the home are kept or passed on: an environment contains keys and tokens. A process that may
not be read counts as unmarked: its children inherited its marks and can be read, and a harness is also known
by its name.
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
from palaver.identity.process import Process, read_process

if sys.platform == "darwin":  # pragma: no cover - macOS
    from palaver.identity import process_darwin

HARNESS_WORDS: Final = frozenset(SESSION_MARKS)
_NAMES: Final = frozenset(name.encode() for name in (*MARKS, SEAT_MARK))
_HOME: Final = frozenset({b"HOME"})
_INTERPRETER: Final = re.compile(r"(node|nodejs|bun|deno|python|sh|bash)[\d.]*")
_PACKAGES: Final = {"claude-code": "claude", "gemini-cli": "gemini", "opencode-ai": "opencode"}
"""Folders from which an interpreter runs a harness whose file has another name."""
_LIMIT_ARGUMENTS: Final = 8
_LIMIT_READ_BYTES: Final = 8 * 1024 * 1024
"""More than the system allows for arguments and environment together."""
_CHUNK_BYTES: Final = 64 * 1024
HOLDER_MODULE: Final = "palaver.holder.main"
"""The module that a holder runs, as its command line shows it."""


@dataclass(frozen=True, slots=True)
class HarnessEnvironment:
    """The signs of a harness on one process."""

    marks: Mapping[str, str]
    """The marks in the environment it was started with."""
    harness: str | None
    """The harness that it is itself, by its name."""
    is_known: bool = True
    """False if it ended before it could be read."""
    is_holder: bool = False
    """It is a holder: every process below it is an agent's."""

    @property
    def can_be_harness(self) -> bool:
        """Whether it has a mark, is a harness or holder, or has exited, so that it is unknown what it was."""
        return bool(self.marks) or self.harness is not None or self.is_holder or not self.is_known


_GONE: Final = HarnessEnvironment(MappingProxyType({}), None, is_known=False)


@dataclass(slots=True)
class Environments:
    """Reads the surroundings of processes and caches them, because only an exec changes them.

    Caches at most `limit` processes and then drops the oldest entry. Belongs to one thread.
    """

    limit: int = 4096
    _known: dict[tuple[int, int, int, str], HarnessEnvironment] = field(default_factory=dict, init=False)

    def look(self, process: Process) -> HarnessEnvironment:
        """Return the surroundings of a process; unknown if it has exited.

        The result is not cached if the process ended or ran another program meanwhile, or could do so
        unnoticed.
        """
        key = process.pid, process.start, process.image, process.name
        known = self._known.get(key)
        if known is not None:
            return known
        arguments = read_arguments(process.pid)
        found = HarnessEnvironment(
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
    """Read the marks a process was started with.

    An empty value is ignored; the first of two entries counts.
    """
    return _read_variables(pid, _NAMES)


def read_home(pid: int) -> str:
    """Read the HOME of a process; empty if it may not be read."""
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
    """Read the first arguments a process was started with; empty if they may not be read."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return process_darwin.read_arguments(pid)[:_LIMIT_ARGUMENTS]
    parts = _read_all(b"/proc/%d/cmdline" % pid).split(b"\0", _LIMIT_ARGUMENTS)
    return [os.fsdecode(part) for part in parts[:_LIMIT_ARGUMENTS]]


def runs_holder(pid: int) -> bool:
    """Whether a process is a holder, by its command line."""
    return _is_holder(read_arguments(pid))


def _is_holder(arguments: Sequence[str]) -> bool:
    return ("-m", HOLDER_MODULE) in pairwise(arguments)


def _harness_named(name: str, arguments: Sequence[str]) -> str | None:
    """Return the harness that a command line runs: directly, or as the script of an interpreter."""
    program = PurePath(next(iter(arguments), "")).name
    words = [name, program]
    if _INTERPRETER.fullmatch(program):
        script = PurePath(next((part for part in arguments[1:] if part[:1] != "-"), ""))
        words += [script.stem, *(_PACKAGES.get(part, "") for part in script.parts)]
    return next((word for word in words if word in HARNESS_WORDS), None)


def _read_all(path: bytes) -> bytes:
    """Read a file of /proc up to the limit; empty if it is missing or may not be read."""
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
