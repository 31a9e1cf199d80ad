"""`pal ui --plain`: the bus as lines, for screen readers and pipes. It draws nothing and reads no keys."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TextIO

from palaver.app.ui.commands import pal_line
from palaver.client.view_link import BusAway, ViewLink
from palaver.errors import PalaverError
from palaver.harness.marks import harness_of
from palaver.protocol.display import Paint, paint_for
from palaver.protocol.views import AgentRow, Attention, Changes, Counts, EventRow, Snapshot

_PAUSE_MS: Final = 1000
"""The state of one agent is printed at most once in this time; the last one is never left out."""

_MESSAGE: Final = "message"


class PlainLines:
    """Turns what happens into lines. Pure: the time is handed in.

    It prints what waits for the person, messages, states of agents, and whether the bus is there. Lines of
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
        self._has_started = False

    def lines(self, record: Snapshot | Changes | BusAway, now_ms: int) -> Iterator[str]:
        """Yield the lines for a record."""
        if isinstance(record, BusAway):
            if not self._is_away:
                yield "The bus is away; this waits until it is back."
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
        gone = self._attention.keys() - {entry.key for entry in record.attention}
        yield from self._entries(record.attention, sorted(gone))
        if self._has_started:
            yield from self._agents(record.agents, now_ms)
        else:
            self._states.update((row.name, _state_of(row)) for row in record.agents)
        self._is_away, self._has_started = False, True

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
            yield f"{self._paint.name(row.name)} is {self._paint.safe(state[0])}{detail}"

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
        return ("gone", "")
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
        link = ViewLink(home)
        try:
            async with aclosing(link.records()) as records:
                await print_records(records, plain, sys.stdout, lambda: time.time_ns() // 1_000_000)
        finally:
            await link.close()

    try:
        asyncio.run(run())
    except PalaverError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    return 0
