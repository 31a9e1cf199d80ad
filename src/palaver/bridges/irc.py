"""The bridge to another IRC network: `pal bridge irc`. An ordinary client of the bus, in its own process.

It reads the log, and sends these messages to the network: broadcasts, and messages to
`irc/<network>/#channel` or `irc/<network>/<nick>`. A file in the home contains the seq up to which
everything was sent. The seq moves when the network has replied to a PING that was written after the line,
so a lost connection, a restart or the end of the process loses no message. Only the one line without that
reply can be sent twice.

It stores the lines of the network as messages of external senders. It sends on no line of any network, so
two bridges make no loop.
"""

import asyncio
import base64
import fcntl
import os
import re
import signal
import ssl
import stat
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.connection import Follower, Plain
from palaver.client.values import events_from_json, last_from_json
from palaver.clock import Clock, SystemClock
from palaver.doors.irc.irc_wire import (
    LIMIT_SASL_CHUNK_BYTES,
    BadIrcLine,
    IrcReader,
    Line,
    TooLong,
    clean_text,
    ctcp_of,
    fold,
    format_line,
    nick_of,
    nick_of_source,
    parse_line,
    room_for_text,
    split_text,
)
from palaver.errors import BadRequest, Disconnected, PalaverError, RequestError, Unavailable, WhoAreYou
from palaver.home import replace_file
from palaver.ids import UlidSource
from palaver.protocol.agents import INSTANCE
from palaver.protocol.display import safe
from palaver.protocol.envelope import Event
from palaver.protocol.events import BYE, MessageSent
from palaver.protocol.lines import BridgeOp, BridgeOrder, EventsOp, Op, RelayOp, error_object
from palaver.protocol.message import BROADCAST, MESSAGE, SYSTEM, readable_text
from palaver.protocol.paths import DEFAULT_COMMAND, IRC, external_sender, is_channel_name, split_irc_path
from palaver.protocol.text import counted

# --------------------
# Outgoing: an event of the log as lines for the network. Pure.

LIMIT_LINES: Final = 20
"""Lines of one message. The last line says how many more there are."""
_SOURCE: Final = "n" * 32 + "!" + "u" * 11 + "@" + "h" * 64
"""As long as a source on most networks. The server puts it before a line, which still has 512 bytes.

The real one is not used: the lines of a message must be the same after the next connect.
"""
_LINE_ENDS: Final = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SERVICES: Final = re.compile(r".*serv|global|operserv|authserv|[qxl]", re.IGNORECASE)
"""Nicks that run commands: a message of an agent must not reach them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutLine:
    """One line for a channel or a nick. `prefix` says who wrote it, if the connection does not."""

    target: str
    text: str
    prefix: str

    @property
    def relayed(self) -> str:
        """The line as the relay nick says it."""
        return self.prefix + self.text


def targets_of(event: Event, order: BridgeOrder, now_ms: int) -> list[str]:
    """Return the channels and nicks that an event is for, each once; empty for most events."""
    message = event.body
    # Lines of any network stay here: two bridges could pass them to each other without end.
    if not isinstance(message, MessageSent) or event.sender.startswith(f"{IRC}/"):
        return []
    is_hidden = message.sender_kind == SYSTEM or message.held or message.raw is not None or message.bare
    is_old = message.migrated is not None or 0 < message.expires <= now_ms
    if is_hidden or is_old:
        return []
    found = [target for token in event.to if (target := _target_of(token, order.network))]
    if order.has_broadcasts and message.scope == BROADCAST and message.room is None:
        found += map(fold, order.channels)
    return list(dict.fromkeys(found))


def _target_of(token: str, network: str) -> str:
    found = split_irc_path(token)
    return found[1] if found is not None and found[0] == network else ""


def lines_for(event: Event, target: str) -> list[OutLine]:
    """Return the lines of a message. None of them contains a control character, so none is a command."""
    # Room for the prefix is kept also where the sender has its own connection: which one speaks can change
    # in the middle of a message, and the stored position counts these lines.
    prefix = f"<{_one_line(event.sender)}> "
    text = _CONTROLS.sub("", clean_text(_LINE_ENDS.sub("\n", _text_of(event))).replace("\t", " "))
    room = room_for_text(_SOURCE, "PRIVMSG", target) - len(prefix.encode())
    lines = split_text(text, max(room, 64))
    if len(lines) > LIMIT_LINES:
        more = len(lines) - LIMIT_LINES + 1
        lines[LIMIT_LINES - 1 :] = [f"… ({more} more lines; here it is #{event.seq})"]
    return [OutLine(target=target, text=line, prefix=prefix) for line in lines]


def _text_of(event: Event) -> str:
    message = event.body
    if isinstance(message, MessageSent) and message.command == DEFAULT_COMMAND:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(message.payload, _TextPayload).text
    return readable_text(event)


class _TextPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a routed message that is only a text."""

    text: str


