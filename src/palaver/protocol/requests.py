"""The requests that the broker accepts. Each is an order: nothing in it has happened yet."""

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from palaver.errors import BadRequest, MessageTooLarge
from palaver.protocol.agents import BeginSubagent, Seat
from palaver.protocol.bundles import CreateBundle
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import (
    AnswerPermission,
    ClosePermission,
    DeliveryReport,
    OpenPermission,
)
from palaver.protocol.paths import Content, PathRequest
from palaver.protocol.subscriptions import FireSubscription, FireWatch, Retire, Subscribe, Unsubscribe
from palaver.protocol.tasks import CompleteTask, CreateTask, UpdateTask
from palaver.protocol.turns import TurnRequest

# --------------------
# Requests about rooms, the stick and notes. Orders, not facts: nothing here has happened yet.
#
# A room is named by its id, or by its short name if that is unique among open rooms, with or without `#`.

HARNESS_GONE: Final = "harness_gone"
INACTIVE: Final = "inactive"
KICKED: Final = "kicked"
LEFT: Final = "left"
"""The reason of an agent that leaves by request. An agent that only ends may come back."""


class JoinRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Join the room of a workspace, or the nearest one above it; create one if there are no rooms there."""

    workspaces: tuple[str, ...]
    """The canonical path first, then those above it, the nearest first."""
    inside: tuple[str, ...] = ()
    """Folders inside it, the deepest first: a nested room there is joined, but never created."""
    is_new: bool = False
    """Create a room at the workspace itself, even if there is one above it."""
    name_hint: str = ""
    """The displayed name of the room; its folder's name if empty."""


class LeaveRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Leave a room. An owner gives up the stick, without a handoff."""

    room: str
    reason: str = "left"


class KickMember(msgspec.Struct, frozen=True, kw_only=True):
    """Remove an absent member; with `is_forced`, which needs an operator, also a present one."""

    room: str
    target: str
    is_forced: bool = False
    reason: str = ""


class CloseRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Close a room. Its history stays readable."""

    room: str
    reason: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for the stick once: a waiting member asks again when something has changed."""

    room: str
    is_parked: bool = False
    """Take only a stick that is reserved for the caller."""
    allows_solo: bool = True
    """Take the stick also if no other member is present."""


class ReleaseStick(msgspec.Struct, frozen=True, kw_only=True):
    """Release the stick for the waiting member that is next by fairness."""

    room: str
    turn: int
    lease: str
    handoff: dict[str, object]


class PassStick(msgspec.Struct, frozen=True, kw_only=True):
    """Pass the stick to a member by name; with `is_override`, for operators, also to an absent one."""

    room: str
    turn: int
    lease: str
    to: str
    handoff: dict[str, object]
    is_override: bool = False


class TakeOver(msgspec.Struct, frozen=True, kw_only=True):
    """Take the stick from an owner whose time is over; with `is_override`, for operators, from any owner."""

    room: str
    turn: int
    reason: str
    is_override: bool = False


class AddNote(msgspec.Struct, frozen=True, kw_only=True):
    """Add a lasting note, about a turn or about none."""

    room: str
    text: str
    turn: int | None = None


class ResolveNote(msgspec.Struct, frozen=True, kw_only=True):
    """Resolve a note. `note` is its id, or an end of it that is unique in the room."""

    room: str
    note: str


class HandOn(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of this turn has certainly exited: the stick moves on. Only for the bus."""

    room: str
    turn: int
    reason: str = HARNESS_GONE


class ExpireReservation(msgspec.Struct, frozen=True, kw_only=True):
    """The reservation after this turn was not claimed: the stick is free again. Only for the bus."""

    room: str
    turn: int


class RetireMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member has been absent for too long and is removed. Only for the bus."""

    room: str
    member: str
    reason: str = INACTIVE


class TellKick(msgspec.Struct, frozen=True, kw_only=True):
    """Announce once that a member was removed. Changes nothing. Only for the bus."""

    room: str
    member: str
    kick: str
    """The id of the event."""


RoomRequest = (
    JoinRoom
    | LeaveRoom
    | KickMember
    | CloseRoom
    | Claim
    | ReleaseStick
    | PassStick
    | TakeOver
    | AddNote
    | ResolveNote
    | HandOn
    | ExpireReservation
    | RetireMember
    | TellKick
)

# --------------------
# Requests about agents in a terminal, and the bytes that are typed raw. Pure.
#
# Raw bytes are stored exactly, as base64, with a text in which every control byte is escaped: a log contains
# what was typed and shows it harmlessly.

TYPED: Final = "typed"
"""The `life` action of a line that a person typed at an agent's terminal."""
DIALOG: Final = "dialog"
"""The reason of a closed gate, and of held interrupts, while a dialog is open: the gate opens by itself."""
USAGE_LIMIT: Final = "usage_limit"
"""The reason of a closed gate while a usage limit is reached, and its text if nothing else is known."""

