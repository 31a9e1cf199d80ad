"""The IRC door, open or closed, and its connections.

The commands and the TLS files are loaded in a thread when the door opens, because this takes a while.
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from palaver.clock import CallLater
from palaver.config import Settings
from palaver.doors.tcp_door import IRC, Address, RunningServer, StartServer, TcpDoor, check_reach
from palaver.errors import BadRequest
from palaver.home import first_reserved_file

if TYPE_CHECKING:
    from ssl import SSLContext

    from palaver.doors.irc.channels import Hub
    from palaver.doors.irc.commands import IrcSession, Talk
    from palaver.doors.irc.connection import Client, IrcLimits
    from palaver.services.services import Services

_STOP_S: Final = 1.0
"""Seconds in which clients must read that the door closes."""
_TRY_AGAIN_S: Final = 1.0
_CLOSES: Final = "the IRC door closes, because the bus stops or its settings changed"

_logger: Final = logging.getLogger("palaver.doors")


class IrcDoor(TcpDoor):
    """The IRC door."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        limits: "IrcLimits | None" = None,
        call_later: CallLater | None = None,
    ) -> None:
        """`call_later` runs the timers of connections; without it, the loop does."""
        super().__init__(IRC)
        self._tasks = tasks
        self._limits = limits
        self._call_later = call_later
        self._listening: IrcListening | None = None
        """The newest server, for tests that look at its connections."""

    async def _prepare(self, wanted: Address, settings: Settings) -> StartServer:
        has_tls = bool(settings.irc_tls_cert and settings.irc_tls_key)
        check_reach(wanted, IRC, is_remote=bool(settings.irc_remote), has_tls=has_tls)
        tls = await asyncio.to_thread(_load_tls, settings) if has_tls else None
        await asyncio.to_thread(_import_commands)

        async def start(services: "Services", listener: socket.socket, address: Address) -> RunningServer:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            listening = IrcListening(
                services, listener, tls, self._tasks, call_later=call_later, limits=self._limits
            )
            listening.start()
            self._listening = listening
            return RunningServer(scheme="ircs" if tls else "irc", stop=partial(listening.stop, _CLOSES))

        return start


class IrcListening:
    """The server on one socket, until it is stopped."""

    def __init__(
        self,
        services: "Services",
        listener: socket.socket,
        tls: "SSLContext | None",
        tasks: asyncio.TaskGroup,
        *,
        call_later: CallLater,
        limits: "IrcLimits | None",
    ) -> None:
        from palaver.doors.irc.channels import Hub
        from palaver.doors.irc.connection import IrcLimits

        self._services = services
        self._listener = listener
        self._tls = tls
        self._tasks = tasks
        self._call_later = call_later
        self._limits = limits or IrcLimits()
        self._sessions: dict[Client, IrcSession] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._ids = count(1)
        self.hub = Hub(services)
        self.hub.unregistered = self._count_unregistered
        self.hub.on_change.append(self._end_invalid)
        self._talk = make_talk(self.hub, tasks)
        self._accepting: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Accept connections from now on."""
        self._stop_watching = self._services.callers.accounts.watch(self._end_invalid)
        self._accepting = self._tasks.create_task(self._accept_all())

    async def stop(self, reason: str) -> None:
        """Close all connections. A client that does not read the reason at once is cut off."""
        self._stop_watching()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        # Only now: the loop watches the descriptor until `sock_accept` has ended.
        self._listener.close()
        for client in tuple(self._sessions):
            client.end(reason)
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=_STOP_S)
        for client in tuple(self._sessions):
            client.cut()
        if self._running:
            await asyncio.wait(tuple(self._running))

    # Connections

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, peer = await loop.sock_accept(self._listener)
            except OSError as error:  # such as a client that is gone already
                _logger.warning("an IRC connection could not be accepted: %s", error)
                # An error that lasts, such as no free descriptors, would otherwise keep the loop busy.
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            self._take(connected, str(peer[0]))

    def _take(self, connected: socket.socket, host: str) -> None:
        """Serve a new connection, or refuse it. Connections in a TLS handshake count as well."""
        from palaver.doors.irc.commands import IrcSession
        from palaver.doors.irc.connection import Client

        limits = self._limits
        is_full = (
            connected.fileno() >= first_reserved_file()
            or len(self._sessions) >= limits.connections
            or self._count_unregistered() >= limits.unregistered
        )
        if is_full:
            with suppress(OSError):
                connected.setblocking(False)
                if self._tls is None:  # a TLS client could not read it
                    connected.send(b"ERROR :too many connections wait here: try again later\r\n")
            connected.close()
            return
        client = Client(
            id=f"irc-{next(self._ids)}",
            clock=self._services.clock,
            call_later=self._call_later,
            limits=limits,
            is_local=_is_local(host),
            ended=self._ended,
            count_slow=lambda: self._services.metrics.count_slow_follower("irc"),
        )
        self._sessions[client] = IrcSession(self.hub, client, self._talk)
        task = self._tasks.create_task(self._serve(client, connected))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve(self, client: "Client", connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        session = self._sessions[client]
        try:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connected,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.register_s if self._tls is not None else None,
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            await client.run(reader, writer, session.handle)
        # Such as a failed TLS handshake. Any other error is a fault of the daemon: its task group logs it
        # with the traceback, and the other connections go on.
        except OSError as error:
            _logger.info("an IRC connection failed: %s", error)
            connected.close()
        finally:
            client.end("the connection was closed")  # before the removal: it calls `_ended`
            del self._sessions[client]

    def _count_unregistered(self) -> int:
        return sum(1 for client in self._sessions if not client.has_welcome)

    def _ended(self, client: "Client", reason: str) -> None:
        self._sessions[client].ended(reason)

    def _end_invalid(self) -> None:
        """End the connections whose accounts are not valid any more."""
        for client in tuple(self._sessions):
            if client.has_account and not client.is_ended:
                client.check_account(self._services.callers.accounts.is_valid)


def make_talk(hub: "Hub", tasks: asyncio.TaskGroup) -> "Talk":
    """Return the commands that carry messages, and begin to show the events of the bus."""
    from palaver.doors.irc.commands import Talk
    from palaver.doors.irc.showing import Shown, chathistory
    from palaver.doors.irc.speaking import multiline, notice, speak, tagmsg

    shown = Shown(hub, tasks=tasks, level_of=hub.services.queries.irc_level)
    hub.on_open.append(shown.opened)
    hub.on_close.append(shown.closed)
    return Talk(speak=speak, notice=notice, tagmsg=tagmsg, multiline=multiline, chathistory=chathistory)


def _import_commands() -> None:
    """Import the commands. Runs in a thread, so that the loop does not wait."""
    from palaver.doors.irc import commands  # noqa: F401


def _load_tls(settings: Settings) -> "SSLContext":
    """Read the certificate and its key. Raises BadRequest."""
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # With a password, even an empty one, OpenSSL refuses an encrypted key. Without one it would ask for
        # the password at the terminal.
        context.load_cert_chain(settings.irc_tls_cert, settings.irc_tls_key, password="")
    except (OSError, ValueError) as error:
        raise BadRequest(
            f"the TLS files cannot be used ({error}): check the settings irc_tls_cert and irc_tls_key"
        ) from None
    return context


def _is_local(host: str) -> bool:
    """Return whether a peer is on this machine."""
    try:
        # A link-local address of IPv6 has its network interface after a percent sign.
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    # On a socket for IPv6, a client with IPv4 has an address such as ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