def _one_line(name: str) -> str:
    return _CONTROLS.sub("", _LINE_ENDS.sub(" ", name)).replace("<", "").replace(">", "")


def is_service(nick: str) -> bool:
    """Return whether a nick is one of the services of a network, which obey commands."""
    return _SERVICES.fullmatch(nick) is not None


# --------------------
# Incoming: a line of the network as a request to the bus. Pure.


def text_of_line(line: Line, nick: str) -> str:
    """Return what a nick wrote, for the bus; empty if it is not a message: CTCP, or nothing to see."""
    written = line.params[1]
    ctcp = ctcp_of(written)
    if ctcp is not None:
        if ctcp[0] != "ACTION":
            return ""
        written = f"* {nick} {ctcp[1]}"
    return _CONTROLS.sub("", _LINE_ENDS.sub(" ", clean_text(written))).strip()


# --------------------
# Pauses, and the flood limit of the network.


class ReconnectPause:
    """Pauses between attempts: 2 s, doubled up to 60 s, and 2 s again after a success."""

    FIRST_S: Final = 2.0
    LAST_S: Final = 60.0

    def __init__(self) -> None:
        self._next_s = self.FIRST_S

    def next_s(self) -> float:
        """Return the pause before the next attempt."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self.LAST_S)
        return pause_s

    def reset(self) -> None:
        """Begin again, after a success."""
        self._next_s = self.FIRST_S


class FloodLimit:
    """When the next line of a connection may be written: some at once, then a number each second."""

    BURST: Final = 5
    """As in RFC 1459: a line counts as 2 s, and a server reads on until a client is 10 s ahead."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._tokens = float(self.BURST)
        self._at_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """Count one line, and return how long to wait before it is written."""
        if self._at_s is not None:
            self._tokens = min(self._tokens + (now_s - self._at_s) * self._rate, self.BURST)
        self._at_s = now_s
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)


