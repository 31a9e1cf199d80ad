"""The commands `pal agent` (names that log in), `pal irc` (the IRC door) and `pal bridge`."""

import ipaddress
import re
from typing import Final

import msgspec

from palaver.domain.rights import has_started, require, require_person
from palaver.doors.cli.call import Call
from palaver.doors.cli.http import check_whose, token_view
from palaver.doors.cli.spec import ROLE, Command, Option, Positional, shown
from palaver.errors import BadRequest, NameTaken, NotFound, NotPerson, UsageError
from palaver.identity.accounts import CODE_MS, Token
from palaver.protocol.agents import (
    GUEST_ROLE,
    ROLES,
    Agent,
    Standing,
    full_name,
    split_name,
    standing_of_role,
)
from palaver.protocol.display import Column, ago
from palaver.protocol.events import IRC_LEVELS
from palaver.protocol.lines import BridgeOrder
from palaver.protocol.message import HUMAN
from palaver.protocol.paths import check_network, irc_path, is_channel_name
from palaver.protocol.query import fold_channel
from palaver.protocol.requests import SetVerbosity
from palaver.state.rooms import read_irc_level, read_irc_levels

# --------------------
# Rows of the commands.

_GROUP: Final = "IRC"

IRC_COMMANDS: Final = (
    Command(
        path=("agent",),
        group=_GROUP,
        summary="Manage names that log in with a token.",
        description=(
            "Programs and people log in with a name and a token, on IRC or, for programs, over HTTP. Enable "
            "IRC access first: 'pal up --irc'."
        ),
        is_group=True,
        examples=(
            ("pal agent register scout", "create the agent scout and its token"),
            ("pal agent list", "list them, and when each was last seen"),
        ),
        see=(("IRC", "irc.md"),),
    ),
    Command(
        path=("agent", "register"),
        group=_GROUP,
        summary="Create a name and its token, and print the token once.",
        description=(
            "A program with this token is that agent. It is offline until it connects, and can leave and "
            "connect again with the same token, which ends only with 'pal agent rotate' and 'revoke'. Only a "
            "hash of the token is stored. With --person the name belongs to a person, for an IRC client that "
            "reconnects: it is in no group and gets no broadcasts, and has guest rights, to read and to "
            "write. Only a person can use --person, or give a role above worker."
        ),
        positionals=(Positional(name="NAME", help="The new name."),),
        options=(ROLE, Option(name="--person", help="The name belongs to a person, who has guest rights.")),
        exclusive=(("--role", "--person"),),
        examples=(
            ("pal agent register scout", "let a program be the agent scout"),
            ("pal agent register lead --role operator", "with the rights of an operator"),
            ("pal agent register ann --person", "let Ann's IRC client log in"),
        ),
        see=(("log in", "irc.md#log-in"),),
    ),
    Command(
        path=("agent", "rotate"),
        group=_GROUP,
        summary="Replace the token of a registered name.",
        description=(
            "Prints the new token once. The old token and its open connections end at once. An agent can do "
            "this for itself and for agents that it registered, a person for all."
        ),
        positionals=(Positional(name="NAME", help="A name from 'pal agent list'.", completes="registered"),),
        examples=(("pal agent rotate scout", "a new token for scout"),),
    ),
    Command(
        path=("agent", "revoke"),
        group=_GROUP,
        summary="End all tokens of a name.",
        description=(
            "Its open connections end at once. The name stays, with its messages; a person can register it "
            "again. An agent can do this for itself and for agents that it registered, a person for all."
        ),
        positionals=(Positional(name="NAME", help="A name from 'pal agent list'.", completes="registered"),),
        examples=(("pal agent revoke scout", "scout cannot log in any more"),),
    ),
    Command(
        path=("agent", "list"),
        group=_GROUP,
        summary="List names that can log in, and when each was last seen.",
        description="'pal list' shows all agents.",
        examples=(("pal agent list", "list all of them"),),
        json=(
            "one line per name: 'registered' is false if it has only tokens from 'pal token create', and "
            "'last_seen' is null if it has never connected."
        ),
    ),
    Command(
        path=("irc",),
        group=_GROUP,
        summary="Log in to IRC, and set what its channels show.",
        description="Enable IRC access first: 'pal up --irc'.",
        is_group=True,
        examples=(
            ("pal irc code", "a password for the account human"),
            ("pal irc verbosity '#general' full", "show more in #general"),
        ),
        see=(("IRC", "irc.md"),),
    ),
    Command(
        path=("irc", "code"),
        group=_GROUP,
        summary="Print a one-time password for yourself on IRC.",
        description=(
            "Log in with the account human and this code. It is valid once, for five minutes, and ends with "
            "the bus. On IRC you have guest rights, to read and to write: what an IRC client stores can be "
            "read by agents. For a person at a terminal only."
        ),
        examples=(("pal irc code", "print a code"),),
        see=(("log in", "irc.md#log-in"),),
    ),
    Command(
        path=("irc", "verbosity"),
        group=_GROUP,
        summary="Show or set the notice level of a channel.",
        description=(
            "Each level adds to the one before: 'minimal' shows joins, leaves and blocked agents, 'actions' "
            "also tools, 'full' also deliveries, 'debug' also heartbeats. For a person or an operator."
        ),
        positionals=(
            Positional(name="CHANNEL", help="The channel, with # (default: show all).", optional=True),
            Positional(
                name="LEVEL", help="The new level (default: show it).", optional=True, choices=IRC_LEVELS
            ),
        ),
        examples=(
            ("pal irc verbosity", "show the levels of all channels"),
            ("pal irc verbosity '#general' actions", "show tools in #general"),
        ),
    ),
)


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
                help="Log in: a file, mode 0600, with ACCOUNT:PASSWORD.",
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
# Functions of `pal agent`.


