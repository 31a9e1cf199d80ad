"""The orders that the daemon sends to a client that reads a transcript: which session, and which part. Pure.

The daemon opens no transcript. It sends what it knows about the session, and the client reads the transcript
with its own rights.
"""

from typing import Final

import msgspec

from palaver.errors import NotFound
from palaver.harness.transcripts import TRANSCRIPTS
from palaver.model.agent import Agent
from palaver.model.transcript import Level, Stretch

READ_VERB: Final = "__transcript"
EXCERPT_VERB: Final = "__excerpts"
EXCERPTS: Final = "PALAVER_EXCERPTS"
"""The variable that names the file of excerpts, in the environment of the repeated request."""


class KnownSession(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's knowledge about an agent's session."""

    agent: str
    harness: str
    session: str = ""
    path: str = ""
    """The transcript's path, if a hook has reported it."""
    pid: int = 0
    """The harness's process, if it runs on this machine now."""
    is_own: bool = False
    """The agent is the caller: the client's environment says which session it is in."""


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript to print: entries `first` to `last`, or only the last `newest` entries."""

    known: KnownSession
    first: int = 1
    last: int | None = None
    newest: int = 0
    level: Level = Level.NORMAL
    search: str = ""
    is_json: bool = False
    """Entries are JSON: the caller asked for it, or a harness reads them."""
    is_refusal_json: bool = False
    """The caller asked for JSON, so errors are JSON too, as with every command."""


class ExcerptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Excerpts to read. The command line to repeat with them follows this order."""

    wanted: tuple[tuple[KnownSession, Stretch], ...]
    is_json: bool = False


def known_session(agent: Agent, *, path: str, is_present: bool, is_own: bool) -> KnownSession:
    """Return what is known about an agent's session; raise NotFound if it has no readable transcript."""
    if agent.remote:
        raise NotFound(
            f"transcript of {agent.name} on this machine", "it is kept where the agent runs: ask for it there"
        )
    if agent.harness not in TRANSCRIPTS:
        what = f"what {agent.harness} keeps" if agent.harness else "an agent without a harness"
        raise NotFound(
            f"transcript of {agent.name}",
            f"{what} is not known; those of {', '.join(TRANSCRIPTS)} can be read, and for a bundle a file of "
            "JSON lines that --transcript-file names",
        )
    if agent.parent:  # the process and its environment belong to the parent's session
        is_present = is_own = False
    pid = agent.seat.pid if agent.seat is not None and is_present else 0
    session = "" if agent.link else agent.session
    return KnownSession(
        agent=agent.name, harness=agent.harness, session=session, path=path, pid=pid, is_own=is_own
    )


_encode: Final = msgspec.json.Encoder().encode


def order_to_word(order: ReadOrder | ExcerptOrder) -> str:
    """Format an order as one word of a command line. Bytes that are not UTF-8 were refused before."""
    return _encode(order).decode()


def read_order_from_word(word: str) -> ReadOrder:
    """Parse a `ReadOrder` that `order_to_word` wrote."""
    return msgspec.json.decode(word, type=ReadOrder)


def excerpt_order_from_word(word: str) -> ExcerptOrder:
    """Parse an `ExcerptOrder` that `order_to_word` wrote."""
    return msgspec.json.decode(word, type=ExcerptOrder)
