"""The commands that show conversations: threads of messages, and transcripts of sessions."""

from contextlib import aclosing, suppress
from typing import Final

from palaver.doors.cli.call import Call, for_people
from palaver.doors.cli.spec import Command, Option, Positional
from palaver.errors import BadRequest, NotFound, UsageError, cut_name, nearest
from palaver.harness.registry import READ_VERB, KnownSession, ReadOrder, known_session, order_to_words
from palaver.protocol.agents import Agent
from palaver.protocol.display import Column, ago
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.transcript import Detail, parse_span
from palaver.services.views import message_view
from palaver.state.references import read_thread, read_threads

# --------------------
# Rows of the commands that show conversations.

DEFAULT_THREADS: Final = 20
"""How many threads `pal thread list` shows."""

_GROUP: Final = "Messages"

THREAD_COMMANDS: Final = (
    Command(
        path=("thread",),
        group=_GROUP,
        summary="Read conversations.",
        description=(
            "A thread is a name that messages share: 'pal send --thread NAME'. A message in it that names no "
            "recipient goes to its participants. A reply with --reply-to is in the thread of the message "
            "that it answers."
        ),
        is_group=True,
        examples=(("pal thread list", "list recent conversations"),),
    ),
    Command(
        path=("thread", "list"),
        group=_GROUP,
        summary="List the most recently active threads.",
        description="Shows the newest first, with the number of messages in each and the participants.",
        options=(
            Option(name="--limit", metavar="N", help=f"At most N threads (default: {DEFAULT_THREADS})."),
        ),
        examples=(("pal thread list", "list recent conversations"),),
    ),
    Command(
        path=("thread", "show"),
        group=_GROUP,
        summary="Show a thread as a conversation.",
        description="Shows all messages, from the first to the last.",
        positionals=(Positional(name="THREAD", help="The name of the thread.", completes="threads"),),
        options=(Option(name="--last", metavar="N", help="Only the newest N messages (default: all)."),),
        examples=(("pal thread show pr-123", "read a conversation from the start"),),
    ),
)


# --------------------
# Row of the command that reads transcripts.

DEFAULT_ENTRIES: Final = 20
"""The default number of entries that `pal transcript` shows."""

TRANSCRIPT_COMMANDS: Final = (
    Command(
        path=("transcript",),
        group="Agents",
        summary="Read the transcript of an agent's session.",
        description=(
            "Reads the transcript that the agent's harness stores (Claude Code, Codex, Gemini CLI, "
            "OpenCode), with your own rights."
        ),
        notes=(
            (
                "Entries are counted from 1; 10- is all from there on, and the default with --search is all. "
                "--detail normal shows text, detailed also tools, full everything. --search looks in the "
                "shown parts; case matters only if the expression has a capital letter. --all includes "
                "agents that left."
            ),
        ),
        positionals=(
            Positional(
                name="NAME",
                help="Full name of the agent; not with --all.",
                optional=True,
                completes="all agents",
            ),
            Positional(
                name="RANGE",
                help=f"Entries: 10-15, 10 or 10- (default: the last {DEFAULT_ENTRIES}).",
                optional=True,
            ),
        ),
        options=(
            Option(
                name="--detail",
                metavar="LEVEL",
                help="Detail: normal, detailed or full (default: normal).",
                choices=tuple(Detail),
            ),
            Option(
                name="--search",
                metavar="RE",
                help="Only entries that match this regular expression.",
            ),
            Option(name="--last", metavar="N", help="Only the last N of these entries."),
            Option(
                name="--all",
                help="With --search: the transcripts of all agents.",
            ),
        ),
        examples=(
            ("pal transcript luna", "the latest entries"),
            ("pal transcript luna 10-15 --detail detailed", "six entries, with tools"),
            ("pal transcript luna --search 'flaky|timeout'", "find entries about a topic"),
            ("pal transcript --all --search 'flaky|timeout'", "find them in all sessions"),
        ),
        json=(
            "one line for each entry, with the name of the agent. This is also the default if the caller is "
            "an agent."
        ),
        see=(("transcripts", "transcripts.md"),),
    ),
)


# --------------------
# Functions of `pal thread`. They change nothing.

_PAGE: Final = 500
_LOOKED_AT: Final = 500
"""How many of the latest threads are searched for a similar name."""


