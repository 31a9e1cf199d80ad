"""The bus as a view shows it: a snapshot at a seq, the changes from there, and pages of its lists. Values.

`pal ui` and the page in the browser read nothing else. Rows are complete: a row in a change replaces the one
with the same key. Times are Unix milliseconds. Texts are as they were written; a view makes them safe.
"""

import enum
from collections.abc import Mapping
from typing import Annotated

import msgspec

from palaver.protocol.events import Seq

LIMIT_PAGE = 500
"""Rows that one page has at most."""

LIMIT_LEDGER = 50
"""Recipients whose steps one page of a ledger has."""

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=LIMIT_PAGE)]
AskedText = Annotated[str, msgspec.Meta(max_length=5000)]
"""A name or a path in a question."""
SearchText = Annotated[str, msgspec.Meta(max_length=1000)]
# The page in the browser asks too, and numbers in JavaScript are exact only in this range.
AskedTime = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
LogFilter = Annotated[tuple[AskedText, ...], msgspec.Meta(max_length=100)]
"""Values of one filter: an event has one of them."""


class ViewValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all values here. Fields without a value are left out."""


# --------------------
# Rows.


class AttentionKind(enum.StrEnum):
    """The kinds of entries that need a person."""

    PERMISSION = "permission"
    """A permission request that can be answered on the bus."""
    REQUEST = "request"
    """A message to the person that expects a reply and is not answered."""
    HELD = "held"
    """A message that only a person can release."""
    UNCONFIRMED = "unconfirmed"
    """A message that a lane carried, without evidence that it was read."""
    DEAD = "dead"
    """A message to a path that no subscription matched."""
    STICK = "stick"
    """A stick whose owner is offline or out of time."""
    BLOCKED = "blocked"
    """An agent that waits for something in its own terminal."""
    STALE = "stale"
    """An active agent that has not reported for a long time."""


class Action(ViewValue, frozen=True, kw_only=True):
    """Something a person can do about an entry."""

    word: str
    """approve, deny, reply, release, redeliver, show, attach, clear, takeover"""
    command: tuple[str, ...]
    """The `pal` command that does it, with `pal` itself. A reply also needs its text, after `--`."""


class Attention(ViewValue, frozen=True, kw_only=True):
    """One entry of the list of entries that need a person."""

    key: str
    """Unique: `permission/3f9c2a1`, `request/42`, `held/42`, `unconfirmed/42/nova`, `dead/42`, `stick/ROOM`,
    `agent/nova`."""
    kind: str
    who: str
    """The agent that it is about: the one that asks, wrote the message, has the stick, or is blocked."""
    what: str
    """The request, or the beginning of the message."""
    since: int
    why: str
    """Why it waits for a person, as a sentence."""
    actions: tuple[Action, ...] = ()
    seq: int = 0
    """The message that it is about."""
    id: str = ""
    """The id of a permission request."""
    to: tuple[str, ...] = ()
    until: int = 0
    room: str = ""


class WaitReason(ViewValue, frozen=True, kw_only=True):
    """Why a message is not seen yet."""

    code: str
    """One of `WAIT_CODES` in `state/reasons.py`."""
    text: str
    """The reason as a sentence."""
    moves: str
    """The event or action that would deliver it, as a sentence."""


class AgentRow(ViewValue, frozen=True, kw_only=True):
    """One agent in a list."""

    name: str
    state: str
    since: int
    seq: int
    """The seq up to which this row is complete. A view must not replace a row by an older one: a page that it
    asked for earlier may arrive after a change."""
    harness: str = ""
    role: str = ""
    tag: str = ""
    parent: str = ""
    doing: str = ""
    """The tool that it uses and what for, or the detail of its state."""
    waits_for: str = ""
    """The cause of its wait: a person, a stick, a reply, or its usage limit."""
    unread: int = 0
    rooms: tuple[str, ...] = ()
    folder: str = ""
    last: str = ""
    """The beginning of the newest message that it wrote, and its seq."""
    last_seq: int = 0
    is_present: bool = False
    is_paused: bool = False
    is_stale: bool = False
    has_left: bool = False
    has_terminal: bool = False
    """Whether `pal attach` and `pal peek` show it."""


class ConversationKind(enum.StrEnum):
    """The kinds of conversations."""

    ROOM = "room"
    THREAD = "thread"
    PAIR = "pair"
    ALL = "all"
    """Broadcasts."""


class ConversationRow(ViewValue, frozen=True, kw_only=True):
    """A room, a thread, a pair, or the broadcasts."""

    key: str
    """A word of `shown_conversations`: `#room`, `thread/name`, `@luna@nova`, `#general`."""
    kind: str
    title: str
    seq: int
    """The seq of its newest message."""
    ts: int
    sender: str = ""
    text: str = ""
    """The beginning of its newest message."""
    count: int = 0
    """The number of its messages, archived ones too."""
    unread: int = 0
    """Messages in it that the person has not read."""


class Mark(ViewValue, frozen=True, kw_only=True):
    """The state of a message for one recipient."""

    name: str
    state: str
    reason: WaitReason | None = None
    """Only if the state is not final."""


class MessageRow(ViewValue, frozen=True, kw_only=True):
    """One message of a conversation."""

    seq: int
    id: str
    ts: int
    sender: str
    text: str
    """The whole text, or its first 4,000 characters; then `is_cut` is set."""
    is_cut: bool = False
    to: tuple[str, ...] = ()
    type: str = "message"
    intent: str = ""
    thread: str = ""
    room: str = ""
    priority: str = ""
    reply_to: int = 0
    quote: str = ""
    """The beginning of the message that it replies to."""
    marks: tuple[Mark, ...] = ()
    """The states for its first 50 recipients."""
    recipients: int = 0
    """The number of its recipients, if it has more than `marks`."""
    is_unread: bool = False
    """Whether the person has not read it."""


class EventRow(ViewValue, frozen=True, kw_only=True):
    """One event of the log."""

    seq: int
    ts: int
    type: str
    sender: str
    to: tuple[str, ...] = ()
    text: str = ""
    """The event as a sentence, at most 300 characters."""
    room: str = ""
    thread: str = ""
    hits: tuple[tuple[int, int], ...] = ()
    """Where the searched words are in the text: start and end of each."""


class RoomRow(ViewValue, frozen=True, kw_only=True):
    """One room in a list."""

    id: str
    name: str
    path: str
    stick: str
    """idle, owned, reserved or closed"""
    owner: str = ""
    lease_until: int = 0
    reserved_for: str = ""
    claim_until: int = 0
    members: int = 0
    present: int = 0


class Counts(ViewValue, frozen=True, kw_only=True):
    """The numbers of the top line."""

    agents: Mapping[str, int]
    """Agents that have not left, by state."""
    attention: int = 0
    unread: int = 0
    """Messages to the person that were not read."""


# --------------------
# The snapshot, and the changes after it.


class Snapshot(ViewValue, frozen=True, kw_only=True):
    """The bus at a seq. Further agents and conversations are read in pages."""

    epoch: str
    """Differs for every start of the daemon: presence and permission requests do not outlive it."""
    seq: int
    now: int
    me: str
    """The name of the person, or of the caller."""
    device: str
    version: str
    counts: Counts
    attention: tuple[Attention, ...] = ()
    agents: tuple[AgentRow, ...] = ()
    agents_total: int = 0
    talks: tuple[ConversationRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    """The newest events, or those after the seq that the view gave, if there are not too many."""
    is_continued: bool = False
    """Whether `events` begins directly after the seq that the view gave."""


class Changes(ViewValue, frozen=True, kw_only=True):
    """Everything that has changed between two seqs. `after` is the seq of the record before."""

    after: int
    seq: int
    events: tuple[EventRow, ...] = ()
    """Every event above `after` up to `seq`."""
    agents: tuple[AgentRow, ...] = ()
    talks: tuple[ConversationRow, ...] = ()
    attention: tuple[Attention, ...] = ()
    """New and changed entries."""
    settled: tuple[str, ...] = ()
    """The keys of entries that have ended."""
    moved: tuple[int, ...] = ()
    """Messages whose marks have changed."""
    rooms: tuple[str, ...] = ()
    """Ids of rooms that have changed."""
    counts: Counts | None = None


# --------------------
# Questions about one list or one thing. `at` is a seq in the past; 0 is now.


class Ask(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="what",
    forbid_unknown_fields=True,
):
    """Base of all questions."""

    at: Seq = 0


class AskAgents(Ask, frozen=True, kw_only=True, tag="agents"):
    """A page of agents, by name."""

    after: AskedText = ""
    limit: PageLimit = 200


class AskAgent(Ask, frozen=True, kw_only=True, tag="agent"):
    """One agent with its queue and its newest messages."""

    name: AskedText
    limit: PageLimit = 50


class AskAttention(Ask, frozen=True, kw_only=True, tag="attention"):
    """The whole list of entries that need a person."""


class AskPermission(Ask, frozen=True, kw_only=True, tag="permission"):
    """One open permission request with its whole input."""

    id: AskedText


class AskConversations(Ask, frozen=True, kw_only=True, tag="conversations"):
    """A page of conversations, newest first, below the seq `before`; with `find` those with this text."""

    before: Seq = 0
    find: SearchText = ""
    limit: PageLimit = 100


class AskMessages(Ask, frozen=True, kw_only=True, tag="messages"):
    """A page of a conversation in seq order: the newest below `before`, or the first above `after`.

    `has_outside` adds the messages that the members of a room write outside it.
    """

    conversation: AskedText
    before: Seq = 0
    after: Seq = 0
    # The name on the wire, which clients of other versions use.
    has_outside: bool = msgspec.field(default=False, name="beside")
    limit: PageLimit = 100


class AskLedger(Ask, frozen=True, kw_only=True, tag="ledger"):
    """One message with its receipts and the steps of its delivery, for up to 50 recipients in one page."""

    message: AskedText
    recipient: AskedText = ""
    """Only this one, as the receipts name it: `luna`, `luna (session mon)` or a path. By default all."""
    first: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    """How many recipients earlier pages had. The first page has all receipts, and the steps of 50."""


class AskRooms(Ask, frozen=True, kw_only=True, tag="rooms"):
    """All rooms."""


class AskRoom(Ask, frozen=True, kw_only=True, tag="room"):
    """One room: members, stick, waiting line, handoffs, notes, tasks."""

    id: AskedText


class AskLog(Ask, frozen=True, kw_only=True, tag="log"):
    """A page of the log in seq order: the newest below `before`, or the first above `after`.

    The filters are those of `pal events`: the same one given twice means or, different ones mean and.
    """

    before: Seq = 0
    after: Seq = 0
    limit: PageLimit = 100
    search: SearchText = ""
    types: LogFilter = ()
    agents: LogFilter = ()
    senders: LogFilter = ()
    to: LogFilter = ()
    threads: LogFilter = ()
    rooms: LogFilter = ()
    intents: LogFilter = ()
    mentions: LogFilter = ()
    targets: LogFilter = ()
    participants: LogFilter = ()
    files: LogFilter = ()
    statuses: LogFilter = ()
    tools: LogFilter = ()
    replies_to: LogFilter = ()
    since: AskedTime | None = None
    until: AskedTime | None = None


class AskSeq(Ask, frozen=True, kw_only=True, tag="seq"):
    """The seq of the first event from a time on."""

    ts: AskedTime


class AskPast(Ask, frozen=True, kw_only=True, tag="past"):
    """The snapshot of the bus at the seq `at`. A first question about a long log takes a while."""


AnyAsk = (
    AskAgents
    | AskAgent
    | AskAttention
    | AskPermission
    | AskConversations
    | AskMessages
    | AskLedger
    | AskRooms
    | AskRoom
    | AskLog
    | AskSeq
    | AskPast
)


# --------------------
# Answers. Each has the seq at which it is complete.


class AgentsPage(ViewValue, frozen=True, kw_only=True):
    """Agents by name."""

    seq: int
    total: int
    rows: tuple[AgentRow, ...]
    has_more: bool = False


class WaitingMessage(ViewValue, frozen=True, kw_only=True):
    """A message in an agent's queue."""

    seq: int
    ts: int
    sender: str
    text: str
    state: str
    priority: str
    reason: WaitReason


