"""What the SDK can ask of the daemon, as it stands on a line. Pure.

What has its default is left out, so the defaults are those of the daemon; a test compares the two.
"""

from typing import Final

import msgspec

from palaver.errors import BadText, MessageTooLarge
from palaver.model.last_report import Outcome
from palaver.model.text import LIMIT_FRAME_BYTES


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op"):
    """Every request. Its name on the wire is its tag."""


_encode: Final = msgspec.json.Encoder().encode


def request_to_json(number: int, request: Request) -> bytes:
    """Write a request on one line, without its end. The number is what its answer is known by.

    Raises BadText for half a surrogate pair and MessageTooLarge for a line that the daemon would not read.
    """
    try:
        line = b'{"req":%d,%b' % (number, _encode(request)[1:])
    except UnicodeEncodeError as error:
        raise BadText("the request", ord(error.object[error.start]), error.start) from error
    if len(line) > LIMIT_FRAME_BYTES:
        raise MessageTooLarge("the request", len(line), LIMIT_FRAME_BYTES)
    return line


class Join(Request, frozen=True, kw_only=True, tag="join"):
    """Open a name on this connection. Who brings the same secret again is the same one."""

    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    runtime: str = ""
    version: str = ""
    secret: str = ""


class Leave(Request, frozen=True, kw_only=True, tag="leave"):
    """Give the name up."""

    reason: str = "left"


class Send(Request, frozen=True, kw_only=True, tag="send"):
    """Send a text. The same `id` again is the same message."""

    text: str
    to: tuple[str, ...] = ()
    mentions: bool = False
    intent: str = ""
    thread: str = ""
    reply_to: str = ""
    priority: str = ""
    expires_ms: int = 0
    id: str = ""
    bundle_id: str = ""
    yes: bool = False
    dry_run: bool = False
    expects_reply: bool = False


class Put(Request, frozen=True, kw_only=True, tag="put"):
    """Store an envelope."""

    envelope: msgspec.Raw


class Listen(Request, frozen=True, kw_only=True, tag="listen"):
    """Push my mail as it comes."""


class Ack(Request, frozen=True, kw_only=True, tag="ack"):
    """These messages were seen."""

    messages: tuple[int, ...]


class Status(Request, frozen=True, kw_only=True, tag="status"):
    """Say what I am doing."""

    state: str
    name: str = ""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class Events(Request, frozen=True, kw_only=True, tag="events"):
    """Read the log, or with `follow` be pushed what comes behind a place."""

    types: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    after: int = 0
    last: int | None = None
    search: str = ""
    limit: int = 1000
    follow: bool = False


class Whoami(Request, frozen=True, kw_only=True, tag="whoami"):
    """Who am I here?"""


class CallTool(Request, frozen=True, kw_only=True, tag="tool"):
    """Call one of the tools that models call. The same `key` again is done once."""

    tool: str
    arguments: dict[str, object] = {}
    cwd: str = ""
    key: str = ""


class ListAgents(Request, frozen=True, kw_only=True, tag="list"):
    """Who is there? With `agent`: how is that one, and what waits for it?"""

    agent: str = ""


class Receipts(Request, frozen=True, kw_only=True, tag="receipts"):
    """What became of a message?"""

    message: str


# What a holder asks: the terminal of one agent is its own.


class Hold(Request, frozen=True, kw_only=True, tag="hold"):
    """Register the agent that runs in process `pid`, with a ticket or with the secret of before."""

    pid: int
    name: str = ""
    ticket: str = ""
    secret: str = ""
    cols: int = 0
    rows: int = 0
    version: str = ""
    session: str = ""


class Accompany(Request, frozen=True, kw_only=True, tag="accompany"):
    """Be the companion of one session of the harness that started this process."""

    harness: str
    session: str
    cwd: str = ""
    version: str = ""


class Lane(Request, frozen=True, kw_only=True, tag="lane"):
    """Have mail offered, each offer once."""

    kind: str
    name: str = ""
    reaches_busy: bool = True
    wakes_idle: bool = True
    remembers: bool = False
    outcomes: tuple[Outcome, ...] = ()
    carrying: tuple[int, ...] = ()
    """What is still in hand from an earlier connection."""


class Gate(Request, frozen=True, kw_only=True, tag="gate"):
    """Say whether mail can come through a lane now."""

    lane: int
    open: bool
    paused: bool = False
    reason: str = ""


class Answer(Request, frozen=True, kw_only=True, tag="answer"):
    """What became of an offer."""

    lane: int
    offer: int
    answer: str
    grade: str = ""
    reason: str = ""
    evidence: str = ""


class SubBegin(Request, frozen=True, kw_only=True, tag="sub_begin"):
    """A sub-agent begins, or goes on. The answer says its name."""

    key: str
    name: str = ""
    type: str = ""


class SubEnd(Request, frozen=True, kw_only=True, tag="sub_end"):
    """A sub-agent has ended."""

    key: str
    name: str = ""
    reason: str = "ended"


class Permission(Request, frozen=True, kw_only=True, tag="permission"):
    """A person is asked to allow something; with an outcome, what became of that."""

    request: str
    name: str = ""
    session: str = ""
    tool: str = ""
    input: dict[str, object] = {}
    outcome: str = ""


class Typed(Request, frozen=True, kw_only=True, tag="typed"):
    """A person typed this at the terminal."""

    text: str


class Tell(Request, frozen=True, kw_only=True, tag="tell"):
    """Answer what the daemon asked."""

    ask: int
    ok: dict[str, object] = {}
    error: str = ""
    message: str = ""
    done: bool = True
