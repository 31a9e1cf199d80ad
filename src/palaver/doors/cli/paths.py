"""The commands for envelopes and paths: put, route, path subscriptions, dead letters, history, sessions.

With --json those for paths print the objects of path clients, whose keys are those of that protocol.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from palaver.broker.context import Sent
from palaver.doors.cli.call import Call
from palaver.doors.cli.events import time_from
from palaver.doors.cli.messages import read_content
from palaver.doors.cli.spec import Command, Option, Positional, shown
from palaver.errors import UsageError
from palaver.ids import is_ulid
from palaver.protocol.display import Column, Safe, ago
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.message import HUMAN, with_json
from palaver.protocol.paths import (
    DEFAULT_COMMAND,
    MAIN,
    Content,
    CreateSession,
    Delivered,
    PathSubscription,
    RoutedMessage,
    Session,
    SubscriptionResult,
    mailbox_of,
    readable_mailbox,
)
from palaver.protocol.requests import Put
from palaver.protocol.summary import summary
from palaver.protocol.text import LIMIT_BODY_BYTES
from palaver.services.paths import DEFAULT_MESSAGES, LIMIT_MESSAGES, Range
from palaver.services.views import sent_view

# --------------------
# Rows of the commands.

_GROUP: Final = "Paths"
_SEE: Final = (("paths", "paths.md"),)

_PATTERN: Final = Positional(name="PATTERN", help="Path; '*' is a segment, '**' any number: 'slack/team/*'.")
_AGENT: Final = Positional(name="AGENT", help="The agent: its full name.", completes="agents")
_SESSION_ID: Final = Positional(name="ID", help="The id of the session.", completes="sessions")
_LIMIT: Final = Option(
    name="--limit",
    metavar="N",
    help=f"Newest N messages (default: {DEFAULT_MESSAGES}, at most {LIMIT_MESSAGES}).",
)
_SINCE: Final = Option(
    name="--since", metavar="TIME", help="Not before this time: 10m (ago) or 2026-03-01T09:00."
)
_UNTIL: Final = Option(name="--until", metavar="TIME", help="Not after this time, written as for --since.")
_CAMEL: Final = "keys in camel case are those of path clients over WebSocket."


def _session(text: str) -> Option:
    return Option(name="--session", metavar="ID", help=text, completes="sessions")


PUT_COMMANDS: Final = (
    Command(
        path=("put",),
        group="Messages",
        summary="Send a typed envelope to agents.",
        description=(
            "An envelope has a type and a payload, which is a JSON object. The type is any word, by "
            "convention with dots. Recipients are exact: a full name, @all, @workers, @operators, "
            "@orchestrators, @observers, or the beginning of names such as '@claude-*'. Without --to it is "
            "for every present agent. The types message, task.create, task.update, task.complete, "
            "agent.hello and agent.bye have their usual effect; other types of the bus are refused."
        ),
        notes=(
            (
                "An envelope with the --id of an earlier one is not sent: the earlier one is returned. "
                "Under a harness, the file of --file must be in the working directory."
            ),
        ),
        positionals=(Positional(name="TYPE", help="What it is: task.create, myorg.deploy, …"),),
        options=(
            Option(
                name="--to",
                metavar="TOKEN",
                help="A recipient: a full name or a group (default: every agent).",
                many=True,
                completes="agents",
            ),
            Option(
                name="--payload",
                metavar="JSON",
                help='JSON object: \'{"title": "tests"}\', or - for standard input.',
            ),
            Option(
                name="--file",
                metavar="FILE",
                help="Read the payload from this file.",
                completes="files",
            ),
            Option(name="--stdin", help="Read the payload from standard input."),
            Option(
                name="--id",
                metavar="ULID",
                help="Your own id; a repeat returns the first envelope.",
            ),
        ),
        exclusive=(("--payload", "--file", "--stdin"),),
        examples=(
            (
                'pal put task.create --to @workers --payload \'{"title": "fix tests"}\'',
                "create a task for all workers",
            ),
            ("pal put myorg.deploy --to nova --file m.json", "read the payload from a file"),
            ("pal put myorg.ping", "reach every present agent"),
        ),
        see=(("envelopes", "envelopes.md"), ("addresses", "addresses.md")),
    ),
)

PATH_COMMANDS: Final = (
    Command(
        path=("route",),
        group=_GROUP,
        summary="Send a command with a payload to a path.",
        description=(
            "The message goes to every agent and session that is subscribed to the path. Every agent is "
            "subscribed to its own path, such as 'agent/luna'. If no subscription matches, the message is "
            "kept as a dead letter, which is not an error. '*' and '**' in the path reach all subscriptions "
            "that they match. Without --payload, the payload is an empty object."
        ),
        notes=(
            (
                "A message with the --id of an earlier one is not sent: the earlier one is returned. Under a "
                "harness, the file of --file must be in the working directory."
            ),
        ),
        positionals=(Positional(name="PATH", help="The path: agent/luna, slack/team/#general, …"),),
        options=(
            Option(name="--command", metavar="WORD", help=f"What to do (default: {DEFAULT_COMMAND})."),
            Option(
                name="--payload",
                metavar="JSON",
                help='JSON value: \'{"topic": "tests"}\', or - for standard input.',
            ),
            Option(
                name="--file",
                metavar="FILE",
                help="Read the payload from this file.",
                completes="files",
            ),
            Option(name="--stdin", help="Read the payload from standard input."),
            Option(name="--source", metavar="WORD", help="Where the message comes from (default: internal)."),
            Option(
                name="--external-id",
                metavar="ID",
                help="The id of the message in its source (default: none).",
            ),
            Option(
                name="--id",
                metavar="ULID",
                help="Your own id; a repeat returns the first message.",
            ),
            Option(
                name="--yes",
                help="Confirm wildcards to over five (required for agents).",
            ),
        ),
        exclusive=(("--payload", "--file", "--stdin"),),
        examples=(
            (
                'pal route agent/luna --command analyze --payload \'{"topic": "tests"}\'',
                "give luna a command",
            ),
            (
                "pal route 'slack/team/#general' --source slack --external-id ts-1234 --file m.json",
                "pass on a message of a chat",
            ),
            ("pal route 'agent/luna/**' --command stop", "reach all sub-agents of luna"),
        ),
        json=_CAMEL,
        see=_SEE,
    ),
    Command(
        path=("sub",),
        group=_GROUP,
        summary="Subscribe to paths.",
        description=(
            "A path subscription of an agent, or of one of its sessions, receives each message that is sent "
            "to a matching path. It is not a subscription to events ('pal events sub'). Every agent is "
            "subscribed to its own path agent/NAME: this subscription is not listed and cannot be removed."
        ),
        is_group=True,
        examples=(("pal sub list", "your path subscriptions"),),
        see=_SEE,
    ),
    Command(
        path=("sub", "add"),
        group=_GROUP,
        summary="Subscribe to a pattern of paths.",
        description=(
            "You can subscribe yourself and your sessions; a person subscribes an agent with --as NAME. A "
            "pattern that reaches the path of another agent requires an operator. The same pattern twice is "
            "one subscription. A missing session is created."
        ),
        positionals=(_PATTERN,),
        options=(_session("Subscribe this session, which then has its own copy."),),
        examples=(
            ("pal sub add 'slack/team/*'", "all channels of a team"),
            ("pal sub add 'webhook/github/**' --session ci", "for one of your sessions"),
            ("pal sub add 'webhook/github/push' --as luna", "as a person, for luna"),
        ),
        json=_CAMEL,
        see=_SEE,
    ),
    Command(
        path=("sub", "rm"),
        group=_GROUP,
        summary="End a path subscription.",
        description="The pattern must be written as it was added. A missing subscription is not an error.",
        positionals=(
            Positional(name="PATTERN", help="The pattern that was added.", completes="path subscriptions"),
        ),
        options=(_session("End the subscription of this session of yours."),),
        examples=(("pal sub rm 'slack/team/*'", "no more messages of that team"),),
        json=_CAMEL,
    ),
    Command(
        path=("sub", "list"),
        group=_GROUP,
        summary="List your path subscriptions.",
        description=(
            "Lists yours and those of your sessions, without the automatic one of your own path. With "
            "--as NAME those of another agent."
        ),
        options=(_session("Only those of this session."),),
        examples=(("pal sub list", "all your subscriptions"),),
        json=_CAMEL,
    ),
    Command(
        path=("dead",),
        group=_GROUP,
        summary="List messages to paths without a subscriber.",
        description=(
            "Lists the dead letters since the list was last cleared, the newest first. They stay in the log "
            "in any case: 'pal show ID' shows one."
        ),
        options=(
            Option(name="--clear", help="Empty the list, for everybody."),
            _LIMIT,
            _SINCE,
            _UNTIL,
        ),
        exclusive=(("--clear", "--limit"), ("--clear", "--since"), ("--clear", "--until")),
        examples=(
            ("pal dead --since 1h", "those of the last hour"),
            ("pal dead --clear", "start again with an empty list"),
        ),
        json=_CAMEL,
        see=(("dead letters", "paths.md#dead-letters"),),
    ),
    Command(
        path=("history",),
        group=_GROUP,
        summary="Show what an agent or session has received.",
        description=(
            "Shows the messages of a mailbox, read and unread, the newest first. Changes nothing. A message "
            "that was not sent to a path, such as one of 'pal send', is shown as the command 'message' with "
            "its text as the payload. With --session it also shows the automatic turns of that session."
        ),
        positionals=(
            Positional(name="NAME", help="The agent (default: you).", optional=True, completes="all agents"),
        ),
        options=(_session("Only the copies of this session."), _LIMIT, _SINCE, _UNTIL),
        examples=(
            ("pal history", "your latest messages"),
            ("pal history luna --session ci --limit 5", "the last five of a session"),
        ),
        json=_CAMEL,
    ),
    Command(
        path=("session",),
        group=_GROUP,
        summary="Manage the sessions of an agent.",
        description=(
            "A session of an agent has its own path subscriptions and its own mailbox. Every agent has the "
            "session main, which cannot be removed."
        ),
        is_group=True,
        examples=(("pal session list luna", "the sessions of luna"),),
        see=(("sessions", "paths.md#sessions"),),
    ),
    Command(
        path=("session", "create"),
        group=_GROUP,
        summary="Create a session, or change one.",
        description=(
            "An existing session keeps the values of options that you omit. You can manage your own "
            "sessions; an operator can manage those of all agents."
        ),
        positionals=(
            _AGENT,
            Positional(
                name="ID",
                help="Session id: letters, digits and _ . : @ # -, at most 64.",
                completes="sessions",
            ),
        ),
        options=(
            Option(name="--title", metavar="TEXT", help="A title for people."),
            Option(
                name="--harness-session",
                metavar="ID",
                help="The id by which the agent's harness knows the session.",
            ),
        ),
        examples=(('pal session create luna ci --title "The builds"', "a session with a title"),),
        json=_CAMEL,
        see=(("sessions", "paths.md#sessions"),),
    ),
    Command(
        path=("session", "list"),
        group=_GROUP,
        summary="List the sessions of an agent.",
        positionals=(_AGENT,),
        examples=(("pal session list luna", "the sessions of luna"),),
        json=_CAMEL,
    ),
    Command(
        path=("session", "show"),
        group=_GROUP,
        summary="Show a session and its subscriptions.",
        positionals=(
            _AGENT,
            Positional(
                name="ID",
                help=f"The id of the session (default: {MAIN}).",
                optional=True,
                completes="sessions",
            ),
        ),
        examples=(("pal session show luna ci", "one session"),),
        json=_CAMEL,
    ),
    Command(
        path=("session", "rm"),
        group=_GROUP,
        summary="Remove a session and its subscriptions.",
        description="Its waiting messages become dead. The agent keeps its own copies.",
        positionals=(_AGENT, _SESSION_ID),
        examples=(("pal session rm luna ci", "remove it"),),
    ),
)


# --------------------
# Function of `pal put`.

_LIMIT_PAYLOAD_BYTES: Final = 1024 * 1024


async def put(call: Call) -> int:
    """Send an envelope in the name of the caller, and report its recipients."""
    parsed = call.parsed
    payload = await _payload(call, _LIMIT_PAYLOAD_BYTES)
    if payload is not None and not isinstance(payload, dict):
        raise UsageError("the payload of an envelope must be a JSON object, such as '{\"key\": 1}'")
    # `is_ulid` accepts only capitals, as ids are stored; a caller may write them in any case.
    given = (parsed.value("--id") or "").upper()
    if parsed.has("--id") and not is_ulid(given):
        raise UsageError(f"--id must be a ULID (26 characters), not {shown(given)}")
    envelope = Draft(
        type=parsed.positionals[0],
        id=given,
        sender=call.caller.name,
        to=tuple(parsed.values("--to")),
        ts=call.now_ms(),
        payload=payload or {},
    )
    sent = await call.submit(Put(envelope=envelope))
    assert isinstance(sent, Sent)
    assert sent.event is not None  # it is not a dry run
    if call.is_json:
        await call.say_json(sent_view(sent))
        return 0
    names = ", ".join(sent.delivered_to) or "no agent"
    number = f"#{sent.event.seq}"
    sent_before = f"{number} was sent before," if sent.is_repeat else f"sent {number}"
    lines = [f"{sent_before} to {names}"]
    lines += [f"{group} has no members now; the envelope is kept" for group in sent.empty_groups]
    await call.say(call.safe("\n".join(lines), keep_lines=True))
    return 0


# --------------------
# Function of `pal route`.


async def route(call: Call) -> int:
    """Send a command with a payload to a path, and report its recipients."""
    parsed = call.parsed
    content = Content(
        command=parsed.value("--command") or DEFAULT_COMMAND,
        payload=await _payload(call),
        source=parsed.value("--source") or Content().source,
        external_id=parsed.value("--external-id") or "",
    )
    sent = await call.services.paths.route(
        call.caller,
        parsed.positionals[0],
        content,
        id=parsed.reference("--id").upper(),
        is_confirmed=parsed.has("--yes"),
        key=call.asked.key,
    )
    if call.is_json:
        await call.say_json(_route_view(sent))
    else:
        await call.say(call.safe(_sentence(sent)))
    return 0


async def _payload(call: Call, limit_bytes: int = LIMIT_BODY_BYTES) -> object:
    """Return the payload from the command line, a file or standard input; None without any."""
    written, path = call.parsed.value("--payload"), call.parsed.value("--file")
    if path is not None:
        return parse_payload(await read_content(call, path, limit_bytes=limit_bytes), path)
    if call.parsed.has("--stdin") or written == "-":
        return parse_payload(await read_content(call, None, limit_bytes=limit_bytes), "standard input")
    return None if written is None else parse_payload(written, "--payload")


def parse_payload(text: str, where: str) -> object:
    """Parse a payload. Raises UsageError with the position of the mistake."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:  # The decoder raises it for deep nesting, and not its own error.
        raise UsageError(f"{where} is nested too deep; nothing was sent") from None
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise UsageError(
            f"{where} is not JSON ({why}): write a text as '\"hello\"' and an object as '{{\"key\": 1}}'; "
            "nothing was sent"
        ) from None