async def register_agent(call: Call) -> int:
    """Create a name and a token, and print the token. It cannot be shown again."""
    is_person = call.parsed.has("--person")
    role = GUEST_ROLE if is_person else call.parsed.value("--role") or ROLES[0]
    if is_person:
        require_person(call.caller, "agent register --person")
    elif standing_of_role(role) > Standing.WORKER and not (call.caller.is_person and call.caller.by is None):
        raise NotPerson(f"only a person can assign the role {role}; register it as a worker")
    parts = split_name(call.parsed.positionals[0].removeprefix("@"))
    name = full_name(parts.base, parts.tag, parts.device)
    if call.services.callers.presence.is_present(name):
        raise NameTaken(name, f"it is in use; 'pal token create {name}' makes a token for it")
    secret, token = await call.services.callers.accounts.register(call.caller, name, role)
    return await _show_secret(call, secret, token)


async def rotate_agent(call: Call) -> int:
    """Replace the token of a registered agent and print the new one."""
    agent = _registered(call)
    _check_whose(call, agent, "agent rotate")
    secret, token = await call.services.callers.accounts.rotate(call.caller, agent.name)
    return await _show_secret(call, secret, token)


async def _show_secret(call: Call, secret: str, token: Token) -> int:
    if call.is_json:
        await call.say_json({**token_view(token), "role": call.agent(token.name).role, "token": secret})
        return 0
    await call.say(secret)
    call.warn(
        f"this is the password of {token.name}, and is shown only now; 'pal agent rotate {token.name}' "
        "replaces it"
    )
    return _warn_if_shut(call)


def _warn_if_shut(call: Call) -> int:
    if not call.services.daemon.doors["irc"].where and not call.is_json:
        call.warn("IRC access is off; 'pal up --irc' enables it")
    return 0


async def revoke_agent(call: Call) -> int:
    """End all tokens of an agent."""
    agent = _registered(call)
    _check_whose(call, agent, "agent revoke")
    tokens = [token for token in call.services.callers.tokens.all() if token.name == agent.name]
    await call.services.callers.tokens.revoke({token.id for token in tokens})
    if call.is_json:
        await call.say_json({"name": agent.name, "revoked": len(tokens)})
    else:
        count = f"{len(tokens)} token{'' if len(tokens) == 1 else 's'}"
        await call.say(f"{agent.name} cannot log in any more: {count} revoked")
    return 0


async def list_registered(call: Call) -> int:
    """Show every name that can log in, and when it was last seen."""
    now = call.now_ms()
    # A token that acts for several agents has no name.
    names = sorted({token.name for token in call.services.callers.tokens.all() if token.name})
    found = [
        _agent_view(call, agent)
        for name in names
        if (agent := call.services.broker.directory.get(name)) is not None
    ]
    if call.is_json:
        for view in found:
            await call.say_json(view)
    elif found:
        await call.say_table(
            [
                Column(title="NAME", least=8),
                Column(title="ROLE"),
                Column(title="ONLINE"),
                Column(title="LAST SEEN", is_right=True),
            ],
            [
                (
                    str(view["name"]),
                    str(view["role"]),
                    "yes" if view["online"] else "no",
                    _seen_words(view, now),
                )
                for view in found
            ],
        )
    else:
        await call.say("no name can log in; 'pal agent register NAME' creates one")
    return 0


