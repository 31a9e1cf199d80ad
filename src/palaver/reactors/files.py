"""The files in the home: messages to agents in terminals, and the clean-up after killed holders."""

import asyncio
import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from palaver.harness.base import HOLDER_FILE, NATIVE_FOLDER, EndpointOwner, parse_holder
from palaver.home import connect_socket, remove_message, write_message
from palaver.log.api import EventKey, EventKind, Log
from palaver.log.follow import HandlerSwitch
from palaver.protocol.agent_text import format_message_file
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import BYE, SEAT_TYPES, MessageSent, State, TextRemoved
from palaver.protocol.message import MESSAGE, is_lost, is_raw, readable_text
from palaver.protocol.paths import split_mailbox
from palaver.protocol.redaction import REDACTED_TYPE
from palaver.state.agents import find_mail, read_agent, read_agents
from palaver.state.fold import agent_of
from palaver.state.rows import PUSHED, deliverable, kind_of_key

# --------------------
# Files of messages to agents in terminals, written as soon as a message is queued.
#
# They are copies for people and agents to read. The log is authoritative, and the holder that types a message
# writes its file if it is missing. So a full or slow disk blocks nothing, and a file may be missing.

_LIMIT_WAITING: Final = 10_000
"""Copies that wait for the disk. A removal is always accepted: its text must not stay readable."""

_logger: Final = logging.getLogger("palaver")


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileCopy:
    agent: str
    id: str
    ts: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removal:
    """The text of this message was removed permanently."""

    id: str


_MAIL: Final[frozenset[EventKey]] = frozenset({MESSAGE, EventKind.DELIVERED})


class MessageFiles:
    """Writes the files in a thread, in batches. With more than 10,000 waiting, new ones are left out."""

    def __init__(self, home: Path, log: Log, tasks: asyncio.TaskGroup) -> None:
        self._home = str(home)
        self._log = log
        self._tasks = tasks
        self._waiting: deque[_FileCopy | _Removal] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._in_terminals = {agent.name for agent in read_agents(log.rows) if agent.holder}
        self._mail = HandlerSwitch(log, self._follow_mail, _MAIL)
        self._mail.turn(is_on=bool(self._in_terminals))
        self._unsubscribe = log.subscribe(self._follow_agents, SEAT_TYPES)
        self._unsubscribe_redacted = log.subscribe(self._follow_redacted, (REDACTED_TYPE,))

    def close(self) -> None:
        """Stop following the log."""
        self._mail.turn(is_on=False)
        self._unsubscribe()
        self._unsubscribe_redacted()

    def _follow_agents(self, events: Sequence[Event]) -> None:
        for event in events:
            agent = read_agent(self._log.rows, agent_of(event))
            if agent is not None and agent.holder:
                self._in_terminals.add(agent.name)
            elif agent is not None:
                self._in_terminals.discard(agent.name)
        self._mail.turn(is_on=bool(self._in_terminals))

    def _follow_redacted(self, events: Sequence[Event]) -> None:
        for event in events:
            # In the queue of the writes, so that no earlier write recreates the file.
            removed = body_as(event, TextRemoved)
            found = [self._log.event(seq) for seq in removed.copies]
            ids = [removed.id, *(copy.id for copy in found if copy is not None)]
            self._waiting.extend(_Removal(id=one) for one in ids)
        self._start()

    def _follow_mail(self, events: Sequence[Event]) -> None:
        for event in events:
            self._add(event)
        self._start()

    def _start(self) -> None:
        # One task at a time: two threads could write and remove the file of one message in any order. A
        # running task takes all that is added before it ends.
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = self._tasks.create_task(self._write())

    def _add(self, event: Event) -> None:
        # Raw keys and lost contents have no text to read. A bare text is typed itself, and the holder writes
        # its file if it needs one.
        if is_raw(event) or is_lost(event) or (isinstance(event.body, MessageSent) and event.body.bare):
            return
        for mailbox in deliverable(event).delivered_to:
            name = split_mailbox(mailbox)[0]
            is_typed = name in self._in_terminals and self._is_queued(mailbox, event.seq)
            # A file that is left out is written by the holder when it types the message.
            if is_typed and len(self._waiting) < _LIMIT_WAITING:
                self._waiting.append(
                    _FileCopy(agent=name, id=event.id, ts=event.ts, text=readable_text(event))
                )

    def _is_queued(self, mailbox: str, seq: int) -> bool:
        """Return whether a message waits and may be typed. A handled copy is never typed."""
        found = find_mail(self._log.rows, mailbox, seq)
        return found is not None and found[1].state == State.QUEUED and kind_of_key(found[0]) in PUSHED

    async def _write(self) -> None:
        while self._waiting:
            # Emptied before the await: copies and removals that come during it belong to the next batch.
            batch = list(self._waiting)
            self._waiting.clear()
            await asyncio.to_thread(_write_all, self._home, batch)


