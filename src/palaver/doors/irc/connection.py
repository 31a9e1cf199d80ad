"""One connection of an IRC client: its lines in and out, its capabilities, its flood limit, its end.

Knows neither channels nor commands: `commands.py` gets each line, and `channels.py` knows all connections.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import Final

from palaver.clock import CallLater, Clock, Timer
from palaver.doors.connection import Outbox
from palaver.doors.irc.irc_wire import (
    LIMIT_LABEL_BYTES,
    SERVER,
    IrcReader,
    Line,
    TooLong,
    fit_line,
    format_line,
    format_time,
    numeric,
    source_of,
    standard_reply,
)
from palaver.identity.accounts import Account
from palaver.protocol.display import safe

_logger: Final = logging.getLogger("palaver.doors")

NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})

_READ_BYTES: Final = 16_384
_LINES_AT_ONCE: Final = 50
"""Lines of one client that are handled before others have their turn."""
_LONGEST_TIMER_S: Final = 86_400.0
"""Timers of a loop cannot be months long."""
_TIMED: Final = frozenset({"PRIVMSG", "NOTICE", "TAGMSG", "JOIN", "PART", "QUIT", "NICK", "AWAY", "SETNAME"})
"""Lines that get the present time as a tag, unless they have this tag already."""
_CAP_OF_TAG: Final = {
    "time": "server-time",
    "account": "account-tag",
    "batch": "batch",
    "label": "labeled-response",
    "draft/multiline-concat": "draft/multiline",
}
"""The capability that a tag needs. Every other tag needs `message-tags`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IrcLimits:
    """The limits of the door. Tests set their own."""

    connections: int = 256
    unregistered: int = 64
    """Connections that have not registered; further ones are refused."""
    register_s: float = 15.0
    """Seconds in which a client must register; a TLS handshake is part of them."""
    lines_at_once: int = 20
    lines_a_second: float = 4.0
    """A client may send `lines_at_once` lines, then `lines_a_second`. Above that, the door reads slower."""
    idle_s: float = 120.0
    """Seconds without a line after which a client is pinged, and in which it must then send one."""
    close_s: float = 5.0
    """Seconds in which a client must read the last line; then the connection is cut."""
    waiting_lines: int = 16_384
    waiting_bytes: int = 4 * 1024 * 1024
    """How much may wait for a client when more comes; above either limit it does not read.

    One message can be 1 MiB, so a few of them fit. A message that has begun always fits.
    """
    logins: int = 3
    """Wrong passwords on one connection; then it ends."""
    channels: int = 500
    """Channels that one connection may be in."""


class FloodMeter:
    """Says how long to wait before the next line. Pure: the time is handed in."""

    def __init__(self, *, at_once: int, a_second: float) -> None:
        self._at_once = at_once
        self._a_second = a_second
        self._left = float(at_once)
        self._counted_s = 0.0

    def take(self, now_s: float) -> float:
        """Count one line; return the seconds until it may be read, 0 for at once."""
        # Below 0 it is a debt: lines that come during a wait make the next wait longer.
        self._left = min(self._at_once, self._left + (now_s - self._counted_s) * self._a_second) - 1
        self._counted_s = now_s
        return max(0.0, -self._left / self._a_second)


Unit = Sequence[Line]
"""Lines that belong together: one line, or a whole batch."""


@dataclass(slots=True)
class _Response:
    """The lines that answer one command with a label. They are sent together, at its end."""

    label: str
    units: list[Unit] = field(default_factory=list)
    is_deferred: bool = False


