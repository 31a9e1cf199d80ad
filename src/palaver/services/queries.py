"""Read events and state for doors. The only module that hands events of the log to them; it changes nothing.

`Queries` reads the log. The functions after it return the state as doors show it: agents, receipts, inboxes,
the daemon.
"""

import asyncio
import os
import re
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import msgspec

from palaver.broker.bundles import find_bundle
from palaver.broker.context import Sent
from palaver.broker.messages import fetch_event, find_message, recipients_of
from palaver.broker.tasks import find_task
from palaver.delivery.offers import ASLEEP
from palaver.errors import NotFound, PalaverError, Unavailable
from palaver.identity.process import is_alive
from palaver.log.api import ANY_EVENT, BlobCount, EventKey, Hear, Log
from palaver.log.follow import follow, pages, place_before_newest
from palaver.log.storage import damaged, failure_from
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState, DeliveryReport, LifeChanged, MessageSent, State
from palaver.protocol.message import (
    Priority,
    flat,
    format_priority,
    is_lost,
    readable_text,
)
from palaver.protocol.query import Query
from palaver.protocol.redaction import REDACTED, asks_secret, redact, removed_text
from palaver.protocol.requests import GATE_ADVICE, TYPED
from palaver.protocol.tasks import Task
from palaver.services.export import Exports
from palaver.services.holders import STATUS
from palaver.services.services import Services
from palaver.state.agents import (
    find_mail,
    read_entry,
    read_mail,
    read_receivers,
    read_session,
    read_unread,
    read_unsure,
)
from palaver.state.rows import MAIL, LedgerEntry, Rows, decode_mail, mail_prefix, priority_of_key

_LATELY: Final = 200
"""Messages of a sender that are searched for the last one to each recipient."""
_RECENT: Final = 3
_LOOKED_AT: Final = 50
_SHOWN_AT_ONCE: Final = 20
"""Agents rendered in one step of the event loop: a few milliseconds of work."""
_DAY_MS: Final = 24 * 3600 * 1000
_ENDED_MS: Final = 3600 * 1000
_CONTENT: Final = frozenset({"text", "command", "payload", "bundle_id"})
_READ: Final = frozenset({State.SEEN, State.ANSWERED})


class Queries:
    """The log as doors see it: events and rows to read, and nothing to write."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.exports = Exports()

    @property
    def device(self) -> str:
        """The id of this home."""
        return self._log.device

    @property
    def rows(self) -> Rows:
        """The folded rows, for the queries of `state/`."""
        return self._log.rows

    def last(self) -> int:
        """Return the seq of the newest event; 0 in an empty log."""
        return self._log.last()

    def archived(self) -> int:
        """Return the highest archived seq; 0 if nothing is archived."""
        return self._log.archived()

    # One event

    def event(self, seq: int) -> Event | None:
        """Return the event with a seq, or None; None also if it is archived and its file is lost."""
        return self._log.event(seq)

    async def fetch(self, seq: int) -> Event | None:
        """Return the event with a seq, read in a thread because it may be large. Raises StorageFailed."""
        return await self._log.fetch(seq)

    def with_id(self, id_or_end: str) -> list[Event]:
        """Return events with this id, or else those whose id ends with it; newest first, at most five."""
        return self._log.find(id_or_end)

    async def fetch_event(self, reference: str) -> Event:
        """Return any event by its reference, read in a thread because it may be large. Raises NotFound."""
        return await fetch_event(self._log, reference)

    def message(self, reference: str) -> Event:
        """Return a message, or a foreign envelope that was delivered like one. Raises NotFound."""
        return find_message(self._log, reference)

    async def bundle(self, reference: str) -> Event:
        """Return the event that created a bundle. Raises NotFound."""
        return await find_bundle(self._log, reference)

    def task(self, reference: str) -> Task:
        """Return a task by its id, a unique end of that, or its number. Raises NotFound."""
        return find_task(self._log, reference)

    # Many events

    async def read(self, query: Query) -> list[Event]:
        """Return matching events in seq order: the first `limit`, or with `last` the newest `last`."""
        return await self._log.read(query)

    def pages(self, query: Query, *, with_archives: bool = True) -> AsyncGenerator[Sequence[Event], None]:
        """Yield the matching events that are stored by now, in seq order, never an empty page."""
        return pages(self._log, query, with_archives=with_archives)

    def follow(
        self, query: Query, *, after: int, with_archives: bool = False
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Yield matching events above a seq, then new ones, until the iterator is closed."""
        return follow(self._log, query, after=after, with_archives=with_archives)

    async def place_before_newest(self, query: Query, count: int) -> int:
        """Return the seq after which the newest `count` matching events in the log come."""
        return await place_before_newest(self._log, query, count)

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]:
        """Call `hear` with the new events of these types. Return a function that ends the subscription."""
        return self._log.subscribe(hear, types)

    # Checks, which read the whole log or its archives

    async def typed_secrets(self) -> list[int]:
        """Return the seqs of typed lines and raw keys that may be secrets, in order.

        A line counts if it contains a known form of secret, or is a single word with digits and other
        characters, like a password. Raw keys also count if the screen stored with them asked for a secret.
        """
        events = (await self._log.find_containing(_PIECES)).events
        asked = {seq for event in events for seq in _typed_at_secret_prompt(event)}
        typed = filter(_is_typed, events)
        return [event.seq for event in typed if event.seq in asked or _looks_secret(event)]

    async def check_storage(self) -> Sequence[str]:
        """Read the whole storage; return a sentence for each kind of damage and for missing events."""
        return await self._log.check_storage()

    async def check_archives(self) -> int:
        """Read all archives, and return how many events they contain. Raises StorageFailed."""
        return await self._log.check_archives()

    async def check_blobs(self) -> BlobCount:
        """Read all contents that are stored next to the log because they are too large for it."""
        return await self._log.check_blobs()

    async def count_unreadable(self) -> int:
        """Return how many events of the log cannot be read back."""
        return await self._log.count_unreadable()