class AgentPage(ViewValue, frozen=True, kw_only=True):
    """One agent."""

    seq: int
    row: AgentRow
    queue: tuple[WaitingMessage, ...] = ()
    queue_total: int = 0
    messages: tuple[MessageRow, ...] = ()


class AttentionPage(ViewValue, frozen=True, kw_only=True):
    """The entries that need a person, oldest first."""

    seq: int
    entries: tuple[Attention, ...]


class PermissionPage(ViewValue, frozen=True, kw_only=True):
    """One permission request with everything that an approval allows."""

    seq: int
    id: str
    agent: str
    tool: str
    text: str
    input: str
    """The complete input as indented JSON."""
    digest: str
    since: int
    until: int


class ConversationsPage(ViewValue, frozen=True, kw_only=True):
    """Conversations, newest first."""

    seq: int
    rows: tuple[ConversationRow, ...]
    has_more: bool = False


class MessagesPage(ViewValue, frozen=True, kw_only=True):
    """Messages in seq order."""

    seq: int
    rows: tuple[MessageRow, ...]
    has_more: bool = False


class LedgerStep(ViewValue, frozen=True, kw_only=True):
    """One step of a delivery, as the log has it."""

    seq: int
    ts: int
    name: str
    state: str
    lane: str = ""
    grade: str = ""
    reason: str = ""
    by: str = ""


