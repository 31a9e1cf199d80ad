"""Tell a person that an agent needs them: it is blocked, asks, or has finished.

Every open view has one `Notices` and passes each record of the bus to it. The daemon decides which view tells
the person, so that there is one notice for each event. `pal notify` does the same without a view.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from palaver.client.view_link import Record, ViewLink
from palaver.errors import PalaverError
from palaver.protocol.display import safe
from palaver.protocol.events import AgentState
from palaver.protocol.lines import NoticeReply
from palaver.protocol.message import HUMAN
from palaver.protocol.views import AgentRow, Attention, AttentionKind, Changes, Snapshot

# --------------------
# The events that a person should know of. Pure.

LIMIT_NAMED: Final = 3
"""Notices that a joined notice contains in full; the others are counted."""
LIMIT_CHARACTERS: Final = 200
_WORDS: Final = {
    AttentionKind.PERMISSION: "asks for permission",
    AttentionKind.REQUEST: "asks you",
    AttentionKind.BLOCKED: "is blocked",
}
"""The kinds of entries that cause a notice."""
_SAME_MS: Final = 2_000
"""An agent that is blocked up to this long after it has asked for permission is blocked because of that."""
_AT_WORK: Final = frozenset({AgentState.ACTIVE, AgentState.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonNotice:
    """One event that a person should know of."""

    key: str
    """Unique for the event: all views use the same one."""
    who: str
    entries: frozenset[str]
    """It is in view if one of these is: the key of an entry, or `agent/NAME`."""
    sentence: str
    reason: str = ""
    text: str = ""
    """Words of an agent. They are shown only with the setting `notify_text`."""


class NoticeRules:
    """Decides which records of the bus are worth a notice. Pure: its memory is the records before."""

    def __init__(self) -> None:
        self._entries: dict[str, Attention] = {}
        self._agents: dict[str, AgentRow] = {}
        self._asked: dict[str, int] = {}
        self._is_first = True

    def take(self, record: Snapshot | Changes) -> list[PersonNotice]:
        """Return the notices of a record: none for the first snapshot, which is what the person finds."""
        # Computed for the first record too: later ones are compared with it.
        found = [*self._of_entries(record), *self._of_agents(record)]
        is_first, self._is_first = self._is_first, False
        return [] if is_first else found

    def is_true(self, notice: PersonNotice) -> bool:
        """Return whether a notice still holds: the entry is open, or the agent has not gone on."""
        entry = self._entries.get(notice.key.rpartition("@")[0])
        if entry is not None and _entry_key(entry) == notice.key:
            return not self._is_repeat(entry)
        row = self._agents.get(notice.who)
        return row is not None and _end_key(row) == notice.key

    def _is_repeat(self, entry: Attention) -> bool:
        """Return whether another entry says, or has said, the same: an agent that asks is blocked too."""
        asked_ms = self._asked.get(entry.who)
        is_blocked = entry.kind == AttentionKind.BLOCKED
        return is_blocked and asked_ms is not None and entry.since <= asked_ms + _SAME_MS

    def _of_entries(self, record: Snapshot | Changes) -> Iterator[PersonNotice]:
        before = {_entry_key(entry) for entry in self._entries.values()}
        if isinstance(record, Snapshot):
            self._entries.clear()
        else:
            for key in record.settled:
                self._entries.pop(key, None)
        self._entries |= {entry.key: entry for entry in record.attention}
        asking = [entry for entry in record.attention if entry.kind == AttentionKind.PERMISSION]
        self._asked |= {entry.who: entry.since for entry in asking}
        for entry in record.attention:
            is_new = _entry_key(entry) not in before and entry.kind in _WORDS
            if is_new and not self._is_repeat(entry):
                yield _notice_of_entry(entry)

    def _of_agents(self, record: Snapshot | Changes) -> Iterator[PersonNotice]:
        for row in record.agents:
            before = self._agents.get(row.name)
            # An older row would look like a change back, and later cause a second notice.
            if before is not None and before.seq > row.seq:
                continue
            self._agents[row.name] = row
            # A sub-agent ends with every task of its parent, and people come and go as they like.
            if before is None or row.parent or row.harness == HUMAN:
                continue
            if _has_ended(row) and not _has_ended(before):
                yield _notice_of_end(row, "has exited")
            elif row.state == AgentState.IDLE and before.state in _AT_WORK:
                yield _notice_of_end(row, "has finished")


def _has_ended(row: AgentRow) -> bool:
    return row.has_left or row.state == AgentState.EXITED


def _entry_key(entry: Attention) -> str:
    return f"{entry.key}@{entry.since}"


def _end_key(row: AgentRow) -> str:
    return f"{'exited' if _has_ended(row) else row.state}/{row.name}@{row.since}"


def _notice_of_entry(entry: Attention) -> PersonNotice:
    # The terminal of the agent shows what it is blocked on, but not what it has asked before.
    is_on_screen = entry.kind != AttentionKind.REQUEST
    return PersonNotice(
        key=_entry_key(entry),
        who=entry.who,
        entries=frozenset({entry.key, *([f"agent/{entry.who}"] if is_on_screen else [])}),
        sentence=f"{entry.who} {_WORDS[AttentionKind(entry.kind)]}",
        reason=entry.why,
        text=entry.what,
    )


def _notice_of_end(row: AgentRow, what: str) -> PersonNotice:
    return PersonNotice(
        key=_end_key(row),
        who=row.name,
        entries=frozenset({f"agent/{row.name}"}),
        sentence=f"{row.name} {what}",
        text=row.doing,
    )


def join_notices(notices: Sequence[PersonNotice], *, unknown: int = 0, has_text: bool = False) -> str:
    """Return one line about all notices. `unknown` others are only counted."""
    if len(notices) == 1 and not unknown:
        (one,) = notices
        parts = [one.sentence, one.reason, one.text if has_text else ""]
        return _cut(": ".join(part for part in parts if part))
    named = [one.sentence for one in notices[:LIMIT_NAMED]]
    rest = len(notices) - len(named) + unknown
    return _cut("; ".join([*named, f"{rest} more"] if rest else named))


def _cut(text: str) -> str:
    line = " ".join(safe(text).split())
    return line if len(line) <= LIMIT_CHARACTERS else f"{line[: LIMIT_CHARACTERS - 1]}…"


# --------------------
# How a terminal tells it. Pure.

TITLE: Final = "Palaver"
BELL: Final = "\a"


def terminal_signal(notify: str, line: str, environment: Mapping[str, str]) -> str:
    """Return what a terminal gets for the setting `notify`; empty for `off`.

    tmux passes other sequences on only in its own envelope, and only with `allow-passthrough`.
    """
    match notify:
        case "bell":
            return BELL
        case "osc9":
            return _through_tmux(f"\x1b]9;{TITLE}: {line}{BELL}", environment)
        case "osc777":
            # A semicolon separates the fields of this sequence.
            return _through_tmux(f"\x1b]777;notify;{TITLE};{line.replace(';', ',')}{BELL}", environment)
    return ""


def _through_tmux(sequence: str, environment: Mapping[str, str]) -> str:
    if not environment.get("TMUX"):
        return sequence
    # In its envelope tmux reads two Escapes as one; a single one could end the envelope.
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def command_words(command: Sequence[str], line: str) -> list[str]:
    """Return the words of `notify_command` for a notice. Without a slot, the line is the last word."""
    filled = [word.replace("{title}", TITLE).replace("{text}", line) for word in command]
    return filled if any("{text}" in word for word in command) else [*filled, line]


# --------------------
# Telling.

COMMAND_LIMIT_S: Final = 10.0
"""Seconds after which `notify_command` is ended."""


class NoticeLink(Protocol):
    """The connection of a view, as notices use it."""

    async def notice(self, key: str, *, is_in_view: bool) -> NoticeReply:
        """Ask the daemon whether to tell the person of this. Raises PalaverError."""
        ...


class Notices:
    """The notices of one view. Nothing here blocks or raises.

    `write` puts characters on the terminal. `complain` shows a sentence about `notify_command`, once. `show`
    gets the line of each notice that this view sends.
    """

    def __init__(
        self,
        link: NoticeLink,
        write: Callable[[str], None],
        complain: Callable[[str], None],
        environment: Mapping[str, str] = os.environ,
        *,
        show: Callable[[str], None] = lambda line: None,
        command_limit_s: float = COMMAND_LIMIT_S,
    ) -> None:
        self._link = link
        self._write = write
        self._complain = complain
        self._environment = environment
        self._show = show
        self._command_limit_s = command_limit_s
        self._rules = NoticeRules()
        self._open: dict[str, PersonNotice] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_complained = False
        self._is_running = False

    def record(self, record: Snapshot | Changes | msgspec.Struct, in_view: Collection[str] = ()) -> None:
        """Take one record of the bus. Call it on the event loop with each record, in order.

        `in_view` has the keys of the entries that the person sees now, and `agent/NAME` for an agent whose
        terminal or page they see: no view tells them of those.
        """
        if not isinstance(record, Snapshot | Changes):
            return
        for notice in self._rules.take(record):
            self._open[notice.key] = notice
            self._spawn(self._ask(notice, is_in_view=not notice.entries.isdisjoint(in_view)))

    async def close(self) -> None:
        """Forget notices that wait, and end a command that still runs."""
        # A copy, because a task that ends removes itself from the set.
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The loop keeps only weak references to tasks: a task without another one could be collected.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, notice: PersonNotice, *, is_in_view: bool) -> None:
        try:
            reply = await self._link.notice(notice.key, is_in_view=is_in_view)
            if reply.send:
                await self._tell(reply)
        except PalaverError:  # The bus is away, or the caller is not the person: another view tells them.
            return
        finally:
            self._open.pop(notice.key, None)

    async def _tell(self, reply: NoticeReply) -> None:
        known = [self._open[key] for key in reply.keys if key in self._open]
        # The daemon may have delayed this notice to join it with others, and some may be over by now.
        wanted = [notice for notice in known if self._rules.is_true(notice)]
        if not wanted:
            return
        unknown = len(reply.keys) - len(known)
        line = join_notices(wanted, unknown=unknown, has_text=reply.has_text)
        self._show(line)
        if sequence := terminal_signal(reply.notify, line, self._environment):
            self._write(sequence)
        if reply.command:
            await self._run(command_words(reply.command, line))

    async def _run(self, words: Sequence[str]) -> None:
        """Run the command without a shell; at most one at a time: a notice during that time runs none."""
        if self._is_running:
            return
        self._is_running = True
        try:
            await self._run_limited(words)
        finally:
            self._is_running = False

    async def _run_limited(self, words: Sequence[str]) -> None:
        null = asyncio.subprocess.DEVNULL
        try:
            # In its own session, so that it can be ended with everything that it has started, and a Ctrl-C
            # for the view does not reach it.
            process = await asyncio.create_subprocess_exec(
                *words, stdin=null, stdout=null, stderr=null, start_new_session=True
            )
        # An argument with a NUL character is a ValueError.
        except (OSError, ValueError) as error:
            self._complain_once(f"notify_command cannot be started: {error}")
            return
        try:
            async with asyncio.timeout(self._command_limit_s):
                status = await process.wait()
        except TimeoutError:
            self._complain_once(f"notify_command was ended after {self._command_limit_s:g} seconds")
        else:
            if status:
                self._complain_once(f"notify_command has failed with status {status}")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def _complain_once(self, sentence: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._complain(f"{sentence}; change it with 'pal config set notify_command'")


# --------------------
# Views that print lines, and the terminal of an agent that is shown unchanged.


async def noticed_records(link: ViewLink, environment: Mapping[str, str]) -> AsyncGenerator[Record, None]:
    """Yield the records of a view that prints lines, send notices about them, and close the view at the end.

    Without a terminal there are no notices: another view tells the person.
    """

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    notices = Notices(link, write, print_warning, environment)
    is_heard = sys.stdout.isatty()
    try:
        async with aclosing(link.records()) as records:
            async for record in records:
                if is_heard:
                    notices.record(record)
                yield record
    finally:
        await notices.close()
        await link.close()


def print_warning(sentence: str) -> None:
    """Print a sentence on standard error."""
    sys.stderr.write(f"pal: {sentence}\n")


_CLOSE_S: Final = 2.0
"""Seconds that the thread may take to end its connection; after that, the end of the process ends it."""


class NoticeThread:
    """Sends notices for a view without an event loop.

    `write` and `complain` are called in the thread. Without a bus, or if the caller is not the person, there
    are no notices.
    """

    def __init__(
        self,
        home: str,
        write: Callable[[str], None],
        complain: Callable[[str], None],
        environment: Mapping[str, str],
        *,
        in_view: Collection[str],
    ) -> None:
        self._home = home
        self._write = write
        self._complain = complain
        self._environment = environment
        self._in_view = in_view
        # Made here and not in the thread, so that `__exit__` can use it however early it is called.
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End it. A command that still runs is ended too."""
        with suppress(RuntimeError):  # The loop has ended already.
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._send())

    async def _send(self) -> None:
        link = ViewLink(self._home)
        notices = Notices(link, self._write, self._complain, self._environment)
        sending = asyncio.ensure_future(send_notices(link, notices, in_view=self._in_view))
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait((sending, closing), return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, closing):
            task.cancel()
        with suppress(PalaverError, asyncio.CancelledError):
            await sending


