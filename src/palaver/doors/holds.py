"""The holders that are connected now: the agent of each, and the open requests to it. In memory only.

A request goes out as a `control` push, and the reply comes back as a `tell` on the same connection. If the
connection ends first, the caller gets Unavailable.
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
"""The requests that a holder serves."""

Push = Callable[[Mapping[str, object]], None]
"""Sends one `control` push without waiting."""


@dataclass(slots=True, eq=False)
class Hold:
    """One agent and the connected holder that has it."""

    name: str
    holder: Process
    push: Push
    cols: int = 0
    rows: int = 0
    questions: dict[int, asyncio.Queue[TellOp | None]] = field(default_factory=dict)


class Holds:
    """All agents that have a connected holder. Use it only on the event loop's thread."""

    def __init__(self, meet: Callable[[Process], None] = lambda _: None) -> None:
        """`meet` is called with every process that starts to hold an agent."""
        self._meet = meet
        self._holds: dict[str, Hold] = {}
        self._numbers = count(1)
        self._watching: list[Callable[[], None]] = []
        self.hidden: dict[str, bytes] = {}
        """Raw keys for hidden prompts, by their hash in the log. They are never written to a file."""

    def get(self, name: str) -> Hold | None:
        """Return the hold on an agent, or None if no connected holder has it."""
        return self._holds.get(name)

    def open(self, hold: Hold) -> None:
        """Register the holder of an agent. An earlier holder of that agent loses it."""
        if (before := self._holds.get(hold.name)) is not None:
            self.close(before)
        self._holds[hold.name] = hold
        self._meet(hold.holder)
        for tell in self._watching:
            tell()

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` each time a holder registers an agent. Return a function that ends this."""
        self._watching.append(tell)
        return lambda: self._watching.remove(tell)

    def close(self, hold: Hold) -> None:
        """Remove a holder and end its open requests without a reply. Repeats have no effect."""
        if self._holds.get(hold.name) is hold:
            del self._holds[hold.name]
        for answers in hold.questions.values():
            answers.put_nowait(None)

    def told(self, hold: Hold, told: TellOp) -> None:
        """Pass a holder's reply to its request. Ignore a reply to a request that has ended."""
        if (answers := hold.questions.get(told.ask)) is not None:
            answers.put_nowait(told)

    async def ask(self, name: str, verb: str, **fields: object) -> AsyncGenerator[TellOp, None]:
        """Send a request to the holder of an agent and yield its replies in order; the last one is `done`.

        Raises NotFound if the agent has no connected holder, and Unavailable if the holder disconnects first.
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
        """Send a request and return the last reply. Raise Unavailable if it is not complete in `limit_s`."""
        try:
            async with asyncio.timeout(limit_s), aclosing(self.ask(name, verb, **fields)) as words:
                told = await anext(words)
                while not told.done:
                    told = await anext(words)
                return told
        except TimeoutError:
            raise Unavailable(f"the holder of {name} did not answer within {limit_s:g} seconds") from None
