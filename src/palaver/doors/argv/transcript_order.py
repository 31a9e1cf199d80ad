"""What the daemon tells a client that is to read a transcript by itself: whose it is, and which part. Pure.

The daemon opens no transcript: it says what it knows of the session, and the client reads with its rights.
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
"""Names the file with the excerpts, in the environment of a request that is made again with them."""


class KnownSession(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an agent's session."""

    agent: str
    harness: str
    session: str = ""
    path: str = ""
    """The transcript itself, where a hook has told it."""
    pid: int = 0
    """The harness's process, when it runs on this machine now."""
    is_own: bool = False
    """It is the agent that asks: its environment says which session it is in."""


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript to print: entries `first` to `last`, or the `newest` so many of them."""

    known: KnownSession
    first: int = 1
    last: int | None = None
    newest: int = 0
    level: Level = Level.NORMAL
    search: str = ""
    is_json: bool = False
    """Entries are JSON: it was asked for, or a harness reads them."""
    is_refusal_json: bool = False
    """JSON was asked for, so that a refusal is JSON too, as with every command."""


class ExcerptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Stretches to take. The command line that is to be asked again with them stands behind the order."""

    wanted: tuple[tuple[KnownSession, Stretch], ...]
    is_json: bool = False


def known_session(agent: Agent, *, path: str, is_present: bool, is_own: bool) -> KnownSession:
    """Say what is known of an agent's session; raises where there is no transcript to read."""
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
    if agent.parent:  # the process and its environment tell of the parent's session
        is_present = is_own = False
    pid = agent.seat.pid if agent.seat is not None and is_present else 0
    session = "" if agent.link else agent.session
    return KnownSession(
        agent=agent.name, harness=agent.harness, session=session, path=path, pid=pid, is_own=is_own
    )


_encode: Final = msgspec.json.Encoder().encode


def order_to_word(order: ReadOrder | ExcerptOrder) -> str:
    """Write an order as one word of a command line. Bytes that are no UTF-8 are refused before."""
    return _encode(order).decode()


def read_order_from_word(word: str) -> ReadOrder:
    """The pair of `order_to_word` for what is to be printed."""
    return msgspec.json.decode(word, type=ReadOrder)


def excerpt_order_from_word(word: str) -> ExcerptOrder:
    """The pair of `order_to_word` for stretches of a bundle."""
    return msgspec.json.decode(word, type=ExcerptOrder)
