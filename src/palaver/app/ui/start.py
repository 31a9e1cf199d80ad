"""Start the dashboard, the chat at a terminal, or the bus as lines for screen readers and pipes."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final, TextIO

from palaver.app.ui.commands import pal_line
from palaver.client.view_link import BusAway, ViewLink
from palaver.errors import PalaverError
from palaver.harness.marks import harness_of
from palaver.protocol.display import Paint, paint_for
from palaver.protocol.views import AgentRow, Attention, Changes, Counts, EventRow, Snapshot

# --------------------
# `pal ui --plain`: the bus as lines, for screen readers and pipes. It draws nothing and reads no keys.

_PAUSE_MS: Final = 1000
"""The state of one agent is printed at most once in this time; the last one is never left out."""

_MESSAGE: Final = "message"


class PlainLines:
    """Turns what happens into lines. Pure: the time is handed in.

    It prints open entries for the person, messages, states of agents, and whether the bus is there. Lines of
    other events are left out: `pal events --follow` prints those.
    """

    def __init__(self, paint: Paint, clock: Callable[[int], str]) -> None:
        """`clock` turns Unix milliseconds into a short time."""
        self._paint = paint
        self._clock = clock
        self._states: dict[str, tuple[str, str]] = {}
        self._attention: dict[str, Attention] = {}
        self._late: dict[str, AgentRow] = {}
        self._printed: dict[str, int] = {}
        self._is_away = False
        self._upgraded = -1
        """Tens of percent of an upgrade that were reported."""
        self._has_started = False

    def lines(self, record: Snapshot | Changes | BusAway, now_ms: int) -> Iterator[str]:
        """Yield the lines for a record."""
        if isinstance(record, BusAway):
            if record.upgraded is not None and record.upgraded // 10 > self._upgraded:
                self._upgraded = record.upgraded // 10
                yield f"The bus is upgrading its log ({record.upgraded} %)."
            elif not self._is_away:
                yield "The bus is not reachable; reconnecting."
            self._is_away = True
        elif isinstance(record, Snapshot):
            yield from self._snapshot(record, now_ms)
        else:
            yield from map(self._event, filter(_is_message, record.events))
            yield from self._entries(record.attention, record.settled)
            yield from self._agents(record.agents, now_ms)

    @property
    def next_ms(self) -> int | None:
        """When `late_lines` has something to print; None if nothing waits."""
        return min((self._printed[name] + _PAUSE_MS for name in self._late), default=None)

    def late_lines(self, now_ms: int) -> Iterator[str]:
        """Yield the states that came too soon after an earlier one of the same agent."""
        due = [row for name, row in self._late.items() if self._printed[name] + _PAUSE_MS <= now_ms]
        for row in due:
            del self._late[row.name]
        yield from self._agents(due, now_ms)

    def _snapshot(self, record: Snapshot, now_ms: int) -> Iterator[str]:
        if self._has_started:
            yield "The bus is back." if self._is_away else "This view was too slow; it continues here."
            if record.is_continued:
                yield from map(self._event, filter(_is_message, record.events))
        yield self._counts(record.counts)
        ended = self._attention.keys() - {entry.key for entry in record.attention}
        yield from self._entries(record.attention, sorted(ended))
        if self._has_started:
            yield from self._agents(record.agents, now_ms)
        else:
            self._states.update((row.name, _state_of(row)) for row in record.agents)
        self._is_away, self._upgraded, self._has_started = False, -1, True

    def _counts(self, counts: Counts) -> str:
        found = [f"{count:,} {self._paint.safe(state)}" for state, count in counts.agents.items() if count]
        agents = f"Agents: {', '.join(found)}." if found else "No agent has joined."
        return f"{agents} Open attention: {counts.attention:,}. Unread messages: {counts.unread:,}."

    def _entries(self, entries: Sequence[Attention], settled: Sequence[str]) -> Iterator[str]:
        for entry in entries:
            known = self._attention.get(entry.key)
            self._attention[entry.key] = entry
            if known is None or (known.what, known.why) != (entry.what, entry.why):
                yield self._entry(entry)
        for key in settled:
            if (ended := self._attention.pop(key, None)) is not None:
                yield f"Done: {self._about(ended)}"

    def _entry(self, entry: Attention) -> str:
        paint = self._paint
        commands = "; ".join(paint.safe(pal_line(action.command)) for action in entry.actions)
        actions = f" [{commands}]" if commands else ""
        about = self._about(entry)
        end = "" if about.endswith((".", "?", "!")) else "."
        return f"Attention: {about}{end} {paint.safe(entry.why)}{actions}"

    def _about(self, entry: Attention) -> str:
        return f"{self._paint.safe(entry.kind)}, {self._paint.name(entry.who)}: {self._text(entry.what)}"

    def _agents(self, rows: Sequence[AgentRow], now_ms: int) -> Iterator[str]:
        for row in rows:
            state = _state_of(row)
            if self._states.get(row.name) == state:
                self._late.pop(row.name, None)
                continue
            if now_ms - self._printed.get(row.name, -_PAUSE_MS) < _PAUSE_MS:
                self._late[row.name] = row
                continue
            self._late.pop(row.name, None)
            self._states[row.name], self._printed[row.name] = state, now_ms
            detail = f" and waits for {self._text(state[1])}" if state[1] else ""
            verb = "has" if state[0] in ("left", "exited") else "is"
            yield f"{self._paint.name(row.name)} {verb} {self._paint.safe(state[0])}{detail}"

    def _event(self, event: EventRow) -> str:
        to = f" to {self._paint.names(event.to)}" if event.to else ""
        head = f"{self._clock(event.ts)} #{event.seq} {self._paint.name(event.sender)}{to}"
        return f"{head}: {self._text(event.text)}"

    def _text(self, text: str) -> str:
        return self._paint.safe(" ".join(text.split()))


def _is_message(event: EventRow) -> bool:
    return event.type == _MESSAGE


def _state_of(row: AgentRow) -> tuple[str, str]:
    if row.has_left:
        return ("left", "")
    state = "stale" if row.is_stale else "paused" if row.is_paused else row.state
    return (state, row.waits_for if row.state == "blocked" else "")


# --------------------
# The command.


async def print_records(
    records: AsyncIterator[Snapshot | Changes | BusAway],
    plain: PlainLines,
    out: TextIO,
    now_ms: Callable[[], int],
) -> None:
    """Print lines for records until they end."""
    following = asyncio.ensure_future(anext(records))
    try:
        while True:
            due = plain.next_ms
            wait_s = None if due is None else max(due - now_ms(), 0) / 1000
            # Not `wait_for`: it would cancel `anext` at the timeout, and so end the records.
            done, _ = await asyncio.wait((following,), timeout=wait_s)
            lines = plain.lines(following.result(), now_ms()) if done else plain.late_lines(now_ms())
            for line in lines:
                out.write(f"{line}\n")
            out.flush()
            if done:
                following = asyncio.ensure_future(anext(records))
    except StopAsyncIteration:
        return
    finally:
        following.cancel()
        await asyncio.wait((following,))  # the records cannot be closed while one is awaited


def run_plain(home: str, environ: Mapping[str, str] = os.environ) -> int:
    """Print the bus until the person ends it or the reader is closed. Return the exit status."""
    paint = paint_for(environ, is_terminal=sys.stdout.isatty(), harness=harness_of(environ))
    plain = PlainLines(paint, lambda ms: time.strftime("%H:%M", time.localtime(ms / 1000)))

    async def run() -> None:
        from palaver.app.notices import noticed_records  # only for this form

        async with aclosing(noticed_records(ViewLink(home), environ)) as records:
            await print_records(records, plain, sys.stdout, lambda: time.time_ns() // 1_000_000)

    try:
        asyncio.run(run())
    except PalaverError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    return 0


# --------------------
# Start the dashboard: `pal ui`, `pal` alone at a terminal, and `pal chat` at a terminal.
#
# It loads no table of commands. Garbage collection is off until the first screen is drawn.

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp

_FRAMES: Final = "30"
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def main(home: str, words: list[str], environ: MutableMapping[str, str]) -> int:
    """Run the dashboard, or with `__chat --room ROOM` the chat of a room. Return the exit status."""
    room = words[-1] if words[:1] == ["__chat"] else ""
    if "--plain" in words or not _has_screen(environ):
        return _run_in_lines(home, room, environ)
    gc.disable()
    # Before the imports below: Textual reads these variables once, when it is imported.
    environ["TEXTUAL_FPS"] = _FRAMES
    environ["TEXTUAL_ANIMATIONS"] = "none"
    if environ.get("NO_COLOR") == "":
        del environ["NO_COLOR"]  # an empty value asks for nothing; Textual would take it for a wish
    from palaver.app.attach.attach import has_utf8
    from palaver.app.ui.app import PalaverApp
    from palaver.app.ui.commands import PalCommand
    from palaver.client.view_link import ViewLink

    is_ascii = not has_utf8(environ, is_utf8_mode=bool(sys.flags.utf8_mode))
    link, commands = ViewLink(home), PalCommand(home, environ)
    return run(PalaverApp(link, commands, is_ascii=is_ascii, room=room, drawn=_collect_garbage))


def _run_in_lines(home: str, room: str, environ: MutableMapping[str, str]) -> int:
    if room:
        from palaver.app.chat import chat  # only without a screen

        return chat(home, room, environ)
    return run_plain(home, environ)


def run(app: "PalaverApp") -> int:
    """Run an app on this terminal, and restore the terminal however it ends."""
    ended: list[int] = []

    def end(number: int, _: object) -> None:
        ended.append(number)
        app.exit(128 + number)

    for number in _ENDING:
        signal.signal(number, end)
    errors = _draw_on_the_terminal()
    try:
        status = app.run()
    finally:
        if errors is not None:
            os.dup2(errors, 2)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    # The parent sees the signal as the cause, as without a handler.
    if ended:
        os.kill(os.getpid(), ended[0])
    return app.return_code or status or 0


def _has_screen(environ: Mapping[str, str]) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and environ.get("TERM", "dumb") != "dumb"


def _draw_on_the_terminal() -> int | None:
    """Put standard output in the place of standard error, on which Textual draws, if only it is the terminal.

    Return a copy of standard error to restore later, or None if nothing was changed.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        return None
    with suppress(OSError):
        errors = os.dup(2)
        os.dup2(1, 2)
        return errors
    return None


def _collect_garbage() -> None:
    gc.freeze()  # the loaded modules stay, so later collections need not look at them
    gc.enable()
