"""The commands for MCP and for the tokens of HTTP."""

from typing import Final

from palaver.doors.cli.call import Call
from palaver.doors.cli.parser import relative_time
from palaver.doors.cli.spec import Command, Option, Positional
from palaver.errors import BadRequest, NotAllowed, NotFound, NotPerson, UsageError
from palaver.identity.tokens import Token, TokenBook
from palaver.protocol.agents import Standing, standing_of_role
from palaver.protocol.display import ago
from palaver.protocol.message import EXTERNAL

# --------------------
# Rows of the commands for MCP and for the tokens of HTTP.

_GROUP: Final = "MCP and HTTP"

DOOR_COMMANDS: Final = (
    Command(
        path=("mcp",),
        group=_GROUP,
        summary="Run an MCP server for a harness.",
        description=(
            "A harness starts this command and communicates over standard input and output. Tool calls are "
            "made by the same agent as 'pal' in that session, so no further setup is needed. The session "
            "continues when the bus restarts."
        ),
        options=(
            Option(
                name="--tools",
                metavar="GROUPS",
                help=(
                    "Tool groups, separated by commas: rooms, stick, messages, notes, agents, hooks "
                    "(default: all but hooks)."
                ),
            ),
        ),
        examples=(
            ("claude mcp add palaver -- pal mcp", "add it to Claude Code"),
            ("codex mcp add palaver -- pal mcp", "add it to Codex"),
            ("pal mcp --tools rooms,messages", "offer only some tools"),
        ),
        see=(("MCP", "mcp.md"),),
    ),
    Command(
        path=("token",),
        group=_GROUP,
        summary="Manage tokens for agents that connect over HTTP.",
        description="Enable HTTP access first: 'pal up --http'.",
        is_group=True,
        examples=(
            ("pal token create luna", "create a token for luna"),
            ("pal token list", "list tokens"),
        ),
        see=(("HTTP", "http.md"),),
    ),
    Command(
        path=("token", "create"),
        group=_GROUP,
        summary="Create a token for an agent and print it once.",
        description=(
            "A program with this token acts as that agent over HTTP, with at most the rights of the token's "
            "creator. An agent can create tokens only for itself, a person for any agent. Only a hash of the "
            "token is stored. The token ends when it is revoked, expires, or its agent leaves the bus."
        ),
        positionals=(
            Positional(name="NAME", help="The agent (default: you).", optional=True, completes="agents"),
        ),
        options=(Option(name="--expires", metavar="TIME", help="When it ends: 12h, 30d (default: never)."),),
        examples=(
            ("pal token create luna", "let a program act as luna"),
            ("pal token create luna --expires 30d", "for thirty days"),
        ),
    ),
    Command(
        path=("token", "list"),
        group=_GROUP,
        summary="List tokens.",
        description="Shows the agent, creator, age and end of each token, but never the token itself.",
        examples=(("pal token list", "list all tokens"),),
    ),
    Command(
        path=("token", "revoke"),
        group=_GROUP,
        summary="Revoke a token immediately.",
        description="An agent can revoke its own tokens, a person any token.",
        positionals=(
            Positional(
                name="ID",
                help="An id from 'pal token list', or an agent for all its tokens.",
                completes="tokens",
            ),
        ),
        examples=(
            ("pal token revoke 3f9a1c02", "revoke one token"),
            ("pal token revoke luna", "revoke all tokens of luna"),
        ),
    ),
)


# --------------------
# Functions of `pal mcp` and `pal token`.


async def mcp(call: Call) -> int:
    """Refuse a client that sends `mcp` as a command: it is older than the MCP door and cannot serve it."""
    raise BadRequest("this client does not support MCP: install the version of the bus")


async def create_token(call: Call) -> int:
    """Create a token and print it. It cannot be shown again."""
    words = call.parsed.positionals
    if not words and call.caller.kind == EXTERNAL:
        raise BadRequest("you have no name: name the agent that the token is for")
    name = words[0] if words else call.caller.name
    if name.removeprefix("@").lower() == "human":
        raise NotPerson("a token for a person is never created: agents could read it")
    agent = call.agent(name)
    _check_whose(call, agent.name, "token create")
    standing = min(standing_of_role(agent.role), call.caller.standing)
    secret, token = await _book(call).create(
        agent.name, standing=standing.word, by=call.caller.name, expires_ms=_expires_ms(call)
    )
    if call.is_json:
        await call.say_json({**_view(token), "token": secret})
        return 0
    await call.say(secret)
    call.warn(
        f"this is {agent.name} over HTTP, and is shown only now; 'pal token revoke {token.id}' revokes it"
    )
    return 0


async def list_tokens(call: Call) -> int:
    """Show every token without its secret."""
    now = call.services.clock.now_ms()
    tokens = _book(call).all()
    for token in tokens:
        if call.is_json:
            await call.say_json(_view(token))
        else:
            ends = f", expires {relative_time(token.expires_ms - now)}" if token.expires_ms else ""
            await call.say(
                f"{token.id}  {token.name}  {token.standing}, by {token.by}, {ago(now - token.ts)} ago{ends}"
            )
    if not tokens and not call.is_json:
        await call.say("there are no tokens; 'pal token create NAME' creates one")
    return 0


async def revoke_token(call: Call) -> int:
    """Revoke one token by its id, or all tokens of an agent by its name."""
    word = call.parsed.positionals[0].removeprefix("@").lower()
    meant = [token for token in _book(call).all() if word in (token.id, token.name)]
    if not meant:
        raise NotFound(f"token {word}", "'pal token list' shows them")
    for token in meant:
        _check_whose(call, token.name, "token revoke")
    await _book(call).revoke({token.id for token in meant})
    for token in meant:
        if call.is_json:
            await call.say_json({"id": token.id, "name": token.name, "revoked": True})
        else:
            await call.say(f"{token.id} of {token.name} is revoked")
    return 0


def _check_whose(call: Call, name: str, verb: str) -> None:
    """Allow an agent its own tokens and a person all tokens; refuse everything else."""
    if call.caller.standing is not Standing.HUMAN and (call.caller.name != name or call.caller.by):
        raise NotAllowed(f"{verb} for {name}", call.caller.standing.word, Standing.HUMAN.word)


def _expires_ms(call: Call) -> int:
    """Return when the new token ends, in Unix milliseconds; 0 for never."""
    expires_s = call.parsed.duration_s("--expires")
    if expires_s is None:
        return 0
    if expires_s < 1:
        raise UsageError("--expires requires a time of at least one second")
    return call.services.clock.now_ms() + round(expires_s * 1000)


def _book(call: Call) -> TokenBook:
    return call.services.callers.tokens


# --------------------
# Rendering: for programs and for people.


def _view(token: Token) -> dict[str, object]:
    """Return a token for programs. A token that never expires has no `expires`."""
    ends = {"expires": token.expires_ms} if token.expires_ms else {}
    return {
        "id": token.id,
        "name": token.name,
        "standing": token.standing,
        "by": token.by,
        "created": token.ts,
        **ends,
    }
