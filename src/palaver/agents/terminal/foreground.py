"""Which processes run in the foreground of a terminal, read from the system. Looks only.

A holder adopts what its agent leaves behind, so everything that runs in the terminal is below the holder. A
program in the foreground may hold another terminal and hand on what is typed: then a shell that has that
terminal would run it.
"""

import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from palaver.agents.terminal.full_screen import takes_commands
from palaver.agents.terminal.gates import Foreground, judge_foreground
from palaver.agents.terminal.pty import Pty
from palaver.agents.terminal.shells import Process, is_shell, reads_commands
from palaver.agents.terminal.twins import shell_of
from palaver.agents.terminal.waiting import is_waiting

_LIMIT_BYTES: Final = 65536
_LIMIT_PROCESSES: Final = 4096
_DEAF: Final = (b"Z", b"X", b"x", b"T", b"t")
"""States of a process that has ended, or is stopped."""
_LEAST_FIELDS: Final = 6
_LIMIT_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class Readers:
    """Who would read what is typed in this very moment."""

    foreground: Foreground
    is_waiting: bool | None
    """Whether some process of theirs waits for it now; None when the system does not say."""
    takes_commands: bool = False
    """Whether one of them takes every key as a command, where that `is_asked`."""


def read_readers(pty: Pty, child: int, *, is_asked: bool = True) -> Readers:
    """Say who would read, and whether they wait for it, where that `is_asked`."""
    group = pty.foreground()
    if group <= 0:
        return Readers(Foreground.GONE, is_waiting=False)
    if sys.platform == "darwin":  # pragma: no cover - macOS
        found, has_shell = dict(_group_on_darwin(group)), False
    else:
        below = _below()
        readers = (pid for pid, one in below.items() if one.group == group and one.can_read)
        found = {pid: process for pid in readers if (process := _process(pid))}
        # A harness that is known runs tools of all kinds: only a shell is sure to be none that it talks to.
        has_shell = _has_shell_behind(below, found, is_shell if is_asked else reads_commands)
    foreground = judge_foreground(child, group, found.values())
    if has_shell and foreground is not Foreground.GONE:
        foreground = Foreground.SHELL
    if not is_asked or foreground is not Foreground.AGENT:
        return Readers(foreground, is_waiting=None)
    terminal = pty.path
    answers = [is_waiting(pid, terminal) for pid in found]
    waits = True if True in answers else None if None in answers else False
    return Readers(foreground, waits, takes_commands=any(map(takes_commands, found.values())))


@dataclass(frozen=True, slots=True)
class _Below:
    """Where a process stands."""

    can_read: bool
    """It has neither ended nor is it stopped."""
    parent: int
    group: int
    terminal: int
    foreground: int
    """The group in the foreground of its terminal."""


def _below() -> dict[int, _Below]:
    """Find every process below us."""
    found: dict[int, _Below] = {}
    for pid in descendants(os.getpid()):
        fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split(maxsplit=_LEAST_FIELDS)
        if len(fields) > _LEAST_FIELDS:
            parent, group, _session, terminal, foreground = map(int, fields[1:_LEAST_FIELDS])
            found[pid] = _Below(fields[0] not in _DEAF, parent, group, terminal, foreground)
    return found


def _has_shell_behind(
    below: Mapping[int, _Below], readers: Container[int], is_one: Callable[[Process], bool]
) -> bool:
    """Whether a shell below one of the readers has the foreground of another terminal.

    One that a tool runs without a terminal reads nothing that is typed, and neither does one that is below no
    reader: the terminal that it has is held elsewhere, as by the server of tmux.
    """
    for pid, one in below.items():
        has_own = one.can_read and one.terminal != 0 and one.group == one.foreground
        if has_own and _is_behind(below, pid, readers) and (process := _process(pid)) and is_one(process):
            return True
    return False


def _is_behind(below: Mapping[int, _Below], pid: int, readers: Container[int]) -> bool:
    """Whether the nearest reader above a process has another terminal than it."""
    terminal = below[pid].terminal
    for _ in range(_LIMIT_DEPTH):
        pid = below[pid].parent
        if pid not in below:
            return False
        if pid in readers:
            return below[pid].terminal != terminal
    return False


def _process(pid: int) -> Process | None:
    """Give all that tells what a process is; None when it has no arguments, as one that ends."""
    arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    if not arguments:
        return None
    return Process(
        argv=tuple(map(os.fsdecode, arguments)),
        name=os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n")),
        program=_program_of(pid),
        shell=shell_of(pid),
    )


def _program_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - asked before every key
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """Give every process below this one, at most some thousands of them."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < _LIMIT_PROCESSES:
        below = children(waiting.pop())
        found += below
        waiting += below
    return found


def children(pid: int) -> list[int]:
    """Give the children of a process, also those that have ended and wait to be collected."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - asked before every key
    except OSError:
        return found
    for thread in threads:
        found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _read(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _LIMIT_BYTES)
    except OSError:
        return b""
    finally:
        os.close(file)


def _group_on_darwin(group: int) -> Iterator[tuple[int, Process]]:  # pragma: no cover - macOS
    import psutil  # type: ignore[import-untyped]  # a dependency of macOS only

    for process in psutil.Process().children(recursive=True):
        try:
            if os.getpgid(process.pid) == group:
                argv = tuple(process.cmdline())
                yield process.pid, Process(argv=argv, name=process.name(), program=process.exe())
        except (OSError, psutil.Error):
            continue