def read_failure(error: Exception) -> PalaverError:
    """Return the error for a log that could not be read, with advice."""
    return failure_from(error) if isinstance(error, sqlite3.Error) else damaged(error)


def agent_view(services: Services, agent: Agent) -> dict[str, object]:
    """Return one agent as programs read it."""
    view: dict[str, object] = {
        "name": agent.name,
        "base": agent.base,
        "tag": agent.tag or None,
        "role": agent.role,
        "harness": agent.harness or None,
        "state": agent.state,
        "detail": agent.detail or None,
        "since": agent.since,
        "joined": agent.joined,
        "present": services.callers.presence.is_present(agent.name),
        "unread": read_unread(services.queries.rows, agent.name),
        "device": agent.device or services.queries.device,
    }
    if agent.seat is not None:
        view["pid"] = agent.seat.pid
    if agent.by:
        view["by"] = agent.by
    if agent.parent:
        view["parent"] = agent.parent
    if agent.left:
        view["left"] = True
    if agent.paused:
        view["paused"] = True
    if _is_asleep(services, agent):
        view["asleep"] = True
    if view["present"] and _is_stale(services, agent):
        view["stale"] = True
    if unsure := read_unsure(services.queries.rows, agent.name):
        view["unconfirmed"] = unsure
    return view


def _is_asleep(services: Services, agent: Agent) -> bool:
    """Return whether an idle agent has held messages because nothing can wake it. Reads a limited number."""
    if agent.left or agent.state != AgentState.IDLE:
        return False
    rows = services.queries.rows
    for mail in islice(read_mail(rows, agent.name), _LOOKED_AT):
        entry = read_entry(rows, mail.seq, agent.name) if mail.is_gated else None
        if entry is not None and entry.reason == ASLEEP:
            return True
    return False


def _is_stale(services: Services, agent: Agent) -> bool:
    """Return whether an active agent has not reported for longer than the limit. Not stored."""
    limit_ms = services.daemon.settings.stale_after_s * 1000
    silent_ms = services.clock.now_ms() - agent.since
    return bool(limit_ms) and agent.state == AgentState.ACTIVE and silent_ms > limit_ms


async def agents_view(services: Services) -> list[dict[str, object]]:
    """Return all agents by name, present ones first; sub-agents follow their parents.

    Ended sub-agents are included for one hour.
    """
    since = services.clock.now_ms() - _ENDED_MS
    shown = (
        one for one in services.broker.directory.all() if not (one.parent and one.left and one.since < since)
    )
    families = [(_family(services, agent), agent) for agent in shown]
    families.sort(key=lambda one: (not services.callers.presence.is_present(one[0][0]), one[0]))
    views = []
    for at, (_, agent) in enumerate(families):
        if at % _SHOWN_AT_ONCE == 0:
            await asyncio.sleep(0)  # Lets other callers run while hundreds of agents are rendered.
        views.append(agent_view(services, agent))
    return views


