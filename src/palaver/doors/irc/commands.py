"""The commands of IRC: registration, capabilities and SASL, and those that read or change who is where.

Commands that carry messages or read the history are in `speaking.py` and `showing.py`; they are handed in.
Modes can only be read: the bus defines them. A client that may write in a channel can set its topic.
"""

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final, Protocol

from palaver.broker.context import Written
from palaver.domain.rights import require
from palaver.doors.irc.channels import Hub, IrcUser
from palaver.doors.irc.connection import Client
from palaver.doors.irc.irc_wire import (
    BEFORE_REGISTRATION,
    CAP_VALUES_VERSION,
    CAPABILITIES,
    GENERAL,
    LIMIT_MONITOR,
    LIMIT_MULTILINE_BYTES,
    LIMIT_MULTILINE_LINES,
    LIMIT_SASL_CHUNK_BYTES,
    LIMIT_TARGETS,
    NETWORK,
    SERVER,
    BadIrcLine,
    Line,
    TooLong,
    capability_words,
    clean_text,
    clean_topic,
    client_tags,
    cut_text,
    fit_line,
    fold,
    has_room_for_tags,
    is_channel,
    is_nick,
    isupport_lines,
    name_of,
    nick_of,
    pack_words,
    parse_line,
    room_for_text,
)
from palaver.errors import NotAllowed, PalaverError, RoomClosed, UnknownMember, WhoAreYou
from palaver.identity.accounts import HOW_TO_LOG_IN, Account
from palaver.protocol.agents import Standing
from palaver.protocol.display import safe
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import SetTopic
from palaver.state.agents import read_agent

_logger: Final = logging.getLogger("palaver.doors")

_CHANNELS_AT_ONCE: Final = 50
"""Channels of a LIST that are looked at before other clients have their turn."""
_LIMIT_REALNAME_BYTES: Final = 150
_LIMIT_USER: Final = 20
_LIMIT_AWAY_BYTES: Final = 300
_LIMIT_REASON_BYTES: Final = 300
_LIMIT_REPLY_BYTES: Final = 350
"""Words in one line of a reply with many words. After two nicks of 70 bytes the line still has 512 bytes."""
_VERSION: Final = re.compile("[0-9]{1,3}", re.ASCII)
"""The version of CAP, and the token of WHOX."""
_NOT_IN_USER: Final = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)


class SayText(Protocol):
    """Sends a text of a client to a channel or nick, or refuses it with a reply to the client."""

    def __call__(
        self, hub: Hub, client: Client, target: str, text: str, *, tags: Mapping[str, str]
    ) -> Awaitable[None] | None: ...


class SayMany(Protocol):
    """Sends a text of several lines, in pieces as they came. The command is PRIVMSG or NOTICE."""

    def __call__(
        self,
        hub: Hub,
        client: Client,
        target: str,
        pieces: Sequence[tuple[str, bool]],
        *,
        tags: Mapping[str, str],
        command: str = "PRIVMSG",
    ) -> Awaitable[None]: ...


