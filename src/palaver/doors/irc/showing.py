"""The lines that IRC clients read: messages, envelopes, and the history of channels and conversations."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from palaver.doors.irc.channels import Hub, Writing
from palaver.doors.irc.connection import Client
from palaver.doors.irc.irc_wire import (
    GENERAL,
    LIMIT_HISTORY,
    LIMIT_MULTILINE_BYTES,
    LIMIT_MULTILINE_LINES,
    SERVER,
    Line,
    channel_of_agent,
    channel_of_thread,
    fit_line,
    fold,
    format_time,
    is_channel,
    is_nick,
    join_exactly,
    name_of,
    nick_of,
    parse_time,
    path_of_nick,
    room_for_text,
    source_of,
    split_exactly,
    split_text,
)
from palaver.errors import PalaverError
from palaver.protocol.address import IRC_LOCAL
from palaver.protocol.agents import LIMIT_NAME, Agent
from palaver.protocol.display import safe
from palaver.protocol.envelope import TASK_FIELDS_OF_BUS, Draft, Event, is_migrated
from palaver.protocol.events import (
    IRC_LEVELS,
    AgentBye,
    AgentHello,
    AgentState,
    Closed,
    DeliveryReport,
    Freed,
    Grade,
    Granted,
    Kicked,
    LifeChanged,
    MemberJoined,
    MemberLeft,
    MessageSent,
    NoteAdded,
    NoteResolved,
    PermissionAsked,
    RoomBody,
    State,
    StatusChanged,
    TakenOver,
)
from palaver.protocol.lanes import MailboxReader
from palaver.protocol.message import HUMAN, MENTIONS, readable_text, short_id, work_text
from palaver.protocol.paths import split_mailbox
from palaver.protocol.query import (
    Query,
    conversation_of_agent,
    conversation_of_channel,
    conversation_of_pair,
    conversation_of_thread,
    fold_channel,
    is_guest,
    shown_conversations,
)
from palaver.protocol.redaction import redact
from palaver.protocol.requests import Acknowledge
from palaver.protocol.tasks import TASK_TYPES
from palaver.services.paths import RELEASED
from palaver.services.queries import Queries
from palaver.state.rooms import read_rooms_of
from palaver.state.rows import deliverable

# --------------------
# Events of the bus as lines for the clients of the IRC door: texts and notices for people, envelopes for
# programs.
#
# The first part is pure. `Shown` hears each new event once, for all clients, and looks up only the clients
# that see it. A body is data: no text can become a second line, a command or CTCP.

_logger: Final = logging.getLogger("palaver.doors")

# --------------------
# Texts for people. Pure.

MULTILINE: Final = "draft/multiline"
CONCAT: Final = "draft/multiline-concat"
_MULTILINE_CAPS: Final = frozenset({"batch", MULTILINE})

LIMIT_LINES: Final = 20
"""Lines of a message for a person whose client cannot read more as one message."""
LIMIT_TEXT_BYTES: Final = 400
"""Bytes of one such line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IrcMessage:
    """One message as a client gets it: its lines, which may be one batch."""

    lines: tuple[Line, ...]
    is_batch: bool = False
    target: str = ""
    source: str = SERVER
    tags: Mapping[str, str] | None = None

    def send(self, client: Client) -> None:
        """Send it as the reply to the running command."""
        if self.is_batch:
            client.send_batch(MULTILINE, (self.target,), self.lines, source=self.source, tags=self.tags or {})
        else:
            for line in self.lines:
                client.send(line)

    def push(self, client: Client) -> None:
        """Send it at any other time."""
        if self.is_batch:
            client.push_batch(MULTILINE, (self.target,), self.lines, source=self.source, tags=self.tags or {})
        else:
            for line in self.lines:
                client.push(line)


def text_for_people(event: Event) -> str:
    """Return the text of a message or an envelope. Every control character except line ends is visible."""
    return safe(readable_text(event), keep_lines=True)


