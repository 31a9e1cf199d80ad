"""Stretches of transcripts on their way into a bundle: the client takes them, and asks again with them.

The first request says whose they are. The client reads the transcripts with its own rights and makes the same
request once more, with a file that holds what it took. The daemon opens nothing.
"""

from typing import Final

import msgspec

from palaver.doors.argv.call import Call
from palaver.doors.argv.commands_transcript import session_of_agent
from palaver.doors.argv.transcript_order import EXCERPT_VERB, EXCERPTS, ExcerptOrder, order_to_word
from palaver.errors import BadRequest, NotFound
from palaver.model.agent import Agent
from palaver.model.bundle import LIMIT_BUNDLE_BYTES
from palaver.model.transcript import Excerpt, Stretch, parse_stretch

_LIMIT_BYTES: Final = 2 * LIMIT_BUNDLE_BYTES
"""Of the file: what is taken may be over the limit of a bundle, which then says so."""


def let_client_take(call: Call) -> bool:
    """Send the client off to take what `--transcript` names; False when there is nothing (more) to take."""
    given = call.parsed.values("--transcript")
    if not given or call.parsed.has("--transcript-file") or EXCERPTS in call.asked.environment:
        return False
    wanted = tuple(
        (session_of_agent(call, _agent(call, stretch)), stretch) for stretch in map(parse_stretch, given)
    )
    order = ExcerptOrder(wanted=wanted, is_json=call.is_json)
    call.connection.run_here(EXCERPT_VERB, order_to_word(order), *call.asked.argv)
    return True


async def read_excerpts(call: Call) -> tuple[Excerpt, ...]:
    """Let the client read what it took; raises `BadRequest` when it is not what was asked for."""
    content = await call.connection.read_file(call.asked.environment.get(EXCERPTS, ""), _LIMIT_BYTES)
    try:
        found = msgspec.json.decode(content, type=tuple[Excerpt, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = ()
    wanted = [
        (_agent(call, stretch).name, stretch.first, stretch.last, stretch.level.value)
        for stretch in map(parse_stretch, call.parsed.values("--transcript"))
    ]
    if [(one.agent, one.first, one.last, one.level) for one in found] != wanted:
        raise BadRequest(f"the file that {EXCERPTS} names does not hold what --transcript asks for")
    return found


def _agent(call: Call, stretch: Stretch) -> Agent:
    if stretch.agent:
        return call.agent(stretch.agent)
    own = call.services.broker.directory.get(call.caller.name)
    if own is None:
        raise NotFound(
            f"transcript of {call.caller.name}",
            "say whose it is with NAME:A-B, or name a file of JSON lines with --transcript-file",
        )
    return own
