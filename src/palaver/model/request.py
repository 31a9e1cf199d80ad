"""What can be asked of the broker. Orders, not facts: nothing here has happened yet."""

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
    """Send a text. No recipients at all is a broadcast, or with `reply_to` the author of that message."""

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
    """The room in which it is said; then `to` names members of it, and nobody is everybody there."""
    delivery_hint: str = ""
    is_confirmed: bool = False
    """The caller knows that this goes to many."""
    is_dry_run: bool = False
    expects_reply: bool = False
    """Remind whoever does not answer."""
    raw: bytes = b""
    """The very bytes to type into the recipient's terminal. The human's alone; `text` is then empty."""
    raw_hash: str = ""
    """Of raw keys that are a secret, the hash that the log keeps in their place."""
    recipient: str = ""
    """The full name of the one it is for, and of nobody else with that base name. Then `to` is empty."""
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
    """The harness's session id, or the hash of a connection's secret: who brings it again is the same one."""
    has_link: bool = False
    takes_over: bool = False
    """The caller says outright that it wants a name that was somebody's (`--as`)."""
    holder: str = ""
    """The hash of a holder's secret: who brings it again is the same one."""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    is_resumed: bool = False
    """An operator starts again what ran under this name."""


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """Make an agent of another machine known by hand."""

    name: str


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Give a name up; its history and its mail stay."""

    reason: str = "left"


class SetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Say what the caller is doing."""

    state: str
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Write a foreign envelope down and route it unread."""

    envelope: Envelope


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Say that one's own mail was seen."""

    messages: tuple[int, ...]
    lane: str
    grade: str
    tips: tuple[str, ...] = ()
    """The one-time tips that were shown with them."""
    must_be_own: bool = False
    """Refuse what was never sent to the caller; otherwise it is passed over."""


class Redeliver(msgspec.Struct, frozen=True, kw_only=True):
    """Put a message in line again for those who may not have it. A person's decision."""

    message: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Let a message through that is held. A person's decision."""

    message: str


class ChangeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Say that a setting was changed in `config.toml`, from `old` to `value`."""

    key: str
    value: str | int
    old: str | int


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """Move the events before a place out of the log, into an archive."""

    before: int


class Redact(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the text of one event for good."""

    event: str
    """A reference: `42`, `#42`, its ULID or the end of it."""
    hash: str
    """A salted hash of the removed text, for the record."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the ledger, from delivery itself."""

    report: DeliveryReport


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Tell somebody something in the name of the bus.

    The same `cause` (the id of an event) and `kind` again are the same notice: it is written once.
    """

    to: str
    text: str
    cause: str
    kind: str


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """An agent is surely gone."""

    name: str
    reason: str
    seat: Seat | None = None


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon has started: all that hung on connections is over."""

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
