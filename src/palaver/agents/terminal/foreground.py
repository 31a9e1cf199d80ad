"""Find the processes in the foreground of a terminal, as the system reports them. Changes nothing.

A holder adopts the orphaned descendants of its agent, so every process in the terminal is below the holder.
A program in the foreground may own another terminal and forward its input to it. Then a shell in that
terminal would run the typed text.
"""

import os
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from palaver.agents.terminal.full_screen import takes_commands
from palaver.agents.terminal.gates import Foreground, judge_foreground
from palaver.agents.terminal.launchers import is_launcher, is_same_program, is_shell_command
from palaver.agents.terminal.pty import Pty
from palaver.agents.terminal.shells import Process, is_shell, reads_commands
from palaver.agents.terminal.twins import shell_of
from palaver.agents.terminal.waiting import is_waiting

_LIMIT_BYTES: Final = 65536
_LIMIT_PROCESSES: Final = 4096
_DEAF: Final = (b"Z", b"X", b"x", b"T", b"t")
"""States of a process that has ended or is stopped."""
_STARTED: Final = 19
"""Index of the start time in the stat line of a process, counted from the state field."""
_FORKED: Final = 0x40
"""The flag of a process that was forked and has not called exec since (PF_FORKNOEXEC)."""
_LIMIT_DEPTH: Final = 64
_LIMIT_MAPS_BYTES: Final = 1024 * 1024
_LINE_EDITOR: Final = re.compile(rb"/(?:lib)?(?:readline|edit|editline)\.[^/\n]*so[^/\n]*$", re.MULTILINE)


ProcessKey = tuple[int, int]
"""A process: its pid and its start time. Both stay the same across exec; a reused pid has another time."""


@dataclass(frozen=True, slots=True)
class Readers:
    """The processes that would read input at this instant."""

    foreground: Foreground
    is_waiting: bool | None
    """Whether one of them waits for input now; None if the system does not tell."""
    takes_commands: bool = False
    """Whether one of them interprets every key as a command. False unless `is_asked`."""
    waiting: frozenset[ProcessKey] = frozenset()
    """Every process that waits for input from this terminal, including one with its own session."""
    hidden: frozenset[ProcessKey] = frozenset()
    """Processes in the foreground that may wait for input; the system does not tell."""
    alive: frozenset[ProcessKey] = frozenset()
    """Every process below the holder."""
    own: frozenset[ProcessKey] = frozenset()
    """Those in `waiting` and `hidden` that are the started program itself. Empty unless `is_asked`."""


def read_readers(pty: Pty, child: int, *, is_asked: bool = True, has_composer: bool = False) -> Readers:
    """Return the processes that would read input and, if `is_asked`, whether they wait for it.

    `has_composer`: the program reads single keys and has requested bracketed paste.
    """
    group = pty.foreground()
    if group <= 0:
        return Readers(Foreground.GONE, is_waiting=False)
    below: dict[int, _Below] = {}
    if sys.platform == "darwin":  # pragma: no cover - macOS
        found, has_shell = dict(_group_on_darwin(group)), False
    else:
        below = _below()
        readers = (pid for pid, one in below.items() if one.group == group and one.can_read)
        found = {pid: process for pid in readers if (process := _process(pid))}
        # A known harness runs tools of all kinds in terminals. Only a real shell closes its gate.
        has_shell = _has_shell_behind(below, found, is_shell if is_asked else reads_commands)
    foreground = judge_foreground(child, group, found.values())
    if has_shell and foreground is not Foreground.GONE:
        foreground = Foreground.SHELL
    if foreground is not Foreground.AGENT:
        return Readers(foreground, is_waiting=None)
    waiting, hidden = _find_waiting(below, found.keys(), pty.path, is_asked=is_asked)
    own: set[ProcessKey] = set()
    if is_asked:
        wrapped = pty.path if has_composer else ""
        own = {key for key in waiting | hidden if _is_program(below, key[0], child, wrapped)}
    waits: bool | None = True if waiting else None if hidden or not below else False
    return Readers(
        foreground,
        waits if is_asked else None,
        takes_commands=is_asked and any(map(takes_commands, found.values())),
        waiting=waiting,
        hidden=hidden,
        alive=frozenset((pid, one.started) for pid, one in below.items()),
        own=frozenset(own),
    )


def _find_waiting(
    below: Mapping[int, "_Below"], readers: Set[int], terminal: str, *, is_asked: bool
) -> tuple[frozenset[ProcessKey], frozenset[ProcessKey]]:
    """Return the processes that wait for input from the terminal, and those for which we cannot tell.

    The system stops a background process of the same session when it reads. It does not stop a process with
    its own session, so those are checked too. For a known harness only a process with the rights of another
    user counts as hidden, because some harnesses hide themselves and their helpers from all other processes.
    """
    number = next((below[pid].terminal for pid in readers), 0)
    waiting: set[ProcessKey] = set()
    hidden: set[ProcessKey] = set()
    for pid, one in below.items():
        if not one.can_read or (pid not in readers and one.terminal == number):
            continue
        answer = is_waiting(pid, terminal, is_own=one.terminal == number)
        if answer:
            waiting.add((pid, one.started))
        elif answer is None and pid in readers and (is_asked or _has_other_rights(pid)):
            hidden.add((pid, one.started))
    return frozenset(waiting), frozenset(hidden)