# --------------------
# `pal notify`.

_HINT: Final = "sending notices until Ctrl-C"
_NOT_PERSON: Final = (
    "only a person gets notices: run 'pal notify' in the foreground of a terminal that no agent owns"
)


async def send_notices(
    link: ViewLink,
    notices: Notices,
    begun: Callable[[], None] = lambda: None,
    *,
    in_view: Collection[str] = (),
) -> bool:
    """Send notices until the view is closed; return False at once if the caller is not the person.

    `begun` is called once, when the bus is followed. `in_view` is what the person sees all the time.
    """
    is_first = True
    try:
        async for record in link.records():
            if isinstance(record, Snapshot) and record.me != HUMAN:
                return False
            notices.record(record, in_view)
            if is_first:
                begun()
                is_first = False
        return True
    finally:
        await notices.close()
        await link.close()


def main(home: str, environment: Mapping[str, str]) -> int:
    """Send notices until Ctrl-C; print each one."""

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    async def run() -> bool:
        link = ViewLink(home)
        notices = Notices(link, write, print_warning, environment, show=lambda line: write(f"{line}\n"))
        return await send_notices(link, notices, lambda: print_warning(_HINT))

    try:
        is_person = asyncio.run(run())
    except PalaverError as error:
        print_warning(str(error))
        return 1
    if not is_person:
        print_warning(_NOT_PERSON)
    return 0 if is_person else 1
