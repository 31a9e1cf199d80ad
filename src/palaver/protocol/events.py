"""Every type of event that the broker writes, with the struct of its payload and how it is read. Pure.

`docs/events.md` describes the same types and fields. Tests compare that page with the structs, and the
structs with the written events.
"""

import enum
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec

from palaver.errors import BadRequest
from palaver.protocol.agents import Agent
from palaver.protocol.transcript import Excerpt

PAUSED: Final = "agent.paused"

UNPAUSED: Final = "agent.unpaused"

SETTING: Final = "setting.changed"

PATH_SUBSCRIBED: Final = "path.subscribed"
PATH_UNSUBSCRIBED: Final = "path.unsubscribed"
SESSION_CREATED: Final = "session.created"
SESSION_REMOVED: Final = "session.removed"
DEAD_CLEARED: Final = "dead.cleared"
AUTO_TURN: Final = "auto-turn"
AUTO_TURN_RESULT: Final = "auto-turn-result"
AUTO_TURN_ERROR: Final = "auto-turn-error"
TURN_SKIPPED: Final = "turn.skipped"
TURN_TYPES: Final = frozenset({AUTO_TURN, AUTO_TURN_RESULT, AUTO_TURN_ERROR, TURN_SKIPPED})
PATH_TYPES: Final = frozenset({PATH_SUBSCRIBED, PATH_UNSUBSCRIBED, SESSION_CREATED, SESSION_REMOVED})
"""Types that change path subscriptions or sessions."""

TAG_KEY: Final = "tag"
HINTS_KEY: Final = "hints"
"""`tag` and `hints` are stored for each agent."""
VERBOSITY_KEY: Final = "irc_verbosity"
TOPIC_KEY: Final = "topic"
"""`irc_verbosity` and `topic` are stored for each IRC channel."""
IRC_LEVELS: Final = ("minimal", "actions", "full", "debug")
"""How much the notices of an IRC channel show; each level adds to the one before."""
LIMIT_TOPIC_BYTES: Final = 390
"""The topic of an IRC channel: a line with it and its channel has 512 bytes."""


_T = TypeVar("_T")
_ALWAYS: Final = "always"
_UNWRITTEN: Final = "unwritten"

Always = Annotated[_T, _ALWAYS]
"""A field that is always written. It has a default for a payload that another program or an older version
wrote."""

Unwritten = Annotated[_T, _UNWRITTEN]
"""A field that is read and that the broker does not write today."""

# --------------------
# The content of an event, as one struct per type. `read_body` at the end of this file decodes it.
#
# A struct without required fields is read field by field where necessary: an unreadable field has its
# default, and the reader can ask which fields those are. A struct with a required field is read as a whole or
# not at all, so that no decision depends on half of an event. Unknown fields are ignored, because a newer
# version or another program may have written them.


class EventBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of an event."""

    has_others: ClassVar[bool] = False
    """Whether other programs may add their own fields."""


class ForeignBody(EventBody, frozen=True, kw_only=True):
    """The content of an event of an unknown type: the few fields that are used without knowing the type."""

    agent: str | None = None
    """The agent that the event is about."""
    bundle_id: str | None = None
    thread: str | None = None
    intent: str | None = None
    reply_to: str | None = None
    room: str | None = None


class Unreadable(ForeignBody, frozen=True, kw_only=True):
    """The content of an event that is invalid for its type, or lost; `error` says why."""

    error: str = ""


class CommonFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are shown separately for an event of any type. Other programs may write any value."""

    intent: object = None
    thread: object = None
    reply_to: object = None
    priority: object = None
    path: object = None
    bundle_id: object = None
    turn_id: object = None
    handoff: object = None
    reason: object = None


class WatchNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The request that a notice of the bus reports as unanswered."""

    agent: str
    request: int


class ReminderNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The message that a reminder is about. A count of 0 is the final notice to its sender."""

    agent: str
    request: int
    count: int