def _sentence(sent: Delivered) -> str:
    to = [f"{one.agent_id} (session {one.session_id})" for one in sent.result.delivered_to_sessions]
    names = ", ".join([*to, *sent.result.delivered_to])
    if sent.is_repeat:
        return f"#{sent.seq} was sent before, to {names or 'no agent'}"
    if names:
        return f"sent #{sent.seq} to {names}"
    return (
        f"stored as #{sent.seq}: no agent is subscribed to {sent.message.path} "
        "(a dead letter; 'pal dead' lists them)"
    )


def _route_view(sent: Delivered) -> dict[str, object]:
    message = sent.message
    view = {"seq": sent.seq, "from": message.sender, "path": message.path, "timestamp": message.timestamp}
    result: dict[str, object] = msgspec.to_builtins(sent.result)
    return view | result | ({"repeat": True} if sent.is_repeat else {})


# --------------------
# Functions of `pal sub`.


async def subscribe(call: Call) -> int:
    """Subscribe the caller or one of its sessions to a pattern."""
    session = _own_session(call)
    # Without the key of the command, because a subscription that is added twice is stored once.
    done = await call.services.paths.subscribe(
        call.caller, call.owner, call.parsed.positionals[0], session=session
    )
    whom = readable_mailbox(mailbox_of(call.owner, session))
    note = f": {done.note}" if done.note else ""
    return await _say_subscribed(call, done, f"{whom} is subscribed to {done.pattern}{note}")


