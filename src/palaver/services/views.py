"""The state as doors show it: agents, callers, receipts, inboxes, terminals, the daemon. Changes nothing."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from palaver.broker.context import ExitedRecipient, Sent
from palaver.broker.messages import recipients_of
from palaver.delivery.mailbox import mailboxes_of_agent, mailboxes_of_lanes
from palaver.errors import NotFound, Unavailable
from palaver.home import find_message
from palaver.identity.process import is_alive
from palaver.log.storage import FILE_NAME, kept_folders
from palaver.protocol.agent_text import MessageLine, format_message_file, injection_line
from palaver.protocol.agents import SCRIPT_NAME, Agent, Caller, doing_text
from palaver.protocol.display import ago
from palaver.protocol.envelope import Event, body_as, room_id_of
from palaver.protocol.events import AgentState, MessageSent, State
from palaver.protocol.message import (
    MESSAGE,
    FlatMessage,
    Priority,
    flat,
    format_priority,
    handlers_of,
    is_lost,
    readable_text,
)
from palaver.protocol.paths import IRC, PLUS, readable_mailbox, split_mailbox
from palaver.protocol.query import Query
from palaver.protocol.requests import GATE_ADVICE
from palaver.protocol.views import Attention, WaitReason
from palaver.services.agents import STATUS
from palaver.services.queries import Queries
from palaver.services.results import (
    AgentDetails,
    AgentView,
    CallerView,
    DaemonView,
    ExitedView,
    GateView,
    LastSent,
    MessageReceipts,
    RecentMessage,
    SentView,
    TerminalView,
    WaitingCopy,
    WaitingMail,
)
from palaver.services.services import Services
from palaver.services.view_reader import STEP, let_others_run
from palaver.state.agents import (
    find_mail,
    mailbox_on_lane,
    read_entry,
    read_mail,
    read_receivers,
    read_seen,
    read_session,
    read_unread,
    read_unread_of_all,
    read_unsure,
    read_unsure_of_all,
)
from palaver.state.reasons import ASLEEP, read_wait
from palaver.state.rooms import read_memberships
from palaver.state.rows import (
    MAIL,
    PUSHED,
    UNSURE,
    LedgerEntry,
    Rows,
    decode_mail,
    kind_of_key,
    mail_prefix,
    priority_of_key,
    seq_of_key,
)
from palaver.state.watches import walk

_LATELY: Final = 200
"""Messages of a sender that are searched for the last one to each recipient."""
_RECENT: Final = 3
"""Newest messages of an agent that are listed with it."""
_LIMIT_SEARCHED: Final = 50
"""Waiting messages that are searched for one that shows why an agent's mail waits."""
_DAY_MS: Final = 24 * 3600 * 1000
_ENDED_MS: Final = 3600 * 1000
"""How long an ended sub-agent is listed."""
_NAMED_WAITS: Final = 3
"""Recipients of a recent message that are named with the reason why it waits."""
_LISTED_WAITS: Final = 50
"""Waiting messages on the page of an agent."""
_CONTENT: Final = frozenset({"text", "command", "payload", "bundle_id"})
_READ: Final = frozenset({State.SEEN, State.ANSWERED})


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows about agents in addition to their own: read once for a whole list."""

    unread: Mapping[str, int]
    unsure: Mapping[str, tuple[int, ...]]
    rooms: Mapping[str, tuple[str, ...]]

    @classmethod
    def of_all(cls, rows: Rows) -> "_Rows":
        return cls(read_unread_of_all(rows), read_unsure_of_all(rows), read_memberships(rows))

    @classmethod
    def of_one(cls, rows: Rows, name: str) -> "_Rows":
        unsure = {name: tuple(read_unsure(rows, name))}
        return cls({name: read_unread(rows, name)}, unsure, read_memberships(rows, name))


def agent_view(services: Services, agent: Agent) -> AgentView:
    """Return one agent as programs read it."""
    return _agent_view(services, agent, _Rows.of_one(services.queries.rows, agent.name))


def _agent_view(services: Services, agent: Agent, known: _Rows) -> AgentView:
    is_present = services.callers.presence.is_present(agent.name)
    unread = known.unread.get(agent.name, 0)
    return AgentView(
        name=agent.name,
        base=agent.base,
        tag=agent.tag or None,
        role=agent.role,
        harness=agent.harness or None,
        state=agent.state,
        detail=agent.detail or None,
        since=agent.since,
        joined=agent.joined,
        present=is_present,
        unread=unread,
        device=agent.device or services.queries.device,
        tool=agent.tool or None,
        cwd=agent.cwd or None,
        doing=doing_text(agent.tool, agent.detail) or None,
        folder=agent.cwd or None,
        rooms=known.rooms.get(agent.name, ()),
        pid=None if agent.seat is None else agent.seat.pid,
        by=agent.by or None,
        parent=agent.parent or None,
        left=agent.left,
        paused=agent.paused,
        asleep=bool(unread) and _is_asleep(services, agent),
        stale=is_present and _is_stale(services, agent),
        unconfirmed=known.unsure.get(agent.name, ()),
    )


async def agent_with_queue(services: Services, agent: Agent) -> AgentView:
    """Return one agent together with the number of its waiting messages, its folder and its gates."""
    return msgspec.structs.replace(
        agent_view(services, agent),
        queue=await queue_view(services.queries.rows, agent),
        gates=gates_view(services, agent.name),
    )


def _is_asleep(services: Services, agent: Agent) -> bool:
    """Return whether an idle agent has held messages because nothing can wake it. Reads a limited number."""
    if agent.left or agent.state != AgentState.IDLE:
        return False
    if not services.delivery.levels(agent.name):
        return False  # Without a lane no gate holds anything: do not read a mailbox that no one empties.
    rows = services.queries.rows
    for mail in islice(read_mail(rows, agent.name), _LIMIT_SEARCHED):
        entry = read_entry(rows, mail.seq, agent.name) if mail.is_gated else None
        if entry is not None and entry.reason == ASLEEP:
            return True
    return False


def _is_stale(services: Services, agent: Agent) -> bool:
    """Return whether an active agent has not reported for longer than the limit. Not stored."""
    limit_ms = services.daemon.settings.now.stale_after_s * 1000
    silent_ms = services.clock.now_ms() - agent.since
    return bool(limit_ms) and agent.state == AgentState.ACTIVE and silent_ms > limit_ms


async def agents_view(services: Services, *, is_left: bool | None = None) -> list[AgentView]:
    """Return all agents by name, present ones first; sub-agents follow their parents.

    With `is_left` only those that have left, or only the others. Ended sub-agents are included for one hour.
    """
    since = services.clock.now_ms() - _ENDED_MS
    shown = (
        one
        for one in services.broker.directory.all()
        if is_left in (None, one.left) and not (one.parent and one.left and one.since < since)
    )
    # Read once for all: a read for each of thousands of agents would keep the event loop busy.
    known = _Rows.of_all(services.queries.rows)
    families = [(_family(services, agent), agent) for agent in shown]
    # By the presence of the topmost parent, so that a family stays together.
    families.sort(key=lambda one: (not services.callers.presence.is_present(one[0][0]), one[0]))
    views = []
    for at, (_, agent) in enumerate(families):
        await let_others_run(at)
        views.append(_agent_view(services, agent, known))
    return views


def _family(services: Services, agent: Agent) -> tuple[str, ...]:
    """Return the names from the topmost parent down to an agent."""
    # Names sorted in this form put each sub-agent directly after its parent.
    names = [agent.name]
    above: Agent | None = agent
    while above is not None and above.parent:
        names.append(above.parent)
        above = services.broker.directory.get(above.parent)
    return tuple(reversed(names))


def caller_view(services: Services, caller: Caller) -> CallerView:
    """Return the identity of a caller as the daemon determined it."""
    agent = services.broker.directory.get(caller.name)
    return CallerView(
        name=caller.name,
        kind=caller.kind,
        standing=caller.standing.word,
        device=services.queries.device,
        harness=caller.harness or None,
        by=caller.by or None,
        pid=None if caller.seat is None else caller.seat.pid,
        role=None if agent is None else agent.role,
    )


@dataclass(frozen=True, slots=True)
class RecipientReceipt:
    """The delivery state of one message for one recipient: a mailbox, or the path of a dead letter."""

    name: str
    entry: LedgerEntry
    is_path: bool = False
    wait: WaitReason | None = None
    """Why it is not seen yet; None if its state is final, or if it was not asked for."""

    @property
    def readable_name(self) -> str:
        """The recipient for people. A path may look like the mailbox of a session."""
        return self.name if self.is_path else readable_mailbox(self.name)


async def receipts_of(
    services: Services, event: Event, *, with_reasons: bool = False
) -> list[RecipientReceipt]:
    """Return the receipts of one message, one for each recipient, in the order of sending.

    An imported message has no receipts here: it was delivered from the log that it comes from. With reasons,
    each says why it waits.
    """
    found = []
    for at, (name, is_path) in enumerate(_copies_of(services.queries.rows, event)):
        await let_others_run(at)  # A broadcast can have thousands of recipients.
        entry = read_entry(services.queries.rows, event.seq, name)
        one = RecipientReceipt(name, entry or LedgerEntry(state=State.QUEUED.value, ts=event.ts), is_path)
        if with_reasons:
            one = replace(one, wait=wait_of(services, event.seq, name, is_path=is_path))
        found.append(one)
    return found


def _copies_of(rows: Rows, event: Event) -> list[tuple[str, bool]]:
    """Return the recipients of a message, each with whether it is a path that no subscription matched."""
    if event.imported:
        return []
    if is_lost(event):  # Its content is lost, but the ledger still has its recipients.
        return [(name, False) for name in read_receivers(rows, event.seq)]
    dead = event.body.dead if isinstance(event.body, MessageSent) else ()
    return [*((name, False) for name in recipients_of(event)), *((path, True) for path in dead)]


def wait_of(services: Services, seq: int, mailbox: str, *, is_path: bool = False) -> WaitReason | None:
    """Return why a message is not seen yet in a mailbox, or at a path; None only if its state is final."""
    return read_wait(services.queries.rows, seq, mailbox, services.live.facts, is_path=is_path)


async def receipts_view(services: Services, event: Event) -> MessageReceipts:
    """Return one message with its receipts as programs read them."""
    return await services.live.pages().receipts(event)


def message_view(event: Event, mailbox: str = "") -> FlatMessage:
    """Return a message, or a foreign envelope that was delivered as one, as a flat object.

    With a mailbox, return the copy in it.
    """
    view = flat(event, mailbox=mailbox)
    if event.type == MESSAGE:
        return view
    return msgspec.structs.replace(
        view,
        type=event.type,
        text=readable_text(event),
        delivered_to=event.delivered_to,
        payload=event.payload,
    )


def carried_copy(rows: Rows, event: Event, agent: str) -> str:
    """Return the mailbox of the copy that a lane of an agent carries: its own, or that of its session.

    No lane carries a handled copy.
    """
    return mailbox_on_lane(rows, agent, event.seq) if handlers_of(event, agent) else agent


def carried_lines(queries: Queries, events: Iterable[Event], agent: str) -> list[MessageLine]:
    """Return the messages on a lane of an agent as lines of its text."""
    return [
        injection_line(event, carried_copy(queries.rows, event, agent), queries.device) for event in events
    ]


async def files_view(services: Services, event: Event) -> dict[str, str]:
    """Return the files of a message for its recipients in terminals, by recipient: only those that exist."""
    if event.type != MESSAGE or is_lost(event):
        return {}
    home, content = str(services.daemon.home), format_message_file(readable_text(event))

    def find() -> dict[str, str]:
        names = _copies_by_agent(event)
        found = {name: find_message(home, name, event.id, event.ts, content) for name in names}
        return {name: path for name, path in found.items() if path}

    # In a thread, because each file is looked up on disk, and a broadcast can have thousands.
    return await asyncio.to_thread(find)


async def inbox_view(services: Services, name: str, limit: int) -> list[tuple[Event, str]]:
    """Return the newest messages to a name, oldest first, each with its state there.

    Archived messages are included while they are open. Held messages are listed without their text.
    """
    events = await services.queries.read(Query(targets=(name,), last=limit, limit=limit))
    events = [*_archived_mail(services, name, events, limit), *events]
    found = [(event, _state(services, event, name)) for event in events]
    return [
        (_without_text(services, event, name) if _is_kept_back(services, event, name) else event, state)
        for event, state in found
    ]


def _is_kept_back(services: Services, event: Event, name: str) -> bool:
    found = find_mail(services.queries.rows, name, event.seq)
    return found is not None and found[1].is_kept_back


async def mail_view(services: Services, name: str, limit: int) -> list[FlatMessage]:
    """Return the newest messages to a name as programs read them, each with its state there."""
    found = await inbox_view(services, name, limit)
    return [msgspec.structs.replace(message_view(event, name), state=state) for event, state in found]


def _without_text(services: Services, event: Event, name: str) -> Event:
    """Return a held message with the reason instead of its text."""
    # The recipient may not read a held message yet, so no field with its content may stay.
    kept = {key: value for key, value in event.payload.items() if key not in _CONTENT}
    wait = wait_of(services, event.seq, name)
    assert wait is not None  # the state of a held message is not final
    return msgspec.structs.replace(event, payload=kept | {"text": f"(held: {wait.text})"})


async def open_mail(
    services: Services, name: str, limit: int, passes: Callable[[Event], bool] | None
) -> list[Event]:
    """Return up to `limit` unread messages of a name in delivery order, including those being delivered.

    Held messages are left out, because the recipient may not read them yet, and so are raw keys.
    """
    found: list[Event] = []
    for at, mail in enumerate(read_mail(services.queries.rows, name)):
        await let_others_run(at)  # A filter may pass none of thousands.
        event = None if mail.is_kept_back or mail.raw else services.queries.event(mail.seq)
        if event is not None and (passes is None or passes(event)):
            found.append(event)
            if len(found) == limit:
                break
    return found


def _archived_mail(services: Services, name: str, newer: Sequence[Event], limit: int) -> list[Event]:
    """Return the newest open archived messages before the newer ones, up to `limit` together with them."""
    before = min(services.queries.archived() + 1, newer[0].seq if newer else sys.maxsize)
    # Seqs begin with 1, so there is nothing before it. With a full list the slice below would begin at 0 and
    # return all instead of none.
    if before == 1 or len(newer) == limit:
        return []
    seqs = sorted({mail.seq for mail in read_mail(services.queries.rows, name) if mail.seq < before})
    return list(filter(None, map(services.queries.event, seqs[len(newer) - limit :])))


async def last_sent(services: Services, sender: str) -> dict[str, LastSent]:
    """Return the newest message to each recipient that a sender recently wrote to, with its state there."""
    events = await services.queries.read(Query(types=("message",), senders=(sender,), last=_LATELY))
    newest: dict[str, tuple[Event, tuple[str, ...]]] = {}
    for at, event in enumerate(events):
        by_agent = _copies_by_agent(event)
        # A broadcast can have thousands of recipients.
        await (asyncio.sleep(0) if len(by_agent) > STEP else let_others_run(at))
        # Events come in seq order, so the newest one to each recipient is written last.
        newest |= {name: (event, copies) for name, copies in by_agent.items()}
    found: dict[str, LastSent] = {}
    for at, (name, (event, copies)) in enumerate(newest.items()):
        await let_others_run(at)
        state = _best_state(services, event, name)
        wait = _wait_of_copies(services, event, copies, state)
        found[name] = LastSent(seq=event.seq, state=state, wait=wait)
    return found


async def agents_with_messages(services: Services, caller: str) -> list[AgentDetails]:
    """Return all agents as `agents_view` does, each with its latest messages and those of a caller to it."""
    sent = await last_sent(services, caller)
    return [
        AgentDetails(
            **msgspec.structs.asdict(view),
            last_sent=sent.get(view.name),
            recent=tuple(await recently_sent(services, view.name)),
            closed=closed_gates(services, view.name) or None,
            wait=_first_wait(services, view.name),
        )
        for view in await agents_view(services)
    ]


async def recently_sent(services: Services, sender: str) -> list[RecentMessage]:
    """Return the newest messages of a sender within a day, newest first, each with its readers."""
    since = services.clock.now_ms() - _DAY_MS
    query = Query(types=("message",), senders=(sender,), since=since, last=_RECENT)
    return [await _read_by(services, event) for event in reversed(await services.queries.read(query))]


async def _read_by(services: Services, event: Event) -> RecentMessage:
    read: list[str] = []
    waiting: list[WaitingCopy] = []
    agents = _copies_by_agent(event)
    for at, (name, copies) in enumerate(agents.items()):
        await let_others_run(at)
        state = _best_state(services, event, name)
        if state in _READ:
            read.append(name)
        elif len(waiting) < _NAMED_WAITS:
            wait = _wait_of_copies(services, event, copies, state)
            waiting += [] if wait is None else [WaitingCopy(agent=name, state=state, wait=wait)]
    return RecentMessage(
        seq=event.seq,
        ts=event.ts,
        text=readable_text(event),
        read_by=tuple(read),
        total=len(agents),
        waiting=tuple(waiting),
    )


def _wait_of_copies(services: Services, event: Event, copies: Iterable[str], state: str) -> WaitReason | None:
    """Return why an agent has not seen a message; None if the agent or one of its sessions has."""
    if state in _READ:
        return None
    return next(filter(None, (wait_of(services, event.seq, copy) for copy in copies)), None)


def _first_wait(services: Services, name: str) -> WaitReason | None:
    """Return why an agent has not seen the first of its waiting messages, including held ones."""
    # Some of these were answered unread and have no reason to wait, so the first reason is searched.
    copies = islice(_open_copies(services.queries.rows, name), _LIMIT_SEARCHED)
    return next(filter(None, (wait_of(services, seq, mailbox) for mailbox, seq in copies)), None)


def _copies_by_agent(event: Event) -> dict[str, tuple[str, ...]]:
    """Return the recipients of a message, each with the mailboxes of itself and its sessions that have it."""
    found: dict[str, tuple[str, ...]] = {}
    for mailbox in recipients_of(event):
        name = split_mailbox(mailbox)[0]
        found[name] = (*found.get(name, ()), mailbox)
    return found


def _best_state(services: Services, event: Event, name: str) -> str:
    """Return the state of a message for an agent; if one of its sessions has read it, that of the session."""
    seen = read_seen(services.queries.rows, event.seq, name, _READ)
    return _state(services, event, name) if seen is None else seen.state


def _state(services: Services, event: Event, name: str) -> str:
    entry = read_entry(services.queries.rows, event.seq, name)
    return State.QUEUED.value if entry is None else entry.state


def sent_view(sent: Sent) -> SentView:
    """Return the result of a send as programs read it."""
    event = sent.event
    return SentView(
        seq=None if event is None else event.seq,
        id=None if event is None else event.id,
        to=sent.to,
        delivered_to=sent.delivered_to,
        empty_groups=sent.empty_groups,
        dead=sent.dead,
        exited=tuple(ExitedView(**msgspec.structs.asdict(one)) for one in sent.exited),
        answers=event.body.answers if event is not None and isinstance(event.body, MessageSent) else None,
        repeat=sent.is_repeat,
        dry_run=event is None,
    )


def sent_lines(sent: Sent, now_ms: Callable[[], int]) -> list[str]:
    """Return the result of a send for people: a line, and one for each group or path without recipients."""
    exited = {one.agent: f" ({_exited(one, now_ms())})" for one in sent.exited}
    recipients = (f"{readable_mailbox(name)}{exited.get(name, '')}" for name in sent.delivered_to)
    on_irc = [token for token in sent.to if token.startswith(f"{IRC}/") and token not in sent.dead]
    names = ", ".join([*recipients, *on_irc]) or "no agent"
    if room := _room_of(sent):
        names = f"{names} in {room}"
    message = None if sent.event is None else body_as(sent.event, MessageSent)
    if message is not None and message.answers is not None:
        names = f"{names}, as the answer to #{message.answers}"
    # No lane carries a message to IRC, so it has no recipient in the ledger.
    is_for_all = not sent.to or "@all" in sent.to or bool(room)
    has_recipient = bool(sent.delivered_to or on_irc)
    if sent.event is None:
        first = f"would go to {names}"
    elif sent.is_repeat:
        first = f"#{sent.event.seq} was sent before, to {names}"
    elif message is not None and sent.to == (SCRIPT_NAME,):
        first = f"stored as #{sent.event.seq}, the answer to #{message.reply_to}; a script has no mailbox"
    elif has_recipient:
        first = f"sent #{sent.event.seq} to {names}"
    elif is_for_all:
        where = f" in {room}" if room else ""
        first = f"stored as #{sent.event.seq}; no other agent is present{where} to read it"
    else:
        first = f"stored as #{sent.event.seq}; it has no recipient now"
    # A message to all says already that no other agent is present.
    groups = sent.empty_groups if has_recipient or sent.event is None or not is_for_all else ()
    return [
        first,
        *(f"{group} has no members now; the message is kept" for group in groups),
        *(f"no agent is subscribed to {path}: dead letter" for path in sent.dead),
    ]


def _room_of(sent: Sent) -> str:
    """Return the room of a sent message; empty if it was not for a room."""
    if sent.event is not None:
        return room_id_of(sent.event) or ""
    return next((one.removeprefix("#") for one in sent.to if one.startswith("#")), "")


def _exited(one: ExitedRecipient, now_ms: int) -> str:
    """Return since when a recipient has left, and what happens to its message."""
    span = ago(now_ms - one.since)
    way = f": pal resume {one.agent}" if one.resumable else ""
    return f"{one.state} {span[:-1]} {span[-1]} ago; it waits until {one.agent} comes back{way}"


async def attention_view(services: Services) -> list[Attention]:
    """Return everything that waits for a person, oldest first."""
    return await services.live.pages().attention()


def _open_doors(services: Services) -> dict[str, str]:
    return {name: url for door in services.daemon.doors.values() for name, url in door.describe().items()}


async def daemon_view(services: Services) -> DaemonView:
    """Return the state of the daemon itself."""
    present = 0
    # A copy, because agents may join while others run.
    for at, agent in enumerate(tuple(services.broker.directory.all())):
        await let_others_run(at)
        present += services.callers.presence.is_present(agent.name)
    return DaemonView(
        pid=os.getpid(),
        version=services.daemon.version,
        home=str(services.daemon.home),
        device=services.queries.device,
        doors={"unix": str(services.daemon.home / "daemon.sock"), **_open_doors(services)},
        started=services.daemon.started_ms,
        last=services.queries.last(),
        agents=present,
        attention=len(await attention_view(services)),
    )


# --------------------
# Details of an agent for its page: queue, gates and terminal. Changes nothing.

_ASK_S: Final = 1.0
"""Seconds that a page waits for the holder: it is then shown without the holder's part."""
_HOLDER_FIELDS: Final = ("cols", "rows", "last_activity")
"""The fields of the holder's reply that replace ours."""


