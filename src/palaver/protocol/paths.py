"""Path subscriptions, sessions and dead letters: requests, and the objects that path clients read. Pure.

A session has its own mailbox, named `agent+session`. Path clients are the clients of the WebSocket door,
of the SDK and of the commands about paths; they read any message as a `RoutedMessage`.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, UnsetType

from palaver.errors import BadRequest, cut_name
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import MessageSent, State
from palaver.protocol.text import LIMIT_BODY_BYTES

MAIN: Final = "main"
"""The default session, which every agent has."""
PLUS: Final = "+"
"""Between the agent and the session in the name of a mailbox. No agent name contains it."""
# No plus and no slash, so that `split_mailbox` can tell the session, and a mailbox from a path.
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@#-]{0,63}")
# The words are refused only as a whole: `humane` may be a sender, but not `human` or `human-x`.
_SENDER: Final = re.compile(r"(?!(?:human|pal|system)(?![A-Za-z0-9]))[A-Za-z0-9_.:@#/+=-]{1,128}", re.I)

LIMIT_SUBSCRIPTIONS: Final = 1000
"""Path subscriptions of one agent, with those of its sessions."""
LIMIT_SESSIONS: Final = 1000
"""Sessions of one agent besides `main`."""

INTERNAL: Final = "internal"
OUTSIDE: Final = "external"
"""The sources of a routed message that names none: from an agent, or from a program."""
WEBHOOK: Final = "webhook"
"""The source of a message that a webhook sent, and the first segment of its path."""
PENDING: Final = "pending"
DELIVERED: Final = "delivered"
REMOVED: Final = "the session was removed"
"""Why a message of a session is dead."""
TAKEN_BEFORE: Final = "it was taken in the path broker that it comes from"
"""Why a migrated message counts as seen."""
NO_SUBSCRIBERS: Final = "no_subscribers"
NO_AGENT: Final = "no agent is subscribed"
"""Why a path of a message is dead, for programs and in the ledger."""
AUTO_SUBSCRIBED: Final = "auto-subscribed"
"""The note for an agent that subscribes to its own path."""
DEFAULT_COMMAND: Final = "message"
BROADCAST_PATH: Final = "agent/**"
"""The paths of all agents."""

_PENDING_STATES: Final = frozenset({State.QUEUED, State.HELD, State.SUBMITTED})


def mailbox_of(agent: str, session: str = "") -> str:
    """Return the name of a mailbox: that of an agent, or of one of its sessions."""
    return f"{agent}{PLUS}{session}" if session else agent


def split_mailbox(mailbox: str) -> tuple[str, str]:
    """Return the agent and the session of a mailbox; the session is empty for the agent's own mailbox.

    A path, which can contain a plus too, has no session.
    """
    if "/" in mailbox:
        return mailbox, ""
    agent, _, session = mailbox.partition(PLUS)
    return agent, session


def readable_mailbox(mailbox: str) -> str:
    """Return the name of a mailbox for people: `luna (session mon)`."""
    agent, session = split_mailbox(mailbox)
    return f"{agent} (session {session})" if session else agent


def count_others(mailboxes: Sequence[str]) -> int:
    """Return how many agents have a copy in addition to one. A session and its agent are one."""
    return max(0, len({split_mailbox(mailbox)[0] for mailbox in mailboxes}) - 1)


def check_session(session: str) -> str:
    """Return the id of a session, or refuse it."""
    if not _SESSION.fullmatch(session):
        raise BadRequest(
            f"{cut_name(session)!r} cannot be a session id: use 1 to 64 letters, digits and the characters "
            "_ . : @ # -, and begin with a letter or digit"
        )
    return session


# --------------------
# Other IRC networks, which a bridge connects: `irc/<network>/<nick>` and `irc/<network>/#channel`. No agent
# name has a slash, so no nick there can be the name of an agent here.

IRC: Final = "irc"
LOCAL_NETWORK: Final = "local"
"""The network of the IRC door itself. No bridge can have this name."""
_NETWORK: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,63}")
_UNSEEN: Final = r"\x00-\x20\x7f-\xa0\u061c\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ud800-\udfff\ufeff"
_NICK: Final = re.compile(rf"[^{_UNSEEN}#&!@,*?:/.$+%]{{1,64}}")
_CHANNEL: Final = re.compile(rf"[#&][^{_UNSEEN},*/]{{1,99}}")
_SIGNS: Final = "#&[]\\`_^{}|~-:.+!"
"""Signs that are the same in a path. Every other one that is not a letter or digit is escaped."""


def check_network(network: str) -> str:
    """Return the name of another network in lower case, or refuse it."""
    name = network.lower()
    # With the name of the own network, the nicks of a bridge would have the paths of guests of this bus.
    if not _NETWORK.fullmatch(name) or name == LOCAL_NETWORK:
        raise BadRequest(
            f"{cut_name(network)!r} cannot be the name of a network: use 1 to 64 letters, digits and the "
            f"characters _ . : -, and not {LOCAL_NETWORK!r}"
        )
    return name


def irc_path(network: str, target: str) -> str:
    """Return the path of a channel or of a nick on a network; the pair of `split_irc_path`.

    The case of ASCII letters does not matter there. Raises BadRequest for a target that cannot be either.
    """
    if not (_NICK.fullmatch(target) or _CHANNEL.fullmatch(target)):
        raise BadRequest(f"{cut_name(target)!r} cannot be a nick or a channel of an IRC network")
    # Only ASCII: folding more could make two nicks of the network the same.
    folded = "".join(char.lower() if char.isascii() else char for char in target)
    return f"{IRC}/{network}/{quote(folded, safe=_SIGNS)}"


def external_sender(network: str, nick: str) -> str:
    """Return the sender of the lines of a nick on a network. Raises BadRequest for a target that is not a
    nick."""
    if is_channel_name(nick):
        raise BadRequest(f"{cut_name(nick)!r} is a channel, not a nick")
    return irc_path(network, nick)


def split_irc_path(path: str) -> tuple[str, str] | None:
    """Return the network and the nick or channel of a path, in lower case; None for any other path."""
    first, _, rest = path.partition("/")
    network, _, target = rest.partition("/")
    if first != IRC or not _NETWORK.fullmatch(network):
        return None
    # Read back through `irc_path`, so that only canonical targets are accepted.
    try:
        found = unquote(target, errors="strict")
        return network, unquote(irc_path(network, found).removeprefix(f"{IRC}/{network}/"))
    except (BadRequest, UnicodeDecodeError):
        return None


def is_channel_name(target: str) -> bool:
    """Return whether a target is a channel, and not a nick."""
    return target.startswith(("#", "&"))


def is_migrated_sender(sender: str) -> bool:
    """Return whether a migrated message may have this sender: none that looks like the person or the bus.

    The other path broker did not check its senders.
    """
    return _SENDER.fullmatch(sender) is not None


# --------------------
# Requests.


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a routed message, which has no text."""

    command: str = DEFAULT_COMMAND
    payload: object = None
    """Any JSON value."""
    source: str = INTERNAL
    external_id: str = ""
    limit_bytes: int = LIMIT_BODY_BYTES
    """The payload as JSON may have this size. No client can set it."""


