"""Excerpts of transcripts for a bundle: the client reads them, and repeats its request with them.

The reply to the first request says which sessions to read. The client reads the transcripts with its own
rights and makes the same request again, with a file of the excerpts. The daemon opens no file.
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
"""Limit of that file. It is above the limit of a bundle, so that the check of the bundle reports the size."""


def let_client_take(call: Call) -> bool:
    """Let the client read the excerpts that `--transcript` names; return False if there is nothing to read.

    After True the command is done: the client repeats it.
    """
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
    """Let the client send its excerpts; raise `BadRequest` if they do not match the options."""
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
