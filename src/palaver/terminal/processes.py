"""Find out from the system which program reads a terminal, and whether it waits for input."""

import os
import platform
import re
import struct
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from palaver.harness.base import Profile
from palaver.harness.registry import PACKAGE_RUNNERS
from palaver.terminal.gates import (
    SHELLS,
    Foreground,
    GateFacts,
    ProgramNames,
    is_shell,
    judge_foreground,
    names_of,
    reads_commands,
    shell_of,
    takes_commands,
)
from palaver.terminal.pty import Pty
from palaver.terminal.screen import Screen

# --------------------
# Find out from the system whether a process waits for input from its terminal. Changes nothing.
#
# It waits if one of its threads is in a system call that input from the terminal would end: a read, or a
# select, poll or epoll that includes it. Otherwise it sleeps, computes or waits for something else, and would
# read the text only at its next prompt.

_READ: Final = frozenset({"read", "readv", "pread64"})
_NUMBERS: Final = {
    "x86_64": {
        0: "read",
        19: "readv",
        17: "pread64",
        23: "select",
        270: "select",
        7: "poll",
        271: "poll",
        232: "epoll",
        281: "epoll",
        441: "epoll",
        219: "restart",
    },
    "aarch64": {
        63: "read",
        65: "readv",
        67: "pread64",
        72: "select",
        73: "poll",
        22: "epoll",
        441: "epoll",
        128: "restart",
    },
}
"""System calls in which a process waits for input, by number.

After a process was stopped and continued, the system shows a poll or a sleep as a restart.
"""

_CALLS: Final = _NUMBERS.get(platform.machine(), {}) if sys.platform == "linux" else {}
_LIMIT_BYTES: Final = 65536
_LIMIT_DESCRIPTORS: Final = 1024
_POLL: Final = struct.Struct("ihh")
_POLL_IN: Final = 0x1
_OWN_TERMINAL: Final = "/dev/tty"


def is_waiting(pid: int, terminal: str, *, is_own: bool = True) -> bool | None:
    """Return whether a thread of a process waits for input from this terminal; None if unknown.

    `is_own`: the terminal is the controlling terminal of the process, so `/dev/tty` refers to it too.
    """
    if not _CALLS:
        return None
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - asked before every key
    except OSError:  # It has ended.
        return False
    is_known = True
    names = (terminal, _OWN_TERMINAL) if is_own else (terminal,)
    for thread in threads:
        call = _read_or_none(f"/proc/{pid}/task/{thread}/syscall")
        is_in_wait = None if call is None else _waits_in(pid, call.split(), names)
        # One thread that waits is proof, even if the system hides the others.
        if is_in_wait:
            return True
        if is_in_wait is None:
            is_known = False
    return False if is_known else None


def _waits_in(pid: int, words: list[bytes], names: tuple[str, ...]) -> bool | None:
    """Return whether a system call of a thread waits for the terminal; None for the restart of any call.

    `running` is not a system call.
    """
    if len(words) < 7:
        return False
    kind = _CALLS.get(int(words[0]), "")
    first, second = int(words[1], 16), int(words[2], 16)
    if kind in _READ:
        return _is_terminal(pid, first, names)
    if kind == "select":
        return any(_is_terminal(pid, fd, names) for fd in _selected(pid, second, first))
    if kind == "poll":
        return any(_is_terminal(pid, fd, names) for fd in _polled(pid, first, second))
    if kind == "epoll":
        return any(_is_terminal(pid, fd, names) for fd in _watched(pid, first))
    return None if kind == "restart" else False