class SubscribePath(msgspec.Struct, frozen=True, kw_only=True):
    """Subscribe an agent, or one of its sessions, to a pattern of paths. A missing session is created."""

    agent: str
    pattern: str
    session: str = ""


class UnsubscribePath(msgspec.Struct, frozen=True, kw_only=True):
    """End a path subscription. A missing one is not an error."""

    agent: str
    pattern: str
    session: str = ""


class CreateSession(msgspec.Struct, frozen=True, kw_only=True):
    """Create a session of an agent, or change the title or the harness session of an existing one."""

    agent: str
    session: str
    title: str | None = None
    """None keeps the title that it has."""
    harness_session: str | None = None
    """The harness's own id of the session; None keeps the one that it has."""
    only_existing: bool = False
    """Change an existing session only: one that was removed meanwhile does not come back."""


class RemoveSession(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a session and its subscriptions."""

    agent: str
    session: str


class ClearDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Remove all present dead letters from the list. The messages stay in the log."""


class MigratedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session of another path broker. Times are Unix milliseconds."""

    agent: str
    session: str
    created: int
    used: int
    title: str = ""


class MigratedSubscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A path subscription of another path broker."""

    agent: str
    pattern: str
    added: int
    session: str = ""


class MigratedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of another path broker, with all its copies. Without mailboxes it is a dead letter."""

    id: str
    sender: str
    path: str
    ts: int
    command: str = DEFAULT_COMMAND
    payload: object = None
    """Any JSON value."""
    source: str = INTERNAL
    external_id: str = ""
    mailboxes: tuple[str, ...] = ()
    """Sessions first."""
    taken: tuple[str, ...] = ()
    """The mailboxes whose copy was received there."""
    handled: dict[str, tuple[str, ...]] = {}
    """Agents whose copy says that sessions handled it: the ids of those sessions."""


class MigratedAutoRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration of automatic turns of another path broker, for an agent or one of its sessions."""

    agent: str
    value: object
    session: str = ""


class Migrate(msgspec.Struct, frozen=True, kw_only=True):
    """Store a part of the content of another path broker, without any effect on agents that run.

    Everything that is here already stays as it is, so a repeat changes nothing. An agent comes before the
    parts that refer to it, in this request or in an earlier one.
    """

    agents: tuple[str, ...] = ()
    sessions: tuple[MigratedSession, ...] = ()
    subscriptions: tuple[MigratedSubscription, ...] = ()
    messages: tuple[MigratedMessage, ...] = ()
    auto_runs: tuple[MigratedAutoRun, ...] = ()


class MigrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each kind are new, and which messages and subscriptions were not stored."""

    agents: int = 0
    sessions: int = 0
    subscriptions: int = 0
    messages: int = 0
    """New messages, without dead letters."""
    dead: int = 0
    """New dead letters."""
    auto_runs: int = 0
    known: int = 0
    """Messages and dead letters that were here already."""
    taken: int = 0
    """Copies that waited here, and that the other path broker has handed out since the last import."""
    different: tuple[str, ...] = ()
    """The ids of messages that are here already with other recipients or another time; they stay so."""
    refused: tuple[str, ...] = ()
    """A sentence for each part that cannot be stored here."""


PathRequest: TypeAlias = (
    SubscribePath | UnsubscribePath | CreateSession | RemoveSession | ClearDeadLetters | Migrate
)


# --------------------
# The objects that path clients read. Their JSON keys are those of the source of this protocol.


class PathSubscription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One path subscription."""

    pattern: str
    added_at: int


class SubscriptionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The path subscriptions of an agent or session after a change, and a note about the change."""

    pattern: str
    """In its canonical spelling."""
    subscriptions: tuple[PathSubscription, ...]
    note: str = ""


class SessionId(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """A session of an agent."""

    agent_id: str
    session_id: str


class Session(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session, with its subscriptions. Times are Unix milliseconds."""

    id: str
    title: str
    is_default: bool
    subscriptions: tuple[PathSubscription, ...]
    created_at: int
    last_used_at: int
    harness_session: str | UnsetType = UNSET


class RoutedMessage(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"sender": "from", "external_id": "externalId", "handled_by": "handledBy"},
):
    """A message as path clients read it: one copy of it, in one mailbox."""

    id: str
    sender: str
    path: str
    command: str
    payload: object
    status: str
    timestamp: int
    source: str
    external_id: str | None
    handled: bool | UnsetType = UNSET
    """Whether sessions of the agent have a copy too. Only in the copy of an agent."""
    handled_by: tuple[SessionId, ...] | UnsetType = UNSET
    intent: str | UnsetType = UNSET
    thread: str | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    envelope: Draft | UnsetType = UNSET
    """The envelope that a program sent, as it came in. Only for an envelope."""