async def queue_view(rows: Rows, agent: Agent) -> dict[str, int]:
    """Count the messages that wait for the lanes of an agent by priority, and the held ones."""
    counts = {format_priority(priority): 0 for priority in Priority} | {"held": 0}
    for mailbox in mailboxes_of_lanes(rows, agent):
        for at, (key, value) in enumerate(walk(rows, MAIL, mail_prefix(mailbox))):
            await let_others_run(at)  # There can be thousands.
            state = decode_mail(value).state
            if kind_of_key(key) not in PUSHED:
                continue
            if state == State.HELD:
                counts["held"] += 1
            elif state == State.QUEUED:
                counts[format_priority(priority_of_key(key))] += 1
    return counts


async def _waiting_mail(services: Services, agent: Agent) -> list[WaitingMail]:
    """Return the first messages that an agent has not seen, in delivery order, each with the reason."""
    found: list[WaitingMail] = []
    for at, (mailbox, seq) in enumerate(_open_copies(services.queries.rows, agent.name)):
        await let_others_run(at)
        if len(found) == _LISTED_WAITS:
            break
        event, wait = services.queries.event(seq), wait_of(services, seq, mailbox)
        if event is not None and wait is not None:
            found.append(
                WaitingMail(
                    seq=seq,
                    sender=event.sender,
                    ts=event.ts,
                    state=_state(services, event, mailbox),
                    priority=flat(event).priority,
                    wait=wait,
                    session=split_mailbox(mailbox)[1] or None,
                )
            )
    return found


