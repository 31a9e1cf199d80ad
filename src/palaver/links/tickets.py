"""Tickets: one-time rights of holders to claim an agent that a caller asked to run. In memory only.

The rights for `pal run` are checked when it is requested, but another process carries it out a little later:
the ticket passes the decision on. It can be used once, within a minute, and not after a restart of the
daemon. It is bound to the process that asked: no other process can use it, even one that has read it.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.clock import Clock
from palaver.errors import NotFound
from palaver.links.process import Process
from palaver.model.agent import Caller

TICKET_MS: Final = 60_000
LIMIT_TICKETS: Final = 1000
"""Tickets kept at once; above the limit the oldest is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The agent to start, and the caller that asked for it."""

    by: Caller
    asker: tuple[int, int]
    """Pid and start of the process that asked. Only it and the processes below it can use the ticket."""
    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    is_resumed: bool = False


class Tickets:
    """Tickets that were issued and not used."""

    def __init__(self, clock: Clock, draw: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._clock = clock
        self._draw = draw
        self._open: dict[str, tuple[int, Ticket]] = {}

    def mint(self, ticket: Ticket) -> str:
        """Store a ticket and return its token."""
        self._forget()
        while len(self._open) >= LIMIT_TICKETS:
            del self._open[next(iter(self._open))]
        word = self._draw()
        self._open[word] = self._clock.now_ms() + TICKET_MS, ticket
        return word

    def take(self, word: str, chain: Sequence[Process]) -> Ticket:
        """Return a ticket and forget it. `chain` is the process that shows it and its parents.

        Raises NotFound for a ticket that was used, is too old, never existed, or was asked for by another
        process; in the last case it stays valid for its asker.
        """
        self._forget()
        found = self._open.get(word)
        if found is None:
            raise NotFound("such ticket", "it was already used or has expired; run 'pal run' again")
        if found[1].asker not in [(process.pid, process.start) for process in chain]:
            raise NotFound("such ticket", "it belongs to another process; run 'pal run' again")
        del self._open[word]
        return found[1]

    def give_back(self, word: str, ticket: Ticket) -> None:
        """Make a ticket valid again: the request that used it was refused and had no effect."""
        self._open[word] = self._clock.now_ms() + TICKET_MS, ticket

    def _forget(self) -> None:
        now = self._clock.now_ms()
        self._open = {word: kept for word, kept in self._open.items() if kept[0] > now}