class MessageSent(EventBody, frozen=True, kw_only=True):
    """A message."""

    text: Always[str] = ""
    scope: Always[str] = ""
    mentions: Always[tuple[str, ...]] = ()
    sender_kind: Always[str] = ""
    delivered_to: Always[tuple[str, ...]] = ()
    intent: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    answers: int | None = None
    """The seq of the request that it answers, if it has no `reply_to`."""
    bundle_id: str | None = None
    priority: str | None = None
    expires: int = 0
    path: str | None = None
    channel: str | None = None
    """The IRC channel that it was written in, or that the message it replies to was written in."""
    dead: tuple[str, ...] = ()
    chain: str | None = None
    """The id of the first message of a chain of replies."""
    hops: int = 0
    held: str = ""
    """Why a brake holds it; empty if none does."""
    room: str | None = None
    delivery_hint: str | None = None
    wakes: tuple[str, ...] | None = None
    """The recipients that it wakes; None for all."""
    sub: str | None = None
    event: int | None = None
    agents: tuple[str, ...] = ()
    file: str | None = None
    watch: WatchNotice | None = None
    raw: str | None = None
    """Bytes to be typed instead of a text; empty if they are secret."""
    secret: int | None = None
    """The number of secret characters."""
    hash: str | None = None
    bare: bool = False
    expects_reply: bool = False
    nag: ReminderNotice | None = None
    command: str | None = None
    """The command of a routed message, which has a `payload` instead of a text."""
    payload: object = None
    """Any JSON value, of a routed message."""
    source: str | None = None
    external_id: str | None = None
    handled: dict[str, tuple[str, ...]] = {}
    """Agents whose copy is only for pull, because sessions of them have one too: their session ids."""
    display_name: str | None = None
    """The nick of a sender on another network, as it is written there."""
    migrated: tuple[str, ...] | None = None
    """The mailboxes that had taken it already in the path broker that it comes from; None for other messages.

    Nothing reacts to a migrated message: it waits where it was not taken.
    """


class TaskCreated(EventBody, frozen=True, kw_only=True):
    """A new task."""

    has_others: ClassVar[bool] = True
    title: Always[str] = ""
    description: str = ""
    assignee: str = ""
    assignees: tuple[str, ...] = ()


class TaskUpdated(EventBody, frozen=True, kw_only=True):
    """A change of a task. A missing field is unchanged."""

    has_others: ClassVar[bool] = True
    task_id: Always[str] = ""
    task_seq: int = 0
    """The number of the task. Older events do not have it."""
    status: str | None = None
    title: str | None = None
    description: str | None = None
    assignee: str | None = None
    assignees: tuple[str, ...] = ()


class TaskCompleted(EventBody, frozen=True, kw_only=True):
    """The end of a task."""

    has_others: ClassVar[bool] = True
    task_id: Always[str] = ""
    task_seq: int = 0
    summary: str = ""


class AgentHello(EventBody, frozen=True, kw_only=True):
    """An agent joins, with its stored value. A later hello only names the program that runs the agent."""

    runtime: Always[str] = ""
    version: Always[str] = ""
    agent: Agent | str | None = None


class AgentBye(EventBody, frozen=True, kw_only=True):
    """An agent leaves."""

    reason: Always[str] = ""
    agent: Unwritten[str | None] = None
    """The agent, if it is not the sender."""


class AgentPaused(EventBody, frozen=True, kw_only=True):
    """A person pauses an agent, or ends its pause."""

    agent: Always[str | None] = None


class StatusChanged(EventBody, frozen=True, kw_only=True):
    """The activity of an agent."""

    state: Always[str | None] = None
    detail: str = ""
    tool: str = ""
    command: str = ""
    """The command that the tool runs."""
    file: str = ""
    agent: Unwritten[str | None] = None
    """The agent, if it is not the sender."""


class LifeChanged(EventBody, frozen=True, kw_only=True):
    """A step in the life of an agent, or of the daemon."""

    action: Always[str] = ""
    name: str = ""
    reason: str = ""
    agent: Agent | str | None = None
    pid: int | None = None
    version: str = ""
    text: str = ""
    secret: int | None = None

    @property
    def is_echo(self) -> bool:
        """Whether it repeats the hello or bye before it."""
        return self.action in _ECHOES

    @property
    def has_agent(self) -> bool:
        """Whether it carries the complete agent as it is from then on."""
        return self.action in _WHOLE

    @property
    def is_return(self) -> bool:
        """Whether the agent returns with it: at another seat, or on a new connection."""
        return self.action == RESUMED

    @property
    def is_ready(self) -> bool:
        """Whether the agent is idle for the first time since it joined."""
        return self.action == READY