GATE_ADVICE: Final = {
    "prompt": (
        "its program shows no known prompt: describe the prompt with 'pal run --prompt REGEX' "
        "or in a profile file"
    ),
    "tool": (
        "a process that its program started reads the terminal: answer it with 'pal attach'; if that process "
        "is the agent, start it with exec, or name its prompt with 'pal run --prompt REGEX'"
    ),
}
"""The meaning of a closed gate and how to open it, by the reason. Other reasons explain themselves."""

LIMIT_RAW_BYTES: Final = 16 * 1024
"""Keys that can be sent at once; escaped they still fit into a message."""
RAW_EXPIRES_MS: Final = 10_000
"""Keys that are not typed by then are dropped: the question they were for may be closed."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver only interrupts to an agent until `Unpause`."""

    name: str


class Unpause(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver an agent's mail again."""

    name: str


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """A person typed this at an agent's terminal. From its holder, through the door."""

    name: str
    text: str = ""
    secret: int = 0
    """The number of characters of a secret, which is sent instead of its text."""


class FireReminder(msgspec.Struct, frozen=True, kw_only=True):
    """Remind a recipient of an expected reply, or notify the sender that there will be none."""

    agent: str
    request: int


def secret_text(characters: int) -> str:
    """Return the text that the log stores instead of a secret."""
    return f"secret, {characters} character{'' if characters == 1 else 's'}"


def raw_to_text(data: bytes) -> str:
    """Encode the bytes for an event; raise an error for empty and oversized input."""
    if not data:
        raise BadRequest("the keys to type are missing")
    if len(data) > LIMIT_RAW_BYTES:
        raise MessageTooLarge("the input to type", len(data), LIMIT_RAW_BYTES)
    return base64.b64encode(data).decode()


def raw_from_text(text: str) -> bytes:
    """Return the bytes that were passed to `raw_to_text`."""
    try:
        # Otherwise characters outside base64 would be ignored, and other keys typed than those that were
        # sent.
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest("the bytes to type are not valid base64") from error


def shown(data: bytes) -> str:
    r"""Return bytes in a readable and harmless form: `\x1b[A`, `y\r`."""
    text = data.decode("utf-8", "surrogateescape")
    # The backslash is escaped too: otherwise a typed `\x1b` would look the same as an Escape.
    return "".join(char if char.isprintable() and char != "\\" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


# --------------------
# Requests to the broker. Orders, not facts: nothing here has happened yet.


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send a text.

    Without recipients it goes to the author of the message in `reply_to`, or to the participants of
    `thread`. A script's text without both is a broadcast; from other callers it is refused.
    """

    text: str
    to: tuple[str, ...] = ()
    has_mentions: bool = False
    """Whether `@words` in the text are recipients too."""
    intent: str = ""
    thread: str = ""
    reply_to: str = ""
    priority: str = ""
    expires_in_ms: int = 0
    id: str = ""
    bundle_id: str = ""
    room: str = ""
    """The room of the message; then `to` names members of it, and an empty `to` is all of them."""
    delivery_hint: str = ""
    is_confirmed: bool = False
    """The caller knows that this goes to many."""
    sent_ts: int | None = None
    """The time in the envelope that it came in; None for a text."""
    is_exact: bool = False
    """Whether `to` follows the exact rules of envelopes; without `to` it is then for everyone."""
    is_dry_run: bool = False
    expects_reply: bool = False
    """Remind recipients that do not answer."""
    raw: bytes = b""
    """The exact bytes to type into the recipient's terminal. Only for the human; `text` is then empty."""
    raw_hash: str = ""
    """For secret raw keys, the hash that the log stores instead of them."""
    recipient: str = ""
    """The full name of the only recipient, even if others share its base name. Then `to` is empty."""
    is_bare: bool = False
    """A person wrote it at the agent's terminal: it is typed as it is, without a head."""
    content: Content | None = None
    """A command with a payload, for a message that is routed by a path. Then `text` is empty."""
    channel: str = ""
    """The IRC channel that it was written in; replies are shown there too. From the IRC door only."""
    display_name: str = ""
    """The nick of a sender on another network."""


class RelayLine(msgspec.Struct, frozen=True, kw_only=True):
    """Store a line that an external sender wrote on another network. Its caller is that sender.

    A line in a channel goes to the path of the channel, and to the agents that it names. A line without a
    channel goes to the agents that it names, or only to `recipient`.
    """

    text: str
    nick: str
    """As it is written there."""
    path: str = ""
    """The path of the channel; empty for a private line."""
    recipient: str = ""
    """The full name of the agent that a private line was written to."""
    id: str = ""


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """Take a name, at a seat or on a connection."""

    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    runtime: str = ""
    version: str = ""
    seat: Seat | None = None
    session: str = ""
    """The harness's session id, or the hash of a connection's secret: it identifies a returning agent."""
    has_link: bool = False
    takes_over: bool = False
    """The caller explicitly wants a name that another agent had (`--as`)."""
    holder: str = ""
    """The hash of a holder's secret: it identifies a returning holder."""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    is_resumed: bool = False
    """An operator restarts the agent of this name."""
    has_token: bool = False
    """The caller has proved with a token that it is the agent of this name. Only for the bus's own doors."""


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """Register an agent of another machine by hand."""

    name: str


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Release a name; its history and its mail stay."""

    reason: str = LEFT


class SetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Report the activity of the caller."""

    state: str
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Store a foreign envelope and route it without reading its payload."""

    envelope: Draft
    at: str = ""
    """The address of the IRC channel it was written in: for an envelope without `to`. From that door only."""
    channel: str = ""
    """The IRC channel that a message was written in, as in `Send`."""


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledge the caller's own mail as seen."""

    messages: tuple[int, ...]
    lane: str
    grade: str
    tips: tuple[str, ...] = ()
    """The one-time tips that were shown with them."""
    session: str = ""
    """The session of the caller whose mail it is; empty for the agent's own."""
    must_be_own: bool = False
    """Refuse messages that were never sent to the caller; otherwise they are ignored."""


class Redeliver(msgspec.Struct, frozen=True, kw_only=True):
    """Queue a message again for recipients that may not have it. A person's decision."""

    message: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Release a held message. A person's decision."""

    message: str


class ChangeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Record a change of a setting in `config.toml`, from `old` to `value`, or change one of an agent."""

    key: str
    value: str | int
    old: str | int
    agent: str = ""
    """The agent whose setting it is. It is stored only in the log, and `old` is not used."""


class TagAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Put an agent into the group of a tag; an empty tag removes it from its group. Its name stays."""

    name: str
    tag: str


class SetVerbosity(msgspec.Struct, frozen=True, kw_only=True):
    """Set how much the notices of an IRC channel show."""

    channel: str
    level: str


class SetTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Set the topic of an IRC channel; an empty text removes it."""

    channel: str
    text: str


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """Move the events before a seq out of the log, into an archive."""

    before: int


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """Store events that were exported, from this log or another one, as history. Known ones are skipped."""

    events: tuple[Event, ...]


class Redact(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the text of one event permanently."""

    event: str
    """A reference: `42`, `#42`, its ULID or the end of it."""
    hash: str
    """A salted hash of the removed text, for the record."""


class ReportDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the ledger, from delivery itself."""

    report: DeliveryReport


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Send a notice in the name of the bus.

    The same `cause` (the id of an event) and `kind` again are the same notice: it is written once.
    """

    to: str
    text: str
    cause: str
    kind: str
    event: int | None = None
    """The seq of the event that the notice is about."""
    agents: tuple[str, ...] = ()
    """The agents that edited the same file, the latest first."""
    file: str = ""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """An agent has certainly ended."""

    name: str
    reason: str
    seat: Seat | None = None


class DaemonStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon has started: all state of connections has ended."""

    pid: int
    version: str


Request = (
    Send
    | RelayLine
    | Join
    | Register
    | Leave
    | SetStatus
    | Put
    | Acknowledge
    | Redeliver
    | Release
    | ChangeSetting
    | SetVerbosity
    | SetTopic
    | Archive
    | Import
    | Redact
    | ReportDelivery
    | Notify
    | Gone
    | DaemonStarted
    | Subscribe
    | Unsubscribe
    | FireSubscription
    | FireWatch
    | Retire
    | CreateBundle
    | RoomRequest
    | Pause
    | Unpause
    | TagAgent
    | Typed
    | FireReminder
    | OpenPermission
    | AnswerPermission
    | ClosePermission
    | CreateTask
    | UpdateTask
    | CompleteTask
    | BeginSubagent
    | PathRequest
    | TurnRequest
)

Submit = Callable[[Request], Awaitable[object]]
"""Submits a request to the broker as the system."""