class DeadLetter(
    msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from", "external_id": "externalId"}
):
    """A message whose path no subscription matched."""

    id: str
    sender: str
    path: str
    command: str
    payload: object
    timestamp: int
    source: str
    external_id: str | None
    reason: str = NO_SUBSCRIBERS
    seq: int


class RouteResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a routed message went."""

    delivered: bool
    delivered_to: tuple[str, ...]
    delivered_to_sessions: tuple[SessionId, ...]
    message_id: str
    unmatched: bool


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A routed message together with where it went."""

    message: RoutedMessage
    result: RouteResult
    seq: int
    is_repeat: bool = False
    """It was sent before, with the same id: nothing was written now."""


def route_result(id: str, delivered_to: Sequence[str]) -> RouteResult:
    """Return where a message went, from the names of the mailboxes."""
    mailboxes = [split_mailbox(mailbox) for mailbox in delivered_to]
    return RouteResult(
        delivered=bool(mailboxes),
        delivered_to=tuple(agent for agent, session in mailboxes if not session),
        delivered_to_sessions=tuple(SessionId(agent, session) for agent, session in mailboxes if session),
        message_id=id,
        unmatched=not mailboxes,
    )


def routed_message(
    event: Event, mailbox: str = "", state: str = State.QUEUED, *, with_seq: bool = False
) -> RoutedMessage:
    """Return the copy of a message in a mailbox, as path clients read it; without one, the sender's copy.

    `state` is its state in the ledger.
    """
    agent, session = split_mailbox(mailbox)
    message = event.body if isinstance(event.body, MessageSent) else MessageSent()
    handled: bool | UnsetType = UNSET
    handled_by: tuple[SessionId, ...] | UnsetType = UNSET
    if agent and not session:
        sessions = message.handled.get(agent, ())
        handled = bool(sessions)
        handled_by = tuple(SessionId(agent, one) for one in sessions) if sessions else UNSET
    command, payload = content_of(event)
    return RoutedMessage(
        id=event.id,
        sender=event.sender,
        path=message.path or f"agent/{agent or _first(message.delivered_to)}",
        command=command,
        payload=payload,
        status=PENDING if state in _PENDING_STATES else DELIVERED,
        timestamp=event.ts,
        source=message.source or INTERNAL,
        external_id=message.external_id,
        handled=handled,
        handled_by=handled_by,
        intent=message.intent or UNSET,
        thread=message.thread or UNSET,
        reply_to=message.reply_to or UNSET,
        seq=event.seq if with_seq else UNSET,
        envelope=UNSET if event.sent_ts is None else event.envelope,
    )


def delivered_of(event: Event) -> Delivered | None:
    """Return a message that was delivered by its path, and where it went; None for any other event."""
    body = event.body
    if not isinstance(body, MessageSent) or not body.path or not body.delivered_to:
        return None
    result = route_result(event.id, body.delivered_to)
    return Delivered(message=routed_message(event), result=result, seq=event.seq)


def dead_letter(event: Event) -> DeadLetter:
    """Return a dead letter as path clients read it."""
    message = event.body if isinstance(event.body, MessageSent) else MessageSent()
    command, payload = content_of(event)
    return DeadLetter(
        id=event.id,
        sender=event.sender,
        path=_first(message.dead),
        command=command,
        payload=payload,
        timestamp=event.ts,
        source=message.source or INTERNAL,
        external_id=message.external_id,
        seq=event.seq,
    )


def content_of(event: Event) -> tuple[str, object]:
    """Return the command and the payload of any message. A text is the payload of the command `message`."""
    message = event.body
    if not isinstance(message, MessageSent):
        return event.type, event.payload
    if message.command:
        return message.command, {} if message.payload is None else message.payload
    return DEFAULT_COMMAND, {"text": message.text}


def _first(names: Sequence[str]) -> str:
    return names[0] if names else ""