class Client:
    """One connection. Belongs to the loop's thread.

    `send`, `send_batch`, `numeric` and `fail` answer the command that is running, and get its label. `push`
    and `push_batch` are for everything else, such as events of the bus. A client that does not read gets an
    ERROR as its last line; nothing here ever waits for it.
    """

    def __init__(
        self,
        *,
        id: str,
        clock: Clock,
        call_later: CallLater,
        limits: IrcLimits,
        is_local: bool,
        ended: Callable[["Client", str], None] = lambda client, reason: None,
        count_slow: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called once, with the reason, as soon as the connection ends for any cause.

        `count_slow` is called if it ends because the client does not read.
        """
        self._count_slow = count_slow
        self.id = id
        self.clock = clock
        self.limits = limits
        self.is_local = is_local
        """It is on this machine."""
        self.nick = ""
        self.user = ""
        self.realname = ""
        self.caps: frozenset[str] = frozenset()
        self.joined: dict[str, str] = {}
        """The channels it is in, as they are written, by their folded names."""
        self.monitored: dict[str, str] = {}
        """The nicks that it watches, as it wrote them, by their folded names."""
        self.has_welcome = False
        """It has registered, and was greeted. Only then others see it."""
        self.heard_ms = clock.now_ms()
        """When its last line came, other than PING and PONG."""
        self.since_ms = clock.now_ms()
        self._account: Account | None = None
        self._call_later = call_later
        self._ended = ended
        self._outbox = Outbox(limit_lines=limits.waiting_lines, limit_bytes=limits.waiting_bytes)
        self._response: _Response | None = None
        self._batches = count(1)
        self._pongs: dict[str, Callable[[], None]] = {}
        self._timer: Timer | None = None
        self._expiry: Timer | None = None
        self._heard_s = clock.monotonic_s()
        self._flood = FloodMeter(at_once=limits.lines_at_once, a_second=limits.lines_a_second)
        self._flood.take(self._heard_s)
        self._slowed: asyncio.Future[None] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.is_ended = False
        """Nothing more is read from it, or sent to it."""

    # Its identity

    @property
    def account(self) -> Account:
        """The account, once the client has logged in or is a guest."""
        assert self._account is not None  # a command that needs it runs after the registration
        return self._account

    @property
    def has_account(self) -> bool:
        return self._account is not None

    def set_account(self, account: Account) -> None:
        """Record who this is. The connection ends with the token of the account."""
        self._account = account
        if account.token is not None and account.token.expires_ms and self._expiry is None:
            self._check_expiry()

    @property
    def is_program(self) -> bool:
        """It gets envelopes, and no text lines."""
        return "palaver/envelope" in self.caps or (self._account is not None and self._account.is_program)

    @property
    def source(self) -> str:
        """The source of its lines, as others see it."""
        return source_of(self.nick, self.user)

    @property
    def account_tag(self) -> Mapping[str, str]:
        """The tag that names its account; empty for a guest."""
        if self._account is None or self._account.is_guest:
            return {}
        return {"account": self._account.name}

    # Lines to it

    def send(self, line: Line) -> None:
        """Send one line that answers the running command."""
        self._send((line,))

    def send_batch(
        self,
        kind: str,
        params: Sequence[str],
        lines: Iterable[Line],
        *,
        source: str = SERVER,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> None:
        """Send lines as one batch that answers the running command; without `batch`, only the lines."""
        self._send(self._batched(kind, params, lines, source, tags))

    def push(self, line: Line) -> None:
        """Send one line that answers no command."""
        self._write((line,))

    def push_batch(
        self,
        kind: str,
        params: Sequence[str],
        lines: Iterable[Line],
        *,
        source: str = SERVER,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> None:
        """Send lines that answer no command as one batch; without `batch`, only the lines."""
        self._write(self._batched(kind, params, lines, source, tags))

    def numeric(self, code: str, *params: str, text: str = "") -> None:
        """Send a numeric reply. `text` replaces the last parameter of the table; a long parameter is cut."""
        self.send(numeric(code, self.nick, *params, text=text))

    def send_text(self, code: str, *params: str, text: str) -> None:
        """Send a numeric reply whose last parameter may be empty."""
        line = Line(source=SERVER, command=code, params=(self.nick or "*", *params, text))
        self.send(fit_line(line))

    def fail(self, command: str, code: str, *context: str, text: str) -> None:
        """Send the standard reply FAIL."""
        self.send(standard_reply("FAIL", command, code, *context, text=text))

    def tell(self, text: str) -> None:
        """Send a notice of the server to this client alone."""
        self.send(fit_line(Line(source=SERVER, command="NOTICE", params=(self.nick or "*", text))))

    def ping(self, then: Callable[[], None]) -> None:
        """Send a PING, and call `then` when its PONG comes: the client has read everything before it.

        The token cannot be guessed, so a PONG proves that the PING was read.
        """
        token = f"pal-{secrets.token_hex(8)}"
        self._pongs[token] = then
        self.push(Line(command="PING", params=(token,)))

    def ponged(self, token: str) -> None:
        """Record a PONG. One that was not asked for changes nothing."""
        if (then := self._pongs.pop(token, None)) is not None:
            then()

    @contextmanager
    def answering(self, label: str) -> Iterator[None]:
        """Collect what is sent in the block, and send it with the label of the command; empty for none."""
        can_label = {"labeled-response", "batch"} <= self.caps
        if not label or not can_label or len(label.encode()) > LIMIT_LABEL_BYTES:
            yield
            return
        response = self._response = _Response(label)
        try:
            yield
        finally:
            self._response = None
            if not response.is_deferred:
                self._answer(response)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Send the lines of the block at once: they do not answer the command that is running."""
        response, self._response = self._response, None
        try:
            yield
        finally:
            self._response = response

    def defer_label(self) -> None:
        """Send no reply with a label for the running command: a later command has its label."""
        if self._response is not None:
            self._response.is_deferred = True

    def _answer(self, response: _Response) -> None:
        label = {"label": response.label}
        if not response.units:
            self._write((Line(source=SERVER, command="ACK", tags=label),))
            return
        if len(response.units) == 1:
            ((first, *rest),) = response.units
            self._write((_tagged(first, label), *rest))
            return
        id = self._next_batch()
        inside = {"batch": id}
        self._write(
            (Line(source=SERVER, command="BATCH", params=(f"+{id}", "labeled-response"), tags=label),)
        )
        for unit in response.units:
            # The lines inside an inner batch name that batch; only its own two lines name the outer one.
            outer = (line if "batch" in line.tags else _tagged(self._timed(line), inside) for line in unit)
            self._write(tuple(outer))
        self._write((Line(source=SERVER, command="BATCH", params=(f"-{id}",)),))

    def _next_batch(self) -> str:
        return f"b{next(self._batches)}"

    def _batched(
        self, kind: str, params: Sequence[str], lines: Iterable[Line], source: str, tags: Mapping[str, str]
    ) -> Unit:
        if "batch" not in self.caps:
            return tuple(lines)
        id = self._next_batch()
        begin = Line(source=source, command="BATCH", params=(f"+{id}", kind, *params), tags=tags)
        end = Line(source=source, command="BATCH", params=(f"-{id}",))
        # The lines inside an inner batch name that batch.
        inside = (line if "batch" in line.tags else _tagged(line, {"batch": id}) for line in lines)
        return (begin, *inside, end)

    def _send(self, unit: Unit) -> None:
        if self._response is not None:
            self._response.units.append(unit)
        else:
            self._write(unit)

    def _write(self, unit: Unit) -> None:
        """Queue lines that belong together. A client that has too much waiting is disconnected."""
        if self.is_ended:
            return
        try:
            data = b"".join(format_line(self._for_client(line)) for line in unit)
        except ValueError:
            _logger.exception("a line could not be sent to %s", self.nick)
            failed = standard_reply("FAIL", "*", "INTERNAL_ERROR", text="A line for you could not be sent")
            # A client with a label waits for a reply that has it. The other tags may be what is wrong.
            tags = {name: unit[0].tags[name] for name in ("label", "batch") if name in unit[0].tags}
            data = format_line(self._for_client(replace(failed, tags=tags)))
        # All lines of a batch are one item, so that a client never gets only a part of it.
        if data and not self._outbox.offer(data):
            self._count_slow()
            self.end("you do not read what is sent to you; connect again, and continue with CHATHISTORY")

    def _for_client(self, line: Line) -> Line:
        """Return a line with the tags that the client can read."""
        tags = line.tags if "batch" in line.tags else self._timed(line).tags
        kept = {name: tags[name] for name in tags if _CAP_OF_TAG.get(name, "message-tags") in self.caps}
        return replace(line, tags=kept)

    def _timed(self, line: Line) -> Line:
        """Return a line with its time. Lines inside a batch have that of the batch, or their own."""
        if line.command not in _TIMED or "time" in line.tags:
            return line
        return _tagged(line, {"time": format_time(self.clock.now_ms())})

    # The bytes

    async def run(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handle: Callable[[bytes | TooLong], Awaitable[None]],
    ) -> None:
        """Serve the connection until it ends. `handle` gets each line, one after the other."""
        self._transport = writer.transport
        if self.is_ended:  # during the TLS handshake, when there was no transport to cut
            self._cut_later()
        else:
            self._watch_registration()
        writing = asyncio.create_task(self._write_all(writer))
        try:
            await self._read_all(reader, handle)
        except OSError as error:  # also TLS errors
            self.end(error.strerror or "the connection was lost")
        finally:
            # First: `_write_all` ends only after it.
            self.end("the connection was closed")
            with suppress(OSError):
                await writing
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()  # a client that does not read is cut off by the timer
            self._stop_timer()

    async def _read_all(
        self, reader: asyncio.StreamReader, handle: Callable[[bytes | TooLong], Awaitable[None]]
    ) -> None:
        """Read to the end. After the last line to the client, its lines are dropped.

        Otherwise the system would reset the connection, and the client might never see why it ended.
        """
        lines = IrcReader()
        while data := await reader.read(_READ_BYTES):
            await asyncio.sleep(0)  # a read does not wait while there is data
            for number, line in enumerate(lines.feed(data), 1):
                if number % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                # A client that does not read its replies can cause no more of them.
                await self._outbox.wait_until_low()
                if not self.is_ended:
                    self._heard_s = self.clock.monotonic_s()
                    await handle(line)

    async def slow_down(self) -> None:
        """Count a line against the flood limit, and wait until it may be handled."""
        wait_s = self._flood.take(self.clock.monotonic_s())
        if wait_s > 0 and not self.is_ended:
            self._slowed = asyncio.get_running_loop().create_future()
            timer = self._call_later(wait_s, self._go_on)
            try:
                await self._slowed
            finally:
                timer.cancel()
            # The client was kept waiting, so this time does not count as silence.
            self._heard_s = self.clock.monotonic_s()

    def _go_on(self) -> None:
        if self._slowed is not None and not self._slowed.done():
            self._slowed.set_result(None)

    async def _write_all(self, writer: asyncio.StreamWriter) -> None:
        await self._outbox.drain(writer)
        if not writer.transport.is_closing():
            # If possible only this direction ends, so that `_read_all` can go on: closing a socket with
            # unread input resets the connection, and the client could miss the last line. TLS cannot do it.
            if writer.can_write_eof():
                writer.write_eof()
            else:
                writer.close()

    # Its end

    def end(self, reason: str) -> None:
        """Disconnect, with the reason as the last line. A repeat changes nothing.

        Waiting lines and the reason are still written, for a few seconds; then the connection is cut.
        """
        if self.is_ended:
            return
        self.is_ended = True
        last = fit_line(Line(command="ERROR", params=(f"Closing link: {safe(reason)}",)))
        self._outbox.end(format_line(last))
        self._go_on()  # a line that waits in `slow_down` is dropped then
        self._pongs.clear()
        self._stop_timer()
        if self._transport is not None:
            self._cut_later()
        self._ended(self, reason)

    def cut(self) -> None:
        """Close the connection without writing anything more."""
        if self._transport is not None:
            self._transport.abort()

    def check_account(self, is_valid: Callable[[Account], bool]) -> None:
        """End the connection if its account is not valid any more."""
        if not is_valid(self.account):
            guest = "guests may not connect any more, or your nick is now like the name of an agent"
            what = guest if self.account.is_guest else "your token has ended"
            self.end(f"{what}: connect again, with a valid token or as a guest with another nick")

    def _check_expiry(self) -> None:
        self._expiry = None
        token = self.account.token
        assert token is not None  # only a token has a time
        wait_s = (token.expires_ms - self.clock.now_ms()) / 1000
        if wait_s <= 0:
            self.check_account(lambda account: False)
        else:
            self._expiry = self._call_later(min(wait_s, _LONGEST_TIMER_S), self._check_expiry)

    def _cut_later(self) -> None:
        self._timer = self._call_later(self.limits.close_s, self.cut)

    def _watch_registration(self) -> None:
        self._timer = self._call_later(self.limits.register_s, self._end_unless_registered)

    def _end_unless_registered(self) -> None:
        if self.has_welcome:
            self._check_idle()
        else:
            self.end(f"you did not register within {self.limits.register_s:g} seconds")

    def _check_idle(self) -> None:
        """Ping an idle client; end one that does not answer."""
        idle_s = self.clock.monotonic_s() - self._heard_s
        limit_s = self.limits.idle_s
        if idle_s >= 2 * limit_s:
            self.end(f"ping timeout: no line for {2 * limit_s:g} seconds")
            return
        if idle_s >= limit_s:
            self.push(Line(command="PING", params=(SERVER,)))
        wait_s = limit_s if idle_s >= limit_s else limit_s - idle_s
        self._timer = self._call_later(max(wait_s, 0.001), self._check_idle)

    def _stop_timer(self) -> None:
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()
        self._timer = self._expiry = None


def _tagged(line: Line, tags: Mapping[str, str]) -> Line:
    return replace(line, tags={**line.tags, **tags})
