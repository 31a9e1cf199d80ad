"""Files of messages to agents in terminals, written as soon as a message is queued.

They are copies for people and agents to read. The log is authoritative, and the holder that types a message
writes its file if it is missing. So a full or slow disk blocks nothing, and a file may be missing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palaver.home import remove_message, write_message
from palaver.log.api import EventKey, EventKind, Log
from palaver.log.follow import HandlerSwitch
from palaver.protocol.agent_text import format_message_file
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import SEAT_TYPES, MessageSent, State, TextRemoved
from palaver.protocol.message import MESSAGE, is_lost, is_raw, readable_text
from palaver.protocol.paths import split_mailbox
from palaver.protocol.redaction import REDACTED_TYPE
from palaver.state.agents import find_mail, read_agent, read_agents
from palaver.state.fold import agent_of
from palaver.state.rows import PUSHED, deliverable, kind_of_key

_LIMIT_WAITING: Final = 10_000

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
        for event in events:  # After the waiting writes, so that none of them recreates the file.
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
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = self._tasks.create_task(self._write())

    def _add(self, event: Event) -> None:
        if is_raw(event) or is_lost(event) or (isinstance(event.body, MessageSent) and event.body.bare):
            return
        for mailbox in deliverable(event).delivered_to:
            name = split_mailbox(mailbox)[0]
            is_typed = name in self._in_terminals and self._is_queued(mailbox, event.seq)
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
            batch = list(self._waiting)
            self._waiting.clear()
            await asyncio.to_thread(_write_all, self._home, batch)


def remove_files(home: Path, ids: Iterable[str]) -> None:
    """Remove the files of messages whose text was removed."""
    for one in ids:
        remove_message(str(home), one)


def _write_all(home: str, batch: Iterable[_FileCopy | _Removal]) -> None:
    for one in batch:
        if isinstance(one, _Removal):
            remove_message(home, one.id)
            continue
        try:
            write_message(home, one.agent, one.id, one.ts, format_message_file(one.text))
        except OSError as error:
            _logger.warning("no file for message %s to %s: %s", one.id, one.agent, error.strerror)
            return  # the others would fail too, and each file is written when its message is typed