class SayTags(Protocol):
    """Sends only tags."""

    def __call__(self, hub: Hub, client: Client, target: str, *, tags: Mapping[str, str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """The commands that carry messages, and the one that reads the history."""

    speak: SayText
    notice: SayText
    tagmsg: SayTags
    multiline: SayMany
    chathistory: Callable[[Hub, Client, Sequence[str]], Awaitable[None]]


# --------------------
# A text in several lines, as it arrives.


@dataclass(slots=True)
class _Multiline:
    """An open batch of a client. After a mistake its other lines are ignored."""

    id: str
    target: str
    label: str
    tags: Mapping[str, str]
    command: str = ""
    pieces: list[tuple[str, bool]] = field(default_factory=list)
    size_bytes: int = 0
    is_refused: bool = False
    lines: int = 0
    """Lines so far, also of a refused batch."""

    def is_free(self) -> bool:
        """Count a line; return whether it needs no wait. A batch counts as one line, unless it never ends."""
        self.lines += 1
        return self.lines <= 2 * LIMIT_MULTILINE_LINES


# --------------------
# One client, from its first line to its last.

_Handler = Callable[["IrcSession", Line], "Awaitable[None] | None"]


@dataclass(frozen=True, slots=True)
class _Command:
    handle: _Handler
    least: int = 0
    """The number of parameters that it needs; fewer get 461."""


class IrcSession:
    """Handles the lines of one client, one after the other."""

    def __init__(self, hub: Hub, client: Client, talk: Talk) -> None:
        self.hub = hub
        self.client = client
        self._talk = talk
        self._accounts = hub.services.callers.accounts
        self._nick = ""
        self._is_negotiating = False
        self._cap_version = 0
        self._password: str | None = None
        self._sasl: list[str] | None = None
        self._wrong_logins = 0
        self._is_present = False
        self._multiline: _Multiline | None = None

    async def handle(self, piece: bytes | TooLong) -> None:
        """Handle one line. Never raises: every problem is a reply."""
        client = self.client
        problem: BadIrcLine | TooLong | None = None
        line = Line(command="*")
        if isinstance(piece, TooLong):
            problem, line = piece, Line(command="*", tags=piece.tags)
        else:
            try:
                line = parse_line(piece)
            except BadIrcLine as error:
                if (
                    error.line is None
                ):  # it counts all the same, or lines without a command could block others
                    await client.slow_down()
                    return
                problem, line = error, error.line
        batch = self._multiline
        if batch is None or line.tags.get("batch") != batch.id or not batch.is_free():
            await client.slow_down()
        # It may have ended during the wait.
        if client.is_ended:
            return
        label = line.tags.get("label", "")
        # The label is on the first line of the batch, and the reply to the last line must have it.
        if batch is not None and line.command == "BATCH" and line.params[:1] == (f"-{batch.id}",):
            label = batch.label
        with client.answering(label):
            if problem is not None:
                self._refuse_line(problem, line)
            else:
                await self._run(line)

    def ended(self, reason: str) -> None:
        """Remove the client from all lists; called once, when its connection ends."""
        self.hub.quit(self.client, reason)
        if self._is_present:
            self._is_present = False
            self._accounts.disconnected(self.client.account)

    def _refuse_line(self, problem: BadIrcLine | TooLong, line: Line) -> None:
        self._refuse_multiline(line)
        if isinstance(problem, TooLong):
            self.client.numeric("417")
        elif problem.fault == "invalid_utf8":
            self.client.fail(
                safe(line.command), "INVALID_UTF8", text="The line is not valid UTF-8; nothing was done"
            )
        else:
            text = "The line has a NUL byte; nothing was done"
            self.client.fail(safe(line.command), "BAD_CHARACTER", text=text)

    def _refuse_multiline(self, line: Line) -> None:
        """Refuse a whole batch if one of its lines is refused: it would not be the same text."""
        batch = self._multiline
        if batch is not None and line.tags.get("batch") == batch.id:
            batch.is_refused = True

    async def _run(self, line: Line) -> None:
        client = self.client
        if (batch := self._multiline) is not None and line.tags.get("batch") == batch.id:
            self._add_to_multiline(batch, line)
            return
        # A line of a batch that was refused or has ended is only a part of a text, so it is not sent alone.
        if "batch" in line.tags and "draft/multiline" in client.caps:
            client.fail(
                "BATCH", "MULTILINE_INVALID", text="No batch with this name is open; nothing was sent"
            )
            return
        found = _COMMANDS.get(line.command)
        if not client.has_welcome and line.command not in BEFORE_REGISTRATION:
            client.numeric("451")
            return
        if found is None:
            client.numeric("421", safe(line.command))
            return
        # Clients send these by themselves, so they do not end the idle time that others see.
        if line.command not in ("PING", "PONG"):
            client.heard_ms = client.clock.now_ms()
        if len(line.params) < found.least:
            client.numeric("461", line.command)
            return
        try:
            waiting = found.handle(self, line)
            if waiting is not None:
                await waiting
        except PalaverError as error:
            client.fail(line.command, error.code.upper(), text=safe(str(error)))
        except Exception:
            _logger.exception("the IRC command %s failed", line.command)
            client.fail(line.command, "INTERNAL_ERROR", text="An internal error in the daemon; see its log")

    # Registration

    def password(self, line: Line) -> None:
        if self.client.has_welcome:
            self.client.numeric("462")
        else:
            self._password = line.params[0]

    async def nick(self, line: Line) -> None:
        client = self.client
        wanted = line.params[0] if line.params else ""
        if not wanted:
            client.numeric("431")
        elif not is_nick(wanted):
            client.numeric("432", safe(wanted))
        elif client.has_welcome:
            self._change_nick(wanted)
        else:
            self._nick = wanted
            await self._register()

    def _change_nick(self, wanted: str) -> None:
        client = self.client
        if client.nick == wanted:
            return
        if not client.account.is_guest:
            if self._is_name_of_other(wanted):
                client.numeric("433", wanted)
            elif fold(wanted) != fold(client.nick):
                text = f"Your nick is the name of your account, {client.nick}, and cannot be changed"
                client.fail("NICK", "NOT_YOU", wanted, text=text)
            return
        user = self.hub.user(wanted)
        is_taken = user is not None and fold(wanted) != fold(client.nick)
        if is_taken or self._accounts.owns(wanted):
            client.numeric("433", wanted)
            return
        # The name of a guest's caller contains its nick, so both change without an await in between.
        client.set_account(self._accounts.guest(wanted, is_local=client.is_local))
        self.hub.rename(client, wanted)

    def _is_name_of_other(self, nick: str) -> bool:
        """Whether a nick is that of another agent or person."""
        is_known = (
            fold(nick) == HUMAN or read_agent(self.hub.services.queries.rows, name_of(nick)) is not None
        )
        return is_known and fold(nick) != fold(nick_of(self.client.account.name))

    async def user(self, line: Line) -> None:
        client = self.client
        if client.has_welcome or client.user:
            client.numeric("462")
            return
        if not line.params[3]:
            client.numeric("461", line.command)
            return
        client.user = _NOT_IN_USER.sub("", line.params[0])[:_LIMIT_USER] or "user"
        client.realname = _shown(line.params[3], _LIMIT_REALNAME_BYTES)
        await self._register()

    async def _register(self) -> None:
        """Log the client in and greet it, once it has sent everything."""
        client = self.client
        if client.has_welcome or self._is_negotiating or not self._nick or not client.user:
            return
        try:
            account = self._log_in()
            if account is None:
                return
            require(account.caller, Standing.OBSERVER, "IRC")
            # For a guest this does not suspend: another client could otherwise take the nick, which `_log_in`
            # has found free, before `hub.add`.
            await self._accounts.connected(account)
        except (WhoAreYou, NotAllowed) as error:
            client.numeric("464", text=str(error))
            client.end(str(error))
            return
        except PalaverError as error:
            client.end(str(error))
            return
        client.set_account(account)
        self._is_present = True
        if client.is_ended:  # in the meantime: `ended` has run already, but not for this presence
            self.ended("")
            return
        wanted = self._nick
        client.nick = wanted if account.is_guest else nick_of(account.name)
        if not account.is_guest:
            client.user = client.nick
        client.has_welcome = True
        self.hub.add(client, self._greet)
        if fold(wanted) != fold(client.nick):
            client.tell(f"Your nick is {client.nick}, the name of your account.")

    def _log_in(self) -> Account | None:
        """Return the account; None if the client must choose another nick. Raises WhoAreYou."""
        client = self.client
        account = client.account if client.has_account else None
        if account is None and self._password is not None:
            # From the right: a name can have a colon before its device, and no password has one.
            name, _, secret = self._password.rpartition(":")
            account = self._accounts.log_in(name or name_of(self._nick), secret)
        if account is not None:
            # Also if the nick is refused: a code is valid once, so the next NICK could not log in with it.
            client.set_account(account)
            return None if self._is_refused_nick(self._is_name_of_other(self._nick)) else account
        is_open = client.is_local and self.hub.services.daemon.settings.now.irc_guests != "off"
        is_taken = self.hub.user(self._nick) is not None or self._accounts.owns(self._nick)
        # Only where guests are allowed. Elsewhere another nick does not help, and the error must say so.
        if is_open and self._is_refused_nick(is_taken):
            return None
        return self._accounts.guest(self._nick, is_local=client.is_local)

    def _is_refused_nick(self, is_taken: bool) -> bool:
        if is_taken:
            self.client.numeric("433", self._nick)
            self._nick = ""
        return is_taken

    def _greet(self) -> None:
        client, daemon = self.client, self.hub.services.daemon
        started = datetime.fromtimestamp(daemon.started_ms / 1000, UTC)
        client.numeric("001", text=f"Welcome to Palaver, {client.nick}")
        client.numeric("002", text=f"Your host is {SERVER}, running version palaver-{daemon.version}")
        client.numeric("003", text=f"This server was started {started:%Y-%m-%d %H:%M} UTC")
        client.numeric("004", SERVER, f"palaver-{daemon.version}", "i", "n")
        for line in isupport_lines(client.nick):
            client.send(line)
        self.lusers(Line(command="LUSERS"))
        self.motd(Line(command="MOTD"))

    # Capabilities

    async def cap(self, line: Line) -> None:
        command, words = line.params[0].upper(), " ".join(line.params[1:]).split()
        client = self.client
        match command:
            case "LS":
                self._list_caps(words)
            case "LIST":
                self._reply_caps("LIST", sorted(client.caps))
            case "REQ":
                self._request_caps(words)
            case "END":
                if self._sasl is not None:
                    self._sasl = None
                    client.numeric("906")
                if self._is_negotiating:
                    self._is_negotiating = False
                    await self._register()
            case _:
                client.numeric("410", safe(line.params[0]) or "*")

    def _list_caps(self, words: Sequence[str]) -> None:
        client = self.client
        # By the specification of CAP, the registration now waits for CAP END.
        self._is_negotiating = not client.has_welcome
        version = int(words[0]) if words and _VERSION.fullmatch(words[0]) else 0
        self._cap_version = max(self._cap_version, version)
        if self._cap_version >= CAP_VALUES_VERSION:
            client.caps |= {"cap-notify"}  # the specification includes it in this version
        self._reply_caps("LS", capability_words(version))

    def _request_caps(self, words: Sequence[str]) -> None:
        client = self.client
        self._is_negotiating = not client.has_welcome
        added = {word for word in words if not word.startswith("-")}
        removed = {word[1:] for word in words if word.startswith("-")}
        is_fixed = "cap-notify" in removed and self._cap_version >= CAP_VALUES_VERSION
        if is_fixed or not (added | removed) <= CAPABILITIES.keys():
            self._send_cap("NAK", cut_text(safe(" ".join(words)), _LIMIT_REPLY_BYTES))
        else:
            client.caps = (client.caps | added) - removed
            for text in pack_words(dict.fromkeys(words), _LIMIT_REPLY_BYTES) or [""]:
                self._send_cap("ACK", text)

    def _reply_caps(self, command: str, words: Sequence[str]) -> None:
        """Send capabilities; only from version 302 on in several lines."""
        lines = pack_words(words, _LIMIT_REPLY_BYTES) or [""]
        for text in lines[:-1]:
            more = (command, "*") if self._cap_version >= CAP_VALUES_VERSION else (command,)
            self._send_cap(*more, text)
        self._send_cap(command, lines[-1])

    def _send_cap(self, *params: str) -> None:
        params = ("CAP", self.client.nick or "*", *params)
        self.client.send(Line(source=SERVER, command=params[0], params=params[1:]))

    # SASL

    def authenticate(self, line: Line) -> None:
        client, text = self.client, line.params[0]
        if client.has_welcome:
            client.numeric("462")
        elif client.has_account:
            client.numeric("907")
        elif "sasl" not in client.caps:
            client.numeric("904", text="SASL requires the capability sasl")
        elif text == "*":
            self._sasl = None
            client.numeric("906")
        elif self._sasl is None:
            self._begin_sasl(text.upper())
        elif len(text) > LIMIT_SASL_CHUNK_BYTES:
            self._sasl = None
            client.numeric("905")
        else:
            self._go_on_sasl(self._sasl, text)

    def _begin_sasl(self, mechanism: str) -> None:
        if mechanism == "PLAIN":
            self._sasl = []
            self.client.send(Line(command="AUTHENTICATE", params=("+",)))
        else:
            self.client.numeric("908", "PLAIN")
            self.client.numeric("904")

    def _go_on_sasl(self, chunks: list[str], text: str) -> None:
        client = self.client
        chunks.append("" if text == "+" else text)
        # A part of full size is never the last one: after it comes a shorter one, or `+`.
        if len(text) == LIMIT_SASL_CHUNK_BYTES and len(chunks) < _LIMIT_CHUNKS:
            return
        self._sasl = None
        if len(text) == LIMIT_SASL_CHUNK_BYTES:
            client.numeric("904", text="The name and the token are too long")
            return
        try:
            account = self._log_in_plain("".join(chunks))
        except PalaverError as error:
            client.numeric("904", text=str(error))
            self._wrong_logins += 1
            if self._wrong_logins >= client.limits.logins:
                client.end(str(error))
            return
        client.set_account(account)
        mask = f"{self._nick or '*'}!{client.user or '*'}@{NETWORK}"
        params = (self._nick or "*", mask, account.name, f"You are now logged in as {account.name}")
        client.send(Line(source=SERVER, command="900", params=params))
        client.numeric("903")

    def _log_in_plain(self, encoded: str) -> Account:
        """Return the account of a response `authzid NUL name NUL password`. Raises WhoAreYou."""
        try:
            written = base64.b64decode(encoded, validate=True).decode()
            authzid, name, secret = written.split("\0")
        except (binascii.Error, ValueError):
            raise WhoAreYou(f"the response is not SASL PLAIN: {HOW_TO_LOG_IN}") from None
        if authzid and fold(authzid) != fold(name):
            raise WhoAreYou("one account cannot act as another: leave the authorization name (authzid) empty")
        return self._accounts.log_in(name_of(name), secret)

    # Life of the connection

    def ping(self, line: Line) -> None:
        if not line.params or not line.params[0]:
            self.client.numeric("409")
        else:
            pong = Line(source=SERVER, command="PONG", params=(SERVER, line.params[0]))
            self.client.send(fit_line(pong))

    def pong(self, line: Line) -> None:
        if line.params:
            self.client.ponged(line.params[-1])

    def quit(self, line: Line) -> None:
        reason = _shown(line.params[0], _LIMIT_REASON_BYTES) if line.params else ""
        self.client.end(f"Quit: {reason}" if reason else "Quit")

    # Messages

    async def privmsg(self, line: Line) -> None:
        await self._say(line, self._talk.speak)

    async def notice(self, line: Line) -> None:
        await self._say(line, self._talk.notice)

    async def _say(self, line: Line, say: SayText) -> None:
        client = self.client
        target, text = (*line.params, "", "")[:2]
        if line.command == "NOTICE":
            # The broker, which checks this for messages, never sees a NOTICE.
            require(client.account.caller, Standing.GUEST, line.command)
        if target and text:
            for one in self._targets(line):
                waiting = say(self.hub, client, one, text, tags=self._tags(line))
                if waiting is not None:
                    await waiting
        elif line.command != "NOTICE":  # a NOTICE never has a reply
            client.numeric("412" if target else "411")

    def tagmsg(self, line: Line) -> None:
        if "message-tags" not in self.client.caps:
            self.client.numeric("421", line.command)
            return
        # The broker, which checks this for messages, never sees a TAGMSG.
        require(self.client.account.caller, Standing.GUEST, line.command)
        for target in self._targets(line):
            self._talk.tagmsg(self.hub, self.client, target, tags=self._tags(line))

    def _targets(self, line: Line) -> Sequence[str]:
        """Return the targets of a line, each once; none after a reply that there are too many."""
        targets = [one for one in dict.fromkeys(line.params[0].split(",")) if one]
        if len(targets) > LIMIT_TARGETS:
            self.client.numeric("407", safe(line.params[0]))
            return ()
        return targets

    def _tags(self, line: Line) -> dict[str, str]:
        """Return the tags that others get, with every control character visible."""
        tags = client_tags(line.tags) if "message-tags" in self.client.caps else {}
        shown = {name: safe(value, keep_lines=True) for name, value in tags.items()}
        # A visible control character is longer, and a line with too long tags could not be sent to others.
        return shown if has_room_for_tags(shown) else {}

    async def chathistory(self, line: Line) -> None:
        await self._talk.chathistory(self.hub, self.client, line.params)

    async def batch(self, line: Line) -> None:
        id = line.params[0]
        open_batch = self._multiline
        if id.startswith("+"):
            self._open_multiline(id[1:], line)
        elif open_batch is None or id != f"-{open_batch.id}":
            self.client.fail("BATCH", "UNKNOWN_BATCH", safe(id), text="No batch with this name is open")
        else:
            self._multiline = None
            await self._close_multiline(open_batch)

    def _open_multiline(self, id: str, line: Line) -> None:
        client = self.client
        kind, target = (*line.params[1:3], "", "")[:2]
        if kind != "draft/multiline" or "draft/multiline" not in client.caps:
            text = "The only batch that can be sent is draft/multiline, with that capability"
            client.fail("BATCH", "UNKNOWN_TYPE", safe(kind) or "*", text=text)
        elif self._multiline is not None:
            client.fail("BATCH", "MULTILINE_INVALID", text="Another batch is open: end it first")
        elif not id or not target or "," in target:
            client.fail("BATCH", "MULTILINE_INVALID", text="A batch needs a name and one target")
        else:
            self._multiline = _Multiline(id, target, line.tags.get("label", ""), self._tags(line))
            client.defer_label()

    def _add_to_multiline(self, batch: _Multiline, line: Line) -> None:
        """Add a line to the open batch. The first mistake is reported; the other lines are then ignored."""
        if batch.is_refused:
            return
        is_continued = "draft/multiline-concat" in line.tags
        target, text = (*line.params, "", "")[:2]
        # A line that does not continue the one before it also adds a line end to the text.
        batch.size_bytes += len(text.encode()) + (bool(batch.pieces) and not is_continued)
        if line.command not in ("PRIVMSG", "NOTICE") or line.command != (batch.command or line.command):
            self._fail_multiline(batch, "MULTILINE_INVALID", text="A batch has lines of one command, PRIVMSG")
        elif fold(target) != fold(batch.target):
            params = (safe(batch.target), safe(target) or "*")
            self._fail_multiline(batch, "MULTILINE_INVALID_TARGET", *params, text="A batch has one target")
        elif is_continued and (not text or not batch.pieces):
            self._fail_multiline(batch, "MULTILINE_INVALID", text="There is no line that this one continues")
        elif batch.size_bytes > LIMIT_MULTILINE_BYTES:
            limit = str(LIMIT_MULTILINE_BYTES)
            self._fail_multiline(
                batch, "MULTILINE_MAX_BYTES", limit, text=f"At most {limit} bytes are allowed"
            )
        elif len(batch.pieces) >= LIMIT_MULTILINE_LINES:
            limit = str(LIMIT_MULTILINE_LINES)
            self._fail_multiline(
                batch, "MULTILINE_MAX_LINES", limit, text=f"At most {limit} lines are allowed"
            )
        else:
            batch.command = line.command
            batch.pieces.append((text, is_continued))

    def _fail_multiline(self, batch: _Multiline, code: str, *context: str, text: str) -> None:
        batch.is_refused = True
        self.client.fail("BATCH", code, *context, text=f"{text}; nothing was sent")

    async def _close_multiline(self, batch: _Multiline) -> None:
        if batch.is_refused:
            return
        if not any(text for text, _ in batch.pieces):
            self.client.fail("BATCH", "MULTILINE_INVALID", text="The batch has no text; nothing was sent")
            return
        say = self._talk.multiline
        pieces, command = batch.pieces, batch.command
        if command == "NOTICE":
            require(self.client.account.caller, Standing.GUEST, command)
        await say(self.hub, self.client, batch.target, pieces, tags=batch.tags, command=command)

    # Channels

    def join(self, line: Line) -> None:
        client = self.client
        if line.params[0] == "0":
            # A copy, because `part` changes `joined`.
            for channel in list(client.joined.values()):
                self.hub.part(client, channel)
            return
        for channel in line.params[0].split(","):
            if not is_channel(channel):
                client.numeric("403", safe(channel) or "*")
            elif fold(channel) not in client.joined and len(client.joined) >= client.limits.channels:
                text = f"You are in {client.limits.channels} channels, which is the limit: leave one first"
                client.numeric("405", safe(channel), text=text)
            else:
                found = self.hub.room_channel(channel)
                if found != channel:
                    client.numeric("470", channel, found)
                self.hub.join(client, found)

    def part(self, line: Line) -> None:
        client = self.client
        reason = _shown(line.params[1], _LIMIT_REASON_BYTES) if len(line.params) > 1 else ""
        for channel in line.params[0].split(","):
            if fold(channel) in client.joined:
                self.hub.part(client, channel, reason)
            elif is_channel(channel) and self._exists(channel):
                client.numeric("442", channel)
            else:
                client.numeric("403", safe(channel) or "*")

    def _exists(self, channel: str) -> bool:
        """Whether a channel has a member, or shows something of the bus."""
        return bool(self.hub.nick_list(channel)) or self.hub.ref(channel).kind != "other"

    def names(self, line: Line) -> None:
        if not line.params:
            self.client.numeric("366", "*")
            return
        for channel in line.params[0].split(",")[:LIMIT_TARGETS]:
            if is_channel(channel):
                self.hub.send_names(self.client, channel)
            else:
                self.client.numeric("366", safe(channel) or "*")

    async def topic(self, line: Line) -> None:
        client, channel = self.client, line.params[0]
        if not is_channel(channel) or not self._exists(channel):
            client.numeric("403", safe(channel) or "*")
        elif len(line.params) > 1:
            if fold(channel) not in client.joined:
                client.numeric("442", channel)
            else:
                await self._set_topic(channel, clean_topic(line.params[1]))
        else:
            self._send_topic(channel)

    async def _set_topic(self, channel: str, text: str) -> None:
        """Store a topic. TOPIC is sent when it is stored; a client that changes nothing gets the topic."""
        client = self.client
        # Before `submit`, because the event is shown to all members before that returns.
        request = self.hub.setting_topic[client] = SetTopic(channel=channel, text=text)
        try:
            written = await self.hub.services.broker.submit(client.account.caller, request)
        except (NotAllowed, RoomClosed, UnknownMember) as error:
            client.numeric("482", channel, text=safe(str(error)))
            return
        finally:
            del self.hub.setting_topic[client]
        assert isinstance(written, Written)
        if written.event is None:
            self._send_topic(channel)

    def _send_topic(self, channel: str) -> None:
        if self.hub.topic(channel):
            self.hub.send_topic(self.client, channel)
        else:
            self.client.numeric("331", self.hub.written(channel))

    async def list(self, line: Line) -> None:
        client = self.client
        wanted = (
            {fold(word) for word in line.params[0].split(",")} if line.params and line.params[0] else None
        )
        client.numeric("321", "Channel")
        # `sorted` makes a copy: channels can come and go during the pauses.
        for number, channel in enumerate(sorted(self.hub.channels()), 1):
            if number % _CHANNELS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if wanted is None or any(fnmatchcase(fold(channel), _pattern(word)) for word in wanted):
                count = str(len(self.hub.nick_list(channel)))
                room_bytes = room_for_text(SERVER, "322", f"{client.nick} {channel} {count}")
                client.send_text("322", channel, count, text=cut_text(self.hub.topic(channel), room_bytes))
        client.numeric("323")

    def mode(self, line: Line) -> None:
        client, target, modes = self.client, line.params[0], line.params[1:]
        if not target.startswith("#"):
            self._user_mode(target, modes)
        elif not is_channel(target) or not self._exists(target):
            client.numeric("403", safe(target))
        elif not modes:
            channel = self.hub.written(target)
            client.send_text("324", channel, text="+n")
            client.numeric("329", channel, str(self.hub.services.daemon.started_ms // 1000))
        elif modes in (("b",), ("+b",)):  # a client that asks for the list of bans changes nothing
            client.numeric("368", self.hub.written(target))
        else:
            client.numeric("482", target, text="Modes are set by the bus and can only be read")

    def _user_mode(self, target: str, modes: Sequence[str]) -> None:
        client = self.client
        if fold(target) != fold(client.nick):
            code, word = ("502", ()) if self.hub.user(target) else ("401", (safe(target) or "*",))
            client.numeric(code, *word)
        elif not modes or modes[0] in ("+i", "i"):  # most clients ask for +i after they have connected
            client.send_text("221", text="+i")
        else:
            client.numeric("501")

    # Users

    def who(self, line: Line) -> None:
        client = self.client
        mask = line.params[0] if line.params else "*"
        wanted = line.params[1] if len(line.params) > 1 else ""
        for channel, user in self._found(mask, only_operators=wanted == "o"):
            if wanted.startswith("%"):
                self._send_whox(channel, user, wanted[1:])
            else:
                flags = ("G" if user.away else "H") + user.prefix
                params = (channel, user.user, NETWORK, SERVER, user.nick, flags)
                client.numeric("352", *params, text=f"0 {user.realname}")
        client.numeric("315", safe(mask) or "*")

    def _found(self, mask: str, *, only_operators: bool) -> Iterator[tuple[str, IrcUser]]:
        """Iterate over the users that a mask selects, each with a channel it is in."""
        if mask.startswith("#"):
            users = self.hub.nick_list(mask) if is_channel(mask) else []
            found = [(self.hub.written(mask), user) for user in users]
        elif (user := self.hub.user(mask)) is not None:
            found = [((self.hub.channels_of(user.nick) or ["*"])[0], user)]
        else:
            pattern = _pattern(fold("*" if mask in ("", "0") else mask))
            users = self.hub.users()
            found = [("*", user) for user in users if _is_matching(user, pattern)]
        return (one for one in found if not only_operators or one[1].prefix == "@")

    def _send_whox(self, channel: str, user: IrcUser, wanted: str) -> None:
        fields, _, token = wanted.partition(",")
        # In the order of the specification: the reply has its fields in this one, however they were
        # requested.
        values = {
            "t": token if _VERSION.fullmatch(token) else "0",
            "c": channel,
            "u": user.user,
            "i": "255.255.255.255",  # the address for a user whose own is not shown
            "h": NETWORK,
            "s": SERVER,
            "n": user.nick,
            "f": ("G" if user.away else "H") + user.prefix,
            "d": "0",
            "l": str(self._idle_s(user)),
            "a": user.account or "0",
            "o": "n/a",
            "r": user.realname,
        }
        params = [values[name] for name in values if name in fields]
        if params:
            self.client.send_text("354", *params[:-1], text=params[-1])

    def _idle_s(self, user: IrcUser) -> int:
        client = self.client
        heard_ms = max((one.heard_ms for one in self.hub.by_nick(user.nick)), default=user.since_ms)
        return max(client.clock.now_ms() - heard_ms, 0) // 1000

    def whois(self, line: Line) -> None:
        client = self.client
        written = line.params[-1].split(",")[0]  # `WHOIS SERVER NICK` is valid too
        nick = safe(written) or "*"
        user = self.hub.user(written)
        if user is None:
            client.numeric("401", nick)
            client.numeric("318", nick)
            return
        client.send_text("311", user.nick, user.user, NETWORK, "*", text=user.realname)
        channels = (user.prefix + channel for channel in self.hub.channels_of(user.nick))
        for words in pack_words(channels, _LIMIT_REPLY_BYTES):
            client.numeric("319", user.nick, text=words)
        client.numeric("312", user.nick, SERVER, text="Palaver, a message bus for coding agents")
        if user.away:
            client.numeric("301", user.nick, text=user.away)
        client.numeric("317", user.nick, str(self._idle_s(user)), str(user.since_ms // 1000))
        if user.account:
            client.numeric("330", user.nick, user.account)
        client.numeric("318", nick)

    def away(self, line: Line) -> None:
        text = _shown(line.params[0], _LIMIT_AWAY_BYTES) if line.params else ""
        self.hub.set_away(self.client, text)
        self.client.numeric("306" if text else "305")

    def setname(self, line: Line) -> None:
        # Not cut, although a control character becomes several visible ones: a name that is too long is
        # refused instead.
        realname = _shown(line.params[0], len(line.params[0].encode()) * 8)
        if not realname or len(realname.encode()) > _LIMIT_REALNAME_BYTES:
            text = f"A real name has 1 to {_LIMIT_REALNAME_BYTES} bytes"
            self.client.fail("SETNAME", "INVALID_REALNAME", text=text)
        else:
            self.hub.set_name(self.client, realname)

    def monitor(self, line: Line) -> None:
        command = line.params[0].upper()
        words = line.params[1].split(",") if len(line.params) > 1 else []
        match command:
            case "+" if words:
                self._monitor_more(words)
            case "-" if words:
                for nick in words:
                    self.client.monitored.pop(fold(nick), None)
            case "C":
                self.client.monitored.clear()
            case "L":
                self._send_words("732", self.client.monitored.values(), ",")
                self.client.numeric("733")
            case "S":
                self._send_online(list(self.client.monitored.values()))
            case _:
                self.client.numeric("461", line.command)

    def _monitor_more(self, words: Sequence[str]) -> None:
        client = self.client
        added = []
        for at, nick in enumerate(words):
            if not is_nick(nick) or fold(nick) in client.monitored:
                continue
            if len(client.monitored) >= LIMIT_MONITOR:
                client.numeric("734", str(LIMIT_MONITOR), safe(",".join(words[at:])))
                break
            client.monitored[fold(nick)] = nick
            added.append(nick)
        self._send_online(added)

    def _send_online(self, nicks: Sequence[str]) -> None:
        users = {nick: self.hub.user(nick) for nick in nicks}
        self._send_words("730", (user.source for user in users.values() if user is not None), ",")
        self._send_words("731", (nick for nick, user in users.items() if user is None), ",")

    def _send_words(self, code: str, words: Iterable[str], separator: str) -> None:
        for text in pack_words(words, _LIMIT_REPLY_BYTES, separator):
            self.client.numeric(code, text=text)

    def userhost(self, line: Line) -> None:
        users = [user for nick in line.params[:5] if (user := self.hub.user(nick)) is not None]
        shown = (f"{one.nick}={'-' if one.away else '+'}{one.user}@{NETWORK}" for one in users)
        self.client.send_text("302", text=" ".join(shown))

    def ison(self, line: Line) -> None:
        users = (self.hub.user(nick) for nick in " ".join(line.params).split())
        nicks = [user.nick for user in users if user is not None]
        self.client.send_text("303", text=" ".join(nicks))

    # The server

    def lusers(self, line: Line) -> None:
        client, hub = self.client, self.hub
        users = hub.users()
        operators = sum(1 for user in users if user.prefix == "@")
        connected = sum(1 for _ in hub.clients)
        client.numeric("251", text=f"There are {len(users)} users and 0 invisible on 1 servers")
        client.numeric("252", str(operators))
        client.numeric("253", str(hub.unregistered()))
        client.numeric("254", str(len(hub.channels())))
        client.numeric("255", text=f"I have {connected} clients and 0 servers")

    def motd(self, line: Line) -> None:
        self.client.numeric("375")
        for text in _MOTD:
            self.client.numeric("372", text=f"- {text}")
        self.client.numeric("376")

    def version(self, line: Line) -> None:
        version = self.hub.services.daemon.version
        self.client.numeric("351", f"palaver-{version}", SERVER, text="a message bus for coding agents")
        for one in isupport_lines(self.client.nick):
            self.client.send(one)

    def time(self, line: Line) -> None:
        now = datetime.fromtimestamp(self.client.clock.now_ms() / 1000, UTC)
        self.client.numeric("391", SERVER, text=f"{now:%Y-%m-%d %H:%M:%S} UTC")

    def info(self, line: Line) -> None:
        self.client.numeric("371", text=f"Palaver {self.hub.services.daemon.version}")
        for text in _MOTD:
            self.client.numeric("371", text=text)
        self.client.numeric("374")

    def help(self, line: Line) -> None:
        subject = line.params[0].upper() if line.params else "INDEX"
        lines = _HELP.get(subject)
        shown = safe(subject)
        if lines is None:
            self.client.numeric("524", shown or "*", text="There is no help on this; HELP lists the commands")
            return
        self.client.numeric("704", shown, text=lines[0])
        for text in lines[1:]:
            self.client.numeric("705", shown, text=text)
        self.client.numeric("706", shown)


_LIMIT_CHUNKS: Final = 3
"""Parts of a SASL response: a name and a token have less than 1,200 characters."""

_MOTD: Final = (
    "This is Palaver, a message bus for coding agents and people.",
    f"{GENERAL} shows the broadcasts. LIST shows the other channels, one for each room and each agent.",
    "Write 'luna: hello' in a channel, or a private message to luna, to send the agent luna a message.",
    "HELP lists the commands.",
)

_HELP: Final[Mapping[str, Sequence[str]]] = {
    "INDEX": (
        "Help on: LOGIN, CHANNELS, MESSAGES, HISTORY. Commands:",
        "JOIN PART NAMES LIST TOPIC MODE PRIVMSG NOTICE TAGMSG CHATHISTORY",
        "WHO WHOIS AWAY SETNAME MONITOR USERHOST ISON NICK QUIT",
        "LUSERS MOTD VERSION TIME INFO HELP PING CAP AUTHENTICATE BATCH",
    ),
    "LOGIN": (
        "How to log in",
        "An agent uses SASL PLAIN with its name and its token, from 'pal agent register NAME'.",
        "A person uses SASL PLAIN with the account human and a code, from 'pal irc code'.",
        "A client that reconnects uses a name and a token, from 'pal agent register NAME --person'.",
        "A client without SASL sends PASS NAME:TOKEN.",
    ),
    "CHANNELS": (
        "Channels",
        f"{GENERAL} shows broadcasts. A line is sent to the agents that it names; @all is a broadcast.",
        "#ROOM shows a room. A line is a message in the room.",
        "#agent-NAME shows the messages from and to an agent. A line is sent to it.",
        "#thread-NAME shows a thread. Any other channel is a path that agents can subscribe to.",
    ),
    "MESSAGES": (
        "Messages",
        "'luna: text', 'luna, text' and @luna in a text name the agent luna.",
        "A private message to a nick goes to that agent or person alone.",
        "A NOTICE is shown to the people in the channel, and is not stored.",
    ),
    "HISTORY": (
        "Earlier messages",
        "CHATHISTORY LATEST #general * 50 returns the newest 50 messages.",
        "Join the channel first. LATEST luna * 50 is for direct messages with luna.",
    ),
}

_COMMANDS: Final[Mapping[str, _Command]] = {
    "PASS": _Command(IrcSession.password, 1),
    "NICK": _Command(IrcSession.nick),
    "USER": _Command(IrcSession.user, 4),
    "CAP": _Command(IrcSession.cap, 1),
    "AUTHENTICATE": _Command(IrcSession.authenticate, 1),
    "PING": _Command(IrcSession.ping),
    "PONG": _Command(IrcSession.pong),
    "QUIT": _Command(IrcSession.quit),
    "PRIVMSG": _Command(IrcSession.privmsg),
    "NOTICE": _Command(IrcSession.notice),
    "TAGMSG": _Command(IrcSession.tagmsg, 1),
    "CHATHISTORY": _Command(IrcSession.chathistory),
    "BATCH": _Command(IrcSession.batch, 1),
    "JOIN": _Command(IrcSession.join, 1),
    "PART": _Command(IrcSession.part, 1),
    "NAMES": _Command(IrcSession.names),
    "TOPIC": _Command(IrcSession.topic, 1),
    "LIST": _Command(IrcSession.list),
    "MODE": _Command(IrcSession.mode, 1),
    "WHO": _Command(IrcSession.who),
    "WHOIS": _Command(IrcSession.whois, 1),
    "AWAY": _Command(IrcSession.away),
    "SETNAME": _Command(IrcSession.setname, 1),
    "MONITOR": _Command(IrcSession.monitor, 1),
    "USERHOST": _Command(IrcSession.userhost, 1),
    "ISON": _Command(IrcSession.ison, 1),
    "LUSERS": _Command(IrcSession.lusers),
    "MOTD": _Command(IrcSession.motd),
    "VERSION": _Command(IrcSession.version),
    "TIME": _Command(IrcSession.time),
    "INFO": _Command(IrcSession.info),
    "HELP": _Command(IrcSession.help),
}
"""Every other command gets 421."""


def _shown(text: str, limit_bytes: int) -> str:
    """Return a text of a client as others see it: no formatting, every control character visible, cut."""
    return cut_text(safe(clean_text(text)), limit_bytes)


def _pattern(mask: str) -> str:
    """Return a mask of IRC, in which only `*` and `?` have a meaning, as a pattern of `fnmatch`."""
    return mask.replace("[", "[[]")


def _is_matching(user: IrcUser, pattern: str) -> bool:
    return fnmatchcase(fold(user.nick), pattern) or fnmatchcase(fold(user.source), pattern)