def text_message(
    event: Event,
    *,
    source: str,
    target: str,
    caps: frozenset[str],
    tags: Mapping[str, str],
    before: str = "",
    pieces: Sequence[tuple[str, bool]] = (),
) -> IrcMessage:
    """Return the lines of a message for a person. `before` is put in front of the text.

    `pieces` are the lines as the sender has cut them: they are kept if they are the whole text and fit.
    """
    text = before + text_for_people(event)
    room_bytes = room_for_text(source, "PRIVMSG", target)
    is_as_written = join_exactly(pieces) == text and all(len(one.encode()) <= room_bytes for one, _ in pieces)
    if caps >= _MULTILINE_CAPS and ("\n" in text or len(text.encode()) > room_bytes or len(pieces) > 1):
        made = pieces if is_as_written and pieces else split_exactly(text, room_bytes)
        if (batch := _batch(text, made, source, target, tags)) is not None:
            return batch
    limit_bytes = min(room_bytes, LIMIT_TEXT_BYTES)
    if is_as_written and all(len(one.encode()) <= limit_bytes for one, _ in pieces):
        lines = [piece for piece, _ in pieces if piece.strip()]
    elif "\n" not in text and len(text.encode()) <= limit_bytes:
        lines = [text] if text else []
    else:
        lines = split_text(text, limit_bytes)
    if len(lines) > LIMIT_LINES:
        lines = [*lines[:LIMIT_LINES], f"… pal show {event.seq}"]
    # Only the first line has the id: a client may show one line for each id.
    first, *others = lines or [" "]
    rest = {name: value for name, value in tags.items() if name != "msgid"}
    return IrcMessage(
        lines=(
            _privmsg(source, target, first, tags),
            *(_privmsg(source, target, line, rest) for line in others),
        )
    )


def _privmsg(source: str, target: str, text: str, tags: Mapping[str, str]) -> Line:
    return Line(source=source, command="PRIVMSG", params=(target, text), tags=tags)


def _batch(
    text: str, pieces: Sequence[tuple[str, bool]], source: str, target: str, tags: Mapping[str, str]
) -> IrcMessage | None:
    """Return the pieces of a text as one multiline batch; None if it is too long for one."""
    if len(text.encode()) > LIMIT_MULTILINE_BYTES or len(pieces) > LIMIT_MULTILINE_LINES:
        return None
    lines = tuple(
        Line(
            source=source,
            command="PRIVMSG",
            params=(target, piece),
            tags={CONCAT: ""} if is_continued else {},
        )
        for piece, is_continued in pieces
    )
    return IrcMessage(lines=lines, is_batch=True, target=target, source=source, tags=tags)


def tags_of(event: Event) -> dict[str, str]:
    """Return the tags of every line of an event: its id, its time, and its sender if that has an account."""
    tags = {"msgid": event.id, "time": format_time(event.ts)}
    if "/" not in event.sender and not event.sender.startswith("["):
        tags["account"] = event.sender
    # A foreign id can be anything. One that cannot be a msgid is left out; the envelope has it.
    return tags if is_msgid(event.id) else {name: tags[name] for name in tags if name != "msgid"}


_MSGID: Final = re.compile(r"[!-9;-~]{1,200}", re.ASCII)


def is_msgid(id: str) -> bool:
    """Return whether an id can be a tag and a parameter: short, visible, and without a space or colon."""
    return _MSGID.fullmatch(id) is not None


# --------------------
# Envelopes for programs. Pure.

TOO_LONG: Final = "palaver.too_long"
_MESSAGE_FIELDS: Final = frozenset(
    {
        "text",
        "intent",
        "thread",
        "reply_to",
        "bundle_id",
        "priority",
        "room",
        "channel",
        "path",
        "command",
        "payload",
        "source",
        "external_id",
        "expects_reply",
    }
)
"""The fields of a message's payload that programs get. The others are the bus's own."""


def envelope_of(event: Event) -> Draft:
    """Return an event as an envelope for programs: the fields that its sender wrote.

    A channel is not part of `to`.
    """
    if event.sent_ts is not None:
        return event.envelope
    match event.body:
        case MessageSent():
            payload = {name: value for name, value in event.payload.items() if name in _MESSAGE_FIELDS}
        case AgentHello() as hello:
            payload = {"runtime": hello.runtime, "version": hello.version}
            payload = {name: value for name, value in payload.items() if value}
        case AgentBye():
            payload = {}
        case _:
            hidden = TASK_FIELDS_OF_BUS if event.type in TASK_TYPES else frozenset()
            payload = {name: value for name, value in event.payload.items() if name not in hidden}
    to = tuple(token for token in event.to if not token.startswith((IRC_LOCAL, "#")))
    return Draft(type=event.type, id=event.id, sender=event.sender, to=to, ts=event.ts, payload=payload)


def envelope_message(
    event: Event, *, source: str, target: str, name: str, caps: frozenset[str], tags: Mapping[str, str]
) -> IrcMessage:
    """Return an event for a program with this name: one envelope, in one line or in one batch."""
    envelope = envelope_of(event)
    text = envelope.to_json()
    room_bytes = room_for_text(source, "PRIVMSG", target)
    size_bytes = len(text.encode())
    if size_bytes > room_bytes:
        pieces = split_exactly(text, room_bytes) if caps >= _MULTILINE_CAPS else []
        if pieces and (batch := _batch(text, pieces, source, target, tags)) is not None:
            return batch
        text = _too_long(envelope, size_bytes, name, room_bytes)
    return IrcMessage(lines=(_privmsg(source, target, text, tags),))


