"""Attention: the list of entries that need a person. Its fold, and the entries as views show them. Pure.

    attention   what is open, by kind and seq: `request/<seq>`, `held/<seq>`, `unconfirmed/<seq>/<mailbox>`,
                `dead/<seq>`, `permission/<id>`, `stick/<room>`, `blocked/<agent>`

An entry ends in the fold:

- a permission request with its decision, or when the daemon starts: no request outlives its daemon;
- a request to the person with the person's reply, when the message expires or is refused, or when its sender
  withdraws it by a reply to it with the intent `ack`. Reading it is not enough;
- a held message when it is released, expires or is answered; an unconfirmed one with proof or a redelivery.

Dead letters stay in the table: those up to the seq of the last `dead.cleared` do not count. The rows contain
no text of a message: a removed text would have to be removed there too.

Whether a stick needs a person, and whether an agent is stale, depends on time and presence. The rows only
name the owned sticks; `read_attention` decides.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from palaver.protocol.agents import Agent
from palaver.protocol.display import ago
from palaver.protocol.envelope import Event, body_as, is_migrated
from palaver.protocol.events import (
    ANSWERED,
    ASKED,
    BYE,
    DAEMON_STARTED,
    HELLO,
    LIFE,
    ROOM_TYPES,
    AgentBye,
    AgentHello,
    AgentState,
    DeadLettersCleared,
    DeliveryReport,
    LifeChanged,
    MessageSent,
    PermissionAnswered,
    PermissionAsked,
    RoomBody,
    StatusChanged,
)
from palaver.protocol.message import ACK, HUMAN, LOST, MESSAGE, REQUEST, readable_text
from palaver.protocol.paths import readable_mailbox
from palaver.protocol.query import STORED_STATES
from palaver.protocol.subscriptions import DELIVERY, STATUS
from palaver.protocol.views import Action, Attention, AttentionKind
from palaver.state.agents import find_mail, read_agent, read_entry
from palaver.state.paths import read_cleared
from palaver.state.reasons import TURN_FAILED, USED_UP, USED_UP_ASKED
from palaver.state.rooms import ROOMS, Room, StickState, read_room
from palaver.state.rows import (
    HELD,
    LEDGER,
    UNSURE,
    Change,
    LedgerEntry,
    Rows,
    answered_seq,
    decode_entry,
    encode_row,
    ledger_key,
    parse_ledger_key,
    seq_of_key,
)
from palaver.state.watches import owed_no_more, walk

ATTENTION: Final = "attention"
LIMIT_KIND: Final = 500
"""Entries of one kind that the list has at most; the newest ones."""

_AGENT: Final = "agent"
"""The kind in the keys of blocked and stale agents: an agent is one of both at most."""
_BY_SEQ: Final = frozenset(
    {AttentionKind.REQUEST, AttentionKind.HELD, AttentionKind.UNCONFIRMED, AttentionKind.DEAD}
)
"""Kinds of entries about a message."""
_SHOWN_NAMES: Final = 20
_FEW: Final = 8
_PAGE: Final = 20
"""Keys that are read at once: the caller may pause between two entries, and should then see recent keys."""
_LIMIT_TEXT: Final = 300


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored part of an open entry. An empty `who` is unknown: the writer of the message."""

    ts: int
    who: str = ""
    seq: int = 0
    text: str = ""
    """The request of a permission; why a message is held."""
    paths: tuple[str, ...] = ()
    """The paths of a dead letter that no subscription matched."""
    tool: str = ""
    lane: str = ""
    until: int = 0


class _Stick(msgspec.Struct, frozen=True):
    """The part of a room's row that says whether its stick is owned."""

    state: str


_decode: Final = msgspec.json.Decoder(_Entry).decode
_decode_stick: Final = msgspec.json.Decoder(_Stick).decode


# --------------------
# Facts about the bus that are not in the rows.


class AttentionFacts(Protocol):
    """Time, presence, messages and open permission requests. For the past, those of that time."""

    @property
    def now_ms(self) -> int:
        """The time, in Unix milliseconds."""
        ...

    @property
    def stale_after_ms(self) -> int:
        """How long an active agent may be silent; 0 for no limit."""
        ...

    def is_present(self, name: str) -> bool:
        """Return whether an agent can be reached now."""
        ...

    def agents(self) -> Iterable[Agent]:
        """Return all agents that have not left, in any order."""
        ...

    def text_of(self, seq: int) -> str:
        """Return the beginning of a message, as `beginning_of` does; empty if the event is lost."""
        ...

    def sender_of(self, seq: int) -> str:
        """Return the sender of a message; empty if the event is lost."""
        ...

    def can_answer_permission(self, id: str) -> bool:
        """Return whether a permission request can still be answered."""
        ...

    def lease_until_ms(self, room: Room) -> int:
        """Return when the lease of a stick's owner ends, with every renewal that is not in the log."""
        ...


