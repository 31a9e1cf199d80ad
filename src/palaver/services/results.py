"""The typed results of services. Field names and their order are those of the JSON that doors write.

A field without a default is always written, null if there is no value. A field with a default is written only
if it applies. Times are Unix milliseconds.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from palaver.protocol.message import FlatMessage
from palaver.protocol.query import RoomEvent
from palaver.protocol.views import WaitReason


class ServiceResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result that a door renders: as JSON for programs, as lines for people."""


# --------------------
# Agents, callers and the daemon.


class AgentView(ServiceResult, frozen=True, kw_only=True):
    """One agent."""

    name: str
    base: str
    tag: str | None
    role: str
    harness: str | None
    state: str
    detail: str | None
    since: int
    joined: int
    present: bool
    unread: int
    device: str
    tool: str | None = None
    """The tool that it uses; `detail` describes its use."""
    cwd: str | None = None
    """The folder in which it was started or joined."""
    doing: str | None = None
    """The tool and its use, or the detail of its state: `Bash: make test`."""
    folder: str | None = None
    """The same as `cwd`, by the name of its column."""
    rooms: tuple[str, ...] = ()
    pid: int | None = None
    by: str | None = None
    parent: str | None = None
    left: bool = False
    paused: bool = False
    asleep: bool = False
    stale: bool = False
    unconfirmed: tuple[int, ...] = ()
    queue: Mapping[str, int] | None = None
    """The waiting messages by priority, and the held ones; only if a caller asked for this one agent."""
    gates: "tuple[GateView, ...] | None" = None
    """Whether messages can pass on each lane, and why not; only if a caller asked for this one agent."""


class CallerView(ServiceResult, frozen=True, kw_only=True):
    """The identity of a caller."""

    name: str
    kind: str
    standing: str
    device: str
    harness: str | None = None
    by: str | None = None
    pid: int | None = None
    role: str | None = None


class DaemonView(ServiceResult, frozen=True, kw_only=True):
    """The daemon itself."""

    pid: int
    version: str
    home: str
    device: str
    doors: Mapping[str, str]
    started: int
    last: int
    agents: int
    attention: int = 0
    """The number of entries that `pal pending` shows."""


class GateView(ServiceResult, frozen=True, kw_only=True, rename={"is_open": "open"}):
    """The gate of one lane of an agent."""

    lane: str
    is_open: bool
    paused: bool
    reason: str | None


class TerminalView(ServiceResult, frozen=True, kw_only=True):
    """The details of an agent's page: queue, gates and terminal."""

    queue: Mapping[str, int]
    paused: bool
    last_activity: int
    gates: tuple[GateView, ...] = ()
    cols: int | None = None
    rows: int | None = None
    holder: int | None = None
    """The process id of its holder."""
    waiting: "tuple[WaitingMail, ...]" = ()
    """The first messages that it has not seen, each with the reason."""


# --------------------
# Messages and their delivery.


class ReceiptView(ServiceResult, frozen=True, kw_only=True):
    """The ledger entry of one message for one recipient: an agent, or one of its sessions."""

    name: str
    session: str = ""
    handled_by: tuple[str, ...] = ()
    """The sessions that have a copy too: that of the agent is only for pull."""
    state: str
    ts: int
    lane: str = ""
    grade: str = ""
    reason: str = ""
    unconfirmed: bool = False
    submitted: int = 0
    seen: int = 0
    answer: int = 0
    implied: bool = False
    """Whether the reply did not name the message that it answers."""
    by: str = ""
    wait: WaitReason | None = None
    """Why it is not seen yet; None if its state is final."""