async def unsubscribe(call: Call) -> int:
    """End a path subscription of the caller or of one of its sessions."""
    session = _own_session(call)
    # Read before: the result is the same whether there was such a subscription or not.
    before = call.services.paths.subscriptions(call.owner, session=session)
    done = await call.services.paths.unsubscribe(
        call.caller, call.owner, call.parsed.positionals[0], session=session
    )
    whom = readable_mailbox(mailbox_of(call.owner, session))
    is_ended = any(one.pattern == done.pattern for one in before)
    verb = "is no longer" if is_ended else "was not"
    return await _say_subscribed(call, done, f"{whom} {verb} subscribed to {done.pattern}")


async def _say_subscribed(call: Call, done: SubscriptionResult, sentence: str) -> int:
    if not call.is_json:
        await call.say(call.safe(sentence))
        return 0
    view: dict[str, object] = {"agent": call.owner, "pattern": done.pattern}
    if session := _own_session(call):
        view["session"] = session
    view["subscriptions"] = msgspec.to_builtins(done.subscriptions)
    await call.say_json(view | ({"note": done.note} if done.note else {}))
    return 0


def _own_session(call: Call) -> str:
    session = call.parsed.value("--session")
    if session == "":
        raise UsageError("--session requires an id; leave it out for the agent itself")
    return session or ""