def _too_long(envelope: Draft, size_bytes: int, name: str, room_bytes: int) -> str:
    """Return an envelope of one line that stands for a longer one: the same id, and its size."""
    short = replace(envelope, payload={TOO_LONG: size_bytes})
    # The recipients or the type may be too long for a line themselves.
    for one in (short, replace(short, to=(name,)), replace(short, to=(name,), type=TOO_LONG)):
        if len((text := one.to_json()).encode()) <= room_bytes:
            return text
    return replace(short, to=(name,), type=TOO_LONG, id=TOO_LONG).to_json()


# --------------------
# Notices for people. Pure.

MINIMAL, ACTIONS, FULL, DEBUG = IRC_LEVELS

LIMIT_NOTICE: Final = 140
"""Characters of a notice."""

LevelOf = Callable[[str], str]
"""Returns the level of a channel."""

_DIRECTORY: Final = re.compile(r"cd +[^;&|]+? *&& *")


@dataclass(frozen=True, slots=True, kw_only=True)
class IrcNotice:
    """A line about an agent: from which level on it is shown, and in which room, if it is about one."""

    level: str
    agent: str
    text: str
    room: str = ""


def compact_command(command: str) -> str:
    """Return a command on one short line, without a change of directory before it."""
    line = " ".join(command.split())
    line = _DIRECTORY.sub("", line, count=1) if line.startswith("cd ") else line
    return line if len(line) <= LIMIT_NOTICE else f"{line[:LIMIT_NOTICE]}..."


def notice_line(text: str) -> str:
    """Return the text of a notice: one line of at most 140 characters, without secrets."""
    # Redacted before it is cut, because a part of a secret would not be recognized.
    line = safe(" ".join(redact(text).split()))
    return line if len(line) <= LIMIT_NOTICE else f"{line[: LIMIT_NOTICE - 1]}…"


def notice_of(event: Event) -> IrcNotice | None:
    """Return the notice about an event; None for an event without one, such as a message."""
    who = event.sender
    match event.body:
        case AgentHello(agent=Agent() as agent):
            text = f"{agent.name} joined" + (f" ({agent.harness})" if agent.harness else "")
            return IrcNotice(level=MINIMAL, agent=agent.name, text=text)
        case AgentHello(runtime=runtime, version=version):  # of the program itself
            return IrcNotice(level=FULL, agent=who, text=f"{who} runs {runtime} {version}".rstrip())
        case AgentBye(reason=reason):
            text = f"{who} left" + (f": {reason}" if reason else "")
            return IrcNotice(level=MINIMAL, agent=who, text=text)
        case LifeChanged(is_return=True, agent=Agent() as agent):
            return IrcNotice(level=MINIMAL, agent=agent.name, text=f"{agent.name} is back")
        case PermissionAsked() as asked:
            text = f"{who} is blocked: it asks for permission to use {asked.tool}: {asked.text}"
            return IrcNotice(level=MINIMAL, agent=who, text=text)
        case StatusChanged() as status:
            return _status_notice(who, status)
        case DeliveryReport() as report:
            messages = ", ".join(f"#{seq}" for seq in report.messages)
            how = " ".join(filter(None, (report.lane, report.grade, report.reason)))
            owner = split_mailbox(report.agent)[0]
            text = f"{messages} for {owner}: {report.state}" + (f" ({how})" if how else "")
            return IrcNotice(level=FULL, agent=owner, text=text)
        case RoomBody() as body:
            return _room_notice(event, body)
    return None


def _status_notice(who: str, status: StatusChanged) -> IrcNotice:
    if status.state == AgentState.BLOCKED:
        text = f"{who} is blocked" + (f": {status.detail}" if status.detail else "")
        return IrcNotice(level=MINIMAL, agent=who, text=text)
    if status.state == AgentState.ACTIVE and status.tool:
        tool = status.tool.lower()
        if status.command:
            # Redacted before it is shortened, as in `notice_line`.
            use = f"{tool}: {compact_command(redact(status.command))}"
        elif status.file:
            use = f"{tool} {status.file}"
        else:
            use = f"{tool}: {status.detail}" if status.detail else tool
        return IrcNotice(level=ACTIONS, agent=who, text=f"{who} › {use}")
    text = f"{who} is {status.state}" + (f": {status.detail}" if status.detail else "")
    return IrcNotice(level=DEBUG, agent=who, text=text)


