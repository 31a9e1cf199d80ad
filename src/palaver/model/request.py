"""Requests to the broker. Orders, not facts: nothing here has happened yet."""

import msgspec

from palaver.model.agent import Seat
from palaver.model.bundle import CreateBundle
from palaver.model.envelope import Envelope
from palaver.model.mail import DeliveryReport
from palaver.model.permission import AnswerPermission, AskPermission, ClosePermission
from palaver.model.room import RoomRequest
from palaver.model.subagent import BeginSubagent
from palaver.model.subscription import FireSubscription, FireWatch, Retire, Subscribe, Unsubscribe
from palaver.model.task import CompleteTask, CreateTask, UpdateTask
from palaver.model.terminal import FireNag, Pause, Typed, Unpause


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send a text. Without recipients it is a broadcast, or with `reply_to` a reply to the author."""

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


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """Register an agent of another machine by hand."""

    name: str


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Release a name; its history and its mail stay."""

    reason: str = "left"


class SetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Report the activity of the caller."""

    state: str
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Store a foreign envelope and route it without reading its payload."""

    envelope: Envelope


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledge the caller's own mail as seen."""

    messages: tuple[int, ...]
    lane: str
    grade: str
    tips: tuple[str, ...] = ()
    """The one-time tips that were shown with them."""
    must_be_own: bool = False
    """Refuse messages that were never sent to the caller; otherwise they are ignored."""


class Redeliver(msgspec.Struct, frozen=True, kw_only=True):
    """Queue a message again for recipients that may not have it. A person's decision."""

    message: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Release a held message. A person's decision."""

    message: str


class ChangeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Record that a setting was changed in `config.toml`, from `old` to `value`."""

    key: str
    value: str | int
    old: str | int


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """Move the events before a seq out of the log, into an archive."""

    before: int


class Redact(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the text of one event permanently."""

    event: str
    """A reference: `42`, `#42`, its ULID or the end of it."""
    hash: str
    """A salted hash of the removed text, for the record."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
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


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """An agent has certainly ended."""

    name: str
    reason: str
    seat: Seat | None = None


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon has started: all state of connections has ended."""

    pid: int
    version: str


Request = (
    Send
    | Join
    | Register
    | Leave
    | SetStatus
    | Put
    | Acknowledge
    | Redeliver
    | Release
    | ChangeSetting
    | Archive
    | Redact
    | Report
    | Notify
    | Gone
    | Started
    | Subscribe
    | Unsubscribe
    | FireSubscription
    | FireWatch
    | Retire
    | CreateBundle
    | RoomRequest
    | Pause
    | Unpause
    | Typed
    | FireNag
    | AskPermission
    | AnswerPermission
    | ClosePermission
    | CreateTask
    | UpdateTask
    | CompleteTask
    | BeginSubagent
)
