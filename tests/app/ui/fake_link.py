"""A link to a bus that does not exist: the test says what it sends and answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

import msgspec

from palaver.app.ui.commands import Result
from palaver.errors import Unavailable
from palaver.protocol.views import AgentRow, AnyAsk, Attention, Changes, Counts, Snapshot

T = TypeVar("T")


class FakeAway(msgspec.Struct):
    """The bus is away."""


class FakeLink:
    """Has the methods of `ViewLink`."""

    def __init__(self, *records: object) -> None:
        self._records: asyncio.Queue[object] = asyncio.Queue()
        self.asked: list[AnyAsk] = []
        self.seen: list[int] = []
        self.answers: dict[type, Callable[[AnyAsk], object]] = {}
        for record in records:
            self.push(record)

    def push(self, record: object) -> None:
        """Let the bus send a record."""
        self._records.put_nowait(record)

    async def records(self) -> AsyncGenerator[object, None]:
        while True:
            yield await self._records.get()

    async def ask(self, question: AnyAsk, answer: type[T]) -> T:
        self.asked.append(question)
        if type(question) not in self.answers:
            raise Unavailable("the bus is away")
        result = self.answers[type(question)](question)
        assert isinstance(result, answer)
        return result

    async def acknowledge(self, seqs: Sequence[int]) -> None:
        self.seen.extend(seqs)

    async def close(self) -> None:
        pass


class FakeCommands:
    """Has the methods of `PalCommand`, and records the commands."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.result = Result(0, "done\n", "")

    async def run(self, argv: Sequence[str], stdin: str | None = None, cwd: str | None = None) -> Result:
        self.ran.append(list(argv))
        return self.result

    def run_in_terminal(self, argv: Sequence[str], cwd: str | None = None) -> int:
        self.ran.append(list(argv))
        return 0


def snapshot(
    *agents: AgentRow, attention: Sequence[Attention] = (), seq: int = 10, unread: int = 0, **more: object
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
        agents_total=len(agents),
        **more,
    )


def agent(name: str, state: str = "idle", **more: object) -> AgentRow:
    """Return a row of an agent."""
    return AgentRow(name=name, state=state, since=900_000, seq=1, harness="claude", is_present=True, **more)


def changes(after: int, seq: int, **more: object) -> Changes:
    """Return changes."""
    return Changes(after=after, seq=seq, **more)
