"""Which processes run in the foreground of a terminal, read from the system. Looks only.

A holder adopts what its agent leaves behind, so everything that runs in the terminal is below the holder.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palaver.agents.terminal.full_screen import takes_commands
from palaver.agents.terminal.gates import Foreground, judge_foreground
from palaver.agents.terminal.pty import Pty
from palaver.agents.terminal.shells import Process
from palaver.agents.terminal.waiting import is_waiting

_LIMIT_BYTES: Final = 65536
_LIMIT_PROCESSES: Final = 4096
_DEAF: Final = (b"Z", b"X", b"x", b"T", b"t")
"""States of a process that has ended, or is stopped."""


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
    found = dict(_group(group))
    foreground = judge_foreground(child, group, found.values())
    if not is_asked or foreground is not Foreground.AGENT:
        return Readers(foreground, is_waiting=None)
    terminal = pty.path
    answers = [is_waiting(pid, terminal) for pid in found]
    waits = True if True in answers else None if None in answers else False
    return Readers(foreground, waits, takes_commands=any(map(takes_commands, found.values())))


def _group(group: int) -> Iterator[tuple[int, Process]]:
    if sys.platform == "darwin":  # pragma: no cover - macOS
        yield from _group_on_darwin(group)
        return
    for pid in descendants(os.getpid()):
        if _is_reading(pid, group):
            arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
            if arguments:
                yield (
                    pid,
                    Process(
                        argv=tuple(map(os.fsdecode, arguments)),
                        name=os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n")),
                        program=_program_of(pid),
                    ),
                )


def _program_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - asked before every key
    except OSError:
        return ""


def _is_reading(pid: int, group: int) -> bool:
    """Whether a process of that group could read: not one that has ended, nor one that is stopped."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return len(fields) > 2 and fields[2] == b"%d" % group and fields[0] not in _DEAF


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