def remove_files(home: Path, ids: Iterable[str]) -> None:
    """Remove the files of messages whose text was removed."""
    for one in ids:
        remove_message(str(home), one)


def _write_all(home: str, batch: Iterable[_FileCopy | _Removal]) -> None:
    can_write = True
    for one in batch:
        try:
            if isinstance(one, _Removal):
                remove_message(home, one.id)
            elif can_write:
                write_message(home, one.agent, one.id, one.ts, format_message_file(one.text))
        except OSError as error:
            if isinstance(one, _Removal):
                _logger.warning("the file of message %s cannot be removed: %s", one.id, error.strerror)
                continue
            _logger.warning("no file for message %s to %s: %s", one.id, one.agent, error.strerror)
            # The other files would fail too, and each is written when its message is typed. Removals go on:
            # no later event repeats them, and a removed text must not stay readable.
            can_write = False


# --------------------
# Remove the folders of native integrations whose holder was killed before it could remove them.
#
# A folder is removed only if it names its holder and that same process has ended. A folder that is still
# being created names no holder yet. The file system is read in a thread, so a slow disk does not block the
# event loop.


class RunningProcess(Protocol):
    """The facts about a process that tell whether it is a certain holder, and whether it still runs."""

    @property
    def start(self) -> int:
        """Ticks from boot to its start."""
        ...

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended, and only its exit status is left."""
        ...


Read = Callable[[int], RunningProcess | None]
"""Reads the process with a pid; None if there is no such process."""


class WorkspaceCleanup:
    """The reactor that removes these folders: at the start, and each time a held agent has left."""

    def __init__(self, home: Path, log: Log, tasks: asyncio.TaskGroup, read: Read) -> None:
        """The removal runs in `tasks`."""
        self._folder = home / NATIVE_FOLDER
        self._log = log
        self._tasks = tasks
        self._read = read
        self._removing: asyncio.Task[None] | None = None
        self._is_asked = False
        self._look()
        self._unsubscribe = log.subscribe(self._follow, (BYE,))

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        if any(event.type == BYE and self._is_held(event.sender) for event in events):
            self._look()

    def _is_held(self, name: str) -> bool:
        agent = read_agent(self._log.rows, name)
        return agent is not None and bool(agent.holder)

    def _look(self) -> None:
        """Scan the folders soon. Requests during a scan are combined into one scan after it."""
        self._is_asked = True
        if self._removing is None or self._removing.done():
            self._removing = self._tasks.create_task(self._remove())

    async def _remove(self) -> None:
        while self._is_asked:
            # Before the scan: a request during it can be about a folder that the scan has passed already.
            self._is_asked = False
            await asyncio.to_thread(remove_dead, self._folder, self._read)


def remove_dead(above: Path, read: Read) -> None:
    """Remove every subfolder whose holder process has ended."""
    for folder in above.glob("*"):
        try:
            holder = parse_holder((folder / HOLDER_FILE).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if holder is not None and not _is_alive(holder, read):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(holder: EndpointOwner, read: Read) -> bool:
    process = read(holder.pid)
    # Another process may have the pid by now: only the start time tells them apart. If that is unknown (0),
    # any process with the pid counts as the holder, so that no folder in use is removed.
    is_same = process is not None and holder.start in (0, process.start)
    return process is not None and is_same and not process.is_zombie


# --------------------
# Remove the sockets of agents whose holder was killed before it could remove them.
#
# A socket is removed only if its agent has left and no process listens on it. A holder opens its socket after
# the daemon has accepted it, and check and removal happen without an await, so no new socket is removed.

_FOLDER: Final = "agents"
_ENDING: Final = ".sock"


class DeadSockets:
    """The reactor that removes these sockets: all at the start, and each one when its agent has left."""

    def __init__(self, home: Path, log: Log) -> None:
        self._folder = home / _FOLDER
        self._log = log
        # Agents that have left while no daemon ran.
        for path in self._folder.glob(f"*{_ENDING}"):
            self._remove(path.stem)
        self._unsubscribe = log.subscribe(self._follow, (BYE,))

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == BYE:
                self._remove(event.sender)

    def _remove(self, name: str) -> None:
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.left or not agent.holder:
            return
        path = self._folder / f"{name}{_ENDING}"
        try:
            # Only a refused connection proves that no process listens. It must not wait, because this is the
            # event loop.
            if path.is_socket():
                connect_socket(path, can_wait=False).close()
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(OSError):
                path.unlink()
        except OSError:
            return  # a process listens there, or its state is unknown