def _family(services: Services, agent: Agent) -> tuple[str, ...]:
    """Return the names from the topmost parent down to an agent."""
    names = [agent.name]
    above: Agent | None = agent
    while above is not None and above.parent:
        names.append(above.parent)
        above = services.broker.directory.get(above.parent)
    return tuple(reversed(names))


def caller_view(services: Services, caller: Caller) -> dict[str, object]:
    """Return the identity of a caller as the daemon determined it."""
    view: dict[str, object] = {
        "name": caller.name,
        "kind": caller.kind,
        "standing": caller.standing.word,
        "device": services.queries.device,
    }
    if caller.harness:
        view["harness"] = caller.harness
    if caller.by:
        view["by"] = caller.by
    if caller.seat is not None:
        view["pid"] = caller.seat.pid
    if (agent := services.broker.directory.get(caller.name)) is not None:
        view["role"] = agent.role
    return view


@dataclass(frozen=True, slots=True)
class RecipientReceipt:
    """The delivery state of one message for one recipient."""

    name: str
    entry: LedgerEntry


def receipts_of(services: Services, event: Event) -> list[RecipientReceipt]:
    """Return the receipts of one message, one for each recipient, in the order of sending."""
    if is_lost(event):  # Its content is lost, but the ledger still has its recipients.
        return [_receipt(services, event, name) for name in read_receivers(services.queries.rows, event.seq)]
    lines = [_receipt(services, event, name) for name in recipients_of(event)]
    dead = event.body.dead if isinstance(event.body, MessageSent) else ()
    return lines + [_receipt(services, event, path) for path in dead]


def _receipt(services: Services, event: Event, name: str) -> RecipientReceipt:
    entry = read_entry(services.queries.rows, event.seq, name)
    return RecipientReceipt(name, entry or LedgerEntry(state=State.QUEUED.value, ts=event.ts))


def receipts_view(services: Services, event: Event) -> dict[str, object]:
    """Return one message with its receipts as programs read them."""
    return {
        "seq": event.seq,
        "id": event.id,
        "from": event.sender,
        "ts": event.ts,
        "text": readable_text(event),
        "priority": flat(event)["priority"],
        "receipts": [
            {"name": one.name, **msgspec.to_builtins(one.entry)} for one in receipts_of(services, event)
        ],
    }


def message_view(event: Event) -> dict[str, object]:
    """Return a message, or a foreign envelope that was delivered as one, as a flat object."""
    view = flat(event)
    if event.type != "message":
        view |= {
            "type": event.type,
            "text": readable_text(event),
            "delivered_to": list(event.delivered_to),
            "payload": event.payload,
        }
    return view


async def inbox_view(services: Services, name: str, limit: int) -> list[tuple[Event, str]]:
    """Return the newest messages to a name, oldest first, each with its state there.

    Archived messages are included while they are open. Held messages are listed without their text.
    """
    events = await services.queries.read(Query(targets=(name,), last=limit, limit=limit))
    events = [*_archived_mail(services, name, events, limit), *events]
    found = [(event, _state(services, event, name)) for event in events]
    return [
        (_without_text(event) if _is_kept_back(services, event, name) else event, state)
        for event, state in found
    ]


def _is_kept_back(services: Services, event: Event, name: str) -> bool:
    found = find_mail(services.queries.rows, name, event.seq)
    return found is not None and found[1].is_kept_back


async def mail_view(services: Services, name: str, limit: int) -> list[dict[str, object]]:
    """Return the newest messages to a name as programs read them, each with its state there."""
    found = await inbox_view(services, name, limit)
    return [{**message_view(event), "state": state} for event, state in found]


def _without_text(event: Event) -> Event:
    kept = {key: value for key, value in event.payload.items() if key not in _CONTENT}
    return replace(event, payload=kept | {"text": "(held)"})


def open_mail(
    services: Services, name: str, limit: int, passes: Callable[[Event], bool] | None
) -> list[Event]:
    """Return up to `limit` unread messages of a name in delivery order, including those being delivered.

    Held messages are left out, because the recipient may not read them yet, and so are raw keys.
    """
    found: list[Event] = []
    for mail in read_mail(services.queries.rows, name):
        event = None if mail.is_kept_back or mail.raw else services.queries.event(mail.seq)
        if event is not None and (passes is None or passes(event)):
            found.append(event)
            if len(found) == limit:
                break
    return found