class PermissionAsked(EventBody, frozen=True, kw_only=True):
    """An agent requests permission to use a tool."""

    permission: Always[str] = ""
    tool: Always[str] = ""
    text: Always[str] = ""
    digest: Always[str] = ""
    until: Always[int] = 0


class PermissionAnswered(EventBody, frozen=True, kw_only=True):
    """The decision of a permission request."""

    agent: Always[str | None] = None
    permission: Always[str] = ""
    decision: Always[str] = ""
    digest: str = ""
    reason: str = ""


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Words per field: any word of a field matches, all fields must match, and an empty field matches all."""

    types: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths, or patterns with `*`, `?` and `[…]`."""
    statuses: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    replies_to: tuple[str, ...] = ()
    """The seqs of messages that are replied to."""
    participants: tuple[str, ...] = ()


class SubscriptionAdded(EventBody, frozen=True, kw_only=True):
    """A new subscription, or a watch if it has no filter."""

    id: Always[str | None] = None
    owner: Always[str | None] = None
    filter: Always[Filter | None] = None
    once: bool = False
    preset: str = ""
    text: str = ""
    send: str = ""
    by: str = ""


class SubscriptionRemoved(EventBody, frozen=True, kw_only=True):
    """The end of a subscription or of a watch."""

    id: Always[str | None] = None
    reason: Always[str] = ""


class PathSubscribed(EventBody, frozen=True, kw_only=True):
    """A new path subscription of an agent, or of one of its sessions."""

    agent: str
    pattern: str
    session: str = ""
    added: int = 0
    """When it was added in the path broker that it comes from; 0 for a subscription that was made here."""


class PathUnsubscribed(EventBody, frozen=True, kw_only=True):
    """The end of a path subscription."""

    agent: str
    pattern: str
    session: str = ""


class SessionCreated(EventBody, frozen=True, kw_only=True):
    """A new session of an agent, or a change of its title or harness session."""

    agent: str
    session: str
    title: str = ""
    harness_session: str = ""
    """The harness's own id of the session."""
    created: int = 0
    used: int = 0
    """When it was created and last used in the path broker that it comes from; 0 for a session made here."""


class SessionRemoved(EventBody, frozen=True, kw_only=True):
    """The end of a session and of its subscriptions."""

    agent: str
    session: str


class DeadLettersCleared(EventBody, frozen=True, kw_only=True):
    """The list of dead letters up to a seq was cleared. The messages stay in the log."""

    up_to: int


class TurnBody(EventBody, frozen=True, kw_only=True):
    """An event of the automatic turns of one session."""

    agent: str
    session: str


class AutoTurnStarted(TurnBody, frozen=True, kw_only=True):
    """An automatic turn of a session begins."""

    messages: tuple[int, ...] = ()
    """The seqs of its batch."""
    mailboxes: tuple[str, ...] = ()
    """The mailbox of each copy, in the same order."""
    attempt: int
    """1 for the first try of a batch."""
    triage: str = ""
    """The outcome of the triage: `accepted` or `error`; empty without a triage."""
    text: str = ""
    """The text of `pal turn run`."""
    started_by: str = ""
    """The caller of `pal turn run`; empty if messages started it."""
    chain: str = ""
    hops: int = 0
    """The longest chain of replies that its batch belongs to: its messages continue that chain."""


class AutoTurnResult(TurnBody, frozen=True, kw_only=True):
    """An automatic turn has ended, with the reply of its agent."""

    turn: int
    """The seq of its start."""
    text: Always[str] = ""


class AutoTurnError(TurnBody, frozen=True, kw_only=True):
    """An automatic turn has ended without a result."""

    turn: int
    error: str
    attempt: int
    held: bool = False
    """It was the last try, and its messages are held."""


class TurnSkipped(TurnBody, frozen=True, kw_only=True):
    """A batch started no turn; its messages stay in their mailbox."""

    messages: tuple[int, ...]
    reason: str
    output: str = ""
    """The output of the triage."""


class SettingChanged(EventBody, frozen=True, kw_only=True):
    """A new value of a setting, and the old one."""

    key: Always[str] = ""
    value: Always[object] = None
    old: Always[object] = None
    agent: str | None = None
    """The agent whose setting it is; None for a setting of the bus."""
    session: str = ""
    """The session of the agent whose setting it is."""
    channel: str = ""
    """The IRC channel whose setting it is, in lower case."""