def _open_copies(rows: Rows, name: str) -> Iterator[tuple[str, int]]:
    """Iterate over the messages of an agent that are not final: those that wait, then unconfirmed ones.

    Each is its mailbox and its seq. Some may be answered already, without having been read.
    """
    for mailbox in mailboxes_of_agent(rows, name):
        yield from ((mailbox, mail.seq) for mail in read_mail(rows, mailbox))
    for end in ("/", PLUS):  # of the agent, and of its sessions
        for key, _ in walk(rows, UNSURE, f"{name}{end}"):
            yield key.rpartition("/")[0], seq_of_key(key)


async def terminal_view(services: Services, agent: Agent) -> TerminalView:
    """Return the details of an agent's page. If its holder does not reply in time, its part is left out."""
    # Complete without the holder, which may be busy or reconnecting: a page must not wait for it for long.
    hold = services.agents.holds.get(agent.name)
    view = TerminalView(
        queue=await queue_view(services.queries.rows, agent),
        waiting=tuple(await _waiting_mail(services, agent)),
        paused=agent.paused,
        last_activity=agent.since,
        gates=gates_view(services, agent.name),
        cols=None if hold is None else hold.cols,
        rows=None if hold is None else hold.rows,
        holder=None if hold is None else hold.holder.pid,
    )
    if hold is None:
        return view
    try:
        reply = await services.agents.holds.ask_once(agent.name, STATUS, limit_s=_ASK_S)
    except (Unavailable, NotFound):
        return view
    # Checked, because a holder of an older or newer version may send other fields or types.
    fields = {key: reply.ok[key] for key in _HOLDER_FIELDS if isinstance(reply.ok.get(key), int)}
    return msgspec.structs.replace(view, **fields)


def gates_view(services: Services, name: str) -> tuple[GateView, ...]:
    """Return the gate of every lane of an agent."""
    return tuple(
        GateView(lane=lane, is_open=level.is_open, paused=level.is_paused, reason=level.reason or None)
        for lane, level in services.delivery.levels(name)
    )


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
    # The row of a session names its last agent, which may be in another session by now.
    return known if known is not None and known.session == session else None


def only_session(services: Services, harness: str, among: Iterable[str]) -> str:
    """Return the current session of the only agent that ever had one of these sessions; else "".

    The user chooses one of them later, in the harness. With only one agent that choice does not matter here.
    """
    names = {name for session in among if (name := read_session(services.queries.rows, harness, session))}
    known = services.broker.directory.get(next(iter(names))) if len(names) == 1 else None
    return known.session if known is not None else ""


def repair_folders(home: Path) -> list[Path]:
    """Return the folders with the damaged log files that repairs have saved."""
    return kept_folders(home)


def replaced_log(home: Path) -> Path | None:
    """Return the copy of a log that was replaced while the bus was running, or None."""
    saved = home / f"{FILE_NAME}.saved"
    return saved if saved.exists() else None
