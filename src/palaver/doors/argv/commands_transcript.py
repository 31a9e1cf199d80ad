"""`pal transcript`: tell the client which session to read. The daemon itself reads no transcript."""

from typing import Final

from palaver.doors.argv.call import Call
from palaver.doors.argv.table_transcript import DEFAULT_ENTRIES
from palaver.doors.argv.transcript_order import (
    READ_VERB,
    KnownSession,
    ReadOrder,
    known_session,
    order_to_word,
)
from palaver.errors import BadRequest, UsageError
from palaver.model.agent import Agent
from palaver.model.transcript import Level, parse_span

_LIMIT_SEARCH: Final = 1000


async def transcript(call: Call) -> int:
    """Let the client print a part of an agent's transcript."""
    parsed = call.parsed
    name, *ranges = parsed.positionals
    search, newest = parsed.value("--search") or "", parsed.number("--last", least=1) or 0
    if not ranges and not search and not newest:
        newest = DEFAULT_ENTRIES
    first, last = _span(ranges[0]) if ranges else (1, None)
    if len(search) > _LIMIT_SEARCH:
        raise UsageError(f"--search takes at most {_LIMIT_SEARCH} characters")
    order = ReadOrder(
        known=session_of_agent(call, call.agent(name)),
        first=first,
        last=last,
        newest=newest,
        level=Level(parsed.value("--detail") or Level.NORMAL),
        search=search,
        is_json=call.is_json_stream,
        is_refusal_json=call.is_json,
    )
    call.connection.run_here(READ_VERB, order_to_word(order))
    return 0


def session_of_agent(call: Call, agent: Agent) -> KnownSession:
    """Return what the daemon knows about an agent's session."""
    return known_session(
        agent,
        path=call.services.transcripts.path_of(agent.name),
        is_present=not agent.left and call.services.presence.is_present(agent.name),
        is_own=agent.name == call.caller.name,
    )


def _span(text: str) -> tuple[int, int | None]:
    """Parse a range from the command line; an invalid one is a UsageError."""
    try:
        return parse_span(text)
    except BadRequest as error:
        raise UsageError(str(error)) from error