def _selected(pid: int, address: int, count: int) -> list[int]:
    """Return the descriptors that a select waits to read from."""
    # The count comes from another process and may be any number.
    count = min(count, _LIMIT_DESCRIPTORS)
    # The system stores the set as whole words of 64 bits.
    bits = _read_memory(pid, address, -(-count // 64) * 8) if address else b""
    mask = int.from_bytes(bits, sys.byteorder)
    return [fd for fd in range(count) if mask >> fd & 1]


def _polled(pid: int, address: int, count: int) -> list[int]:
    size = min(count, _LIMIT_DESCRIPTORS) * _POLL.size
    array = _read_memory(pid, address, size) if address else b""
    whole = array[: len(array) // _POLL.size * _POLL.size]
    return [fd for fd, events, _ in _POLL.iter_unpack(whole) if events & _POLL_IN]


def _watched(pid: int, epoll: int) -> list[int]:
    """Return the descriptors of an epoll that wait for input. The system lists `tfd: 0 events: 19 ...`."""
    found: list[int] = []
    for line in (_read_or_none(f"/proc/{pid}/fdinfo/{epoll}") or b"").splitlines():
        words = line.split()
        if len(words) > 3 and words[0] == b"tfd:" and int(words[3], 16) & _POLL_IN:
            found.append(int(words[1]))
    return found


def _is_terminal(pid: int, fd: int, names: tuple[str, ...]) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}") in names  # noqa: PTH115 - asked before every key
    except OSError:
        return False


def _read_memory(pid: int, address: int, size: int) -> bytes:
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:  # noqa: PTH123 - asked before every key
            memory.seek(address)
            return memory.read(size)
    # The address comes from the other process and may be any number, also one that is too large for a file
    # position.
    except (OSError, OverflowError, ValueError):
        return b""


def _read_or_none(path: str) -> bytes | None:
    """Return the content of a file in /proc: empty if it does not exist, None if access is denied."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None
    except OSError:
        return b""
    try:
        return os.read(file, _LIMIT_BYTES)
    except PermissionError:
        return None
    except OSError:
        return b""
    finally:
        os.close(file)


# --------------------
# Rules that tell the started program from the tools that it runs. Pure.
#
# A process is the started program if each step from the started process down to it is one of these: a fork
# without exec, a launcher that starts the program named in its arguments and waits (`npx`, `uv run`), or a
# program that starts itself again with the same arguments. Any other child is a tool.

_LAUNCHERS: Final = PACKAGE_RUNNERS | {
    *("pnpx", "yarn", "yarnpkg", "volta-shim", "npm-cli.js", "npx-cli.js", "pnpm.cjs", "pnpx.cjs", "yarn.js"),
    *("pipenv", "poetry", "pdm", "hatch", "rye", "conda", "mamba", "micromamba"),
    *("pixi", "mise", "go", "timeout", "dbus-run-session", "xvfb-run"),
}
"""Programs that are never an agent themselves: they start the program that their arguments name."""
_INTERPRETER: Final = re.compile(r"node|nodejs|python[\d.]*")


def is_launcher(process: ProgramNames) -> bool:
    """Return whether a process only starts another program and waits for it."""
    names = names_of(process)
    # The name of an interpreter does not show what runs: the script that it was started with does.
    if len(process.argv) > 1 and any(map(_INTERPRETER.fullmatch, names)):
        names.add(process.argv[1].rpartition("/")[2])
    # npm shows "npm exec NAME" as the name of its process.
    return any(name.partition(" ")[0] in _LAUNCHERS for name in names)


def is_shell_command(process: ProgramNames) -> bool:
    """Return whether a process is a shell. Below a launcher, a shell only starts the program."""
    return bool(names_of(process) & SHELLS)


def is_same_program(process: ProgramNames, parent: ProgramNames) -> bool:
    """Return whether a program started itself again: same file, and its arguments end with the parent's."""
    # Without arguments there is nothing that proves a restart: a shell that starts a shell looks the same.
    given = parent.argv[1:]
    is_same_file = bool(process.program) and process.program == parent.program
    return is_same_file and bool(given) and process.argv[-len(given) :] == given


# --------------------
# Find the processes in the foreground of a terminal, as the system reports them. Changes nothing.
#
# A holder adopts the orphaned descendants of its agent, so every process in the terminal is below the holder.
# A program in the foreground may own another terminal and forward its input to it. Then a shell in that
# terminal would run the typed text.

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
    has_tool: bool = False
    """Whether one of `waiting` and `hidden` is certainly a tool. False if `is_asked`: `own` says more."""


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
        has_shell = _has_shell_in_other_terminal(below, found, is_shell if is_asked else reads_commands)
    foreground = judge_foreground(child, group, found.values())
    if has_shell and foreground is not Foreground.GONE:
        foreground = Foreground.SHELL
    # The gate is closed already, and the rest reads several files of every process.
    if foreground is not Foreground.AGENT:
        return Readers(foreground, is_waiting=None)
    waiting, hidden = _find_waiting(below, found.keys(), pty.path, is_asked=is_asked)
    own: set[ProcessKey] = set()
    if is_asked:
        wrapped = pty.path if has_composer else ""
        own = {key for key in waiting | hidden if _is_program(below, key[0], child, wrapped)}
    # Without a list of processes, as on macOS, nothing is proven either way.
    waits: bool | None = True if waiting else None if hidden or not below else False
    return Readers(
        foreground,
        waits if is_asked else None,
        takes_commands=is_asked and any(map(takes_commands, found.values())),
        waiting=waiting,
        hidden=hidden,
        alive=frozenset((pid, one.started) for pid, one in below.items()),
        own=frozenset(own),
        has_tool=not is_asked and _has_tool(below, {pid for pid, _ in waiting | hidden}, child),
    )


def _find_waiting(
    below: Mapping[int, "_Below"], readers: Set[int], terminal: str, *, is_asked: bool
) -> tuple[frozenset[ProcessKey], frozenset[ProcessKey]]:
    """Return the processes that wait for input from the terminal, and those for which we cannot tell.

    The system stops a background process of the same session when it reads. It does not stop a process with
    its own session, so those are checked too. For a known harness only a process with the rights of another
    user counts as hidden, because some harnesses hide themselves and their helpers from all other processes.
    """
    # All readers share the terminal in whose foreground they are.
    number = next((below[pid].terminal for pid in readers), 0)
    waiting: set[ProcessKey] = set()
    hidden: set[ProcessKey] = set()
    for pid, one in below.items():
        if not one.can_read or (pid not in readers and one.terminal == number):
            continue
        answer = is_waiting(pid, terminal, is_own=one.terminal == number)
        if answer:
            # With the start time, because the system may give the pid of an ended agent to a tool.
            waiting.add((pid, one.started))
        elif answer is None and pid in readers and (is_asked or _has_other_rights(pid)):
            hidden.add((pid, one.started))
    return frozenset(waiting), frozenset(hidden)


def _has_tool(below: Mapping[int, "_Below"], pids: Set[int], child: int) -> bool:
    """Return whether one of these is certainly a tool of the program that was started as `child`."""
    for pid in pids - {child}:
        above = list(_above(below, pid))
        # A tool whose own parent has ended is no longer below the program: the holder has adopted it.
        if child in below and child not in above:
            return True
        if any(one in pids and not _is_program(below, pid, one, "") for one in above):
            return True
    return False


def _above(below: Mapping[int, "_Below"], pid: int) -> Iterator[int]:
    """Yield the processes from the parent of this one up to the holder."""
    for _ in range(_LIMIT_DEPTH):
        pid = below[pid].parent
        if pid not in below:
            return
        yield pid


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
            # The second number is the effective user, which decides the rights.
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
        # The name of the program comes before this and may itself contain blanks and parentheses.
        fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split(maxsplit=_STARTED + 1)
        if len(fields) > _STARTED:
            parent, group, _session, terminal, foreground, flags = map(int, fields[1:7])
            started = int(fields[_STARTED])
            can_read, is_forked = fields[0] not in _DEAF, bool(flags & _FORKED)
            found[pid] = _Below(can_read, parent, group, terminal, foreground, started, is_forked)
    return found


def _has_shell_in_other_terminal(
    below: Mapping[int, _Below], readers: Container[int], is_one: Callable[[ProgramNames], bool]
) -> bool:
    """Return whether a shell below one of the readers is in the foreground of another terminal.

    A shell without a terminal does not read typed input. Nor does a shell that is not below a reader: its
    terminal belongs to another process, such as the tmux server.
    """
    for pid, one in below.items():
        has_own = one.can_read and one.terminal != 0 and one.group == one.foreground
        # The names come last: reading them takes several files of each process.
        if (
            has_own
            and _is_in_other_terminal(below, pid, readers)
            and (process := _process(pid))
            and is_one(process)
        ):
            return True
    return False


def _is_in_other_terminal(below: Mapping[int, _Below], pid: int, readers: Container[int]) -> bool:
    """Return whether the nearest reader above a process has a different terminal."""
    nearest = next((above for above in _above(below, pid) if above in readers), None)
    return nearest is not None and below[nearest].terminal != below[pid].terminal


def _process(pid: int) -> ProgramNames | None:
    """Return the names of a process; None if it has no arguments, for example because it is ending."""
    arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    if not arguments:
        return None
    return ProgramNames(
        argv=tuple(map(os.fsdecode, arguments)),
        name=os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n")),
        program=_link(pid, "exe"),
        shell=shell_of(pid),
    )


def is_interactive_shell(pid: int) -> bool:
    """Return whether a process is a shell that reads its commands from the terminal."""
    process = _process(pid)
    return process is not None and reads_commands(process)


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
    # Linux lists the children of each thread separately.
    for thread in threads:
        found += map(int, _read_list(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _read_list(path: str) -> bytes:
    """Return the content of a file that the system may return in pieces of one memory page."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    content = b""
    try:
        while piece := os.read(file, _LIMIT_BYTES):
            content += piece
    except OSError:  # The thread has ended.
        pass
    finally:
        os.close(file)
    return content


def _read(path: str) -> bytes:
    """Return the content of a file in /proc: empty if it does not exist or access is denied."""
    return _read_or_none(path) or b""


def _group_on_darwin(group: int) -> Iterator[tuple[int, ProgramNames]]:  # pragma: no cover - macOS
    import psutil  # type: ignore[import-untyped]  # a dependency of macOS only

    for process in psutil.Process().children(recursive=True):
        try:
            if os.getpgid(process.pid) == group:
                argv = tuple(process.cmdline())
                yield process.pid, ProgramNames(argv=argv, name=process.name(), program=process.exe())
        except (OSError, psutil.Error):
            continue


# --------------------
# Find out whether typed text will be read: the foreground program, unread input, waiting readers.
#
# This is queried before every key. The system does not notify us when a program begins to read, so a caller
# that waits for that must query again.

LOOK_SOON_S: Final = 0.1
LOOK_LATER_S: Final = 0.5
"""Intervals between queries while a program does not read: in a short interruption, and otherwise."""

_GRACE_MS: Final = 300
"""How long a reader may be busy with its last input before it counts as not reading."""
_ASK_AGAIN_MS: Final = 500
"""How long to trust that a process has not loaded a line editor."""
_TAKEN_MS: Final = 20
"""How long the system may take to pass keys on."""


class Reading:
    """The readers of one terminal, as the system reports them."""

    def __init__(self, pty: Pty, child: int, profile: Profile, screen: Screen) -> None:
        self._pty = pty
        self._child = child
        # A readable composer is better evidence that the program accepts input than the system is.
        self._is_asked = profile.read_composer is None
        self._screen = screen
        # Negative, so that at the start no reader counts as seen, no key as pressed and no check as made.
        self._read_ms = -_GRACE_MS
        self._pressed_ms = -_TAKEN_MS
        self._editing: frozenset[ProcessKey] = frozenset()
        self._asked_ms = -_ASK_AGAIN_MS
        self._readers = Readers(Foreground.GONE, is_waiting=False)
        self.agent: frozenset[ProcessKey] = frozenset()
        """The processes that read the terminal when the composer was proven: the agent itself."""

    def prove(self) -> None:
        """Record the readers of the last `facts` as the agent: they read while the composer was proven.

        While one of them lives, no other process can become the agent: neither a tool that it starts nor a
        program that draws a similar prompt.
        """
        if not self.agent:
            self.agent = self._readers.waiting | self._readers.hidden

    def has_reader(self) -> bool:
        """Return whether a process of the agent certainly waits for input from the terminal."""
        return read_readers(self._pty, self._child).is_waiting is True

    def pressed(self, now_ms: int) -> None:
        """Record that keys were written: the program may not have received them yet."""
        self._pressed_ms = now_ms

    def facts(self, now_ms: int, *, is_passthrough: bool) -> GateFacts:
        """Return the facts that the screen does not show. They are valid only in this step."""
        is_raw = self._pty.is_raw
        has_composer = self._is_asked and is_raw and self._screen.terminal.has_paste_mode
        # Stored, so that `prove` records exactly the readers on which the gate was judged.
        readers = self._readers = read_readers(
            self._pty, self._child, is_asked=self._is_asked, has_composer=has_composer
        )
        # Empty on a system that does not list the processes: that does not prove their end.
        if readers.alive:
            self.agent &= readers.alive
        # Hidden readers count as waiting: without proof of the opposite a tool may read the text.
        waiting = readers.waiting | readers.hidden
        # Before the first proof, a composer does not show which of two readers has drawn it.
        has_tool = not waiting <= self.agent if self.agent else readers.has_tool
        is_unproven = self._is_asked and not self.agent and not waiting <= readers.own
        startup = self._screen.startup
        if startup.awaits_reader:
            startup.see_reader(now_ms, is_waiting=readers.is_waiting, is_raw=is_raw)
        if readers.is_waiting is not False:
            self._read_ms = now_ms
        return GateFacts(
            now_ms=now_ms,
            foreground=readers.foreground,
            has_tool=has_tool,
            is_unproven=is_unproven,
            is_passthrough=is_passthrough,
            is_secret=self._pty.is_secret,
            has_unread=(self._pty.unread() or 0) > 0 or now_ms - self._pressed_ms < _TAKEN_MS,
            is_reading=readers.is_waiting is not False,
            is_waiting=readers.is_waiting is True,
            is_raw=is_raw,
            edits_lines=self._is_asked and self._pty.is_edited and self._edits_lines(now_ms),
            takes_commands=readers.takes_commands,
        )

    def _edits_lines(self, now_ms: int) -> bool:
        """Return whether all waiting processes have loaded readline or a similar library.

        This is relevant only if the program reads single keys without bracketed paste. A positive result is
        kept while the process lives, a negative one for `_ASK_AGAIN_MS`.
        """
        waiting = self._readers.waiting
        if self._screen.terminal.has_paste_mode or not waiting:
            return False
        # The maps of a process are large, and this is asked before every key.
        if not waiting <= self._editing and now_ms - self._asked_ms >= _ASK_AGAIN_MS:
            self._asked_ms = now_ms
            self._editing = frozenset(key for key in waiting if edits_lines(key[0]))
        return waiting <= self._editing

    def level(self, facts: GateFacts) -> GateFacts:
        """Return the facts without short interruptions. For planning only, not for pressing keys."""
        is_unread = facts.has_unread and facts.now_ms - self._pressed_ms >= _TAKEN_MS
        is_reading = facts.is_reading or facts.now_ms - self._read_ms < _GRACE_MS
        return replace(facts, has_unread=is_unread, is_reading=is_reading)


# --------------------
# Find the processes that an exited agent left running below its holder. Changes nothing.

_OWN: Final = (b"palaver.daemon", b"palaver.holder.")
"""Modules of Palaver's own processes. These and their descendants do not belong to the agent."""


def running_descendants(agent: int) -> list[int]:
    """Return every running process below us that the agent started, without the agent itself.

    The daemon, another agent's holder and our own subprocesses may also run below us. They and their
    descendants are not part of the agent.
    """
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for pid in children(waiting.pop()):
            # Not the agent itself, but its children: they were started by it.
            if pid == agent or not _is_own(pid):
                waiting.append(pid)
                found += [pid] if pid != agent and _runs(pid) else []
    return found


def _is_own(pid: int) -> bool:
    words = _read(f"/proc/{pid}/cmdline").split(b"\0")
    return any(word == b"-m" and module.startswith(_OWN) for word, module in pairwise(words))


def _runs(pid: int) -> bool:
    """Return whether a process still runs. A zombie has ended."""
    return _read(f"/proc/{pid}/stat").rpartition(b") ")[2][:1] not in (b"Z", b"X", b"x", b"")