# --------------------
# The position in the log, in a file of the home. Written after each line that the network has.


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Everything up to `seq` was sent, and the first lines of the message `next_seq`."""

    seq: int
    next_seq: int = 0
    lines: int = 0

    def sent_of(self, seq: int) -> int:
        """Return how many lines of a message were sent before."""
        return self.lines if seq == self.next_seq else 0


class PositionFile:
    """The stored position of one bridge. Only the process that has the lock writes it."""

    def __init__(self, home: str, network: str) -> None:
        self._path = Path(home) / "bridges" / f"irc-{network}.json"

    @contextmanager
    def locked(self, network: str) -> Iterator[None]:
        """Hold the lock for the length of a block. Raises BadRequest if another process has it."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        # A separate file, because each write replaces that of the position: a lock would stay on the old one.
        file = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadRequest(
                    f"a bridge to {network} is running already: add a channel there with --channel, or use "
                    "--network NAME for another network"
                ) from None
            yield
        finally:
            os.close(file)

    def read(self) -> Position | None:
        """Return the stored position, or None. Raises BadRequest for an unreadable file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Position)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise BadRequest(
                f"{self._path} cannot be read ({error}); delete it to start at the newest event"
            ) from error

    def write(self, position: Position) -> None:
        """Store a position durably."""
        replace_file(self._path, msgspec.json.encode(position))


# --------------------
# The account of the bridge, for SASL PLAIN.


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAccount:
    """An account on the network. Its text form has no password."""

    account: str
    password: str = field(repr=False)

    def responses(self) -> list[str]:
        """Return the parameters of AUTHENTICATE: base64 in pieces; `+` ends a response of whole pieces."""
        plain = f"{self.account}\0{self.account}\0{self.password}"
        text = base64.b64encode(plain.encode()).decode()
        size = LIMIT_SASL_CHUNK_BYTES
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        return [*pieces, "+"] if len(text) % size == 0 else pieces


def read_sasl_file(path: str) -> SaslAccount:
    """Read `ACCOUNT:PASSWORD` from a file that only its owner can read. Raises BadRequest."""
    try:
        # Opening a named pipe would wait for its writer. The file is checked once it is open, so that no
        # other file can take its name in between.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise BadRequest(f"{path} must be your own file with the mode 0600: run 'chmod 600 {path}'")
            content = file.read(4096).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"the file of --sasl-file cannot be read: {error}") from error
    account, colon, password = content.strip("\r\n").partition(":")
    is_bad = any(char in content.strip("\r\n") for char in "\0\r\n")
    if not account or not colon or not password or is_bad:
        raise BadRequest(f"{path} must contain one line: ACCOUNT:PASSWORD")
    return SaslAccount(account=account, password=password)


# --------------------
# One connection to the network.

_CONNECT_S: Final = 20.0
_REGISTER_S: Final = 60.0
_PONG_S: Final = 60.0
"""Seconds for the reply to a PING. Servers delay clients that write fast."""
_SILENCE_S: Final = 120.0
_CLOSE_S: Final = 2.0
_LIMIT_UNREAD_BYTES: Final = 64 * 1024
_SHORT_NICK: Final = 9
"""Every network allows nicks of this length."""
_LIMIT_NICKS: Final = 10
_CANNOT_JOIN: Final = frozenset({"403", "405", "407", "437", "471", "473", "474", "475", "476", "477", "489"})
_NO_LOGIN: Final = frozenset({"902", "904", "905", "906", "908"})
_NO_SASL: Final = "the network does not offer SASL; leave out --sasl-file"
_NICK_REFUSED: Final = frozenset({"432", "433", "436", "437"})


class LinkLost(Exception):
    """A connection cannot be made, or has ended. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NickChoice:
    """The nick to try: the wanted one with underscores, cut so that it fits."""

    wanted: str
    underscores: int = 0
    limit: int = 64

    @property
    def nick(self) -> str:
        """The nick."""
        return self.wanted[: self.limit - self.underscores] + "_" * self.underscores

    def after(self, code: str) -> "NickChoice":
        """Return the next choice after a refusal. Raises LinkLost after the last one."""
        if code == "432" and self.limit > _SHORT_NICK:
            return NickChoice(wanted=self.wanted, underscores=self.underscores, limit=_SHORT_NICK)
        if self.underscores + 1 >= min(self.limit, _LIMIT_NICKS) or code == "432":
            raise LinkLost(f"the network accepts no nick like {self.wanted}")
        return NickChoice(wanted=self.wanted, underscores=self.underscores + 1, limit=self.limit)


Hear = Callable[["IrcLink", Line], None]
"""Receives each PRIVMSG. Must not wait."""


