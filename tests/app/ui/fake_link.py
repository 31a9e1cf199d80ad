"""A link to a bus that does not exist: the test says what it sends and answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeVar

from textual.widget import Widget

from palaver.app.ui.commands import Result
from palaver.client.view_link import BusAway
from palaver.errors import Unavailable
from palaver.protocol.lines import NoticeReply
from palaver.protocol.views import Action, AgentRow, AnyAsk, Attention, Changes, Counts, Snapshot, ViewValue

T = TypeVar("T", bound=ViewValue)
Record = Snapshot | Changes | BusAway


class FakeLink:
    """Has the methods of `ViewLink`."""

    def __init__(self, *records: Record) -> None:
        self._records: asyncio.Queue[Record | None] = asyncio.Queue()
        self.asked: list[AnyAsk] = []
        self.seen: list[int] = []
        self.noticed: list[tuple[str, bool]] = []
        self.answers: dict[type[AnyAsk], Callable[[AnyAsk], ViewValue]] = {}
        self.held: dict[type[AnyAsk], asyncio.Event] = {}
        """Questions of these kinds are answered when their event is set."""
        self.past_steps: asyncio.Queue[int] | None = None
        """The seqs that a question about the past reaches before its answer, until its own; None for none."""
        for record in records:
            self.push(record)

    def push(self, record: Record) -> None:
        """Let the bus send a record."""
        self._records.put_nowait(record)

    async def records(self) -> AsyncGenerator[Record, None]:
        while (record := await self._records.get()) is not None:
            yield record

    async def ask(
        self, question: AnyAsk, answer: type[T], progress: Callable[[int], None] | None = None
    ) -> T:
        self.asked.append(question)
        if (held := self.held.get(type(question))) is not None:
            await held.wait()
        if type(question) not in self.answers:
            raise Unavailable("the bus is not reachable")
        if self.past_steps is not None and progress is not None:
            while (seq := await self.past_steps.get()) < question.at:
                progress(seq)
        result = self.answers[type(question)](question)
        assert isinstance(result, answer)
        return result

    async def acknowledge(self, seqs: Iterable[int]) -> None:
        self.seen.extend(seqs)

    async def notice(self, key: str, *, is_in_view: bool) -> NoticeReply:
        self.noticed.append((key, is_in_view))
        return NoticeReply(send=not is_in_view, keys=(key,), notify="bell")

    async def close(self) -> None:
        self._records.put_nowait(None)


class FakeCommands:
    """Has the methods of `PalCommand`, and records the commands."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.result = Result(0, "done\n", "")
        self.held: asyncio.Event | None = None
        """If there is one, commands end when it is set."""
        self.cancelled: list[list[str]] = []

    async def run(self, argv: Sequence[str], stdin: str | None = None, cwd: str | None = None) -> Result:
        self.ran.append(list(argv))
        try:
            if self.held is not None:
                await self.held.wait()
        except asyncio.CancelledError:
            self.cancelled.append(list(argv))
            raise
        return self.result

    def run_in_terminal(self, argv: Sequence[str], cwd: str | None = None) -> int:
        self.ran.append(list(argv))
        return 0


def snapshot(
    *agents: AgentRow, attention: Sequence[Attention] = (), seq: int = 10, unread: int = 0, total: int = 0
) -> Snapshot:
    """Return a snapshot with these rows."""
    states: dict[str, int] = {}
    for row in agents:
        states[row.state] = states.get(row.state, 0) + 1
    return Snapshot(
        epoch="one",
        seq=seq,
        now=1_000_000,
        me="human",
        device="BOXE",
        version="0.1.0",
        counts=Counts(agents=states, attention=len(attention), unread=unread),
        attention=tuple(attention),
        agents=agents,
        agents_total=total or len(agents),
    )


def agent(name: str, state: str = "idle", *, seq: int = 1, parent: str = "") -> AgentRow:
    """Return the row of an agent. A test changes other fields with `msgspec.structs.replace`."""
    return AgentRow(
        name=name, state=state, since=900_000, seq=seq, harness="claude", is_present=True, parent=parent
    )


def entry(
    key: str, *, who: str = "luna", what: str = "", since: int = 900_000, actions: Sequence[Action] = ()
) -> Attention:
    """Return an entry of the attention list. Its kind is the first part of its key."""
    kind, _, number = key.partition("/")
    return Attention(
        key=key,
        kind=kind,
        who=who,
        what=what or f"about {key}",
        since=since,
        why=f"{who} waits for you",
        actions=tuple(actions),
        id=number if kind == "permission" else "",
        seq=int(number) if number.isdecimal() else 0,
    )


def lines_of(widget: Widget) -> list[str]:
    """Return the lines of a widget as text, without trailing blanks."""
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]
