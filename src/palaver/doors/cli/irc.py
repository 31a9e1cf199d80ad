"""The command that connects agents to another IRC network."""

import ipaddress
import re
from typing import Final

import msgspec

from palaver.domain.rights import require
from palaver.doors.cli.call import Call
from palaver.doors.cli.parser import shown
from palaver.doors.cli.spec import Command, Option
from palaver.errors import BadRequest, UsageError
from palaver.protocol.agents import Standing
from palaver.protocol.lines import BridgeOrder
from palaver.protocol.paths import check_network, irc_path, is_channel_name

# --------------------
# Rows of the commands.

_GROUP: Final = "IRC"

BRIDGE_COMMANDS: Final = (
    Command(
        path=("bridge",),
        group=_GROUP,
        summary="Connect agents to another chat network.",
        is_group=True,
        examples=(("pal bridge irc --help", "the options for IRC"),),
        see=(("bridges", "bridges.md"),),
    ),
    Command(
        path=("bridge", "irc"),
        group=_GROUP,
        summary="Connect agents to a channel of an IRC network.",
        description=(
            "Runs until Ctrl-C. Broadcasts, and messages to 'irc/NETWORK/#channel' and 'irc/NETWORK/nick', "
            "go to the network; 'pal send --reply-to ID' answers a line. Lines of the channel go to "
            "its path and to the agents that they name, from an external sender. After a lost connection it "
            "tries again, and sends what was not sent yet. A person, a worker or a script can run it."
        ),
        options=(
            Option(name="--server", metavar="H:P", help="The server (default port: 6667, with --tls 6697)."),
            Option(name="--channel", metavar="CHANNEL", help="A channel to join, such as '#c'.", many=True),
            Option(name="--tls", help="Encrypt, and check the server's certificate."),
            Option(name="--nick", metavar="NICK", help="The nick of the relay (default: palaver)."),
            Option(name="--each", help="Give each agent that speaks its own connection."),
            Option(
                name="--sasl-file",
                metavar="FILE",
                help="Log in: a file with the mode 0600 and one line, ACCOUNT:PASSWORD.",
                completes="files",
            ),
            Option(name="--network", metavar="NAME", help="The network's name in paths (default: the host)."),
            Option(name="--no-broadcasts", help="Send only messages that are for the network."),
            Option(name="--rate", metavar="N", help="Lines a second after the first 5 (default: 1)."),
        ),
        exclusive=(("--nick", "--each"),),
        examples=(
            ("pal bridge irc --server irc.libera.chat --tls --channel '#c'", "one relay nick"),
            ("pal bridge irc --server 127.0.0.1:6667 --channel '#c' --each", "a nick for each agent"),
            ("pal send irc/irc.libera.chat/#c -- hello", "write to the channel"),
        ),
        json=(
            "one object for each 'event': 'started', 'connected', 'lost', 'sent', 'not_sent', 'stored', "
            "'not_stored', 'nick', 'no_link', 'dropped', 'no_bus', 'ended'."
        ),
        see=(("bridges", "bridges.md"),),
    ),
)

# --------------------
# The bridge itself runs in the process of the caller. The daemon checks the order.

_VERB: Final = "__bridge"
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
_NICK: Final = re.compile(r"[A-Za-z\[\]\\`_^{}|][A-Za-z0-9\[\]\\`_^{}|-]{0,63}", re.ASCII)
_PORT: Final = 6667
_TLS_PORT: Final = 6697
_LIMIT_CHANNELS: Final = 20
_LIMIT_RATE: Final = 100


async def bridge_irc(call: Call) -> int:
    """Let the client run the bridge."""
    require(call.caller, Standing.WORKER, "bridge irc")
    call.connection.run_here(_VERB, msgspec.json.encode(_order(call)).decode())
    return 0


def _order(call: Call) -> BridgeOrder:
    parsed = call.parsed
    has_tls = parsed.has("--tls")
    host, port = _server(parsed.value("--server"), has_tls=has_tls)
    network = check_network(parsed.value("--network") or host)
    channels = tuple(dict.fromkeys(parsed.values("--channel")))
    if not 1 <= len(channels) <= _LIMIT_CHANNELS:
        raise UsageError(f"add 1 to {_LIMIT_CHANNELS} channels, such as --channel '#c'")
    for channel in channels:
        if not is_channel_name(channel):
            raise UsageError(f"{shown(channel)} is not a channel: its name begins with #")
        irc_path(network, channel)
    nick = parsed.value("--nick") or "palaver"
    if not _NICK.fullmatch(nick):
        raise UsageError(f"{shown(nick)} cannot be a nick")
    sasl_file = parsed.value("--sasl-file") or ""
    if sasl_file and not has_tls and not _is_loopback(host):
        raise BadRequest("--sasl-file needs --tls: without it the password can be read on its way")
    rate = parsed.number("--rate", 1)
    if rate is not None and rate > _LIMIT_RATE:
        raise UsageError(f"--rate is at most {_LIMIT_RATE}")
    return BridgeOrder(
        host=host,
        port=port,
        network=network,
        channels=channels,
        nick=nick,
        has_tls=has_tls,
        has_each=parsed.has("--each"),
        has_broadcasts=not parsed.has("--no-broadcasts"),
        sasl_file=sasl_file,
        rate=float(rate or 1),
        is_json=call.is_json,
    )


def _server(written: str | None, *, has_tls: bool) -> tuple[str, int]:
    found = _SERVER.fullmatch(written or "")
    if found is None:
        raise UsageError("add the server: --server HOST:PORT")
    port = int(found[2]) if found[2] else _TLS_PORT if has_tls else _PORT
    if not 0 < port <= 65_535:
        raise UsageError(f"{port} is not a port")
    return found[1].strip("[]").lower(), port


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
