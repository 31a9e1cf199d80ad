"""Every type of event that the broker writes, with the fields of its payload. Data only.

`docs/events.md` describes the same types and fields. Tests compare that page with this table, and this table
with the written events.
"""

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from palaver.errors import BadRequest
from palaver.protocol.envelope import Event

PAUSED: Final = "agent.paused"

UNPAUSED: Final = "agent.unpaused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a payload: some required, some optional."""

    always: frozenset[str]
    sometimes: frozenset[str] = frozenset()
    has_others: bool = False
    """Whether external programs may add their own fields."""

    @property
    def all(self) -> frozenset[str]:
        """Every possible field."""
        return self.always | self.sometimes


def _fields(always: str, sometimes: str = "", *, has_others: bool = False) -> Fields:
    return Fields(
        always=frozenset(always.split()), sometimes=frozenset(sometimes.split()), has_others=has_others
    )


EVENT_TYPES: Final[Mapping[str, Fields]] = {
    "message": _fields(
        "text scope mentions sender_kind delivered_to",
        "intent thread reply_to bundle_id priority expires path dead chain hops held "
        "room delivery_hint wakes sub event agents file watch raw secret hash bare expects_reply nag",
    ),
    "delivery": _fields(
        "agent messages state", "lane grade reason unconfirmed priority author answers tips request evidence"
    ),
    "bundle": _fields("bundle_id title", "description files events transcripts extends"),
    "member_joined": _fields("room base path name", "harness"),
    "member_left": _fields("room reason", "from kick"),
    "kick": _fields("room", "reason"),
    "close": _fields("room", "reason"),
    "claim": _fields("room turn_id lease_id reason from until"),
    "takeover": _fields("room turn_id lease_id cause until", "reason"),
    "release": _fields("room turn_id", "handoff reserved_for until reason from"),
    "pass": _fields("room turn_id handoff reserved_for until"),
    "reservation_expired": _fields("room turn_id", "reserved_for until from"),
    "note_added": _fields("room note text", "turn_id"),
    "note_resolved": _fields("room note"),
    "task.create": _fields("title", "description assignee assignees", has_others=True),
    "task.update": _fields("task_id", "status title description assignee assignees", has_others=True),
    "task.complete": _fields("task_id", "summary", has_others=True),
    "agent.hello": _fields("runtime version", "agent"),
    "agent.bye": _fields("reason"),
    "agent.paused": _fields("agent"),
    "agent.unpaused": _fields("agent"),
    "status": _fields("state", "detail tool file"),
    "life": _fields("action", "name reason agent pid version text secret"),
    "permission.asked": _fields("permission tool text digest until"),
    "permission.answered": _fields("agent permission decision", "digest reason"),
    "sub.added": _fields("id owner filter", "once preset text by"),
    "sub.removed": _fields("id reason"),
    "setting.changed": _fields("key value old"),
    "redacted": _fields("event id of hash", "copies"),
}


def unlisted_fields(type: str, payload: Mapping[str, object]) -> frozenset[str]:
    """Return the fields of a payload that differ from the table: missing ones and unknown ones.

    A type that is not in the table is foreign, and may contain anything.
    """
    known = EVENT_TYPES.get(type)
    if known is None:
        return frozenset()
    unknown = frozenset() if known.has_others else frozenset(payload.keys() - known.all)
    return unknown | (known.always - payload.keys())


# --------------------
# The vocabulary of the ledger: states of a message, grades of evidence, states of an agent.
#
# Pure. Knows which state changes are allowed; stores nothing and calls no lane.


class State(enum.StrEnum):
    """The state of one message for one recipient."""

    QUEUED = "queued"
    HELD = "held"
    SUBMITTED = "submitted"
    SEEN = "seen"
    ANSWERED = "answered"
    REFUSED = "refused"
    EXPIRED = "expired"
    DEAD = "dead"


ENDS: Final = frozenset({State.REFUSED, State.EXPIRED, State.DEAD})
"""Final states; only an answer still changes them."""

_RANKS: Final[dict[str, int]] = {
    State.QUEUED: 0,
    State.HELD: 1,
    State.SUBMITTED: 2,
    State.SEEN: 3,
    State.ANSWERED: 4,
}
_WAITING: Final[frozenset[str]] = frozenset({State.QUEUED, State.HELD})


def can_rise(old: str, new: str) -> bool:
    """Return whether a ledger entry may go from `old` to `new`. States only rise.

    Waiting mail can end in any way, submitted mail only by a refusal. An answer raises every other state. The
    step back from submitted to queued, after a definite refusal, is not a rise: its writer handles it.
    """
    if new == State.ANSWERED:
        return old in ENDS or (old in _RANKS and old != State.ANSWERED)
    if old in ENDS:
        return False
    if new in ENDS:
        return old in _WAITING or (old == State.SUBMITTED and new == State.REFUSED)
    return old in _RANKS and new in _RANKS and _RANKS[old] < _RANKS[new]