def _room_notice(event: Event, body: RoomBody) -> IrcNotice:
    """Return the notice about an event of a room: joins and leaves at the lowest level, the rest above."""
    level, who = ACTIONS, event.sender
    other = ", ".join(event.to)
    match body:
        case MemberJoined():
            level, text = MINIMAL, f"{who} joined the room"
        case MemberLeft(member=member, reason=reason):
            who = member or who
            level, text = MINIMAL, f"{who} left the room: {reason}"
        case Kicked(reason=reason):
            level, text = MINIMAL, f"{who} removed {other} from the room" + (f": {reason}" if reason else "")
        case Closed():
            level, text = MINIMAL, f"{who} closed the room"
        case Granted():
            text = f"{other} has the stick"
        case TakenOver():
            text = f"{who} took the stick from {other}"
        case Freed(reserved_for=reserved):
            text = f"{who} released the stick" + (f" for {reserved}" if reserved else "")
            handoff = work_text(event, is_whole=False)
            text += f"; {handoff}" if handoff else ""
        case NoteAdded(note=note, text=content):
            text = f"{who} added note {short_id(note)}: {content}"
        case NoteResolved(note=note):
            text = f"{who} resolved note {short_id(note)}"
        case _:
            text = f"{event.type} of {who}"
    return IrcNotice(level=level, agent=who, text=text, room=body.room)


# --------------------
# Which clients see an event, and what they get.

_WINDOW: Final = 50
"""Messages of one mailbox that a client may have without having confirmed them."""


def channels_showing(event: Event, conversations: Iterable[str]) -> list[str]:
    """Return the folded channels that show an event; first the one that it was written in."""
    written = event.body.channel if isinstance(event.body, MessageSent) else None
    found: dict[str, None] = {fold_channel(written): None} if written else {}
    words = sorted(conversations)
    found |= {word: None for word in words if word.startswith("#")}
    found |= {fold(channel_of_thread(word[7:])): None for word in words if word.startswith("thread/")}
    names = (word[1:] for word in words if word.startswith("@"))
    # The word for a conversation of two has a second `@`; only an agent has a channel.
    found |= {
        fold(channel_of_agent(name)): None
        for name in names
        if "@" not in name and "/" not in name and len(name) <= LIMIT_NAME + 16
    }
    return list(found)


def message_for(
    hub: Hub, event: Event, client: Client, target: str, writing: Writing | None = None
) -> IrcMessage:
    """Return an event as one client gets it: in a channel, or as a direct message to a nick."""
    nick, tags = nick_of(event.sender), tags_of(event)
    pieces: Sequence[tuple[str, bool]] = ()
    if writing is not None:
        tags, pieces = {**writing.tags, **tags}, writing.pieces
    user = hub.user(nick)
    source = source_of(nick, nick) if user is None else user.source
    if client.is_program:
        name = client.account.caller.name
        return envelope_message(event, source=source, target=target, name=name, caps=client.caps, tags=tags)
    before = _recipients_before(event, target)
    return text_message(
        event, source=source, target=target, caps=client.caps, tags=tags, before=before, pieces=pieces
    )