class MessageReceipts(ServiceResult, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One message with its receipts."""

    seq: int
    id: str
    sender: str
    ts: int
    text: str
    priority: str
    receipts: tuple[ReceiptView, ...]


class LastSent(ServiceResult, frozen=True, kw_only=True):
    """The newest message to one recipient, with its state there."""

    seq: int
    state: str
    wait: WaitReason | None = None


class WaitingMail(ServiceResult, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A message that an agent has not seen yet. Its text is left out: it may be held."""

    seq: int
    sender: str
    ts: int
    state: str
    priority: str
    wait: WaitReason
    session: str | None = None


class WaitingCopy(ServiceResult, frozen=True, kw_only=True):
    """A recipient that has not seen a message yet."""

    agent: str
    state: str
    wait: WaitReason


class RecentMessage(ServiceResult, frozen=True, kw_only=True):
    """A recent message of a sender, and its readers."""

    seq: int
    ts: int
    text: str
    read_by: tuple[str, ...]
    total: int
    """The number of recipients."""
    waiting: tuple[WaitingCopy, ...] = ()
    """The first recipients that have not seen it, each with the reason."""


class ExitedView(ServiceResult, frozen=True, kw_only=True):
    """A recipient of a message that has left the bus."""

    agent: str
    state: str
    since: int
    resumable: bool


class SentView(ServiceResult, frozen=True, kw_only=True):
    """The result of a send. A dry run has neither seq nor id."""

    seq: int | None = None
    id: str | None = None
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    exited: tuple[ExitedView, ...] = ()
    """Recipients that have left: the message waits until they come back."""
    answers: int | None = None
    """The seq of the request that it answers, if it has no `reply_to`."""
    repeat: bool = False
    dry_run: bool = False


class AgentDetails(AgentView, frozen=True, kw_only=True):
    """One agent with its latest messages, and the newest one to it from the caller."""

    last_sent: LastSent | None
    recent: tuple[RecentMessage, ...]
    closed: str | None = None
    """Which lanes are closed, why, and how to open them."""
    wait: WaitReason | None = None
    """Why it has not seen the first message that waits for it."""


# --------------------
# Rooms, members, turns and notes: the results of the room tools.


class StickView(ServiceResult, frozen=True, kw_only=True):
    """The state of the stick, which is part of every result about a room."""

    room_id: str
    room_state: str
    turn_id: int
    owner_agent_id: str | None
    lease_expires_at: int | None
    reserved_for: str | None
    claim_expires_at: int | None
    conditions: tuple[str, ...]


class MemberView(ServiceResult, frozen=True, kw_only=True):
    """One member with its current status in the room."""

    agent_id: str
    harness: str | None
    status: str
    present: bool
    state: str | None
    waiting: bool
    parked: bool
    is_owner: bool
    joined_at: int
    last_seen_at: int | None
    last_turn_id: int | None


class PendingHandoff(ServiceResult, frozen=True, kw_only=True):
    """A handoff that waits for the next owner."""

    from_agent_id: str
    event_seq: int
    handoff: Mapping[str, object]


class PolicyView(ServiceResult, frozen=True, kw_only=True):
    """The limits that a member of a room needs to know."""

    lease_ms: int
    heartbeat_interval_ms: int
    claim_ms: int
    waiter_grace_ms: int
    presence_ms: int
    long_poll_ms: int
    message_bytes: int
    note_bytes: int


class RoomView(StickView, frozen=True, kw_only=True):
    """All fields of a room as of now, for one caller."""

    name: str
    canonical_path: str
    created_at: int
    closed_at: int | None
    prior_owner_agent_id: str | None
    pending_handoff: PendingHandoff | None
    members: tuple[MemberView, ...]
    policy: PolicyView
    agent_id: str
    is_new: bool | None = None
    """Whether joining created the room; left out if the caller did not join."""
    cursor_event_seq: int
    warning: str | None = None


class RoomLine(StickView, frozen=True, kw_only=True):
    """A room as an entry of a list."""

    name: str
    canonical_path: str
    created_at: int
    closed_at: int | None
    member_count: int
    present_count: int
    is_member: bool


class RoomList(ServiceResult, frozen=True, kw_only=True):
    """Rooms, deepest first if they are those around a path."""

    rooms: tuple[RoomLine, ...]


class RoomChange(ServiceResult, frozen=True, kw_only=True):
    """The outcome of leaving or closing a room or removing a member, with the room's state after it."""

    status: str
    room_id: str
    room_state: str
    remaining_members: int
    target_agent_id: str | None = None
    """The removed member."""
    target_was_owner: bool | None = None


class EventPage(ServiceResult, frozen=True, kw_only=True):
    """Events of a room, and the seq to continue after."""

    events: tuple[RoomEvent, ...]
    cursor_event_seq: int


YOUR_TURN: Final = "your_turn"


class GrantedTurn(ServiceResult, frozen=True, kw_only=True):
    """The stick is the caller's: its turn and lease, and the handoff of the previous owner."""

    status: str
    reason: str | None
    room_id: str
    turn_id: int
    lease_id: str
    lease_expires_at: int | None
    heartbeat_interval_ms: int
    handoff: Mapping[str, object] | None
    from_agent_id: str | None
    revoked: str | None = None
    """The owner that lost the stick by this takeover."""
    hint: str | None = None
    events: tuple[RoomEvent, ...] | None = None
    cursor_event_seq: int | None = None


class DeniedTurn(ServiceResult, frozen=True, kw_only=True):
    """The stick is not the caller's now: why, and the fields of `StickView`."""

    status: str
    reason: str | None
    room_id: str
    room_state: str
    turn_id: int
    owner_agent_id: str | None
    lease_expires_at: int | None
    reserved_for: str | None
    claim_expires_at: int | None
    conditions: tuple[str, ...]
    hint: str | None = None
    events: tuple[RoomEvent, ...] | None = None
    cursor_event_seq: int | None = None


TurnView = GrantedTurn | DeniedTurn
"""The result of a request for the stick."""


class LeaseView(ServiceResult, frozen=True, kw_only=True):
    """The lease of the owner after a heartbeat."""

    status: str
    room_id: str
    turn_id: int
    lease_expires_at: int
    heartbeat_interval_ms: int


class FreedStick(ServiceResult, frozen=True, kw_only=True):
    """The result of a release or a pass."""

    status: str
    room_id: str
    turn_id: int
    reserved_for: str | None
    claim_expires_at: int | None
    routed_to_parked: bool
    event_seq: int


class RoomSent(ServiceResult, frozen=True, kw_only=True):
    """A message that was sent to members of a room."""

    event_seq: int
    event_id: str
    created_at: int
    delivered_to: tuple[str, ...]


class NoteView(ServiceResult, frozen=True, kw_only=True):
    """One note."""

    note_id: str
    room_id: str
    author_agent_id: str
    body: str
    turn_id: int | None
    event_seq: int
    created_at: int
    resolved_at: int | None
    resolved_by_agent_id: str | None


class NoteList(ServiceResult, frozen=True, kw_only=True):
    """The notes of a room, oldest first."""

    room_id: str
    notes: tuple[NoteView, ...]


class AgentList(ServiceResult, frozen=True, kw_only=True):
    """All agents, present ones first."""

    agents: tuple[AgentView, ...]


class InboxPage(ServiceResult, frozen=True, kw_only=True):
    """The newest messages for the caller, each with its state."""

    messages: tuple[FlatMessage, ...]


# --------------------
# The words of JSON that all commands share: docs/json.md.

COMMON_WORDS: Final[Mapping[str, str]] = {
    "name": "agent",
    "agent_id": "agent",
    "author_agent_id": "agent",
    "agentId": "agent",
    "sessionId": "session",
    "owner_agent_id": "owner",
    "from_agent_id": "from",
    "names": "agents",
    "body": "text",
    "room_id": "room",
    "event_seq": "seq",
    "event_id": "id",
    "note_id": "id",
    "task_id": "id",
    "messageId": "id",
    "externalId": "external_id",
    "created_at": "ts",
    "created": "ts",
    "since": "ts",
    "started": "ts",
    "timestamp": "ts",
    "addedAt": "ts",
    "createdAt": "ts",
}
"""Fields of results that tools, the SDK and older programs know, with the common word for the same value."""
_NESTED: Final = (
    "members",
    "receipts",
    "events",
    "subagents",
    "task",
    "handoff",
    "pending_handoff",
    "exited",
    "subscriptions",
    "deliveredToSessions",
    "handledBy",
)
"""Fields with such a result, or a list of them."""


def in_common_words(view: dict[str, object]) -> dict[str, object]:
    """Return a result with the common word for each of its fields, first; all other fields stay."""
    # The name of a room is not the name of an agent.
    words = ((old, new) for old, new in COMMON_WORDS.items() if old != "name" or "room_id" not in view)
    common = {new: view[old] for old, new in words if old in view and new not in view}
    return common | view | {name: _in_common_words(view[name]) for name in _NESTED if name in view}


def _in_common_words(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_in_common_words(one) for one in value]
    return in_common_words(value) if isinstance(value, dict) else value