def beginning_of(event: Event) -> str:
    """Return the beginning of the text of an event."""
    text = readable_text(event)
    return text if len(text) <= _LIMIT_TEXT else f"{text[: _LIMIT_TEXT - 1]}…"


# --------------------
# Queries.


def read_attention(rows: Rows, facts: AttentionFacts) -> list[Attention]:
    """Return every entry that needs a person, oldest first; of each kind the newest `LIMIT_KIND`."""
    return oldest_first(filter(None, each_attention(rows, facts)))


def oldest_first(entries: Iterable[Attention]) -> list[Attention]:
    """Return entries in the order in which they are shown."""
    return sorted(entries, key=lambda one: (one.since, one.key))


def each_attention(rows: Rows, facts: AttentionFacts) -> Iterator[Attention | None]:
    """Iterate over everything that may need a person: its entry, or None if it needs none. In no order.

    Each step is short and reads the present rows, so that others may run and write between two steps.
    """
    asking = _agents_asking(rows, facts)
    # Only keys are kept between two steps. The row is read when its turn comes, because it may have changed.
    for kind in _SHOWN:
        for key in _keys_of_kind(rows, kind):
            yield _entry_of_row(rows, kind, key, facts, asking)
    # A copy, because agents may join and leave between two steps.
    for agent in tuple(facts.agents()):
        yield _stale(agent, facts)


def _keys_of_kind(rows: Rows, kind: str) -> Iterator[str]:
    """Iterate over the keys of the newest rows of a kind, newest first. Cleared dead letters are left out."""
    first = _row_key(AttentionKind.DEAD, read_cleared(rows)) if kind == AttentionKind.DEAD else ""
    before, left = "", LIMIT_KIND
    while left and (page := rows.scan(ATTENTION, f"{kind}/", after=before, limit=_PAGE, reverse=True)):
        yield from (key for key, _ in page[:left] if key > first)
        # The limit counts cleared dead letters too, but only older ones follow them.
        before, left = page[-1][0], max(0, left - len(page))


def _entry_of_row(
    rows: Rows, kind: str, key: str, facts: AttentionFacts, asking: Container[str]
) -> Attention | None:
    if (value := rows.get(ATTENTION, key)) is None:  # It has ended since its key was read.
        return None
    one = _SHOWN[kind](rows, key, _decode(value), facts)
    return None if one is None or (kind == AttentionKind.BLOCKED and one.who in asking) else one


def attention_of(rows: Rows, key: str, facts: AttentionFacts) -> Attention | None:
    """Return one entry by its key, or None if it is over."""
    kind, _, name = key.partition("/")
    if kind == _AGENT:
        agent = read_agent(rows, name)
        if agent is None or (stale := _stale(agent, facts)) is not None:
            return None if agent is None else stale
        kind = AttentionKind.BLOCKED
    if kind not in _SHOWN or (row_key := _row_key_of(kind, name)) is None:
        return None
    value = rows.get(ATTENTION, row_key)
    if value is None or (kind == AttentionKind.DEAD and int(name) <= read_cleared(rows)):
        return None
    if kind == AttentionKind.BLOCKED and name in _agents_asking(rows, facts):
        return None
    return _SHOWN[kind](rows, row_key, _decode(value), facts)


def touched_by(event: Event) -> frozenset[str]:
    """Return the keys of the entries that an event may change. One that ends with `/` means all keys with it.

    Presence and time change entries too, without an event.
    """
    if event.imported:
        return frozenset()
    match event.body:
        case MessageSent():
            answered = answered_seq(event)
            found = {f"request/{event.seq}", f"held/{event.seq}", f"dead/{event.seq}"}
            return frozenset(found if answered is None else found | _keys_of_message(answered))
        case DeliveryReport(messages=messages, answers=answers):
            numbers = {*messages, answers} - {0}
            return frozenset().union(*map(_keys_of_message, numbers))
        case PermissionAsked(permission=id_):
            return frozenset({f"permission/{id_}", f"agent/{event.sender}"})
        case PermissionAnswered(permission=id_, agent=name):
            return frozenset({f"permission/{id_}", f"agent/{name or event.sender}"})
        case RoomBody(room=room):
            return frozenset({f"stick/{room}"})
        case LifeChanged(action=action) if action == DAEMON_STARTED:
            return frozenset({"permission/", "agent/"})
        case DeadLettersCleared():
            return frozenset({"dead/"})
        case AgentHello(agent=agent) | LifeChanged(agent=agent):
            return frozenset({f"agent/{agent.name if isinstance(agent, Agent) else agent or event.sender}"})
        case StatusChanged(agent=name) | AgentBye(agent=name):
            return frozenset({f"agent/{name or event.sender}"})
    return frozenset()


