"""The holders that are connected now: which agent each has, and what it is asked. Keeps nothing else.

A question goes out as a `control` push and its answer comes back as a `tell` on the same connection. It ends
with the connection: whoever asked is told that the holder has gone.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from palaver.errors import NotFound, Unavailable
from palaver.links.process import Process
from palaver.model.lines.holder_ops import TellOp

PEEK: Final = "peek"
STATUS: Final = "status"
STOP: Final = "stop"
KILL: Final = "kill"
"""What a holder can be asked."""

Push = Callable[[Mapping[str, object]], None]
"""Sends one `control` push off and does not wait."""


@dataclass(slots=True, eq=False)
class Hold:
    """One agent in the hands of one connected holder."""

    name: str
    holder: Process
    push: Push
    cols: int = 0
    rows: int = 0
    questions: dict[int, asyncio.Queue[TellOp | None]] = field(default_factory=dict)


class Holds:
    """Every agent that a holder has now. Belongs to the loop's thread."""

    def __init__(self, meet: Callable[[Process], None] = lambda _: None) -> None:
        """`meet` is told of every process that holds an agent."""
        self._meet = meet
        self._holds: dict[str, Hold] = {}
        self._numbers = count(1)
        self._watching: list[Callable[[], None]] = []
        self.hidden: dict[str, bytes] = {}
        """Raw keys for hidden prompts, by the hash that the log keeps of them. They are in no file."""

    def get(self, name: str) -> Hold | None:
        """Give the hold on an agent, if somebody has it now."""
        return self._holds.get(name)

    def open(self, hold: Hold) -> None:
        """A holder has an agent; one that had it before has it no longer."""
        if (before := self._holds.get(hold.name)) is not None:
            self.close(before)
        self._holds[hold.name] = hold
        self._meet(hold.holder)
        for tell in self._watching:
            tell()

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` whenever a holder has come to have an agent, and return what ends that."""
        self._watching.append(tell)
        return lambda: self._watching.remove(tell)

    def close(self, hold: Hold) -> None:
        """A holder is gone, and what it was asked is not answered any more. Twice is once."""
        if self._holds.get(hold.name) is hold:
            del self._holds[hold.name]
        for answers in hold.questions.values():
            answers.put_nowait(None)

    def told(self, hold: Hold, told: TellOp) -> None:
        """Take a holder's word; one on a question that nobody asks any more is passed over."""
        if (answers := hold.questions.get(told.ask)) is not None:
            answers.put_nowait(told)

    async def ask(self, name: str, verb: str, **fields: object) -> AsyncGenerator[TellOp, None]:
        """Ask the holder of an agent, and give its words as they come; the last one is `done`.

        Raises NotFound when nobody holds it, Unavailable when the holder goes before it has answered.
        """
        hold = self._holds.get(name)
        if hold is None:
            raise NotFound(
                f"holder of {name}", "it runs in no terminal of Palaver now, or is just coming back"
            )
        number = next(self._numbers)
        answers = hold.questions[number] = asyncio.Queue()
        try:
            hold.push({"ask": number, "name": name, "verb": verb, **fields})
            while (told := await answers.get()) is not None:
                yield told
                if told.done:
                    return
            raise Unavailable(f"the holder of {name} has gone before it answered")
        finally:
            del hold.questions[number]

    async def ask_once(self, name: str, verb: str, *, limit_s: float, **fields: object) -> TellOp:
        """Ask and give the last word; raises Unavailable when the holder does not answer in time."""
        try:
            async with asyncio.timeout(limit_s), aclosing(self.ask(name, verb, **fields)) as words:
                told = await anext(words)
                while not told.done:
                    told = await anext(words)
                return told
        except TimeoutError:
            raise Unavailable(f"the holder of {name} did not answer within {limit_s:g} seconds") from None