def _archived_mail(services: Services, name: str, behind: Sequence[Event], limit: int) -> list[Event]:
    """Return the newest open archived messages before the others, up to `limit` together with them."""
    before = min(services.queries.archived() + 1, behind[0].seq if behind else sys.maxsize)
    if before == 1 or len(behind) == limit:
        return []
    seqs = sorted({mail.seq for mail in read_mail(services.queries.rows, name) if mail.seq < before})
    return list(filter(None, map(services.queries.event, seqs[len(behind) - limit :])))


async def last_sent(services: Services, sender: str) -> dict[str, dict[str, object]]:
    """Return the newest message to each recipient that a sender recently wrote to, with its state there."""
    events = await services.queries.read(Query(types=("message",), senders=(sender,), last=_LATELY))
    newest = {name: event for event in events for name in recipients_of(event)}
    return {
        name: {"seq": event.seq, "state": _state(services, event, name)} for name, event in newest.items()
    }


async def recently_sent(services: Services, sender: str) -> list[dict[str, object]]:
    """Return the newest messages of a sender within a day, newest first, each with its readers."""
    since = services.clock.now_ms() - _DAY_MS
    query = Query(types=("message",), senders=(sender,), since=since, last=_RECENT)
    return [_read_by(services, event) for event in reversed(await services.queries.read(query))]


def _read_by(services: Services, event: Event) -> dict[str, object]:
    names = recipients_of(event)
    return {
        "seq": event.seq,
        "ts": event.ts,
        "text": readable_text(event),
        "read_by": [name for name in names if _state(services, event, name) in _READ],
        "total": len(names),
    }


def _state(services: Services, event: Event, name: str) -> str:
    entry = read_entry(services.queries.rows, event.seq, name)
    return State.QUEUED.value if entry is None else entry.state


def sent_view(sent: Sent) -> dict[str, object]:
    """Return the result of a send as programs read it."""
    event = sent.event
    view: dict[str, object] = {} if event is None else {"seq": event.seq, "id": event.id}
    view |= {"to": list(sent.to), "delivered_to": list(sent.delivered_to)}
    if sent.empty_groups:
        view["empty_groups"] = list(sent.empty_groups)
    if sent.dead:
        view["dead"] = list(sent.dead)
    if sent.is_repeat:
        view["repeat"] = True
    if event is None:
        view["dry_run"] = True
    return view


def daemon_view(services: Services) -> dict[str, object]:
    """Return the state of the daemon itself."""
    return {
        "pid": os.getpid(),
        "version": services.daemon.version,
        "home": str(services.daemon.home),
        "device": services.queries.device,
        "doors": {"unix": str(services.daemon.home / "daemon.sock"), **services.daemon.http.describe()},
        "started": services.daemon.started_ms,
        "last": services.queries.last(),
        "agents": sum(
            1 for agent in services.broker.directory.all() if services.callers.presence.is_present(agent.name)
        ),
    }


# --------------------
# Details of an agent for its page: queue, gates and terminal. Changes nothing.

_PAGE: Final = 1000
_ASK_S: Final = 1.0
_TOLD: Final = ("cols", "rows", "last_activity")


def queue_view(rows: Rows, name: str) -> dict[str, int]:
    """Count the waiting messages of an agent by priority, and the held ones."""
    counts = {format_priority(priority): 0 for priority in Priority} | {"held": 0}
    after = ""
    while page := rows.scan(MAIL, mail_prefix(name), after=after, limit=_PAGE):
        for key, value in page:
            state = decode_mail(value).state
            if state == State.HELD:
                counts["held"] += 1
            elif state == State.QUEUED:
                counts[format_priority(priority_of_key(key))] += 1
        after = page[-1][0]
    return counts


async def terminal_view(services: Services, agent: Agent) -> dict[str, object]:
    """Return the details of an agent's page. If its holder does not reply in time, its part is left out."""
    view: dict[str, object] = {
        "queue": queue_view(services.queries.rows, agent.name),
        "paused": agent.paused,
        "last_activity": agent.since,
    }
    if levels := services.delivery.levels(agent.name):
        view["gates"] = [
            {"lane": lane, "open": level.is_open, "paused": level.is_paused, "reason": level.reason or None}
            for lane, level in levels
        ]
    hold = services.agents.holds.get(agent.name)
    if hold is None:
        return view
    view |= {"cols": hold.cols, "rows": hold.rows, "holder": hold.holder.pid}
    try:
        reply = await services.agents.holds.ask_once(agent.name, STATUS, limit_s=_ASK_S)
    except (Unavailable, NotFound):
        return view
    return view | {key: reply.ok[key] for key in _TOLD if isinstance(reply.ok.get(key), int)}