def _keys_of_message(seq: int) -> frozenset[str]:
    return frozenset({f"request/{seq}", f"held/{seq}", f"unconfirmed/{seq}/"})


def _agents_asking(rows: Rows, facts: AttentionFacts) -> frozenset[str]:
    """Return the agents with a permission request that can be answered."""
    found = walk(rows, ATTENTION, f"{AttentionKind.PERMISSION}/")
    return frozenset(
        _decode(value).who for key, value in found if facts.can_answer_permission(key.partition("/")[2])
    )


def _row_key(kind: str, seq: int, name: str = "") -> str:
    """Return the key of a row about a message; those of one kind sort by seq."""
    return f"{kind}/{seq:015d}/{name}" if name else f"{kind}/{seq:015d}"


def _row_key_of(kind: str, name: str) -> str | None:
    """Return the key of the row of an entry, or None if the entry cannot exist. The name is a caller's
    text."""
    if kind not in _BY_SEQ:
        return f"{kind}/{name}"
    number, _, mailbox = name.partition("/")
    return _row_key(kind, int(number), mailbox) if number.isdecimal() and number.isascii() else None


# --------------------
# Entries as views show them.


def _show_permission(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention | None:
    id_ = key.partition("/")[2]
    if not facts.can_answer_permission(id_):
        return None
    return Attention(
        key=key,
        kind=AttentionKind.PERMISSION,
        who=entry.who,
        what=entry.text,
        since=entry.ts,
        why=f"{entry.who} waits for your decision. If there is none in time, the request is denied.",
        actions=(_action("approve", "approve", id_), _action("deny", "deny", id_)),
        seq=entry.seq,
        id=id_,
        until=entry.until,
    )


def _show_request(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention | None:
    seq = entry.seq
    if rows.get(HELD, ledger_key(seq, HUMAN)) is not None:  # It has not reached the person yet.
        return None
    return Attention(
        key=f"request/{seq}",
        kind=AttentionKind.REQUEST,
        who=entry.who,
        what=facts.text_of(seq),
        since=entry.ts,
        why=f"{entry.who} asked you and has no reply yet.",
        actions=(_action("reply", "send", "--reply-to", str(seq)), _show(seq)),
        seq=seq,
        to=(HUMAN,),
    )


def _show_held(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention:
    seq = entry.seq
    names = rows.scan(HELD, ledger_key(seq, ""), limit=_SHOWN_NAMES)
    return Attention(
        key=f"held/{seq}",
        kind=AttentionKind.HELD,
        who=entry.who or facts.sender_of(seq),
        what=facts.text_of(seq),
        since=entry.ts,
        why=_why_held(entry.text),
        actions=(_action("release", "release", str(seq)), _show(seq)),
        seq=seq,
        to=tuple(parse_ledger_key(name)[1] for name, _ in names),
    )


def _why_held(reason: str) -> str:
    if reason == LOST:
        return "Its content is lost. Restore its file in blobs/ ('pal doctor' names it), then release it."
    if reason.startswith(TURN_FAILED):
        return f"It is held because {reason}. Only a person can release it."
    return f"A brake holds it: {reason}. Only a person can release it."


def _show_unconfirmed(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention:
    seq, mailbox = entry.seq, key.split("/", 2)[2]
    name = readable_mailbox(mailbox)
    lane = f"The {entry.lane} lane" if entry.lane else "A lane"
    return Attention(
        key=f"unconfirmed/{seq}/{mailbox}",
        kind=AttentionKind.UNCONFIRMED,
        who=facts.sender_of(seq),
        what=facts.text_of(seq),
        since=entry.ts,
        why=f"{lane} carried it to {name}, and nothing proves that {name} has read it.",
        actions=(_action("redeliver", "redeliver", str(seq)), _show(seq)),
        seq=seq,
        to=(mailbox,),
    )


def _show_dead(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention:
    seq = entry.seq
    return Attention(
        key=f"dead/{seq}",
        kind=AttentionKind.DEAD,
        who=entry.who,
        what=facts.text_of(seq),
        since=entry.ts,
        why=f"No agent is subscribed to {', '.join(entry.paths)}, so no agent received it there. "
        "Clearing removes all dead letters from this list.",
        actions=(_show(seq), _action("clear", "dead", "--clear")),
        seq=seq,
        to=entry.paths,
    )


def _show_stick(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention | None:
    room = read_room(rows, key.partition("/")[2])
    assert room is not None  # one event wrote both
    is_yours, until_ms = room.owner == HUMAN, facts.lease_until_ms(room)
    is_present = is_yours or facts.is_present(room.owner)  # A person needs no connection.
    if is_present and until_ms > facts.now_ms:
        return None
    if is_yours:
        why = f"You have the stick of {room.name}, and your lease has ended."
    elif is_present:
        why = f"{room.owner} has the stick of {room.name}, and its lease has ended."
    else:
        why = f"{room.owner} has the stick of {room.name} and is offline."
    return Attention(
        key=key,
        kind=AttentionKind.STICK,
        who=room.owner,
        what=f"turn {room.turn} in {room.path}",
        since=until_ms if is_present else _offline_since(rows, room),
        why=why,
        actions=tuple(_stick_actions(room, is_present=is_present)),
        until=until_ms,
        room=room.id,
    )


def _offline_since(rows: Rows, room: Room) -> int:
    """Return since when the owner of a stick is offline: it left then, or at least since it has the stick."""
    owner = read_agent(rows, room.owner)
    return owner.since if owner is not None and owner.left else room.claimed_ms


def _stick_actions(room: Room, *, is_present: bool) -> Iterator[Action]:
    show = _action("show", "room", "state", "--room", room.id)
    if room.owner == HUMAN:
        yield from (_action("renew", "stick", "heartbeat", "--room", room.id), show)
        return
    if room.member(HUMAN) is not None:
        reason = f"the lease of {room.owner} has ended" if is_present else f"{room.owner} is offline"
        # Without these options an owner that was present recently would keep the stick, even against a
        # person.
        yield _action("takeover", "stick", "takeover", "--room", room.id, "--override", "--reason", reason)
    yield _action("kick", "room", "kick", room.owner, "--room", room.id, "--force")
    yield show


def _show_blocked(rows: Rows, key: str, entry: _Entry, facts: AttentionFacts) -> Attention | None:
    agent = read_agent(rows, key.partition("/")[2])
    assert agent is not None  # one event wrote both
    # A usage limit ends by itself. The person is needed only if the harness asks what to do about it.
    is_limited = agent.detail.startswith(USED_UP) and not agent.detail.startswith(USED_UP_ASKED)
    if is_limited or not facts.is_present(agent.name):
        return None
    top = _top_of(rows, agent)
    whose = "its own terminal" if top is agent else f"the terminal of {top.name}"
    return Attention(
        key=f"agent/{agent.name}",
        kind=AttentionKind.BLOCKED,
        who=agent.name,
        what=agent.detail or "the reason is not known",
        since=agent.since,
        why=f"{agent.name} is blocked until a person answers in {whose}.",
        actions=_agent_actions(agent, top),
    )


def _stale(agent: Agent, facts: AttentionFacts) -> Attention | None:
    limit_ms = facts.stale_after_ms
    if (
        not limit_ms
        or agent.left
        or agent.state != AgentState.ACTIVE
        or facts.now_ms - agent.since <= limit_ms
    ):
        return None
    if not facts.is_present(agent.name):
        return None
    return Attention(
        key=f"agent/{agent.name}",
        kind=AttentionKind.STALE,
        who=agent.name,
        what=" ".join(filter(None, (agent.tool, agent.detail))) or "active",
        since=agent.since,
        why=f"{agent.name} is active and has not reported for more than {ago(limit_ms)}.",
        actions=_agent_actions(agent, agent),
    )


def _top_of(rows: Rows, agent: Agent) -> Agent:
    """Return the agent in whose session a sub-agent is."""
    while agent.parent and (parent := read_agent(rows, agent.parent)) is not None:
        agent = parent
    return agent


def _agent_actions(agent: Agent, top: Agent) -> tuple[Action, ...]:
    show = _action("show", "status", agent.name)
    return (_action("attach", "attach", top.name), show) if top.holder else (show,)


def _action(word: str, *command: str) -> Action:
    return Action(word=word, command=("pal", *command))


def _show(seq: int) -> Action:
    return _action("show", "show", str(seq))


_Show = Callable[[Rows, str, _Entry, AttentionFacts], Attention | None]
_SHOWN: Final[Mapping[str, _Show]] = {
    AttentionKind.PERMISSION: _show_permission,
    AttentionKind.REQUEST: _show_request,
    AttentionKind.HELD: _show_held,
    AttentionKind.UNCONFIRMED: _show_unconfirmed,
    AttentionKind.DEAD: _show_dead,
    AttentionKind.STICK: _show_stick,
    AttentionKind.BLOCKED: _show_blocked,
}


# --------------------
# The fold.


def attention_changes(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    """Return the changes of an event to the list; `changes` are those to mail, ledger and rooms.

    `agent` is the agent that the event is about.
    """
    handler = _HANDLERS.get(event.type)
    return [] if handler is None else handler(rows, event, agent, changes)


def _by_message(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    message = body_as(event, MessageSent)
    found: list[Change] = []
    if _asks_person(event, message):
        entry = _Entry(ts=event.ts, who=event.sender, seq=event.seq)
        found.append((ATTENTION, _row_key(AttentionKind.REQUEST, event.seq), encode_row(entry)))
    if message.dead:
        entry = _Entry(ts=event.ts, who=event.sender, seq=event.seq, paths=message.dead)
        found.append((ATTENTION, _row_key(AttentionKind.DEAD, event.seq), encode_row(entry)))
    answered = answered_seq(event)
    if answered is not None and not message.held:
        found += _answered(rows, event, message, answered)
    # Other messages change no row of `held` or `unsure`, so their changes need not be searched.
    if message.held or answered is not None:
        found += _moved(rows, event, changes)
    return found


def _asks_person(event: Event, message: MessageSent) -> bool:
    """Return whether a message was written to the person by name and expects a reply."""
    is_request = message.intent == REQUEST or message.expects_reply
    # A broadcast has no mentions, but it may name the person in addition.
    is_named = HUMAN in message.mentions or f"@{HUMAN}" in event.to
    is_for_person = is_request and is_named and HUMAN in message.delivered_to
    return is_for_person and event.sender != HUMAN and not is_migrated(event)


def _answered(rows: Rows, event: Event, message: MessageSent, seq: int) -> list[Change]:
    """End a request by a reply of the person, or if its sender withdraws it."""
    key = _row_key(AttentionKind.REQUEST, seq)
    if event.sender != HUMAN and message.intent != ACK:
        return []
    value = rows.get(ATTENTION, key)
    # Only its own sender can withdraw a request: an `ack` of another agent must not hide it from the person.
    is_over = value is not None and event.sender in (HUMAN, _decode(value).who)
    return [(ATTENTION, key, None)] if is_over else []


def _by_report(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    found = _moved(rows, event, changes)
    for name, seq in owed_no_more(rows, event):
        if name == HUMAN:
            found += _over(rows, _row_key(AttentionKind.REQUEST, seq))
    return found


def _moved(rows: Rows, event: Event, changes: Sequence[Change]) -> list[Change]:
    """Return the changes by messages that become held or unconfirmed, and by those that leave that state."""
    found: list[Change] = []
    freed: dict[int, set[str]] = {}
    for table, key, value in changes:
        if table == UNSURE:
            found += _unconfirmed(rows, event, key, is_open=value is not None)
        elif table == HELD and value is None:
            seq, mailbox = parse_ledger_key(key)
            freed.setdefault(seq, set()).add(mailbox)
        elif table == HELD:
            found += _held(rows, event, key, changes)
    for seq, mailboxes in freed.items():
        # Most released messages have no entry, so the cheap look-up comes before the scan.
        over = _over(rows, _row_key(AttentionKind.HELD, seq))
        if over and not _is_held_for_others(rows, seq, mailboxes):
            found += over
    return found


def _unconfirmed(rows: Rows, event: Event, key: str, *, is_open: bool) -> list[Change]:
    mailbox, seq = key.rpartition("/")[0], seq_of_key(key)
    row_key = _row_key(AttentionKind.UNCONFIRMED, seq, mailbox)
    if not is_open:
        return _over(rows, row_key)
    mail = find_mail(rows, mailbox, seq)
    if mail is not None and mail[1].raw:  # Raw keys are never typed again, so a person can do nothing.
        return []
    old = read_entry(rows, seq, mailbox)
    lane = body_as(event, DeliveryReport).lane or ("" if old is None else old.lane)
    return [(ATTENTION, row_key, encode_row(_Entry(ts=event.ts, seq=seq, lane=lane)))]


def _held(rows: Rows, event: Event, key: str, changes: Sequence[Change]) -> list[Change]:
    """Return the row of a message that is held, unless the end of a usage limit releases it."""
    seq, _ = parse_ledger_key(key)
    row_key = _row_key(AttentionKind.HELD, seq)
    # Without a default: the event that writes a row of `held` always writes the entry in the ledger too.
    entry = next(
        decode_entry(value) for table, at, value in changes if (table, at) == (LEDGER, key) and value
    )
    # A broadcast is held for each recipient, and has only one entry in the list.
    if _goes_on_by_itself(entry) or rows.get(ATTENTION, row_key) is not None:
        return []
    who = event.sender if seq == event.seq else ""
    return [(ATTENTION, row_key, encode_row(_Entry(ts=event.ts, who=who, seq=seq, text=entry.reason)))]


def _is_held_for_others(rows: Rows, seq: int, freed: Container[str]) -> bool:
    """Return whether a message is held until a person releases it, for a recipient that is not freed now."""
    prefix, after = ledger_key(seq, ""), ""
    # A broadcast is released for one recipient after the other, and most often the first row decides.
    while page := rows.scan(HELD, prefix, after=after, limit=_FEW):
        for key, _ in page:
            _, mailbox = parse_ledger_key(key)
            entry = None if mailbox in freed else read_entry(rows, seq, mailbox)
            if entry is not None and not _goes_on_by_itself(entry):
                return True
        after = page[-1][0]
    return False


def _goes_on_by_itself(entry: LedgerEntry) -> bool:
    return entry.reason.startswith(USED_UP)


def _by_status(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    word = body_as(event, StatusChanged).state or ""
    return _blocked(rows, event, agent, STORED_STATES.get(word, word))


def _by_agent(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    """Return the changes of an event that carries a whole agent, and of a start of the daemon."""
    match event.body:
        case LifeChanged(action=action) if action == DAEMON_STARTED:
            asked = walk(rows, ATTENTION, f"{AttentionKind.PERMISSION}/")
            return [(ATTENTION, key, None) for key, _ in asked]
        case AgentHello(agent=Agent() as found) | LifeChanged(has_agent=True, agent=Agent() as found):
            return _blocked(rows, event, found.name, found.state)
    return []


def _by_bye(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    return _over(rows, f"{AttentionKind.BLOCKED}/{agent}")


def _blocked(rows: Rows, event: Event, name: str, state: str) -> list[Change]:
    # A repeated report keeps the old row, so that the entry shows since when the agent is blocked.
    key = f"{AttentionKind.BLOCKED}/{name}"
    if state != AgentState.BLOCKED:
        return _over(rows, key)
    return [] if rows.get(ATTENTION, key) is not None else [(ATTENTION, key, encode_row(_Entry(ts=event.ts)))]


def _by_asked(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    asked = body_as(event, PermissionAsked)
    if not asked.permission:
        return []
    entry = _Entry(
        ts=event.ts, who=event.sender, seq=event.seq, text=asked.text, tool=asked.tool, until=asked.until
    )
    return [(ATTENTION, f"{AttentionKind.PERMISSION}/{asked.permission}", encode_row(entry))]


def _by_answered(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    return _over(rows, f"{AttentionKind.PERMISSION}/{body_as(event, PermissionAnswered).permission}")


def _by_room(rows: Rows, event: Event, agent: str, changes: Sequence[Change]) -> list[Change]:
    found: list[Change] = []
    for table, id_, value in changes:
        if table == ROOMS and value is not None:
            key = f"{AttentionKind.STICK}/{id_}"
            is_owned = _decode_stick(value).state == StickState.OWNED
            found += [(ATTENTION, key, encode_row(_Entry(ts=event.ts)))] if is_owned else _over(rows, key)
    return found


def _over(rows: Rows, key: str) -> list[Change]:
    return [] if rows.get(ATTENTION, key) is None else [(ATTENTION, key, None)]


_Handler = Callable[[Rows, Event, str, Sequence[Change]], list[Change]]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    MESSAGE: _by_message,
    DELIVERY: _by_report,
    STATUS: _by_status,
    HELLO: _by_agent,
    LIFE: _by_agent,
    BYE: _by_bye,
    ASKED: _by_asked,
    ANSWERED: _by_answered,
    **dict.fromkeys(ROOM_TYPES, _by_room),
}
