"""The commands for the other doors: `pal mcp` and `pal token`."""

from palaver.doors.argv.call import Call
from palaver.doors.argv.style import ago
from palaver.doors.tokens import Token, TokenBook
from palaver.errors import BadRequest, NotAllowed, NotFound, NotPerson
from palaver.model.agent import Standing, standing_of_role
from palaver.model.message import EXTERNAL


async def mcp(call: Call) -> int:
    """Refuse a client that sends `mcp` as a command: it is older than the MCP door and cannot serve it."""
    raise BadRequest("this client cannot serve MCP: install the one that belongs to this bus")


async def create_token(call: Call) -> int:
    """Create a token and print it. It cannot be shown again."""
    words = call.parsed.positionals
    if not words and call.caller.kind == EXTERNAL:
        raise BadRequest("you have no name: say whose token it is to be")
    name = words[0] if words else call.caller.name
    if name.removeprefix("@").lower() == "human":
        raise NotPerson("a person's token is never made here: agents could read it")
    agent = call.agent(name)
    _check_whose(call, agent.name, "token create")
    standing = min(standing_of_role(agent.role), call.caller.standing)
    secret, token = await _book(call).create(
        agent.name, standing=standing.word, by=call.caller.name, ts=call.services.clock.now_ms()
    )
    if call.is_json:
        await call.say_json({**_view(token), "token": secret})
        return 0
    await call.say(secret)
    call.warn(f"this is {agent.name} over HTTP, and is shown only now; 'pal token revoke {token.id}' ends it")
    return 0


async def list_tokens(call: Call) -> int:
    """Show every token without its secret."""
    now = call.services.clock.now_ms()
    tokens = _book(call).all()
    for token in tokens:
        if call.is_json:
            await call.say_json(_view(token))
        else:
            await call.say(
                f"{token.id}  {token.name}  {token.standing}, by {token.by}, {ago(now - token.ts)} ago"
            )
    if not tokens and not call.is_json:
        await call.say("there are no tokens; 'pal token create NAME' makes one")
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
            await call.say(f"{token.id} of {token.name} is worthless now")
    return 0


def _check_whose(call: Call, name: str, verb: str) -> None:
    """Allow an agent its own tokens and a person all tokens; refuse everything else."""
    if call.caller.standing is not Standing.HUMAN and (call.caller.name != name or call.caller.by):
        raise NotAllowed(f"{verb} for {name}", call.caller.standing.word, Standing.HUMAN.word)


def _book(call: Call) -> TokenBook:
    return call.services.tokens


def _view(token: Token) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "standing": token.standing,
        "by": token.by,
        "created": token.ts,
    }