def sessions_of(call: Call, agent: str) -> Sequence[Session]:
    """Return the sessions of an agent; none for a script, which has no mailbox."""
    is_known = agent == HUMAN or call.services.broker.directory.get(agent) is not None
    return call.services.paths.sessions(agent) if is_known else ()


def subscriptions_of_all(call: Call, agent: str) -> list[tuple[str, PathSubscription]]:
    """Return the path subscriptions of an agent and of its sessions, each with the id of the session."""
    own = [("", one) for one in call.services.paths.subscriptions(agent)]
    sessions = sessions_of(call, agent)
    return own + [(session.id, one) for session in sessions for one in session.subscriptions]


async def list_subscriptions(call: Call) -> int:
    """List the path subscriptions of the caller and its sessions."""
    owner, only = call.owner, _own_session(call)
    if only:
        found = [(only, one) for one in call.services.paths.session(owner, only).subscriptions]
    else:
        found = subscriptions_of_all(call, owner)
    if call.is_json:
        await call.say_json_lines(
            {"agent": owner, **({"session": session} if session else {}), **msgspec.to_builtins(one)}
            for session, one in found
        )
        return 0
    if not found:
        await call.say("no path subscriptions, except the automatic one of the agent's own path")
        return 0
    columns = [
        Column(title="PATTERN", least=12),
        Column(title="FOR", least=8),
        Column(title="AGE", is_right=True),
    ]
    now = call.now_ms()
    rows = [
        [one.pattern, readable_mailbox(mailbox_of(owner, session)), ago(now - one.added_at)]
        for session, one in found
    ]
    await call.say_table(columns, rows)
    return 0


