"""What delivery asks the broker to write: steps of the ledger, and words to senders. Decides no step."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Final

from palaver.delivery.expiry import Due
from palaver.delivery.notices import held_notices, notice
from palaver.delivery.unsure import unsure_notice
from palaver.log.api import Log
from palaver.log.state import read_entry
from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.mail import DeliveryReport, Entry
from palaver.model.message import LOST
from palaver.model.request import Notify, Report

Submit = Callable[[Report | Notify], Awaitable[object]]
"""Hands a request to the broker in the name of the bus."""


_WHY_LOST: Final = f"{LOST}, its file in blobs/ is gone or changed. Send it again"


class Ledger:
    """The way back to the front. A sender is told only of what really came to pass."""

    def __init__(self, log: Log, submit: Submit) -> None:
        self._log = log
        self._submit = submit

    async def report(
        self,
        agent: str,
        seqs: Sequence[int],
        state: State,
        *,
        lane: str = "",
        grade: str = "",
        reason: str = "",
        unconfirmed: bool = False,
        evidence: str = "",
        priority: str = "",
        request: str = "",
    ) -> None:
        """Ask for one step of some messages; what cannot take it any more stays as it is.

        `priority` is for what has left the line and comes back into it. `request` names the hook request
        that took the messages.
        """
        report = DeliveryReport(
            agent=agent,
            messages=tuple(seqs),
            state=state,
            lane=lane,
            grade=grade,
            reason=reason,
            unconfirmed=unconfirmed,
            evidence=evidence,
            priority=priority,
            request=request,
        )
        await self._submit(Report(report=report))

    def entry(self, seq: int, agent: str) -> Entry | None:
        """Return the line of one message for one recipient; None while nothing has happened to it."""
        return read_entry(self._log.rows, seq, agent)

    async def unconfirmed(self, agent: str, seqs: Sequence[int], *, lane: str = "") -> None:
        """Nobody will ever say whether these were read: they stay submitted, and their senders are told."""
        await self.report(agent, seqs, State.SUBMITTED, lane=lane, unconfirmed=True)
        for event in filter(None, map(self._log.event, seqs)):
            entry = read_entry(self._log.rows, event.seq, agent)
            if entry is not None and entry.unconfirmed:
                await self._tell(event, "unconfirmed", [agent], attempt=entry.submitted)

    async def tell_held(self, agent: str, events: Sequence[Event], *, why: str) -> None:
        """These cannot go now: each sender is told, with `why` in words, in one notice for all of its own."""
        for told in held_notices(agent, events, reason=why):
            await self._submit(told)

    async def lost(self, agent: str, events: Sequence[Event]) -> None:
        """Of these the content is lost: they are held, for a file may come back, and their senders told."""
        await self.report(agent, [event.seq for event in events], State.HELD, reason=LOST)
        await self.tell_held(agent, self.which_are(State.HELD, agent, events), why=_WHY_LOST)

    async def tell_unsure(self, agent: str) -> None:
        """Give an agent the numbers of what it may or may not have read, those that it was not given yet."""
        if (told := unsure_notice(self._log, agent)) is not None:
            await self._submit(told)

    async def refused(
        self, agent: str, events: Sequence[Event], *, lane: str, reason: str, evidence: str = ""
    ) -> None:
        """These will not go at all, and their senders are told."""
        seqs = [event.seq for event in events]
        await self.report(agent, seqs, State.REFUSED, lane=lane, reason=reason, evidence=evidence)
        for event in self.which_are(State.REFUSED, agent, events):
            await self._tell(event, "refused", [agent], reason=reason)

    def which_are(self, state: State, agent: str, events: Sequence[Event]) -> list[Event]:
        """Give those that are in a state now."""
        entries = [(event, read_entry(self._log.rows, event.seq, agent)) for event in events]
        return [event for event, entry in entries if entry is not None and entry.state == state]

    async def dead(self, event: Event, paths: Sequence[str]) -> None:
        """Nobody answers to these paths of a message."""
        for path in paths:
            await self.report(path, (event.seq,), State.DEAD, reason="nobody is subscribed")
        await self._tell(event, "dead", paths)

    async def expired(self, some: Sequence[Due]) -> None:
        """These are past their time: a report for each agent, a word for each message."""
        by_agent: defaultdict[str, list[int]] = defaultdict(list)
        for due in some:
            by_agent[due.agent].append(due.seq)
        await _all_done(self.report(agent, seqs, State.EXPIRED) for agent, seqs in by_agent.items())
        by_message: defaultdict[int, list[str]] = defaultdict(list)
        for due in some:
            entry = read_entry(self._log.rows, due.seq, due.agent)
            if entry is not None and entry.state == State.EXPIRED:
                by_message[due.seq].append(due.agent)
        events = filter(None, map(self._log.event, by_message))
        await _all_done(self._tell(event, "expired", by_message[event.seq]) for event in events)

    async def _tell(
        self, event: Event, state: str, names: Sequence[str], *, reason: str = "", attempt: int = 0
    ) -> None:
        if (told := notice(event, state, names, reason=reason, attempt=attempt)) is not None:
            await self._submit(told)


async def _all_done(steps: Iterable[Coroutine[None, None, None]]) -> None:
    """Do some steps side by side, and then raise the first error as it is, not in a group of errors."""
    for done in await asyncio.gather(*steps, return_exceptions=True):
        if done is not None:
            raise done