class Shown:
    """Shows new events to all clients, and passes on the mail of those that have a mailbox.

    One subscription for all clients. The cost of an event depends on the clients that see it.
    """

    def __init__(self, hub: Hub, *, tasks: asyncio.TaskGroup, level_of: LevelOf | None = None) -> None:
        """Begin with the first client. `tasks` runs the mailboxes of programs and registered persons."""
        self._hub = hub
        self._level_of = level_of or hub.services.queries.irc_level
        self._tasks = tasks
        self._stop: Callable[[], None] | None = None
        self._mailboxes: dict[str, _IrcMailbox] = {}
        hub.on_first.append(self._begin)
        hub.on_last.append(self._end)

    def _begin(self) -> None:
        if self._stop is None:
            self._stop = self._hub.services.queries.subscribe(self._hear)

    def _end(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    # Clients that have a mailbox

    def opened(self, client: Client) -> None:
        """Begin to pass on the mail of a registered client's account, if it has a mailbox."""
        name = client.account.name
        if has_mailbox(client) and name not in self._mailboxes:
            mailbox = self._mailboxes[name] = _IrcMailbox(self, self._hub, name)
            mailbox.task = self._tasks.create_task(mailbox.run())

    def closed(self, client: Client) -> None:
        """End this with the last connection of the account. Mail that was not confirmed is open again."""
        if not has_mailbox(client):
            return
        name = client.account.name
        others = [one for one in self._hub.by_nick(client.nick) if one is not client and not one.is_ended]
        if not others and (mailbox := self._mailboxes.pop(name, None)) is not None:
            mailbox.close()

    # Events

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._show(event)
            except Exception:  # one event must not stop the others, nor the log, which calls this
                _logger.exception("#%d could not be shown on IRC", event.seq)

    def _show(self, event: Event) -> None:
        if event.imported or is_migrated(event):  # these happened long ago, so they are only history
            return
        if conversations := shown_conversations(event):
            # A held message is shown when it is released: see `_show_released`.
            if not (isinstance(event.body, MessageSent) and event.body.held):
                self.show_message(event, conversations)
            return
        if isinstance(report := event.body, DeliveryReport):
            self._show_released(report)
        notice = notice_of(event)
        if notice is not None:
            self._show_notice(event, notice)

    def _show_released(self, report: DeliveryReport) -> None:
        """Show a message that a brake held, now that it is released. It has one report for each recipient."""
        if report.state != State.QUEUED or not report.reason.startswith(RELEASED):
            return
        for seq in report.messages:
            event = self._hub.services.queries.event(seq)
            held = event is not None and isinstance(event.body, MessageSent) and event.body.held
            if event is not None and held and _recipients(event)[:1] == (report.agent,):
                self.show_message(event, shown_conversations(event))

    def show_message(self, event: Event, conversations: Iterable[str]) -> None:
        """Show a message or an envelope in its channels, and to the clients that it is for."""
        recipients = frozenset(split_mailbox(name)[0] for name in _recipients(event))
        writing = self._hub.writing.get(event.id)
        if writing is not None and writing.client.account.caller.name != event.sender:
            writing = None  # another sender has used the same id
        origin = None if writing is None else writing.client
        written_in = "" if writing is None else writing.channel
        reached: set[Client] = set() if origin is None else {origin}
        for channel in dict.fromkeys(
            (*([written_in] if written_in else ()), *channels_showing(event, conversations))
        ):
            for client in self._hub.members(channel):
                # A program gets an event once, a person in each channel. Mail comes from the mailbox, which
                # acknowledges it.
                is_again = client.is_program and client in reached
                is_mail = has_mailbox(client) and client.account.name in recipients
                if client is origin or is_again or is_mail or _is_own_without_echo(event, client):
                    continue
                reached.add(client)
                target = client.joined.get(channel, channel)
                message_for(self._hub, event, client, target, writing).push(client)
        self._show_direct(event, recipients, reached, writing)

    def _show_direct(
        self, event: Event, recipients: frozenset[str], reached: set[Client], writing: Writing | None
    ) -> None:
        """Show a message to the clients of its recipients that have not seen it in a channel."""
        guests = (token for token in event.to if is_guest(token))
        for name in (*recipients, *guests):
            for client in self._hub.by_nick(nick_of(name)):
                is_own = client.account.caller.name == name
                if is_own and client not in reached and not has_mailbox(client):
                    reached.add(client)
                    message_for(self._hub, event, client, client.nick, writing).push(client)
        if not recipients or (isinstance(event.body, MessageSent) and event.body.scope != MENTIONS):
            return
        # The other connections of the sender see what it wrote, if they can tell it from a message to them.
        for client in self._hub.by_nick(nick_of(event.sender)):
            is_own = client.account.caller.name == event.sender
            if is_own and client not in reached and "echo-message" in client.caps:
                reached.add(client)
                message_for(self._hub, event, client, nick_of(min(recipients)), writing).push(client)

    def _show_notice(self, event: Event, notice: IrcNotice) -> None:
        rank = IRC_LEVELS.index(notice.level)
        text = ""
        for channel in self._notice_channels(notice):
            members = self._hub.members(channel)
            if not members:
                continue
            is_wanted = IRC_LEVELS.index(self._level_of(channel)) >= rank
            for client in members:
                if client.is_program:
                    self._show_event(event, notice, client, channel)
                elif is_wanted:
                    text = text or notice_line(notice.text)
                    target = client.joined.get(channel, channel)
                    tags = {"time": format_time(event.ts)}
                    line = Line(source=SERVER, command="NOTICE", params=(target, text), tags=tags)
                    client.push(fit_line(line))

    def _show_event(self, event: Event, notice: IrcNotice, client: Client, channel: str) -> None:
        """Show an event to a program: hellos and byes in `#general`, and events of a room in its channel."""
        is_life = isinstance(event.body, AgentHello | AgentBye) and channel == GENERAL
        if (is_life or notice.room) and client.account.caller.name != event.sender:
            message_for(self._hub, event, client, client.joined.get(channel, channel)).push(client)

    def _notice_channels(self, notice: IrcNotice) -> Iterator[str]:
        if notice.room:
            yield fold_channel(f"#{notice.room}")
            return
        yield GENERAL
        yield fold(channel_of_agent(notice.agent))
        for room in read_rooms_of(self._hub.services.queries.rows, notice.agent):
            yield fold_channel(f"#{room.id}")

    # Mail

    def deliver(self, event: Event, clients: Sequence[Client]) -> None:
        """Show a message of a mailbox to the clients of its account: in a channel, or to their nick."""
        channels = channels_showing(event, shown_conversations(event))
        for client in clients:
            name = client.account.caller.name
            # It may be subscribed to the channel that it has written in: it has its echo, if it wants one.
            if event.sender == name and name not in {token.removeprefix("@") for token in event.to}:
                continue
            where = [channel for channel in channels if channel in client.joined]
            targets = [client.joined[channel] for channel in where] or [client.nick]
            for target in targets[:1] if client.is_program else targets:
                message_for(self._hub, event, client, target).push(client)


def _is_own_without_echo(event: Event, client: Client) -> bool:
    """Return whether a program would get its own envelope, and has not asked for that."""
    is_own = client.account.caller.name == event.sender
    return client.is_program and is_own and "echo-message" not in client.caps


def has_mailbox(client: Client) -> bool:
    """Return whether the account of a client has mail to take: an agent, or a registered person."""
    return client.account.token is not None


def _recipients(event: Event) -> tuple[str, ...]:
    try:
        return deliverable(event).delivered_to
    except (ValueError, PalaverError):
        return ()


def _recipients_before(event: Event, target: str) -> str:
    """Return `→ nova: ` for the channel of an agent that wrote to other agents elsewhere, else nothing."""
    message = event.body
    is_own = fold(target) == fold(channel_of_agent(event.sender))
    if not is_own or not isinstance(message, MessageSent) or message.scope != MENTIONS or message.channel:
        return ""
    names = [name for name in message.delivered_to if name not in (HUMAN, event.sender)]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"→ {', '.join(map(nick_of, names[:3]))}{more}: "


class _IrcMailbox:
    """Passes on the mail of one account to its clients, and acknowledges what they have read.

    A PONG proves that the lines before its PING were read. Until then the messages stay claimed; if the last
    connection ends first, they are open again.
    """

    def __init__(self, shown: Shown, hub: Hub, name: str) -> None:
        self._shown = shown
        self._hub = hub
        self._name = name
        self._reader: MailboxReader = hub.services.delivery.take(name, window=_WINDOW, is_pushed=True)
        self._acking: set[asyncio.Task[None]] = set()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Pass on messages until the mailbox is closed. Never raises: the task belongs to the daemon."""
        try:
            await self._run()
        except Exception:
            _logger.exception("the mail of %s cannot be passed on", self._name)

    async def _run(self) -> None:
        while events := await self._reader.wait(_WINDOW):
            clients = [one for one in self._hub.by_nick(nick_of(self._name)) if not one.is_ended]
            for event in events:
                self._shown.deliver(event, clients)
            seqs = tuple(event.seq for event in events)
            # One PING after all messages. Any connection of the account may confirm them: it is one mailbox.
            for client in clients:
                # Bound as defaults, because the loop changes both names before the PONG comes.
                client.ping(lambda client=client, seqs=seqs: self._read(client, seqs))  # type: ignore[misc]

    def _read(self, client: Client, seqs: tuple[int, ...]) -> None:
        task = asyncio.get_running_loop().create_task(self._acknowledge(client, seqs))
        self._acking.add(task)
        task.add_done_callback(self._acking.discard)

    async def _acknowledge(self, client: Client, seqs: tuple[int, ...]) -> None:
        request = Acknowledge(messages=seqs, lane="irc", grade=Grade.ACKED)
        try:
            await self._hub.services.broker.submit(client.account.caller, request)
        except PalaverError as error:
            _logger.warning("mail of %s could not be acknowledged: %s", self._name, error)
        finally:
            self._reader.settled(seqs)  # also after a refusal: otherwise its window would stay full

    def close(self) -> None:
        """Stop. Messages that were not read are open again."""
        self._reader.close()
        if self.task is not None:
            self.task.cancel()


# --------------------
# CHATHISTORY: the stored messages of a channel or of a conversation, archived ones included.
#
# A reply reads as many messages as it returns, found by their conversation: the cost does not
# grow with the log. Only stored events are history.

COMMAND: Final = "CHATHISTORY"
_BATCH: Final = "chathistory"
_TARGETS: Final = "draft/chathistory-targets"
_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the texts in one reply; a client asks again for the rest."""
_LIMIT_PARTNERS: Final = 1000
"""Messages of a client that TARGETS looks through for conversations of two."""
_BY_MSGID: Final = "msgid="
_TIMESTAMP: Final = "timestamp="


class HistoryRefused(Exception):
    """A CHATHISTORY that cannot be answered, with the code of its FAIL and the words after it."""

    def __init__(self, code: str, *context: str, text: str) -> None:
        super().__init__(code, context, text)
        self.code = code
        self.context = context
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point in the history: messages before it have a lower seq than `before`, later ones than `after`."""

    before: int
    after: int


async def chathistory(hub: Hub, client: Client, params: Sequence[str]) -> None:
    """Answer a CHATHISTORY."""
    try:
        await _answer(hub, client, params)
    except HistoryRefused as refused:
        client.fail(COMMAND, refused.code, *refused.context, text=refused.text)


async def _answer(hub: Hub, client: Client, params: Sequence[str]) -> None:
    word = params[0].upper() if params else "*"
    if word not in _PARAMS:
        raise HistoryRefused("UNKNOWN_COMMAND", word, text=f"Use one of {', '.join(_PARAMS)}")
    if len(params) != _PARAMS[word]:
        raise HistoryRefused("INVALID_PARAMS", word, text=f"{word} needs {_PARAMS[word] - 1} parameters")
    limit = _limit(word, params[-1])
    if word == "TARGETS":
        await _send_targets(hub, client, params[1], params[2], limit)
        return
    target = params[1]
    conversations = conversations_for(hub, client, target)
    if not conversations:
        raise HistoryRefused(
            "INVALID_TARGET", word, target, text="Messages could not be retrieved: join the channel first"
        )
    queries = hub.services.queries
    points = [await _point(queries, word, ref) for ref in params[2:-1]]
    events = await _SELECT[word](queries, Query(shown=conversations, with_imported=True), points, limit)
    is_newest_first = word in ("LATEST", "BEFORE")
    _send(hub, client, target, _fitting(events, is_newest_first=is_newest_first))


_PARAMS: Final = {"LATEST": 4, "BEFORE": 4, "AFTER": 4, "AROUND": 4, "BETWEEN": 5, "TARGETS": 4}
"""The number of parameters of each subcommand, with its own name."""


def _limit(word: str, written: str) -> int:
    if not (written.isascii() and written.isdecimal() and len(written) < 10):
        raise HistoryRefused("INVALID_PARAMS", word, written, text="The limit must be a number")
    return min(int(written), LIMIT_HISTORY)


def conversations_for(hub: Hub, client: Client, target: str) -> tuple[str, ...]:
    """Return the conversations whose messages a target shows to a client; none for a wrong target."""
    if not target.startswith("#"):
        if not is_nick(target):
            return ()
        own = client.account.caller.name
        others = {_name(target), path_of_nick(target)}
        return tuple(sorted(conversation_of_pair(own, other) for other in others))
    if not is_channel(target) or fold(target) not in client.joined:
        return ()
    ref = hub.ref(target)
    match ref.kind:
        case "agent":
            return (conversation_of_agent(ref.name), conversation_of_channel(target))
        case "thread":
            return (conversation_of_thread(ref.name), conversation_of_channel(target))
        case _:
            return (conversation_of_channel(target),)


def _name(nick: str) -> str:
    name = name_of(nick)
    return HUMAN if name.lower() == HUMAN else name


# --------------------
# Points and ranges.


async def _point(queries: Queries, word: str, ref: str) -> Point | None:
    """Return the point of a reference, or None for `*`."""
    if ref == "*" and word == "LATEST":
        return None
    if ref.startswith(_TIMESTAMP):
        try:
            ts = parse_time(ref.removeprefix(_TIMESTAMP))
        except ValueError as error:
            raise HistoryRefused("INVALID_PARAMS", word, ref, text=str(error)) from None
        # Several messages can have this time: `before` and `after` are around all of them.
        return Point(before=await queries.seq_at(ts), after=await queries.seq_at(ts + 1) - 1)
    if not ref.startswith(_BY_MSGID):
        raise HistoryRefused(
            "INVALID_MSGREFTYPE", word, ref, text="Refer to a message with msgid= or timestamp="
        )
    id = ref.removeprefix(_BY_MSGID)
    for event in queries.with_id(id):
        if event.id == id and shown_conversations(event):
            return Point(before=event.seq, after=event.seq)
    raise HistoryRefused("MESSAGE_ERROR", word, ref, text="There is no message with this id")


async def _latest(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    (point,) = points
    return await queries.shown(replace(query, after=0 if point is None else point.after, last=limit))


async def _before(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    (point,) = _all(points)
    return await queries.shown(replace(query, before=point.before, last=limit))


async def _after(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    (point,) = _all(points)
    return await queries.shown(replace(query, after=point.after, limit=limit))


async def _around(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    """Return messages before and after a point; the message there is one of them."""
    (point,) = _all(points)
    earlier = await _before(queries, query, points, limit // 2)
    later = await queries.shown(replace(query, after=point.before - 1, limit=limit - len(earlier)))
    return [*earlier, *later]


async def _between(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    """Return messages between two points, beginning at the first one."""
    first, second = _all(points)
    if first.before <= second.before:
        return await queries.shown(replace(query, after=first.after, before=second.before, limit=limit))
    return await queries.shown(replace(query, after=second.after, before=first.before, last=limit))


def _all(points: Sequence[Point | None]) -> list[Point]:
    return [point for point in points if point is not None]


_SELECT: Final = {
    "LATEST": _latest,
    "BEFORE": _before,
    "AFTER": _after,
    "AROUND": _around,
    "BETWEEN": _between,
}


def _fitting(events: Sequence[Event], *, is_newest_first: bool) -> list[Event]:
    """Return as many messages as one reply may have, from the end that was asked for, and at least one."""
    kept: list[Event] = []
    size_bytes = 0
    for event in reversed(events) if is_newest_first else events:
        text = event.body.text if isinstance(event.body, MessageSent) else ""
        size_bytes += len(text.encode()) if text else len(event.to_json())
        if kept and size_bytes > _LIMIT_BYTES:
            break
        kept.append(event)
    return kept[::-1] if is_newest_first else kept


# --------------------
# Replies.


def _send(hub: Hub, client: Client, target: str, events: Sequence[Event]) -> None:
    """Send messages in the order of the log, as one batch."""
    own = client.account.caller.name
    nick = target if (user := hub.user(target)) is None else user.nick
    lines: list[Line] = []
    for number, event in enumerate(events):
        to = target if target.startswith("#") else nick if event.sender == own else client.nick
        message = message_for(hub, event, client, to)
        if not message.is_batch:
            lines += message.lines
            continue
        # A batch inside the batch: only its first and its last line belong to the outer one.
        # It begins with `h`, because the ids of the outer batches begin with `b`.
        id = f"h{number}"
        tags, inside = message.tags or {}, {"batch": id}
        begin = Line(source=message.source, command="BATCH", params=(f"+{id}", MULTILINE, to), tags=tags)
        lines.append(begin)
        lines += [
            Line(source=line.source, command=line.command, params=line.params, tags={**line.tags, **inside})
            for line in message.lines
        ]
        lines.append(Line(source=message.source, command="BATCH", params=(f"-{id}",)))
    client.send_batch(_BATCH, (target,), lines)


async def _send_targets(hub: Hub, client: Client, first: str, second: str, limit: int) -> None:
    """Send the channels of a client and its conversations of two with messages between two times."""
    queries = hub.services.queries
    points = [await _time_point(queries, ref) for ref in (first, second)]
    is_newest_first = points[0].before > points[1].before
    low, high = sorted(points, key=_before_of)
    newest = Query(with_imported=True, last=1)
    found: dict[str, Event] = {}
    for channel in client.joined.values():
        for event in await queries.shown(replace(newest, shown=conversations_for(hub, client, channel))):
            found[channel] = event
    own = client.account.caller.name
    mine = replace(newest, shown=(conversation_of_agent(own),), last=_LIMIT_PARTNERS)
    for event in await queries.shown(mine):
        found |= dict.fromkeys(_partners(event, own), event)
    # Only the newest message of a target counts.
    inside = [(name, event) for name, event in found.items() if low.after < event.seq < high.before]
    inside.sort(key=_seq_of)
    chosen = inside[max(0, len(inside) - limit) :] if is_newest_first else inside[:limit]
    lines = [
        Line(source=SERVER, command=COMMAND, params=("TARGETS", target, format_time(event.ts)))
        for target, event in chosen
    ]
    client.send_batch(_TARGETS, (), lines)


async def _time_point(queries: Queries, ref: str) -> Point:
    if not ref.startswith(_TIMESTAMP):
        raise HistoryRefused("INVALID_PARAMS", "TARGETS", ref, text="TARGETS needs two times: timestamp=…")
    point = await _point(queries, "TARGETS", ref)
    assert point is not None  # it is not `*`
    return point


def _before_of(point: Point) -> int:
    return point.before


def _seq_of(found: tuple[str, Event]) -> int:
    return found[1].seq


def _partners(event: Event, own: str) -> list[str]:
    """Return the nicks of the other parties of a direct message."""
    conversations = shown_conversations(event)
    names = event.delivered_to
    if isinstance(event.body, MessageSent):
        names = event.body.delivered_to
    guests = tuple(token for token in event.to if is_guest(token))
    parties = {split_mailbox(name)[0] for name in (event.sender, *names, *guests)}
    return [
        nick_of(name)
        for name in sorted(parties)
        if name != own and conversation_of_pair(own, name) in conversations
    ]