# --------------------
# Functions of `pal dead` and `pal history`.


async def dead(call: Call) -> int:
    """List the dead letters, or clear the list."""
    if call.parsed.has("--clear"):
        await call.services.paths.clear_dead_letters(call.caller)
        if call.is_json:
            await call.say_json({"cleared": True})
        else:
            await call.say("the list of dead letters is empty now; the messages stay in the log")
        return 0
    found = await call.services.paths.dead_letters(_range(call))
    if call.is_json:
        await call.say_json_lines(found)
        return 0
    if not found:
        await call.say("no dead letters")
        return 0
    columns = [
        Column(title="ID", is_right=True),
        Column(title="FROM", least=8),
        Column(title="PATH", least=12),
        Column(title="AGE", is_right=True),
        Column(title="TEXT", least=12),
    ]
    now = call.now_ms()
    rows = [
        [
            f"#{one.seq}",
            call.paint.name(one.sender),
            one.path,
            ago(now - one.timestamp),
            _text(one.command, one.payload),
        ]
        for one in found
    ]
    await call.say_table(columns, rows)
    return 0


async def history(call: Call) -> int:
    """Show the messages that a mailbox has received."""
    agent = _agent(call, call.parsed.positionals[0]) if call.parsed.positionals else call.owner
    session = _own_session(call)
    wanted = _range(call)
    messages = await call.services.paths.history(agent, session=session, wanted=wanted, with_seq=True)
    if session == MAIN:  # Its messages are in the mailbox of the agent, unless it has subscriptions.
        messages += await call.services.paths.history(agent, wanted=wanted, with_seq=True)
    turns = await call.services.turns.history(agent, session, wanted) if session else []
    if not messages and not turns and session:
        call.services.paths.session(agent, session)  # A removed session still has its history.
    both: list[RoutedMessage | Event] = [*messages, *turns]
    # Each list may have `limit` entries: the newest of both together are shown.
    found = sorted(both, key=lambda one: one.seq or 0, reverse=True)[: wanted.limit]
    if call.is_json:
        await call.say_json_lines([_turn_object(one) if isinstance(one, Event) else one for one in found])
        return 0
    if not found:
        await call.say("no messages yet")
        return 0
    columns = [
        Column(title="ID", is_right=True),
        Column(title="FROM", least=8),
        Column(title="PATH", least=12),
        Column(title="STATUS"),
        Column(title="AGE", is_right=True),
        Column(title="TEXT", least=12),
    ]
    now = call.now_ms()
    rows = []
    for one in found:
        if isinstance(one, Event):
            age = ago(now - one.ts)
            rows.append([f"#{one.seq}", call.paint.name(one.sender), "", one.type, age, summary(one)])
            continue
        handlers = [by.session_id for by in one.handled_by] if one.handled_by else []
        text = _text(one.command, one.payload)
        if handlers:
            text = f"{text} (handled by {', '.join(handlers)})"
        age = ago(now - one.timestamp)
        rows.append([f"#{one.seq}", call.paint.name(one.sender), one.path, one.status, age, text])
    await call.say_table(columns, rows)
    return 0