class TextRemoved(EventBody, frozen=True, kw_only=True):
    """The record that the text of an event is removed."""

    event: int
    id: Always[str] = ""
    of: Always[str] = ""
    hash: Always[str] = ""
    copies: tuple[int, ...] = ()


class KeptFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file as it is stored: its text, or its bytes in base64 if they are not text."""

    path: str
    size: int
    sha256: str
    content: str | None = None
    base64: str | None = None


class Bundle(EventBody, frozen=True, kw_only=True):
    """A bundle. `events` are ranges of seqs, both ends included."""

    bundle_id: str
    title: str
    description: str = ""
    files: tuple[KeptFile, ...] = ()
    events: tuple[tuple[int, int], ...] = ()
    transcripts: tuple[Excerpt, ...] = ()
    extends: str = ""


# --------------------
# The vocabulary of the ledger: states of a message, grades of evidence, states of an agent.
#
# Pure. Knows which state changes are allowed; stores nothing and calls no lane.


# The words are in stored reports and on the wire, so they cannot change.
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
    # A reply counts after every end, because the sender has it, however the delivery went.
    if new == State.ANSWERED:
        return old in ENDS or (old in _RANKS and old != State.ANSWERED)
    if old in ENDS:
        return False
    if new in ENDS:
        return old in _WAITING or (old == State.SUBMITTED and new == State.REFUSED)
    return old in _RANKS and new in _RANKS and _RANKS[old] < _RANKS[new]


# The words are in stored reports, so they cannot change. The order counts: see `GRADES`.
class Grade(enum.StrEnum):
    """How certain it is that a message was seen."""

    HANDED = "handed"
    FLUSHED = "flushed"
    ACKED = "acked"
    CONTEXT = "context"


GRADES: Final[tuple[str, ...]] = tuple(Grade)
"""Every grade, weakest first."""


# The words are in stored events, so they cannot change.
class AgentState(enum.StrEnum):
    """The activity of an agent."""

    STARTING = "starting"
    ACTIVE = "active"
    IDLE = "idle"
    BLOCKED = "blocked"
    EXITED = "exited"


_AGENT_STATES: Final = {
    **{state.value: state for state in AgentState},
    # `STORED_STATES` in `query.py` has the same aliases, so that a filter finds either word.
    "listening": AgentState.IDLE,
    "inactive": AgentState.EXITED,
}


def parse_state(word: str) -> AgentState:
    """Parse an agent's state; `listening` is accepted for idle and `inactive` for exited."""
    state = _AGENT_STATES.get(word)
    if state is None:
        raise BadRequest(f"invalid state: {word}; the states are {', '.join(AgentState)}")
    return state


class DeliveryReport(EventBody, frozen=True, kw_only=True):
    """A change in the ledger: one recipient, one batch, one state."""

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
MIGRATED: Final = "migrated"
"""The action of an agent that comes from another path broker: it exists from then on, and is not running."""

SEAT_TYPES: Final = frozenset({HELLO, BYE, LIFE})
"""Events by which an agent joins, leaves, or returns at another seat."""

STATE_TYPES: Final = frozenset({"status", PAUSED, UNPAUSED, SETTING})
"""Events that change the state or a setting of an agent and not its seat."""

AGENT_TYPES: Final = SEAT_TYPES | STATE_TYPES
"""Events that change any stored field of an agent."""

_ECHOES: Final = frozenset({STARTED, STOPPED})
_WHOLE: Final = frozenset({RESUMED, SESSION, MIGRATED})


# --------------------
# Permission requests of agents and their decisions. Pure: a hash of the whole request identifies it.

ASKED: Final = "permission.asked"
ANSWERED: Final = "permission.answered"

ALLOW: Final = "allow"
DENY: Final = "deny"
NOTHING: Final = "none"
"""Not decided here: the harness asks its own user, or has exited."""

LIMIT_TEXT: Final = 1000


