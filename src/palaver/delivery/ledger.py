"""Submit reports of delivery to the broker: ledger steps and notices to senders. Decides no step."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from palaver.log.api import Log
from palaver.protocol.agents import INSTANCE, SCRIPT_NAME
from palaver.protocol.envelope import Event
from palaver.protocol.events import DeliveryReport, MessageSent, State
from palaver.protocol.message import BROADCAST, HUMAN, LOST, is_raw
from palaver.protocol.paths import NO_AGENT, readable_mailbox
from palaver.protocol.requests import Notify, ReportDelivery, Submit
from palaver.state.agents import read_agent, read_entry, read_lane_entry, read_unsure
from palaver.state.rows import EXPIRY, LedgerEntry, Rows, parse_expiry_key

# --------------------
# Compose the notice that lists an agent's unconfirmed messages for its next session. Writes nothing.
#
# It is for agents in a terminal of a holder. Hooks and native lanes send such a list when a session starts.

_LIMIT_NAMED: Final = 20
"""Seqs that are listed; the others are only counted."""


def unsure_notice(log: Log, agent: str) -> Notify | None:
    """Return the notice of unconfirmed messages; None if there are no such messages, or no holder.

    The same messages make the same notice, which is written only once and not for every session. If the
    notice itself is unconfirmed, its seq is part of the next notice.
    """
    known = read_agent(log.rows, agent)
    if known is None or not known.holder:
        return None
    unsure = [
        (event, entry)
        for seq in read_unsure(log.rows, agent)
        if (event := log.event(seq))
        and not is_raw(event)
        and (entry := read_lane_entry(log.rows, seq, agent))
    ]
    if not unsure:
        return None
    # With the time of the attempt: a message that was redelivered and is unconfirmed again is named again.
    attempts = ",".join(f"{event.seq}@{entry.submitted}" for event, entry in unsure)
    named = ", ".join(f"#{event.seq}" for event, _ in unsure[:_LIMIT_NAMED])
    more = f" and {len(unsure) - _LIMIT_NAMED} more" if len(unsure) > _LIMIT_NAMED else ""
    return Notify(
        to=agent,
        text=f"delivered to you before, but maybe not read: {named}{more} ('pal show NUMBER' shows one)",
        cause=unsure[-1][0].id,
        kind=f"unsure {attempts}",
    )


# --------------------
# Compose the notices to senders whose messages were not delivered as usual. Pure.

_SENTENCES: Final[Mapping[str, str]] = {
    "held": "#{seq} is held for {names}: {reason}",
    "refused": "#{seq} was refused for {names}: {reason}",
    "expired": "#{seq} expired before {names} saw it",
    "dead": "#{seq} reached no agent: none is subscribed to {names}",
    "unconfirmed": (
        "#{seq} was submitted to {names} but never confirmed: it may or may not have been read. "
        "'pal redeliver {seq}' sends it again"
    ),
}


def notice(
    event: Event, state: str, names: Sequence[str], *, reason: str = "", attempt: int = 0
) -> Notify | None:
    """Return the notice about a message for its sender; None if the sender cannot receive one.

    A broadcast gets one notice per state, however many recipients it concerns; a later one counts as a repeat
    and is not written. For other messages `attempt` distinguishes two deliveries of the same message.
    """
    if not _can_be_notified(event):
        return None
    # A dead letter has a path instead of a mailbox, and a path may contain the `+` of a session's mailbox.
    first = names[0] if state == State.DEAD else readable_mailbox(names[0])
    who = first if len(names) == 1 else f"{first} (+{len(names) - 1})"
    text = _SENTENCES[state].format(seq=event.seq, names=who, reason=reason or "no reason given")
    if _is_broadcast(event):
        text += f" ('pal receipts {event.seq}' shows all recipients)"
        return Notify(to=event.sender, text=text, cause=event.id, kind=state)
    return Notify(to=event.sender, text=text, cause=event.id, kind=f"{state} {','.join(names)} {attempt}")


def held_notices(agent: str, events: Sequence[Event], *, reason: str) -> Iterator[Notify]:
    """Yield notices about messages held for one recipient: one per sender, and one per broadcast."""
    many: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        many[event.id if _is_broadcast(event) else event.sender].append(event)
    for first, *others in many.values():
        request = notice(first, "held", [agent], reason=reason)
        if request is not None and others:
            text = f"#{first.seq} and {len(others)} more are held for {readable_mailbox(agent)}: {reason}"
            request = msgspec.structs.replace(request, text=text, kind=f"{request.kind} and {len(others)}")
        if request is not None:
            yield request


def _can_be_notified(event: Event) -> bool:
    """Return whether the sender can receive a notice. Scripts and the bus itself have no mailbox."""
    if isinstance(event.body, MessageSent):
        return event.body.sender_kind in (INSTANCE, HUMAN)
    return event.sender != SCRIPT_NAME


def _is_broadcast(event: Event) -> bool:
    return isinstance(event.body, MessageSent) and event.body.scope == BROADCAST


# --------------------
# Find the messages that expire. Reads only; delivery reports the expiry.

_PAGE: Final = 500


class Expiring(NamedTuple):
    """One message that expires for one agent, and when."""

    at_ms: int
    seq: int
    agent: str


def expiring(rows: Rows, *, is_in_hand: Callable[[str, int], bool]) -> Iterator[Expiring]:
    """Yield the messages that will expire, soonest first, page by page.

    A message that a reader or lane has claimed is skipped: it may be read at this time. It is checked again
    when it is released.
    """
    after = ""
    # By key and not by position: the caller writes expiries between two pages, and each removes a row.
    while page := rows.scan(EXPIRY, "", after=after, limit=_PAGE):
        for key, _ in page:
            due = Expiring(*parse_expiry_key(key))
            if not is_in_hand(due.agent, due.seq):
                yield due
        after = page[-1][0]


# --------------------
# Submit the reports and notices to the broker.


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
        await self._submit(ReportDelivery(report=report))

    def entry(self, seq: int, agent: str) -> LedgerEntry | None:
        """Return the ledger entry of one message and recipient; None before its first step."""
        return read_entry(self._log.rows, seq, agent)

    async def unconfirmed(self, agent: str, seqs: Sequence[int], *, lane: str = "") -> None:
        """Record that these will never be confirmed. They stay submitted, and their senders are notified."""
        await self.report(agent, seqs, State.SUBMITTED, lane=lane, unconfirmed=True)
        for event in filter(None, map(self._log.event, seqs)):
            # Only if the step was written: a message may have been seen meanwhile.
            entry = read_entry(self._log.rows, event.seq, agent)
            if entry is not None and entry.unconfirmed:
                await self._tell(event, "unconfirmed", [agent], attempt=entry.submitted)

    async def tell_held(self, agent: str, events: Sequence[Event], *, why: str) -> None:
        """Notify the senders of held messages, with the reason `why`: one notice per sender or broadcast."""
        for request in held_notices(agent, events, reason=why):
            await self._submit(request)

    async def lost(self, agent: str, events: Sequence[Event]) -> None:
        """Hold messages whose content is lost, since the file may come back, and notify their senders."""
        await self.report(agent, [event.seq for event in events], State.HELD, reason=LOST)
        await self.tell_held(agent, self.which_are(State.HELD, agent, events), why=_WHY_LOST)

    async def tell_unsure(self, agent: str) -> None:
        """Send an agent the seqs of its unconfirmed messages that it has not been sent yet."""
        if (request := unsure_notice(self._log, agent)) is not None:
            await self._submit(request)

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
        """Record that no agent is subscribed to these paths of a message, and notify the sender of a text.

        The sender of a command by path has this as the result of its request.
        """
        for path in paths:
            await self.report(path, (event.seq,), State.DEAD, reason=NO_AGENT)
        if not (isinstance(event.body, MessageSent) and event.body.command):
            await self._tell(event, "dead", paths)

    async def expired(self, some: Sequence[Expiring]) -> None:
        """Record expired messages: one report per mailbox, one notice per message.

        The expiry of a handled copy causes no notice: its sender waits for the sessions that have the others.
        """
        by_agent: defaultdict[str, list[int]] = defaultdict(list)
        for due in some:
            by_agent[due.agent].append(due.seq)
        # Concurrently, so that the reports of all mailboxes can share one sync of the log.
        await _all_done(self.report(agent, seqs, State.EXPIRED) for agent, seqs in by_agent.items())
        by_message: defaultdict[int, list[str]] = defaultdict(list)
        for due in some:
            # Read again, because a message may have been seen before its expiry was written.
            entry = read_entry(self._log.rows, due.seq, due.agent)
            if entry is not None and entry.state == State.EXPIRED:
                by_message[due.seq].append(due.agent)
        expired = [
            (event, names)
            for event in filter(None, map(self._log.event, by_message))
            if (names := [name for name in by_message[event.seq] if not _is_handled(event, name)])
        ]
        await _all_done(self._tell(event, "expired", names) for event, names in expired)

    async def _tell(
        self, event: Event, state: str, names: Sequence[str], *, reason: str = "", attempt: int = 0
    ) -> None:
        if (request := notice(event, state, names, reason=reason, attempt=attempt)) is not None:
            await self._submit(request)


def _is_handled(event: Event, name: str) -> bool:
    return isinstance(event.body, MessageSent) and name in event.body.handled


async def _all_done(steps: Iterable[Coroutine[None, None, None]]) -> None:
    """Run some steps concurrently, then raise the first error itself instead of an error group."""
    # All of them run to their end, also if one fails: otherwise the others would run on without a caller.
    for done in await asyncio.gather(*steps, return_exceptions=True):
        if done is not None:
            raise done