def explain_gate(reason: str | None) -> str:
    """Return why a gate is closed and, where that is known, how to open it."""
    advice = GATE_ADVICE.get(reason or "")
    return f"{reason}: {advice}" if advice else reason or "no reason given"


def closed_gates(services: Services, name: str) -> str:
    """Return which lanes of an agent are closed, why, and how to open them; empty if all are open."""
    levels = services.delivery.levels(name)
    return "; ".join(
        f"{lane} lane closed ({explain_gate(level.reason)})" for lane, level in levels if not level.is_open
    )


def terminal_lines(view: dict[str, object]) -> list[str]:
    """Return the same details as lines for people."""
    lines: list[str] = []
    queue, gates = view["queue"], view.get("gates", [])
    assert isinstance(queue, dict)
    assert isinstance(gates, list)
    if any(queue.values()):
        lines.append("waiting: " + ", ".join(f"{count} {word}" for word, count in queue.items() if count))
    if view.get("asleep"):
        lines.append("asleep: nothing can wake it; what is held comes with its next prompt")
    if view["paused"]:
        lines.append("paused: only interrupts are brought to it")
    lines += [
        f"{gate['lane']} lane: " + ("paused" if gate["open"] else f"closed ({explain_gate(gate['reason'])})")
        for gate in gates
        if gate["paused"] or not gate["open"]
    ]
    if view.get("cols"):
        lines.append(f"terminal {view['cols']}x{view['rows']}, holder process {view['holder']}")
    return lines


# --------------------
# The agent of a harness session, and whether the session is free for a new process.


def free_session(services: Services, harness: str, session: str) -> str:
    """Return the session, or "" while a present agent is in it: two processes may share a conversation."""
    holder = holder_of_session(services, harness, session)
    if holder is None or not services.callers.presence.is_present(holder.name):
        return session
    # Its process may have ended just now, before presence was updated.
    return session if holder.seat is not None and not is_alive(holder.seat) else ""


def holder_of_session(services: Services, harness: str, session: str) -> Agent | None:
    """Return the agent whose current session this is, present or not; None if there is no such agent."""
    name = read_session(services.queries.rows, harness, session) if session else None
    known = services.broker.directory.get(name or "")
    return known if known is not None and known.session == session else None


def only_session(services: Services, harness: str, among: Iterable[str]) -> str:
    """Return the current session of the only agent that ever had one of these sessions; else "".

    Then the result does not depend on which of them the user chooses.
    """
    names = {name for session in among if (name := read_session(services.queries.rows, harness, session))}
    known = services.broker.directory.get(next(iter(names))) if len(names) == 1 else None
    return known.session if known is not None else ""


# --------------------
# Find passwords that older versions stored when people typed them at a hidden prompt.

_PIECES: Final = (f'"action":"{TYPED}"', '"raw":"', '"evidence":')
_WORD: Final = re.compile(r"[^\s/]{6,64}")
_DIGIT: Final = re.compile(r"[0-9]")
_OTHER: Final = re.compile(r"[^0-9]")


def _is_typed(event: Event) -> bool:
    match event.body:
        case LifeChanged(action=action, secret=None, text=text):
            return action == TYPED and text != REDACTED
        case MessageSent(raw=str(raw), secret=None, text=text):
            return bool(raw) and text != REDACTED
    return False


def _typed_at_secret_prompt(event: Event) -> tuple[int, ...]:
    """Return the raw keys that were typed into a screen whose last line asked for a secret."""
    if not isinstance(report := event.body, DeliveryReport):
        return ()
    lines = report.evidence.rstrip().splitlines()
    return report.messages if lines and asks_secret(lines[-1]) else ()


def _looks_secret(event: Event) -> bool:
    text = removed_text(event, is_foreign=False).strip()
    is_mixed = _DIGIT.search(text) is not None and _OTHER.search(text) is not None
    return redact(text) != text or (is_mixed and _WORD.fullmatch(text) is not None)