class IrcLink:
    """One registered connection in its channels. It is made once, and does not come back."""

    def __init__(
        self, order: BridgeOrder, nick: str, hear: Hear, *, sasl: SaslAccount | None = None, agent: str = ""
    ) -> None:
        """`agent` is the only agent that speaks here; empty for the relay nick."""
        self._order = order
        self.agent = agent
        self._choice = NickChoice(wanted=nick)
        self._sasl = sasl
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Why the connection has ended."""
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._refusal = ""
        self._target = ""
        self._pings = 0
        self._left = {fold(channel) for channel in order.channels}
        self._is_registered = False
        self._has_logged_in = sasl is None
        self._last_error = ""
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self.nick = nick
        self.was_removed = False
        """It was removed from a channel: come back later than after a lost connection."""
        self.flood = FloodLimit(order.rate)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self.lost.done()

    async def open(self) -> None:
        """Connect, register and join. Raises LinkLost or WhoAreYou."""
        order = self._order
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, self._writer = await asyncio.open_connection(
                    order.host,
                    order.port,
                    ssl=ssl.create_default_context() if order.has_tls else None,
                    server_hostname=order.host if order.has_tls else None,
                )
        except TimeoutError:
            raise LinkLost(f"no connection within {_CONNECT_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise LinkLost(f"the certificate of {order.host} is not valid: {error.verify_message}") from error
        except (OSError, UnicodeError) as error:
            raise LinkLost(f"cannot connect: {error}") from error
        self._reading = self._loop.create_task(self._read(reader))
        # First: it keeps the server from finishing the login before CAP END, which follows SASL.
        if self._sasl is not None:
            self._write("CAP", "REQ", "sasl")
        self._write("NICK", self._choice.nick)
        self._write("USER", "palaver", "0", "*", "Palaver bridge")
        try:
            async with asyncio.timeout(_REGISTER_S):
                # Shielded here and in `say`: the timeout would cancel the future itself, and waiting for that
                # again would cancel this task, which the task group takes for a normal end.
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._lose(f"the server did not finish the login within {_REGISTER_S:g} s")
            # It raises the LinkLost that `_lose` has set.
            await self._ready

    async def say(self, target: str, text: str) -> str:
        """Write a line, and wait until the server has processed it. Return why it refused it, or nothing.

        Raises LinkLost if that is unknown.
        """
        self._target, self._refusal = fold(target), ""
        self._write("PRIVMSG", target, text)
        self._pings += 1
        token = f"pal-{self._pings}"
        replied: asyncio.Future[str] = self._loop.create_future()
        self._waiting[token] = replied
        self._write("PING", token)
        try:
            async with asyncio.timeout(_PONG_S):
                return await asyncio.shield(replied)
        except TimeoutError:
            self._lose(f"no reply within {_PONG_S:g} s")
            return await replied
        finally:
            self._target = ""
            self._waiting.pop(token, None)

    def notice(self, target: str, text: str) -> None:
        """Write a NOTICE, without waiting. Its loss does not matter."""
        with suppress(LinkLost):
            self._write("NOTICE", target, text)

    async def close(self, reason: str = "") -> None:
        """Leave the network and close the connection."""
        if self._writer is None:
            return
        if reason and not self.is_lost:
            with suppress(LinkLost):
                self._write("QUIT", reason)
            self._writer.close()
            with suppress(OSError, TimeoutError, ssl.SSLError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._writer.wait_closed()
        self._lose("closed")
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    # Reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        lines = IrcReader()
        is_asked = False
        try:
            while True:
                try:
                    async with asyncio.timeout(_SILENCE_S):
                        data = await reader.read(65536)
                except TimeoutError:
                    if is_asked:
                        raise LinkLost(f"nothing was received for {2 * _SILENCE_S:g} s") from None
                    is_asked = True
                    self._write("PING", "pal")
                    continue
                is_asked = False
                if not data:
                    raise LinkLost(self._last_error or "the server closed the connection")
                for one in lines.feed(data):
                    self._take_bytes(one)
        except LinkLost as lost:
            self._lose(str(lost))
        except WhoAreYou as refusal:
            if not self._ready.done():
                self._ready.set_exception(refusal)
            self._lose(str(refusal))
        except (OSError, ssl.SSLError) as error:
            self._lose(f"the connection was lost: {error}")

    def _take_bytes(self, one: bytes | TooLong) -> None:
        if isinstance(one, TooLong):
            return
        try:
            line: Line | None = parse_line(one)
        except BadIrcLine as bad:
            line = bad.line if bad.fault == "invalid_utf8" else None  # Older networks have other charsets.
        if line is not None:
            self._take(line)

    def _take(self, line: Line) -> None:
        params = line.params
        match line.command:
            case "PING":
                self._write("PONG", *params[-1:])
            case "PONG":
                replied = self._waiting.get(params[-1] if params else "")
                if replied is not None and not replied.done():
                    replied.set_result(self._refusal)
            case "PRIVMSG" if len(params) >= 2:
                if self._ready.done():
                    self._hear(self, line)
            case "ERROR":
                self._last_error = f"the server said: {params[-1] if params else ''}"
            case "NICK" if params and fold(nick_of_source(line.source)) == fold(self.nick):
                self.nick = params[0]
            case "KICK" | "PART":
                self._on_removal(line)
            case "CAP" | "AUTHENTICATE":
                self._log_in(line)
            case code if len(code) == 3 and code.isdecimal():
                self._take_numeric(code, params)
            case _:
                pass

    def _on_removal(self, line: Line) -> None:
        who = line.params[1:2] if line.command == "KICK" else (nick_of_source(line.source),)
        is_own = bool(who) and fold(who[0]) == fold(self.nick)
        if is_own and line.params and fold(line.params[0]) in map(fold, self._order.channels):
            self.was_removed = True
            reason = line.params[-1]
            raise LinkLost(f"the bridge was removed from {line.params[0]}: {reason}")

    def _log_in(self, line: Line) -> None:
        if self._sasl is None or self._is_registered:
            return
        if line.command == "AUTHENTICATE":
            if line.params[:1] == ("+",):
                for piece in self._sasl.responses():
                    self._write("AUTHENTICATE", piece)
        elif "ACK" in line.params:
            self._write("AUTHENTICATE", "PLAIN")
        elif "NAK" in line.params:
            raise WhoAreYou(_NO_SASL)

    def _take_numeric(self, code: str, params: Sequence[str]) -> None:
        text = params[-1] if params else ""
        if code == "001" and params and not self._is_registered:
            # A server without capabilities ignores CAP, and would let the bridge in without its account.
            if not self._has_logged_in:
                raise WhoAreYou(_NO_SASL)
            self._is_registered = True
            self.nick = params[0]
            for channel in self._order.channels:
                self._write("JOIN", channel)
        elif code == "903" and not self._has_logged_in:
            self._has_logged_in = True
            self._write("CAP", "END")
        elif code in _NO_LOGIN and self._sasl is not None and not self._is_registered:
            # Not a lost connection: further attempts with a wrong password would lock the account.
            raise WhoAreYou(f"the network refuses the account {self._sasl.account}: {text}")
        elif code in _NICK_REFUSED and not self._is_registered:
            self._choice = self._choice.after(code)
            self._write("NICK", self._choice.nick)
        elif not self._ready.done():
            self._take_join(code, params)
        elif self._target and code[0] in "45":
            is_about_it = len(params) > 2 and fold(params[1]) == self._target
            # The reply 417 to a line that is too long names no target.
            if is_about_it or code == "417":
                self._refusal = text or code

    def _take_join(self, code: str, params: Sequence[str]) -> None:
        channel = fold(params[1]) if len(params) > 1 else ""
        if code == "366" and channel in self._left:
            self._left.discard(channel)
            if not self._left:
                self._ready.set_result(None)
        elif code in _CANNOT_JOIN and channel in self._left:
            raise LinkLost(f"cannot join {params[1]}: {params[-1]}")

    # Writing

    def _write(self, command: str, *params: str) -> None:
        if self.is_lost or self._writer is None:
            raise LinkLost(self.lost.result() if self.is_lost else "not connected")
        try:
            line = format_line(Line(command=command, params=params))
        except ValueError as error:
            if command != "PONG":  # The parameter of a PING is the server's.
                raise LinkLost(f"a line cannot be sent: {error}") from error
            return
        self._writer.write(line)
        if self._writer.transport.get_write_buffer_size() > _LIMIT_UNREAD_BYTES:
            self._lose("the server does not read")

    def _lose(self, reason: str) -> None:
        if self.is_lost:
            return
        self.lost.set_result(reason)
        lost = LinkLost(reason)
        waiting: list[asyncio.Future[None] | asyncio.Future[str]] = [self._ready, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # Not every one has a reader.
        if self._writer is not None:
            # Not `close`, which would wait until a server that does not read has the waiting lines.
            self._writer.transport.abort()


# --------------------
# The bridge.

_LIMIT_INCOMING: Final = 1_000
"""Lines of the network that wait for the bus. Further ones are dropped, and the report counts them."""
_LIMIT_LINKS: Final = 20
"""Agents with their own connection. The relay nick speaks for the others."""
_LIMIT_NOTIFIED: Final = 1_000
_KICKED_S: Final = 60.0
_BUS_PAUSE_S: Final = 5.0
_STOPPED: Final = "the bridge was stopped"
_NOTIFY_AGAIN_S: Final = 60.0

Report = Callable[[str, Mapping[str, object]], None]
"""Shows what happens: a sentence for people, and the fields for programs."""


class IrcBridge:
    """Carries messages between the bus of a home and one network, until it is cancelled."""

    def __init__(
        self,
        home: str,
        order: BridgeOrder,
        sasl: SaslAccount | None,
        report: Report,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._home = home
        self._order = order
        self._sasl = sasl
        self._say_so = report
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._ids = UlidSource(SystemClock(), os.urandom)
        self._bus = Plain(home, lambda: BridgeOp(network=order.network))
        self._file = PositionFile(home, order.network)
        self._position = Position(seq=0)
        self._main: IrcLink | None = None
        self._is_up = asyncio.Event()
        self._links: dict[str, IrcLink] = {}
        self._closed: set[str] = set()
        """Agents whose own connection was refused: the relay nick speaks for them until it reconnects."""
        self._incoming: asyncio.Queue[tuple[IrcLink, RelayOp]] = asyncio.Queue(_LIMIT_INCOMING)
        self._dropped = 0
        self._known: set[str] = set()
        self._notified: OrderedDict[str, float] = OrderedDict()

    async def run(self) -> None:
        """Run. Raises the refusal of the bus or of the network; a lost connection is made again."""
        with self._file.locked(self._order.network):
            async with self._bus:
                stored, last = self._file.read(), await self._last()
                # A seq above the last one is from another log, such as the one before a restore.
                self._position = stored if stored is not None and stored.seq <= last else Position(seq=last)
                self._file.write(self._position)
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._stay())
                        tasks.create_task(self._send_all())
                        tasks.create_task(self._store_all())
                except* PalaverError as refusals:
                    raise refusals.exceptions[0] from None
                finally:
                    # The seq of events that were skipped last is not in the file yet.
                    self._file.write(self._position)
                    for link in self._links.values():
                        await link.close(_STOPPED)

    async def _last(self) -> int:
        return last_from_json(await self._bus.ask(EventsOp(last=1)))

    async def _ask(self, op: Op) -> msgspec.Raw:
        """Ask the bus until it replies. Raises its refusal."""
        while True:
            try:
                return await self._bus.ask(op)
            except Unavailable as error:
                await self._pause_for_bus(error)

    async def _pause_for_bus(self, error: Unavailable) -> None:
        if not await asyncio.to_thread(Path(self._home).is_dir):
            raise Disconnected(f"the folder of the bus, {self._home}, does not exist any more") from error
        self._say_so(f"the bus does not reply: {error}", {"event": "no_bus", "reason": str(error)})
        await self._sleep(_BUS_PAUSE_S)

    # The connection

    async def _stay(self) -> None:
        """Keep the connection of the relay nick. Raises WhoAreYou."""
        backoff, where = ReconnectPause(), f"{self._order.host}:{self._order.port}"
        while True:
            link = IrcLink(self._order, self._order.nick, self._hear, sasl=self._sasl)
            try:
                await link.open()
                backoff.reset()
                self._main = link
                self._closed.clear()  # the network may accept their connections by now
                self._is_up.set()
                channels = ", ".join(self._order.channels)
                self._say_so(
                    f"connected to {where} as {link.nick}, in {channels}",
                    {"event": "connected", "server": where, "nick": link.nick},
                )
                # Shielded: a cancelled wait would cancel the future, which `_lose` still sets.
                reason = await asyncio.shield(link.lost)
            except LinkLost as lost:
                reason = str(lost)
            except asyncio.CancelledError:
                await link.close(_STOPPED)
                raise
            finally:
                self._is_up.clear()
                self._main = None
            await link.close()
            pause_s = max(backoff.next_s(), _KICKED_S if link.was_removed else 0)
            self._say_so(
                f"not connected to {where}: {reason}; next attempt in {pause_s:g} s",
                {"event": "lost", "server": where, "reason": reason, "next_s": pause_s},
            )
            await self._sleep(pause_s)

    # From the bus to the network

    async def _send_all(self) -> None:
        async with aclosing(self._events()) as events:
            async for event in events:
                if event.type == BYE:
                    if (link := self._links.pop(event.sender, None)) is not None:
                        await link.close("left")
                elif targets := targets_of(event, self._order, self._clock.now_ms()):
                    await self._send(event, targets)
                    self._keep(Position(seq=event.seq))
                else:
                    # Not written at once: after a crash such events are only skipped again.
                    self._position = Position(seq=event.seq)

    async def _events(self) -> AsyncGenerator[Event, None]:
        """Yield messages after the stored position, also across restarts of the bus."""
        after = self._position.seq
        while True:
            request = EventsOp(types=(MESSAGE, BYE), after=after, follow=True)
            try:
                async with aclosing(Follower(self._home, request).events()) as events:
                    async for event in events:
                        yield event
                        after = event.seq
            except Unavailable as error:
                await self._pause_for_bus(error)

    def _keep(self, position: Position) -> None:
        self._position = position
        self._file.write(position)

    async def _send(self, event: Event, targets: Sequence[str]) -> None:
        done = self._position.sent_of(event.seq)
        at = 0
        for target in targets:
            refusal, count = await self._why_not(target), 0
            lines = [] if refusal else lines_for(event, target)
            for line in lines:
                at += 1
                if at <= done:
                    continue
                # A refused line counts as sent: it would be refused again, and would stop all later ones.
                refusal = await self._say(event, line) or refusal
                count += 1
                before = self._position.seq
                self._keep(Position(seq=before, next_seq=event.seq, lines=at))
            fields = {"seq": event.seq, "from": event.sender, "to": target, "lines": count}
            if refusal:
                sentence = f"#{event.seq} from {event.sender} was not sent to {target}: {refusal}"
                self._say_so(sentence, {"event": "not_sent", **fields, "reason": refusal})
            else:
                self._say_so(
                    f"sent #{event.seq} from {event.sender} to {target}", {"event": "sent", **fields}
                )

    async def _why_not(self, target: str) -> str:
        """Return why nothing is sent to a target; empty if it can be."""
        if is_channel_name(target):
            is_here = target in map(fold, self._order.channels)
            return "" if is_here else f"the bridge is not in {target}; start it with --channel {target}"
        if is_service(target):  # an agent must not use the account of the bridge
            return "it belongs to the services of the network"
        if target not in self._known:
            path = external_sender(self._order.network, target)
            found, unreadable = events_from_json(await self._ask(EventsOp(senders=(path,), last=1)))
            if not found and not unreadable:
                return f"{target} has not written to this bus yet"
            # Never removed: a line of this nick that was stored stays in the log.
            self._known.add(target)
        return ""

    async def _say(self, event: Event, line: OutLine) -> str:
        """Send one line, on the next connection if this one ends before the reply."""
        while True:
            await self._is_up.wait()
            link = await self._speaker(event)
            if link is None:
                continue
            await self._sleep(link.flood.wait_s(self._clock.monotonic_s()))
            text = line.text if link is not self._main else line.relayed
            try:
                return await link.say(line.target, text)
            except LinkLost:
                if self._links.get(event.sender) is link:
                    del self._links[event.sender]
                    await link.close()

    async def _speaker(self, event: Event) -> IrcLink | None:
        """Return the connection that speaks for a sender: its own, or that of the relay nick."""
        message = event.body
        is_agent = isinstance(message, MessageSent) and message.sender_kind == INSTANCE
        if not self._order.has_each or not is_agent or event.sender in self._closed:
            return self._main
        link = self._links.get(event.sender)
        if link is not None and not link.is_lost:
            return link
        # Nothing else removes the connection of an agent that does not write again.
        self._links = {agent: one for agent, one in self._links.items() if not one.is_lost}
        if len(self._links) >= _LIMIT_LINKS:
            return self._main
        link = IrcLink(self._order, nick_of(event.sender), self._hear, agent=event.sender)
        try:
            await link.open()
        except LinkLost as lost:
            await link.close()
            self._closed.add(event.sender)
            self._say_so(
                f"{event.sender} has no connection of its own: {lost}; the relay nick speaks for it",
                {"event": "no_link", "agent": event.sender, "reason": str(lost)},
            )
            return self._main
        self._links[event.sender] = link
        self._say_so(
            f"{event.sender} is {link.nick} there",
            {"event": "nick", "agent": event.sender, "nick": link.nick},
        )
        return link

    # From the network to the bus

    def _hear(self, link: IrcLink, line: Line) -> None:
        op = self._relay_of(link, line)
        if op is None:
            return
        try:
            self._incoming.put_nowait((link, op))
        except asyncio.QueueFull:
            # Waiting here would also delay PING and PONG, and the server would end the connection.
            self._dropped += 1
            if self._dropped == 1 or self._dropped % _LIMIT_INCOMING == 0:
                self._say_so(
                    f"dropped {counted(self._dropped, 'line')} of the network: the bus is too slow",
                    {"event": "dropped", "lines": self._dropped},
                )

    def _relay_of(self, link: IrcLink, line: Line) -> RelayOp | None:
        """Return the request for a line; None for our own lines and for other commands."""
        nick = nick_of_source(line.source)
        own = {fold(one.nick) for one in (*self._links.values(), link, *([self._main] if self._main else []))}
        text = text_of_line(line, nick)
        try:
            external_sender(self._order.network, nick)
        except BadRequest:
            return None
        if fold(nick) in own or not text:
            return None
        # A message to the operators of a channel has their prefix before the name of the channel.
        target = fold(line.params[0].lstrip("@+%~"))
        # The id is chosen here, once: a request that is repeated after a lost reply is stored once.
        op = RelayOp(network=self._order.network, nick=nick, text=text, id=self._ids.next())
        if target in map(fold, self._order.channels):
            # Each connection hears the channel. One of them is enough.
            return None if link.agent else msgspec.structs.replace(op, channel=target)
        return msgspec.structs.replace(op, to=link.agent) if target == fold(link.nick) else None

    async def _store_all(self) -> None:
        while True:
            # One after the other, so that the lines keep their order.
            link, op = await self._incoming.get()
            try:
                stored = _stored(await self._ask(op))
            except RequestError as refusal:
                self._say_so(
                    f"a line of {op.nick} was not stored: {refusal}",
                    {"event": "not_stored", "nick": op.nick, "reason": str(refusal)},
                )
                self._tell(link, op, refusal)
            else:
                self._say_so(
                    f"stored #{stored.seq} from {op.nick} for {', '.join(stored.to)}",
                    {"event": "stored", "seq": stored.seq, "nick": op.nick, "to": stored.to},
                )

    def _tell(self, link: IrcLink, op: RelayOp, refusal: RequestError) -> None:
        """Explain a refused private line to its sender, at most once a minute."""
        now_s = self._clock.monotonic_s()
        nick = fold(op.nick)
        if op.channel or now_s - self._notified.get(nick, -_NOTIFY_AGAIN_S) < _NOTIFY_AGAIN_S:
            return
        self._notified[nick] = now_s
        self._notified.move_to_end(nick)
        if len(self._notified) > _LIMIT_NOTIFIED:
            self._notified.popitem(last=False)
        link.notice(op.nick, _one_line(str(refusal))[:300])


class _Stored(msgspec.Struct, frozen=True):
    seq: int
    to: tuple[str, ...] = ()


_stored: Final = msgspec.json.Decoder(_Stored).decode


# --------------------
# The process of `pal bridge irc`.

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the bridge that the daemon has ordered, until a signal ends it. Return the exit status."""
    order = msgspec.json.decode(words[0], type=BridgeOrder)
    try:
        sasl = read_sasl_file(order.sasl_file) if order.sasl_file else None
        asyncio.run(_run(environment["PALAVER_HOME"], order, sasl))
    except PalaverError as error:
        view = msgspec.json.encode(error_object(error)).decode()
        sys.stderr.write(f"{view}\n" if order.is_json else f"pal: {safe(str(error))}\n")
        return 1
    return 0


async def _run(home: str, order: BridgeOrder, sasl: SaslAccount | None) -> None:
    failures: list[OSError] = []

    def report(sentence: str, fields: Mapping[str, object]) -> None:
        line = msgspec.json.encode(fields).decode() if order.is_json else safe(sentence)
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except OSError as error:
            # Its reader has ended, or the disk is full: the bridge ends too, as other commands do. Not raised
            # here, where it would end one of many tasks, in an `ExceptionGroup`.
            if not isinstance(error, BrokenPipeError):
                failures.append(error)
            # Otherwise Python would try to write the rest at its exit, and report the error again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            running.cancel()

    running = asyncio.ensure_future(IrcBridge(home, order, sasl, report).run())
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    report(
        f"bridge to {order.network}: irc/{order.network}/… ; Ctrl-C ends it",
        {"event": "started", "network": order.network, "channels": order.channels},
    )
    with suppress(asyncio.CancelledError):
        await running
    report("the bridge has ended", {"event": "ended"})
    if failures:
        raise failures[0]