async def list_threads(call: Call) -> int:
    """Show the threads with the latest messages, newest first."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_THREADS
    threads = read_threads(call.services.queries.rows, limit)
    if call.is_json:
        for thread in threads:
            view = {
                "thread": thread.name,
                "messages": thread.count,
                "first": thread.first,
                "last": thread.last,
            }
            await call.say_json({**view, "ts": thread.ts, "names": list(thread.names)})
        return 0
    if not threads:
        await call.say("no threads yet; 'pal send @nova --thread NAME -- TEXT' starts one")
        return 0
    now = call.now_ms()
    columns = [
        Column(title="THREAD", least=8, paint=call.paint.bold),
        Column(title="MESSAGES", is_right=True),
        Column(title="LAST", is_right=True),
        Column(title="WHO", least=8),
    ]
    rows = [
        [thread.name, str(thread.count), ago(now - thread.ts), call.paint.names(thread.names)]
        for thread in threads
    ]
    await call.say_table(columns, rows)
    return 0


async def show_thread(call: Call) -> int:
    """Show the messages of a thread in their order; with --last only the newest ones."""
    name = call.parsed.positionals[0]
    if read_thread(call.services.queries.rows, name) is None:
        near = nearest(name, [one.name for one in read_threads(call.services.queries.rows, _LOOKED_AT)], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "'pal thread list' shows them"
        raise NotFound(f"thread {cut_name(name)}", hint)
    last = call.parsed.number("--last", least=1)
    query = Query(types=("message",), threads=(name,), last=last, limit=_PAGE, with_imported=True)
    if last is not None:
        for event in await call.services.queries.read(query):
            await _show(call, event)
        return 0
    async with aclosing(call.services.queries.pages(query)) as found:
        async for page in found:
            for event in page:
                await _show(call, event)
    return 0


async def _show(call: Call, event: Event) -> None:
    if call.is_json:
        await call.say_json(message_view(event))
    else:
        await call.say(for_people(call, event))


# --------------------
# Function of `pal transcript`: tell the client which session to read. The daemon reads no transcript.

_LIMIT_SEARCH: Final = 1000
"""Characters of a regular expression."""
_LIMIT_SESSIONS: Final = 2000
"""How many sessions one search reads: all of them are arguments of one process."""


async def transcript(call: Call) -> int:
    """Let the client print a part of an agent's transcript, or search all transcripts."""
    parsed = call.parsed
    search, newest = parsed.value("--search") or "", parsed.number("--last", least=1) or 0
    sessions, ranges = _sessions(call)
    if not ranges and not search and not newest:
        newest = DEFAULT_ENTRIES
    first, last = _span(ranges[0]) if ranges else (1, None)
    if len(search) > _LIMIT_SEARCH:
        raise UsageError(f"--search accepts at most {_LIMIT_SEARCH} characters")
    order = ReadOrder(
        known=tuple(sessions),
        is_all=parsed.has("--all"),
        first=first,
        last=last,
        newest=newest,
        level=Detail(parsed.value("--detail") or Detail.NORMAL),
        search=search,
        is_json=call.is_json_stream,
        is_refusal_json=call.is_json,
    )
    call.connection.run_here(READ_VERB, *order_to_words(order))
    return 0


def _sessions(call: Call) -> tuple[list[KnownSession], list[str]]:
    """Return the sessions that a command line selects, and the arguments after the name."""
    parsed = call.parsed
    if not parsed.has("--all"):
        if not parsed.positionals:
            raise UsageError("name the agent: pal transcript NAME; or search all: --all --search RE")
        name, *ranges = parsed.positionals
        return [session_of_agent(call, call.agent(name))], ranges
    if parsed.positionals or not parsed.has("--search"):
        raise UsageError("--all searches all transcripts: pal transcript --all --search RE")
    found = []
    # The newest first, because the number of searched sessions is limited.
    for agent in sorted(call.services.broker.directory.all(), key=_newest_first):
        with suppress(NotFound):  # it has no transcript, or not on this machine
            found.append(session_of_agent(call, agent))
    if len(found) > _LIMIT_SESSIONS:
        call.warn(f"only the newest {_LIMIT_SESSIONS} of {len(found)} sessions are searched")
    # Cut first, while the newest are at the beginning.
    return sorted(found[:_LIMIT_SESSIONS], key=_by_agent), []


def _newest_first(agent: Agent) -> int:
    return -agent.joined


def _by_agent(known: KnownSession) -> str:
    return known.agent


def session_of_agent(call: Call, agent: Agent) -> KnownSession:
    """Return what the daemon knows about an agent's session."""
    return known_session(
        agent,
        path=call.services.agents.transcripts.path_of(agent.name),
        is_present=not agent.left and call.services.callers.presence.is_present(agent.name),
        is_own=agent.name == call.caller.name,
    )


def _span(text: str) -> tuple[int, int | None]:
    """Parse a range from the command line; an invalid one is a UsageError."""
    try:
        return parse_span(text)
    except BadRequest as error:
        raise UsageError(str(error)) from error