def _turn_object(event: Event) -> dict[str, object]:
    """Return an event of an automatic turn with the keys that the messages of a history have."""
    return {"id": event.id, "type": event.type, "timestamp": event.ts, "seq": event.seq, **event.payload}


def _range(call: Call) -> Range:
    limit = call.parsed.number("--limit", least=1)
    if limit is not None and limit > LIMIT_MESSAGES:
        raise UsageError(
            f"--limit must be at most {LIMIT_MESSAGES}; narrow the time with --since and --until"
        )
    return Range(
        limit=DEFAULT_MESSAGES if limit is None else limit,
        since=time_from(call, "--since"),
        until=time_from(call, "--until"),
    )


def _text(command: str, payload: object) -> str:
    """Return a message as people read it: its text, or its command with the payload."""
    match payload:
        # Only a text without other keys, which would not be shown.
        case {"text": str(text), **rest} if command == DEFAULT_COMMAND and not rest:
            return text
    return with_json(command, payload)


# --------------------
# Functions of `pal session`.


async def create_session(call: Call) -> int:
    """Create a session, or change the title or the harness session of an existing one."""
    agent = _agent(call, call.parsed.positionals[0])
    id_ = call.parsed.positionals[1]
    # Read before: the result is the same for a new session and a changed one.
    is_known = any(one.id == id_ for one in call.services.paths.sessions(agent))
    session = await call.services.paths.create_session(
        call.caller,
        CreateSession(
            agent=agent,
            session=id_,
            title=call.parsed.value("--title"),
            harness_session=call.parsed.value("--harness-session"),
        ),
    )
    if call.is_json:
        await call.say_json(_session_view(agent, session))
    else:
        verb = "changed" if is_known else "created"
        await call.say(call.safe(f"{verb} {readable_mailbox(mailbox_of(agent, session.id))}"))
    return 0