class OpenPermission(msgspec.Struct, frozen=True, kw_only=True):
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
    # Sorted, because the same input may come with its keys in another order. Values that JSON lacks, and half
    # of a surrogate pair, are hashed in some form, because this must not fail for any request.
    whole = json.dumps([session, tool, given], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


# --------------------
# A seq in the log, as external callers may give it. Pure.

# Fifteen digits: so many have the keys of rows, and a larger number would sort wrongly there.
Seq = Annotated[int, msgspec.Meta(ge=0, le=10**15 - 1)]
"""A seq in the log, or a count: never negative, and never more than a log can contain."""

# --------------------
# The exit report of a holder without a daemon: how its agent ended, and the outcomes of its messages.
#
# The holder writes it to a file, and the next daemon reads it.

REPORT_END: Final = ".report.json"
"""Suffix of the names of such files, after the agent's name."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of messages that were carried for an earlier daemon."""

    messages: tuple[Seq, ...]
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


class RoomBody(EventBody, frozen=True, kw_only=True):
    """An event of one room."""

    room: str


class MemberJoined(RoomBody, frozen=True, kw_only=True):
    """The sender is a member; the first member creates the room."""

    base: str
    path: str
    name: str
    harness: str = ""


class MemberLeft(RoomBody, frozen=True, kw_only=True):
    """A member has left: the sender, or the named member if the bus writes the event.

    With `kick` the member was removed by that event already, and this one only notifies agents that wait for
    leaves.
    """

    reason: str
    member: str | None = msgspec.field(default=None, name="from")
    kick: str = ""
    """The id of the kick."""


class Kicked(RoomBody, frozen=True, kw_only=True):
    """A kick of the member in `to`."""

    reason: str = ""


class Closed(RoomBody, frozen=True, kw_only=True):
    """The end of the room."""

    reason: str = ""


class Granted(RoomBody, frozen=True, kw_only=True):
    """A claim: the member in `to` owns the stick. `from` is the previous owner, if any."""

    turn_id: int
    lease_id: str
    reason: str
    sender: str | None = msgspec.field(name="from")
    until: int


class TakenOver(RoomBody, frozen=True, kw_only=True):
    """A takeover: the sender owns the stick, the member in `to` has lost it; `cause` is the reason."""

    turn_id: int
    lease_id: str
    cause: str
    until: int
    reason: str = ""


class Freed(RoomBody, frozen=True, kw_only=True):
    """The stick has no owner. If it is reserved, the next recipient and its time limit are here."""

    turn_id: int
    handoff: dict[str, object] | None = None
    reserved_for: str = ""
    until: int = 0


class Released(Freed, frozen=True, kw_only=True):
    """A release. `from` is the previous owner if the bus writes the event for it."""

    reason: str = ""
    sender: str | None = msgspec.field(default=None, name="from")


class Passed(Freed, frozen=True, kw_only=True):
    """A pass to a named member."""

    handoff: Always[dict[str, object] | None] = None
    reserved_for: Always[str] = ""
    until: Always[int] = 0


class ReservationExpired(Freed, frozen=True, kw_only=True):
    """A reservation that was not used in time; the handoff stays. `from` is the previous owner."""

    handoff: Unwritten[dict[str, object] | None] = None
    sender: str | None = msgspec.field(default=None, name="from")


class NoteAdded(RoomBody, frozen=True, kw_only=True):
    """A note of the sender."""

    note: str
    text: str
    turn_id: int | None = None


class NoteResolved(RoomBody, frozen=True, kw_only=True):
    """The sender has resolved a note."""

    note: str


Payload = (
    MemberJoined
    | MemberLeft
    | Kicked
    | Closed
    | Granted
    | TakenOver
    | Released
    | Passed
    | ReservationExpired
    | NoteAdded
    | NoteResolved
)


def payload_of(payload: Payload) -> dict[str, object]:
    """Encode a payload; `read_body` decodes it."""
    made: dict[str, object] = msgspec.to_builtins(payload)
    return made


def type_of(payload: Payload) -> str:
    """Return the type of the room event with this payload."""
    return _ROOM_EVENTS[type(payload)]


# --------------------
# Decode the content of an event.

_NONE: Final[frozenset[str]] = frozenset()

BODIES: Final[Mapping[str, type[EventBody]]] = {
    "message": MessageSent,
    "delivery": DeliveryReport,
    "bundle": Bundle,
    MEMBER_JOINED: MemberJoined,
    MEMBER_LEFT: MemberLeft,
    KICK: Kicked,
    CLOSE: Closed,
    CLAIM: Granted,
    TAKEOVER: TakenOver,
    RELEASE: Released,
    PASS: Passed,
    RESERVATION_EXPIRED: ReservationExpired,
    NOTE_ADDED: NoteAdded,
    NOTE_RESOLVED: NoteResolved,
    "task.create": TaskCreated,
    "task.update": TaskUpdated,
    "task.complete": TaskCompleted,
    HELLO: AgentHello,
    BYE: AgentBye,
    PAUSED: AgentPaused,
    UNPAUSED: AgentPaused,
    "status": StatusChanged,
    LIFE: LifeChanged,
    ASKED: PermissionAsked,
    ANSWERED: PermissionAnswered,
    "sub.added": SubscriptionAdded,
    "sub.removed": SubscriptionRemoved,
    PATH_SUBSCRIBED: PathSubscribed,
    PATH_UNSUBSCRIBED: PathUnsubscribed,
    SESSION_CREATED: SessionCreated,
    SESSION_REMOVED: SessionRemoved,
    DEAD_CLEARED: DeadLettersCleared,
    AUTO_TURN: AutoTurnStarted,
    AUTO_TURN_RESULT: AutoTurnResult,
    AUTO_TURN_ERROR: AutoTurnError,
    TURN_SKIPPED: TurnSkipped,
    SETTING: SettingChanged,
    "redacted": TextRemoved,
}
"""The struct of each type. A type that is not in the table is foreign."""

_ROOM_EVENTS: Final = {body: type_ for type_, body in BODIES.items() if issubclass(body, RoomBody)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields that the broker writes: some always, some sometimes."""

    always: frozenset[str]
    sometimes: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every possible field."""
        return self.always | self.sometimes


@functools.cache
def fields_of(type: str) -> Fields:
    """Return the fields of one of our types. Raises KeyError for a foreign type."""
    always: set[str] = set()
    sometimes: set[str] = set()
    for field in msgspec.structs.fields(BODIES[type]):
        marks = getattr(field.type, "__metadata__", ())
        if field.required or _ALWAYS in marks:
            always.add(field.encode_name)
        elif _UNWRITTEN not in marks:
            sometimes.add(field.encode_name)
    return Fields(always=frozenset(always), sometimes=frozenset(sometimes))


def unlisted_fields(type: str, payload: Mapping[str, object]) -> frozenset[str]:
    """Return the fields of a payload that differ from those of its type: missing ones and unknown ones.

    A foreign type may contain anything.
    """
    kind = BODIES.get(type)
    if kind is None:
        return _NONE
    known = fields_of(type)
    unknown = _NONE if kind.has_others else frozenset(payload.keys() - known.all)
    return unknown | (known.always - payload.keys())


def read_body(type: str, payload: Mapping[str, object]) -> tuple[EventBody, frozenset[str]]:
    """Decode a payload. Return its struct, and the names of the fields that could not be read. Never fails.

    Without a required field the struct is `Unreadable`.
    """
    # The whole struct first: nearly every payload is valid, and reading field by field is slow.
    kind = BODIES.get(type, ForeignBody)
    try:
        return msgspec.convert(payload, kind), _NONE
    except msgspec.ValidationError as error:
        if not _has_required(kind):
            found, odd = _read_fields(kind, payload)
            return kind(**found), odd
        # Filters and views can still use the fields that every type may have. No field of the type itself
        # counts as read, so that no decision depends on a part of a damaged event.
        found, _ = _read_fields(ForeignBody, payload)
        return Unreadable(**found, error=str(error)), frozenset(payload)  # type: ignore[arg-type]


def _read_fields(
    kind: type[EventBody], payload: Mapping[str, object]
) -> tuple[dict[str, object], frozenset[str]]:
    """Return the readable fields of a struct by name, and the names of the others."""
    found: dict[str, object] = {}
    odd: set[str] = set()
    for name, key, kind_of_field in _fields_of(kind):
        if key in payload:
            try:
                found[name] = msgspec.convert(payload[key], kind_of_field)
            except msgspec.ValidationError:
                odd.add(key)
    return found, frozenset(odd)


@functools.cache
def _has_required(kind: type[EventBody]) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


# Remembered, because asking a struct for its fields is slow.
@functools.cache
def _fields_of(kind: type[EventBody]) -> tuple[tuple[str, str, object], ...]:
    """Return the name, the key and the type of each field of a struct."""
    return tuple((field.name, field.encode_name, field.type) for field in msgspec.structs.fields(kind))
