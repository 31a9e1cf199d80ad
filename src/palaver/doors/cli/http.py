"""The commands for MCP, for the tokens of HTTP, for webhooks, and for the page in the browser."""

import asyncio
from typing import Final

from palaver.domain.rights import require_person
from palaver.doors.cli.bus import set_door
from palaver.doors.cli.call import EXIT_NOTHING, Call
from palaver.doors.cli.spec import Command, Option, Positional, relative_time
from palaver.doors.tcp_door import HTTP
from palaver.errors import BadRequest, NotAllowed, NotFound, NotPerson, UsageError, cut_name, nearest
from palaver.identity.accounts import (
    ALL_AGENTS,
    LIMIT_SECRET_BYTES,
    SCHEMES,
    Token,
    TokenBook,
    Webhook,
    check_service,
)
from palaver.identity.web_sessions import CODE_S, CodeEnd, SignIn, WebSession
from palaver.protocol.agents import GUEST_ROLE, Standing, check_name, full_name, split_name, standing_of_role
from palaver.protocol.display import Column, ago
from palaver.protocol.message import EXTERNAL

# --------------------
# Rows of the commands.

_GROUP: Final = "MCP and HTTP"

DOOR_COMMANDS: Final = (
    Command(
        path=("mcp",),
        group=_GROUP,
        summary="Run an MCP server for a harness.",
        description=(
            "A harness starts this command and communicates over standard input and output. Tool calls are "
            "made by the same agent as 'pal' in that session, so no further setup is needed. The session "
            "continues when the bus restarts. The groups of tools are rooms, stick, messages, notes, agents "
            "and hooks."
        ),
        options=(
            Option(
                name="--tools",
                metavar="GROUPS",
                help="Tool groups, with commas (default: all but hooks).",
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
            "token is stored. The token ends when it is revoked, expires, or its agent leaves the bus. With "
            "--acts-for, which requires a person, a program on the WebSocket acts for several agents; its "
            "events have the token in 'by'."
        ),
        positionals=(
            Positional(name="NAME", help="The agent (default: you).", optional=True, completes="agents"),
        ),
        options=(
            Option(name="--expires", metavar="TIME", help="When it ends: 12h, 30d (default: never)."),
            Option(
                name="--acts-for", metavar="NAMES", help="Names of agents, separated by commas, or 'all'."
            ),
        ),
        examples=(
            ("pal token create luna", "let a program act as luna"),
            ("pal token create luna --expires 30d", "for thirty days"),
            ("pal token create --acts-for luna,slack-bridge", "let a bridge act in two names"),
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
                help="An id of 'pal token list', or an agent for all its tokens.",
                completes="tokens",
            ),
        ),
        examples=(
            ("pal token revoke 3f9a1c02", "revoke one token"),
            ("pal token revoke luna", "revoke all tokens of luna"),
        ),
    ),
    Command(
        path=("webhook",),
        group=_GROUP,
        summary="Manage services that send webhooks to the bus.",
        description=(
            "A service such as GitHub posts to /in/SERVICE/TOPIC, and the bus routes the message to the path "
            "webhook/SERVICE/TOPIC. Enable HTTP access first: 'pal up --http'."
        ),
        is_group=True,
        examples=(
            ("pal webhook add github --scheme github --secret-file secret.txt", "accept events of GitHub"),
            ("pal webhook list", "list the services"),
        ),
        see=(("webhooks", "webhooks.md"),),
    ),
    Command(
        path=("webhook", "add"),
        group=_GROUP,
        summary="Accept webhooks of a service.",
        description=(
            "The service proves that it has the secret: with --scheme bearer it sends it in the header "
            "Authorization, with the other schemes it signs each request. Adding a service again replaces "
            "its secret and its options. This requires a person. The secret is stored in a file that only "
            "you can read, and is never shown."
        ),
        positionals=(
            Positional(
                name="SERVICE",
                help="Its name: lowercase letters, digits, _ and -.",
                completes="webhooks",
            ),
        ),
        options=(
            Option(
                name="--secret-file",
                metavar="F",
                help="A file with the secret (required); - is standard input.",
                completes="files",
            ),
            Option(
                name="--scheme",
                metavar="SCHEME",
                help="How requests prove the secret (default: bearer).",
                choices=SCHEMES,
            ),
            Option(
                name="--id-header", metavar="H", help="Header with the delivery id (default: the scheme's)."
            ),
        ),
        examples=(
            ("pal webhook add github --scheme github --secret-file secret.txt", "accept events of GitHub"),
            ("pal webhook add slack --scheme slack --secret-file -", "read the secret from standard input"),
            ("pal webhook add ci --secret-file secret.txt --id-header X-Build-Id", "with a bearer secret"),
        ),
        see=(("webhooks", "webhooks.md"),),
    ),
    Command(
        path=("webhook", "list"),
        group=_GROUP,
        summary="List the services that send webhooks.",
        description="Shows the scheme, the creator and the age of each service, but never its secret.",
        examples=(("pal webhook list", "list all services"),),
    ),
    Command(
        path=("webhook", "rm"),
        group=_GROUP,
        summary="Refuse webhooks of a service from now on.",
        description="This requires a person. The messages of the service stay in the log.",
        positionals=(
            Positional(name="SERVICE", help="A name from 'pal webhook list'.", completes="webhooks"),
        ),
        examples=(("pal webhook rm github", "accept nothing more from github"),),
    ),
    Command(
        path=("web",),
        group=_GROUP,
        summary="Show the bus in a browser on this machine.",
        description=(
            "Enables HTTP access if it is off, and prints the address of the page and a code of 8 "
            "characters. Type the code into the page: it is valid once, for 60 seconds, and ends after 5 "
            "wrong ones. Then this command asks whether the browser may sign in as you. Only a person at a "
            "terminal can do this. The session ends after 12 hours without use, or with 'pal web revoke'."
        ),
        options=(Option(name="--read-only", help="Let the browser read, but change nothing."),),
        examples=(
            ("pal web", "open the page in a browser"),
            ("pal web --read-only", "for a screen on the wall"),
            ("pal web list", "list signed-in browsers"),
        ),
        json=(
            "for each code one object with 'address', 'code' and 'expires', whose 'event' is 'code'; after a "
            "sign-in one with 'id' and 'read_only' of the session, whose 'event' is 'signed_in'."
        ),
        statuses=(
            (0, "The browser is signed in."),
            (1, "The command was refused, or you did not allow it."),
            (EXIT_NOTHING, "The code was not used in time."),
        ),
        see=(("the page", "web.md"),),
    ),
    Command(
        path=("web", "list"),
        group=_GROUP,
        summary="List the browsers that are signed in.",
        description="Shows the age and the last use of each session, but never its cookie.",
        examples=(("pal web list", "list all sessions"),),
    ),
    Command(
        path=("web", "revoke"),
        group=_GROUP,
        summary="Sign a browser out immediately.",
        description="This requires a person. The page of the browser then shows the sign-in again.",
        positionals=(Positional(name="ID", help="An id from 'pal web list', or all."),),
        examples=(
            ("pal web revoke 3f9a1c02", "sign one browser out"),
            ("pal web revoke all", "sign all browsers out"),
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
    if (names := call.parsed.value("--acts-for")) is not None:
        return await _create_for_several(call, names)
    if not words and call.caller.kind == EXTERNAL:
        raise BadRequest("you have no name: name the agent that the token is for")
    name = words[0] if words else call.caller.name
    if name.removeprefix("@").lower() == "human":
        raise NotPerson("a token for a person is never created: agents could read it")
    agent = call.agent(name)
    if agent.role == GUEST_ROLE:
        raise BadRequest(f"{agent.name} is a person: 'pal agent rotate {agent.name}' makes a new password")
    check_whose(call, agent.name, "token create")
    # Not above the caller: otherwise a token would be a way to more rights.
    standing = min(standing_of_role(agent.role), call.caller.standing)
    secret, token = await _book(call).create(
        agent.name, standing=standing.word, by=call.caller.name, expires_ms=_expires_ms(call)
    )
    if call.is_json:
        await call.say_json({**token_view(token), "token": secret})
        return 0
    await call.say(secret)
    call.warn(
        f"this is {agent.name} over HTTP and IRC, and is shown only now; "
        f"'pal token revoke {token.id}' revokes it"
    )
    return 0


async def _create_for_several(call: Call, written: str) -> int:
    """Create a token that acts for several agents, and print it."""
    if call.parsed.positionals:
        raise UsageError("--acts-for names the agents: leave out NAME")
    _check_person(call, "token create --acts-for")
    names = _names_of(written)
    agents = [agent for name in names if (agent := call.services.broker.directory.find(name))]
    # The WebSocket refuses them as well, because a name can become a person's after this.
    if persons := [agent.name for agent in agents if agent.role == GUEST_ROLE]:
        raise BadRequest(
            f"{persons[0]} is a person, for whom no token acts: leave {persons[0]} out of --acts-for"
        )
    standing = max((standing_of_role(agent.role) for agent in agents), default=Standing.WORKER)
    if ALL_AGENTS in names:
        standing = Standing.OPERATOR
    secret, token = await _book(call).create(
        "", standing=standing.word, by=call.caller.name, expires_ms=_expires_ms(call), acts_for=names
    )
    if call.is_json:
        await call.say_json({**token_view(token), "token": secret})
        return 0
    await call.say(secret)
    call.warn(
        f"this acts for {_shown_names(token)} on the WebSocket, and is shown only now; "
        f"'pal token revoke {token.id}' revokes it"
    )
    known = {agent.name for agent in agents}
    if others := [name for name in names if name not in known and name != ALL_AGENTS]:
        call.warn(f"no agent has this name, so it can send but has no mailbox: {', '.join(others)}")
    return 0


def _names_of(written: str) -> tuple[str, ...]:
    """Return the names of `--acts-for`, each once, as stored. Raises BadName."""
    words = [word.strip().removeprefix("@") for word in written.split(",")]
    if not all(words):
        raise UsageError("--acts-for requires names, separated by commas, or 'all'")
    if [word.lower() for word in words] == [ALL_AGENTS]:
        return (ALL_AGENTS,)
    names = [split_name(word) for word in words]
    for name in names:
        check_name(name.base, name.tag)
    return tuple(dict.fromkeys(full_name(name.base, name.tag, name.device) for name in names))


async def list_tokens(call: Call) -> int:
    """Show every token without its secret."""
    now = call.now_ms()
    tokens = _book(call).all()
    for token in tokens:
        if call.is_json:
            await call.say_json(token_view(token))
        else:
            ends = f", expires {relative_time(token.expires_ms - now)}" if token.expires_ms else ""
            rights = f"{token.standing}, by {token.by}, {ago(now - token.ts)} ago{ends}"
            await call.say(f"{token.id}  {_shown_names(token)}  {rights}")
    if not tokens and not call.is_json:
        await call.say("there are no tokens; 'pal token create NAME' creates one")
    return 0


async def revoke_token(call: Call) -> int:
    """Revoke one token by its id, or all tokens of an agent by its name."""
    word = call.parsed.positionals[0].removeprefix("@").lower()
    # A token that acts for several agents has an empty name: an empty word would select all of them.
    meant = [token for token in _book(call).all() if word and word in (token.id, token.name)]
    if not meant:
        raise NotFound(f"token {word}", "'pal token list' shows them")
    for token in meant:  # All before the first is revoked: the command does everything or nothing.
        check_whose(call, token.name, "token revoke")
    await _book(call).revoke({token.id for token in meant})
    for token in meant:
        if call.is_json:
            await call.say_json({"id": token.id, "name": token.name, **_acts_for(token), "revoked": True})
        else:
            await call.say(f"{token.id} of {_shown_names(token)} is revoked")
    return 0


def check_whose(call: Call, name: str, verb: str) -> None:
    """Allow an agent its own tokens and a person all tokens; refuse everything else."""
    # A caller that acts as an agent with --as is not that agent, and must not get its secret.
    if call.caller.standing is not Standing.HUMAN and (call.caller.name != name or call.caller.by):
        raise NotAllowed(f"{verb} for {name}", call.caller.standing.word, Standing.HUMAN.word)


def _expires_ms(call: Call) -> int:
    """Return when the new token ends, in Unix milliseconds; 0 for never."""
    expires_s = call.parsed.duration_s("--expires")
    if expires_s is None:
        return 0
    if expires_s < 1:
        raise UsageError("--expires requires a time of at least one second")
    return call.now_ms() + round(expires_s * 1000)


def _book(call: Call) -> TokenBook:
    return call.services.callers.tokens


# --------------------
# Functions of `pal webhook`.


async def add_webhook(call: Call) -> int:
    """Store a service with its secret, which the client reads."""
    service = call.parsed.positionals[0]
    _check_person(call, "webhook add")
    file = call.parsed.value("--secret-file")
    if not file:
        raise UsageError(
            "--secret-file requires the name of a file with the secret, or - for standard input: "
            f"pal webhook add {service} --secret-file FILE"
        )
    # Checked before the secret is read, which may be typed.
    check_service(service)
    webhook, is_replaced = await call.services.callers.webhooks.put(
        service,
        scheme=call.parsed.value("--scheme") or SCHEMES[0],
        secret=await _read_secret(call, file),
        by=call.caller.name,
        id_header=call.parsed.value("--id-header") or "",
    )
    url = f"{call.services.daemon.doors['http'].where}/in/{service}/TOPIC"
    if call.is_json:
        await call.say_json({**_webhook_view(webhook), "replaced": is_replaced})
    else:
        done = "is replaced" if is_replaced else "is added"
        await call.say(f"the webhook {service} {done} ({webhook.scheme}): it posts to {url}")
    if not call.services.daemon.doors["http"].where:
        call.warn("HTTP access is off, so no webhook can arrive; 'pal up --http' enables it")
    return 0


async def _read_secret(call: Call, file: str) -> bytes:
    """Let the client read the secret with its own rights. The end of its last line is not part of it."""
    limit_bytes = LIMIT_SECRET_BYTES + 2  # With the end of the line, which may be two bytes.
    if file == "-":
        content = await call.connection.read_stdin(limit_bytes)
    else:
        content = await call.connection.read_file(file, limit_bytes)
    return content.removesuffix(b"\n").removesuffix(b"\r")


async def list_webhooks(call: Call) -> int:
    """Show every service without its secret."""
    now = call.now_ms()
    webhooks = call.services.callers.webhooks.all()
    if call.is_json:
        await call.say_json_lines(map(_webhook_view, webhooks))
    elif webhooks:
        await call.say_table(
            [
                Column(title="SERVICE", least=12),
                Column(title="SCHEME", least=11),
                Column(title="ID HEADER"),
                Column(title="BY", least=8),
                Column(title="AGE", is_right=True),
            ],
            [(one.service, one.scheme, one.id_header, one.by, ago(now - one.ts)) for one in webhooks],
        )
    else:
        await call.say("there are no webhooks; 'pal webhook add SERVICE --secret-file FILE' adds one")
    return 0


async def remove_webhook(call: Call) -> int:
    """Remove a service and its secret."""
    service = call.parsed.positionals[0]
    _check_person(call, "webhook rm")
    book = call.services.callers.webhooks
    near = nearest(service, [one.service for one in book.all()])
    if not await book.remove(service):
        hint = f"did you mean {near[0]}?" if near else "'pal webhook list' shows them"
        raise NotFound(f"webhook {cut_name(service)}", hint)
    if call.is_json:
        await call.say_json({"service": service, "removed": True})
    else:
        await call.say(f"the webhook {service} is removed")
    return 0


def _check_person(call: Call, verb: str) -> None:
    if call.caller.standing is not Standing.HUMAN or call.caller.by:
        raise NotAllowed(verb, call.caller.standing.word, Standing.HUMAN.word)


# --------------------
# Rendering: for programs and for people.


def _shown_names(token: Token) -> str:
    """Return for people which agents a token acts for."""
    if not token.acts_for:
        return token.name
    return "all agents" if ALL_AGENTS in token.acts_for else ", ".join(token.acts_for)


def _acts_for(token: Token) -> dict[str, object]:
    return {"acts_for": list(token.acts_for)} if token.acts_for else {}


def token_view(token: Token) -> dict[str, object]:
    """Return a token for programs. A token that never expires has no `expires`."""
    ends = {"expires": token.expires_ms} if token.expires_ms else {}
    return {
        "id": token.id,
        "name": token.name,
        **_acts_for(token),
        "standing": token.standing,
        "by": token.by,
        "created": token.ts,
        **ends,
    }


def _webhook_view(webhook: Webhook) -> dict[str, object]:
    """Return a service for programs, without its secret."""
    header = {"id_header": webhook.id_header} if webhook.id_header else {}
    return {
        "service": webhook.service,
        "scheme": webhook.scheme,
        **header,
        "by": webhook.by,
        "created": webhook.ts,
    }


# --------------------
# Functions of `pal web`.

_LIMIT_CODES: Final = 4
"""Codes that one command shows: after that, another program is guessing."""
_LIMIT_REPLY_BYTES: Final = 1024
_ALL: Final = "all"
_ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - replaced, not listened on
"""Hosts that a browser cannot open, and the one of this machine."""


async def web(call: Call) -> int:
    """Show a code, wait until a browser has entered it, and ask the person at the terminal."""
    _check_at_terminal(call)
    if not call.services.daemon.doors["http"].where:
        # Only for this machine, because the door does not encrypt.
        await set_door(call, HTTP, {"http": HTTP.default, "http_remote": 0})
    sign_ins = call.services.callers.web.sign_ins
    for _ in range(_LIMIT_CODES):
        code = sign_ins.open(is_read_only=call.parsed.has("--read-only"))
        try:
            await _show_code(call, code)
            end = await _end_of(call, code)
            if end is CodeEnd.ENTERED:
                return await _let_in(call, code)
        finally:
            # Also when the person ends the command with Ctrl-C: the browser waits for this reply. After a
            # grant it has no effect.
            sign_ins.close(code)
            code.reply(None)
        if end is None:
            call.warn(f"no browser has used the code within {CODE_S} seconds; run 'pal web' again")
            return EXIT_NOTHING
        if end is CodeEnd.REPLACED:
            raise BadRequest("another 'pal web' shows a newer code, so this one has ended")
        call.warn("this code has ended: a browser or a program has sent too many wrong codes")
    raise BadRequest("too many wrong codes: a program on this machine is guessing; no browser was signed in")


def _check_at_terminal(call: Call) -> None:
    """Refuse every caller but a person who can read the question and reply to it."""
    require_person(call.caller, "web")
    # A harness may give its tools a terminal: an agent there could reply to the question itself.
    if call.marked is not None:
        raise NotPerson("only a person can sign a browser in, in a shell of their own")
    if not (call.asked.stdin_is_terminal and call.asked.stderr_is_terminal):
        raise NotPerson("'pal web' asks you a question: run it at a terminal, without redirection")


async def _show_code(call: Call, code: SignIn) -> None:
    address = _page_address(call)
    if call.is_json:
        await call.say_json({"event": "code", "address": address, "code": code.code, "expires": code.end_ms})
        return
    await call.say_lines(
        [
            f"page  {address}",
            f"code  {call.paint.bold(code.code)}",
            f"Type the code into the page within {CODE_S} seconds, and then reply here.",
        ]
    )


def _page_address(call: Call) -> str:
    """Return the address of the page in a browser on this machine."""
    where = call.services.daemon.doors["http"].where
    for every, own in _ANY_HOST.items():
        where = where.replace(f"//{every}:", f"//{own}:")
    return f"{where}/"


async def _end_of(call: Call, code: SignIn) -> CodeEnd | None:
    """Wait until a code ends; return None if its time is over."""
    try:
        async with asyncio.timeout(CODE_S):
            with call.connection.waiting():
                return await code.ended()
    except TimeoutError:
        return None


async def _let_in(call: Call, code: SignIn) -> int:
    """Ask the person, and create the session."""
    call.connection.write_error("A browser on this machine asks to sign in as you. Allow? [y/N] ")
    try:
        async with asyncio.timeout(CODE_S):
            written = await call.connection.read_line(_LIMIT_REPLY_BYTES)
    except TimeoutError:
        # No line end was typed, so the cursor is still after the question.
        call.connection.write_error("\n")
        call.warn(f"you have not replied within {CODE_S} seconds; no browser was signed in")
        return EXIT_NOTHING
    if written.decode("utf-8", "replace").strip().lower() not in ("y", "yes"):
        call.warn("no browser was signed in")
        return 1
    # Only a browser that still waits gets the session: nothing else would know its secret.
    if not code.is_browser_there:
        raise BadRequest(
            "the browser has closed its connection, so it was not signed in: run 'pal web' again"
        )
    grant, session = await call.services.callers.web.create(is_read_only=code.is_read_only)
    code.reply(grant)
    if call.is_json:
        await call.say_json({"event": "signed_in", "id": session.id, "read_only": session.is_read_only})
    else:
        rights = "read-only; " if session.is_read_only else ""
        await call.say(f"signed in ({rights}'pal web revoke {session.id}' signs it out)")
    return 0


async def list_web_sessions(call: Call) -> int:
    """Show every session without its secrets."""
    now = call.now_ms()
    sessions = call.services.callers.web.all()
    if call.is_json:
        await call.say_json_lines(_session_view(one) for one in sessions)
        return 0
    await call.say_lines(
        f"{one.id}  {'reads' if one.is_read_only else 'reads and writes'}, signed in "
        f"{ago(now - one.ts)} ago, last used {ago(max(0, now - one.used_ms))} ago"
        for one in sessions
    )
    if not sessions:
        await call.say("no browser is signed in; 'pal web' signs one in")
    return 0


async def revoke_web_session(call: Call) -> int:
    """End one session by its id, or all."""
    require_person(call.caller, "web revoke")
    word = call.parsed.positionals[0].lower()
    meant = [one for one in call.services.callers.web.all() if word in (one.id, _ALL)]
    if not meant and word != _ALL:
        raise NotFound(f"session {cut_name(word)}", "'pal web list' shows them")
    await call.services.callers.web.revoke({one.id for one in meant})
    for one in meant:
        if call.is_json:
            await call.say_json({"id": one.id, "revoked": True})
        else:
            await call.say(f"{one.id} is signed out")
    if not meant and not call.is_json:
        await call.say("no browser is signed in")
    return 0


def _session_view(one: WebSession) -> dict[str, object]:
    return {"id": one.id, "ts": one.ts, "used": one.used_ms, "read_only": one.is_read_only}