class Grade(enum.StrEnum):
    """How certain it is that a message was seen."""

    HANDED = "handed"
    FLUSHED = "flushed"
    ACKED = "acked"
    CONTEXT = "context"


GRADES: Final[tuple[str, ...]] = tuple(Grade)
"""Every grade, weakest first."""


class AgentState(enum.StrEnum):
    """The activity of an agent."""

    STARTING = "starting"
    ACTIVE = "active"
    IDLE = "idle"
    BLOCKED = "blocked"
    EXITED = "exited"


_AGENT_STATES: Final = {
    **{state.value: state for state in AgentState},
    "listening": AgentState.IDLE,
    "inactive": AgentState.EXITED,
}


def parse_state(word: str) -> AgentState:
    """Parse an agent's state; `listening` is accepted for idle and `inactive` for exited."""
    state = _AGENT_STATES.get(word)
    if state is None:
        raise BadRequest(f"invalid state: {word}; the states are {', '.join(AgentState)}")
    return state


class DeliveryReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a `delivery` event: one recipient, one batch, one state."""

    agent: str
    messages: tuple[int, ...]
    state: str
    lane: str = ""
    grade: str = ""
    reason: str = ""
    unconfirmed: bool = False
    priority: str = ""
    """Only for mail that had left the queue and is queued again."""
    author: str = ""
    answers: int = 0
    """Only for a released reply: its author, and the seq of the message it answers."""
    tips: tuple[str, ...] = ()
    """The one-time tips that were shown with the messages."""
    request: str = ""
    """Only where a hook took them: its step and its request key. The next daemon may have to ask for both."""
    evidence: str = ""
    """Evidence of the lane at that time, such as the screen into which raw keys were typed."""


# --------------------
# The life of an agent: the types of events about it, and the actions of `life` events. Pure.
#
# `started` and `stopped` directly follow the hello or bye that they repeat, for followers of `life` events.
# Nothing is decided by them.

HELLO: Final = "agent.hello"
BYE: Final = "agent.bye"
LIFE: Final = "life"

STARTED: Final = "started"
READY: Final = "ready"
STOPPED: Final = "stopped"
RESUMED: Final = "resumed"
SESSION: Final = "session"
DAEMON_STARTED: Final = "daemon_started"

SEAT_TYPES: Final = frozenset({HELLO, BYE, LIFE})
"""Events by which an agent joins, leaves, or returns at another seat."""

STATE_TYPES: Final = frozenset({"status", PAUSED, UNPAUSED})
"""Events that change the state of an agent and not its seat."""

AGENT_TYPES: Final = SEAT_TYPES | STATE_TYPES
"""Events that change any stored field of an agent."""

_ECHOES: Final = frozenset({STARTED, STOPPED})
_WHOLE: Final = frozenset({RESUMED, SESSION})


def is_echo(event: Event) -> bool:
    """Return whether an event repeats the hello or bye before it."""
    return event.type == LIFE and event.payload.get("action") in _ECHOES


def has_agent(event: Event) -> bool:
    """Return whether an event carries the complete agent as it is from then on."""
    return event.type == LIFE and event.payload.get("action") in _WHOLE


def is_return(event: Event) -> bool:
    """Return whether an agent returns with this event: at another seat, or on a new connection."""
    return event.type == LIFE and event.payload.get("action") == RESUMED


def is_ready(event: Event) -> bool:
    """Return whether an agent is idle for the first time since it joined."""
    return event.type == LIFE and event.payload.get("action") == READY


# --------------------
# Permission requests of agents and their decisions. Pure: a hash of the whole request identifies it.

ASKED: Final = "permission.asked"
ANSWERED: Final = "permission.answered"

ALLOW: Final = "allow"
DENY: Final = "deny"
NOTHING: Final = "none"
"""Not decided here: the harness asks its own user, or has exited."""

LIMIT_TEXT: Final = 1000


class AskPermission(msgspec.Struct, frozen=True, kw_only=True):
    """An agent requests permission to use a tool, and waits. From its hook, through the door."""

    name: str
    permission: str
    tool: str
    text: str
    digest: str
    until: int


class AnswerPermission(msgspec.Struct, frozen=True, kw_only=True):
    """Allow or deny a permission request. Only for the human in person."""

    name: str
    permission: str
    digest: str
    is_allowed: bool


class ClosePermission(msgspec.Struct, frozen=True, kw_only=True):
    """Close a request without a decision: denied at its time limit, or decided elsewhere."""

    name: str
    permission: str
    decision: str
    reason: str


def request_digest(session: str, tool: str, given: Mapping[str, object]) -> str:
    """Return a hash that identifies a request: its session, its tool and its complete input."""
    whole = json.dumps([session, tool, given], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


# --------------------
# A seq in the log, as external callers may give it. Pure.

Place = Annotated[int, msgspec.Meta(ge=0, le=10**15 - 1)]
"""A seq in the log, or a count: never negative, and never more than a log can contain."""

# --------------------
# The exit report of a holder without a daemon: how its agent ended, and the outcomes of its messages.
#
# The holder writes it to a file, and the next daemon reads it.

REPORT_END: Final = ".report.json"
"""Suffix of the names of such files, after the agent's name."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of messages that were carried for an earlier daemon."""

    messages: tuple[Place, ...]
    answer: str
    grade: str = ""
    name: str = ""
    """The sub-agent they were for; empty for the agent itself."""


class ExitReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outstanding report about one agent. Only its secret proves that it is genuine."""

    name: str
    secret: str
    reason: str
    """How the agent ended."""
    outcomes: tuple[Outcome, ...] = ()
    ts: int = 0


# --------------------
# Payloads of room events, one struct per kind. Pure.
#
# They contain outcomes, such as the next owner and a time limit, so that `apply` needs no clock, setting or
# presence.

MEMBER_JOINED: Final = "member_joined"
MEMBER_LEFT: Final = "member_left"
KICK: Final = "kick"
CLOSE: Final = "close"
CLAIM: Final = "claim"
TAKEOVER: Final = "takeover"
RELEASE: Final = "release"
PASS: Final = "pass"  # noqa: S105 - a type of event
RESERVATION_EXPIRED: Final = "reservation_expired"
NOTE_ADDED: Final = "note_added"
NOTE_RESOLVED: Final = "note_resolved"

ROOM_TYPES: Final = frozenset(
    {MEMBER_JOINED, MEMBER_LEFT, KICK, CLOSE, CLAIM, TAKEOVER, RELEASE, PASS, RESERVATION_EXPIRED}
)
"""Event types that change a room; notes are stored separately."""


class MemberJoined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sender is a member; the first member creates the room."""

    room: str
    base: str
    path: str
    name: str
    harness: str = ""


class MemberLeft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member has left: the sender, or the named member if the bus writes the event.

    With `kick` the member was removed by that event already, and this one only notifies agents that wait for
    leaves.
    """

    room: str
    reason: str
    member: str | None = msgspec.field(default=None, name="from")
    kick: str = ""
    """The id of the kick."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kick of the member in `to`, or a close."""

    room: str
    reason: str = ""


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: the member in `to` owns the stick. `from` is the previous owner, if any."""

    room: str
    turn_id: int
    lease_id: str
    reason: str
    sender: str | None = msgspec.field(name="from")
    until: int


class TakenOver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A takeover: the sender owns the stick, the member in `to` has lost it; `cause` is the reason."""

    room: str
    turn_id: int
    lease_id: str
    cause: str
    until: int
    reason: str = ""


class Freed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release, a pass, or an expired reservation, with the next recipient and its time limit.

    `from` is the previous owner if the bus writes the event for it.
    """

    room: str
    turn_id: int
    handoff: dict[str, object] | None = None
    reserved_for: str = ""
    until: int = 0
    reason: str = ""
    sender: str | None = msgspec.field(default=None, name="from")


class NoteAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note of the sender."""

    room: str
    note: str
    text: str
    turn_id: int | None = None


class NoteResolved(msgspec.Struct, frozen=True, kw_only=True):
    """The sender has resolved a note."""

    room: str
    note: str


Payload = MemberJoined | MemberLeft | Ended | Granted | TakenOver | Freed | NoteAdded | NoteResolved


def payload_of(payload: Payload) -> dict[str, object]:
    """Encode a payload; the pair of `read_payload`."""
    made: dict[str, object] = msgspec.to_builtins(payload)
    return made


_KINDS: Final[Mapping[str, type[Payload]]] = {
    MEMBER_JOINED: MemberJoined,
    MEMBER_LEFT: MemberLeft,
    KICK: Ended,
    CLOSE: Ended,
    CLAIM: Granted,
    TAKEOVER: TakenOver,
    RELEASE: Freed,
    PASS: Freed,
    RESERVATION_EXPIRED: Freed,
    NOTE_ADDED: NoteAdded,
    NOTE_RESOLVED: NoteResolved,
}


def read_payload(event: Event) -> Payload:
    """Decode the payload of a room event; raises a msgspec error, and KeyError for another type."""
    return msgspec.convert(event.payload, _KINDS[event.type])