class LedgerPage(ViewValue, frozen=True, kw_only=True):
    """One message, its receipts as `pal receipts --json` prints them, and the steps that led there."""

    seq: int
    message: MessageRow
    receipts: msgspec.Raw
    steps: tuple[LedgerStep, ...] = ()
    recipients: int = 0
    """How many recipients the message has, with paths that no subscription matched."""


class RoomsPage(ViewValue, frozen=True, kw_only=True):
    """All rooms."""

    seq: int
    rows: tuple[RoomRow, ...]


class RoomMember(ViewValue, frozen=True, kw_only=True):
    """One member of a room."""

    name: str
    state: str = ""
    is_present: bool = False
    is_owner: bool = False
    is_waiting: bool = False
    # The name on the wire, which clients of other versions use.
    rank: int = msgspec.field(default=0, name="place")
    """Its rank in the waiting line, from 1; 0 if it does not wait."""
    last_turn: int = 0


class RoomNote(ViewValue, frozen=True, kw_only=True):
    """A note."""

    id: str
    ts: int
    sender: str
    text: str
    is_resolved: bool = False


class RoomTask(ViewValue, frozen=True, kw_only=True):
    """A task."""

    id: str
    number: int
    title: str
    status: str
    assignee: str = ""
    ts: int = 0


class RoomHandoff(ViewValue, frozen=True, kw_only=True):
    """A handoff, complete."""

    seq: int
    ts: int
    sender: str
    to: str = ""
    handoff: Mapping[str, object] = msgspec.field(default_factory=dict)


class RoomPage(ViewValue, frozen=True, kw_only=True):
    """One room."""

    seq: int
    row: RoomRow
    turn: int = 0
    members: tuple[RoomMember, ...] = ()
    handoffs: tuple[RoomHandoff, ...] = ()
    """Newest first; the first one is open if it waits for the next owner."""
    is_handoff_open: bool = False
    notes: tuple[RoomNote, ...] = ()
    tasks: tuple[RoomTask, ...] = ()


class LogPage(ViewValue, frozen=True, kw_only=True):
    """Events in seq order."""

    seq: int
    first: int
    """The first seq of the log, with archives."""
    rows: tuple[EventRow, ...]
    has_more: bool = False


class SeqPage(ViewValue, frozen=True, kw_only=True):
    """A seq that was searched."""

    seq: int
    found: int