def _is_program(below: Mapping[int, "_Below"], pid: int, child: int, wrapped: str) -> bool:
    """Return whether a process is the program that was started as `child`, not a tool that it runs.

    `wrapped`: the terminal in which a script may run the program; empty if the script itself must read.
    """
    for _ in range(_LIMIT_DEPTH):
        if pid == child:
            return True
        parent = below[pid].parent
        if parent not in below:
            return False
        if not below[pid].is_forked and not _has_launched(below, pid, parent, wrapped):
            return False
        pid = parent
    return False


def _has_launched(below: Mapping[int, "_Below"], pid: int, parent: int, wrapped: str) -> bool:
    """Return whether the parent only launched this program: as a launcher, its shell, or by a restart."""
    process, starter = _process(pid), _process(parent)
    if process is None or starter is None:
        return False
    if is_launcher(starter) or is_same_program(process, starter):
        return True
    if not is_shell_command(starter):
        return False
    above = _process(below[parent].parent)
    # A helper that asks a question for a script usually writes its output to a pipe: x=$(ask).
    return (above is not None and is_launcher(above)) or (bool(wrapped) and _link(pid, "fd/1") == wrapped)


def _has_other_rights(pid: int) -> bool:
    """Return whether a process runs as another user, as sudo and passwd do."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[2]) != os.geteuid()
    return False


@dataclass(frozen=True, slots=True)
class _Below:
    """One process below the holder."""

    can_read: bool
    """Whether it runs: it has not ended and is not stopped."""
    parent: int
    group: int
    terminal: int
    foreground: int
    """The process group in the foreground of its terminal."""
    started: int
    """When it started, in clock ticks after boot."""
    is_forked: bool
    """Whether it still runs the program of its parent: it was forked and has not called exec."""


def _below() -> dict[int, _Below]:
    """Find every process below us."""
    found: dict[int, _Below] = {}
    for pid in descendants(os.getpid()):
        fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split(maxsplit=_STARTED + 1)
        if len(fields) > _STARTED:
            parent, group, _session, terminal, foreground, flags = map(int, fields[1:7])
            started = int(fields[_STARTED])
            can_read, is_forked = fields[0] not in _DEAF, bool(flags & _FORKED)
            found[pid] = _Below(can_read, parent, group, terminal, foreground, started, is_forked)
    return found


def _has_shell_behind(
    below: Mapping[int, _Below], readers: Container[int], is_one: Callable[[Process], bool]
) -> bool:
    """Return whether a shell below one of the readers is in the foreground of another terminal.

    A shell without a terminal does not read typed input. Nor does a shell that is not below a reader: its
    terminal belongs to another process, such as the tmux server.
    """
    for pid, one in below.items():
        has_own = one.can_read and one.terminal != 0 and one.group == one.foreground
        if has_own and _is_behind(below, pid, readers) and (process := _process(pid)) and is_one(process):
            return True
    return False


def _is_behind(below: Mapping[int, _Below], pid: int, readers: Container[int]) -> bool:
    """Return whether the nearest reader above a process has a different terminal."""
    terminal = below[pid].terminal
    for _ in range(_LIMIT_DEPTH):
        pid = below[pid].parent
        if pid not in below:
            return False
        if pid in readers:
            return below[pid].terminal != terminal
    return False


def _process(pid: int) -> Process | None:
    """Return the names of a process; None if it has no arguments, for example because it is ending."""
    arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    if not arguments:
        return None
    return Process(
        argv=tuple(map(os.fsdecode, arguments)),
        name=os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n")),
        program=_link(pid, "exe"),
        shell=shell_of(pid),
    )


def _link(pid: int, name: str) -> str:
    """Return the target of a link in /proc: the program of a process, or one of its files."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")  # noqa: PTH115 - asked before every key
    except OSError:
        return ""


def edits_lines(pid: int) -> bool:
    """Return whether a process has loaded a line-editing library such as readline."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 - as above
            return _LINE_EDITOR.search(file.read(_LIMIT_MAPS_BYTES)) is not None
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """Return the processes below this one. The search stops after about `_LIMIT_PROCESSES`."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < _LIMIT_PROCESSES:
        below = children(waiting.pop())
        found += below
        waiting += below
    return found


def children(pid: int) -> list[int]:
    """Return the children of a process, including zombies."""
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