async def list_sessions(call: Call) -> int:
    """List the sessions of an agent."""
    agent = _agent(call, call.parsed.positionals[0])
    found = call.services.paths.sessions(agent)
    if call.is_json:
        await call.say_json_lines(_session_view(agent, one) for one in found)
        return 0
    columns = [
        Column(title="ID", least=8),
        Column(title="SUBSCRIPTIONS", is_right=True),
        Column(title="USED", is_right=True),
        Column(title="TITLE", least=8),
    ]
    now = call.now_ms()
    rows = [[one.id, str(len(one.subscriptions)), ago(now - one.last_used_at), one.title] for one in found]
    await call.say_table(columns, rows)
    return 0


async def show_session(call: Call) -> int:
    """Show one session."""
    agent, *rest = call.parsed.positionals
    agent = _agent(call, agent)
    session = call.services.paths.session(agent, rest[0] if rest else MAIN)
    if call.is_json:
        await call.say_json(_session_view(agent, session))
        return 0
    await call.say_lines(map(call.safe, _session_lines(call, agent, session)))
    return 0


def _session_lines(call: Call, agent: str, session: Session) -> Sequence[str]:
    created, used = call.clock_time(session.created_at), call.clock_time(session.last_used_at)
    lines = [readable_mailbox(mailbox_of(agent, session.id)), f"created {created}, last used {used}"]
    lines += [f"title {session.title}"] if session.title else []
    lines += [f"harness session {session.harness_session}"] if session.harness_session else []
    return [*lines, *(f"subscribed to {one.pattern}" for one in session.subscriptions)]


async def remove_session(call: Call) -> int:
    """Remove a session and its subscriptions."""
    written, id_ = call.parsed.positionals
    agent = _agent(call, written)
    await call.services.paths.remove_session(call.caller, agent, id_, key=call.asked.key)
    if call.is_json:
        await call.say_json({"agent": agent, "id": id_, "removed": True})
    else:
        await call.say(Safe(f"removed {call.safe(readable_mailbox(mailbox_of(agent, id_)))}"))
    return 0


def _session_view(agent: str, session: Session) -> Mapping[str, object]:
    return {"agent": agent, **msgspec.to_builtins(session)}


def _agent(call: Call, written: str) -> str:
    """Return the full name of an agent, or of the person. Raises NotFound."""
    name = written.removeprefix("@").lower()
    # The person is not in the directory of agents.
    return HUMAN if name == HUMAN else call.agent(written).name