def _agent_view(call: Call, agent: Agent) -> dict[str, object]:
    """Return a name that can log in, for programs."""
    is_online = call.services.callers.presence.is_present(agent.name)
    offline_since_ms = call.services.callers.accounts.last_seen_ms(agent)
    return {
        "name": agent.name,
        "role": agent.role,
        "online": is_online,
        "last_seen": call.now_ms() if is_online else offline_since_ms,
        "registered": bool(call.services.callers.accounts.registered(agent.name)),
    }


def _seen_words(view: dict[str, object], now_ms: int) -> str:
    seen_ms = view["last_seen"]
    if view["online"]:
        return "now"
    return f"{ago(now_ms - seen_ms)} ago" if isinstance(seen_ms, int) else "never"


def _registered(call: Call) -> Agent:
    """Return the agent that the command names. Raises NotFound if it cannot log in."""
    agent = call.agent(call.parsed.positionals[0])
    if not call.services.callers.tokens.has_one_of(agent.name):
        raise NotFound(f"token of {agent.name}", "'pal agent list' shows the names that can log in")
    return agent


def _check_whose(call: Call, agent: Agent, verb: str) -> None:
    """Allow an agent itself and the agents that it registered, and a person all; refuse everything else."""
    if call.caller.by is not None or not has_started(call.caller, agent):
        check_whose(call, agent.name, verb)


# --------------------
# Functions of `pal irc`.


async def irc_code(call: Call) -> int:
    """Print a one-time code. An agent or script that acts for a person gets none."""
    require_person(call.caller, "irc code")
    # A harness may give its tools a terminal: an agent there could read the code.
    if call.marked is not None:
        raise NotPerson("only a person can get a code, in a shell of their own")
    code = call.services.callers.accounts.codes.issue()
    if call.is_json:
        expires_ms = call.now_ms() + CODE_MS
        await call.say_json({"name": HUMAN, "code": code, "expires": expires_ms})
        return 0
    await call.say(code)
    call.warn("this is the password of human on IRC, once and within five minutes")
    return _warn_if_shut(call)


async def irc_verbosity(call: Call) -> int:
    """Show the level of one channel or of all, or set one."""
    rows = call.services.queries.rows
    words = call.parsed.positionals
    if len(words) == 2:
        await call.submit(SetVerbosity(channel=words[0], level=words[1]))
    elif not words:
        # The stored levels come last, because they replace the defaults.
        shown = {"#general": read_irc_level(rows, "#general"), **_DEFAULTS, **read_irc_levels(rows)}
        for channel, level in shown.items():
            await _say_level(call, channel, level)
        return 0
    elif not words[0].startswith("#"):
        raise UsageError(f"a channel begins with #: pal irc verbosity '#{words[0]}'")
    await _say_level(call, fold_channel(words[0]), read_irc_level(rows, words[0]))
    return 0


_DEFAULTS: Final = {"#agent-*": "full", "#*": "actions"}
"""The levels of channels without their own."""


async def _say_level(call: Call, channel: str, level: str) -> None:
    if call.is_json:
        await call.say_json({"channel": channel, "level": level})
    else:
        await call.say(call.safe(f"{channel} {level}"))


# --------------------
# The bridge itself runs in the process of the caller. The daemon checks the order.

_VERB: Final = "__bridge"
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
# Without spaces and line ends: the nick becomes a part of the lines that the bridge sends to the server.
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
    network = check_network(parsed.reference("--network") or host)
    channels = tuple(dict.fromkeys(parsed.values("--channel")))
    if not 1 <= len(channels) <= _LIMIT_CHANNELS:
        raise UsageError(f"add 1 to {_LIMIT_CHANNELS} channels, such as --channel '#c'")
    for channel in channels:
        if not is_channel_name(channel):
            raise UsageError(f"{shown(channel)} is not a channel: its name begins with #")
        # Only for its check, which raises BadRequest before the bridge is started.
        irc_path(network, channel)
    nick = parsed.reference("--nick") or "palaver"
    if not _NICK.fullmatch(nick):
        raise UsageError(
            f"{shown(nick)} cannot be a nick: use letters, digits, _ and -, and begin with a letter"
        )
    sasl_file = parsed.reference("--sasl-file")
    if sasl_file and not has_tls and not _is_loopback(host):
        raise BadRequest("--sasl-file needs --tls: without it the password can be read on its way")
    rate = parsed.number("--rate", 1)
    if rate is not None and rate > _LIMIT_RATE:
        raise UsageError(f"--rate must be at most {_LIMIT_RATE}")
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
        raise UsageError(f"{port} is not a port; use 1 to 65535")
    return found[1].strip("[]").lower(), port


def _is_loopback(host: str) -> bool:
    # Only `localhost` and addresses count. Any other name could lead to another machine by the time the
    # bridge connects.
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
