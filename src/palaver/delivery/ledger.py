"""Submit reports of delivery to the broker: ledger steps and notices to senders. Decides no step."""

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
"""Submits a request to the broker in the name of the bus."""


_WHY_LOST: Final = f"{LOST}, its file in blobs/ is gone or changed. Send it again"


class Ledger:
    """Submits ledger steps and notices. A sender is notified only of a step that was really written."""

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
        """Submit one step for some messages. A message whose state no longer allows the step is not changed.

        `priority` is for messages that return to the queue. `request` names the hook request that took the
        messages.
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
        """Return the ledger entry of one message and recipient; None before its first step."""
        return read_entry(self._log.rows, seq, agent)

    async def unconfirmed(self, agent: str, seqs: Sequence[int], *, lane: str = "") -> None:
        """Record that these will never be confirmed. They stay submitted, and their senders are notified."""
        await self.report(agent, seqs, State.SUBMITTED, lane=lane, unconfirmed=True)
        for event in filter(None, map(self._log.event, seqs)):
            entry = read_entry(self._log.rows, event.seq, agent)
            if entry is not None and entry.unconfirmed:
                await self._tell(event, "unconfirmed", [agent], attempt=entry.submitted)

    async def tell_held(self, agent: str, events: Sequence[Event], *, why: str) -> None:
        """Notify the senders of held messages, with the reason `why`: one notice per sender or broadcast."""
        for told in held_notices(agent, events, reason=why):
            await self._submit(told)

    async def lost(self, agent: str, events: Sequence[Event]) -> None:
        """Hold messages whose content is lost, since the file may come back, and notify their senders."""
        await self.report(agent, [event.seq for event in events], State.HELD, reason=LOST)
        await self.tell_held(agent, self.which_are(State.HELD, agent, events), why=_WHY_LOST)

    async def tell_unsure(self, agent: str) -> None:
        """Send an agent the seqs of its unconfirmed messages that it has not been sent yet."""
        if (told := unsure_notice(self._log, agent)) is not None:
            await self._submit(told)

    async def refused(
        self, agent: str, events: Sequence[Event], *, lane: str, reason: str, evidence: str = ""
    ) -> None:
        """Record that these are refused, and notify their senders."""
        seqs = [event.seq for event in events]
        await self.report(agent, seqs, State.REFUSED, lane=lane, reason=reason, evidence=evidence)
        for event in self.which_are(State.REFUSED, agent, events):
            await self._tell(event, "refused", [agent], reason=reason)

    def which_are(self, state: State, agent: str, events: Sequence[Event]) -> list[Event]:
        """Return those that are in this state now."""
        entries = [(event, read_entry(self._log.rows, event.seq, agent)) for event in events]
        return [event for event, entry in entries if entry is not None and entry.state == state]

    async def dead(self, event: Event, paths: Sequence[str]) -> None:
        """Record that no agent is subscribed to these paths of a message, and notify the sender."""
        for path in paths:
            await self.report(path, (event.seq,), State.DEAD, reason="nobody is subscribed")
        await self._tell(event, "dead", paths)

    async def expired(self, some: Sequence[Due]) -> None:
        """Record expired messages: one report per agent, one notice per message."""
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
    """Run some steps concurrently, then raise the first error itself instead of an error group."""
    for done in await asyncio.gather(*steps, return_exceptions=True):
        if done is not None:
            raise done
