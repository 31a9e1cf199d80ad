"""Lines of JSON on the Unix door: what can be asked, and how answers look. Pure.

{"req": 7, "op": "send", "to": ["@nova"], "text": "hello"}        a request, tagged by its sender
{"req": 7, "ok": {...}}                                           its answer
{"req": 7, "error": "unknown_recipient", "message": "...", "details": {...}}
{"push": "message", "name": "luna", "message": {...}}             what nobody asked for just now
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec

from palaver.doors.lines_beside_wire import AccompanyOp, PermissionOp
from palaver.doors.lines_hold_wire import GateOp, HoldOp, SubBeginOp, SubEndOp, TellOp, TypedOp, WireOp
from palaver.errors import BadRequest, PalaverError
from palaver.model.text import LIMIT_FRAME_BYTES

Place = Annotated[int, msgspec.Meta(ge=0, le=10**15 - 1)]
"""A place in the log, or a number of things: never negative, and never more than a log can hold."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=10**15)]


class Whoami(WireOp, frozen=True, kw_only=True, tag="whoami"):
    """Who am I here?"""


class JoinOp(WireOp, frozen=True, kw_only=True, tag="join"):
    """Open a name on this connection. `secret` is what an earlier join gave: the same one is back."""

    tag: str = ""
    role: str = "worker"
    harness: str = ""
    runtime: str = ""
    version: str = ""
    secret: str = ""


class LeaveOp(WireOp, frozen=True, kw_only=True, tag="leave"):
    """Give a name up."""

    reason: str = "left"


class SendOp(WireOp, frozen=True, kw_only=True, tag="send"):
    """Send a text. `mentions` asks for `@words` in it to be recipients too."""

    text: str
    to: tuple[str, ...] = ()
    mentions: bool = False
    intent: str = ""
    thread: str = ""
    reply_to: str = ""
    priority: str = ""
    expires_ms: Milliseconds = 0
    id: str = ""
    bundle_id: str = ""
    yes: bool = False
    dry_run: bool = False
    expects_reply: bool = False


class PutOp(WireOp, frozen=True, kw_only=True, tag="put"):
    """Store a foreign envelope and route it unread."""

    envelope: msgspec.Raw


class ListenOp(WireOp, frozen=True, kw_only=True, tag="listen"):
    """Push the name's mail as it comes; each message waits for its `ack`."""


class UnlistenOp(WireOp, frozen=True, kw_only=True, tag="unlisten"):
    """Push no more; what was not acknowledged is open again."""


class AckOp(WireOp, frozen=True, kw_only=True, tag="ack"):
    """These messages were seen."""

    messages: tuple[Place, ...]


class StatusOp(WireOp, frozen=True, kw_only=True, tag="status"):
    """Say what the name is doing."""

    state: str
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class EventsOp(WireOp, frozen=True, kw_only=True, tag="events"):
    """Read the log; with `follow` pushes go on as events come."""

    types: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    after: Place = 0
    last: Place | None = None
    search: str = ""
    limit: Place = 1000
    follow: bool = False


class ToolOp(WireOp, frozen=True, kw_only=True, tag="tool"):
    """Call one of the tools that models call, with the same parameters. The same `key` again is done once."""

    tool: str
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    cwd: str = ""
    key: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")] = ""


class ListOp(WireOp, frozen=True, kw_only=True, tag="list"):
    """Who is there; with `agent` that one alone, and what waits for it."""

    agent: str = ""


class ReceiptsOp(WireOp, frozen=True, kw_only=True, tag="receipts"):
    """What became of a message."""

    message: str


class LaneOp(WireOp, frozen=True, kw_only=True, tag="lane"):
    """Hold a lane for the name: mail is offered on it, each offer once. `outcomes` are those of before.

    `carrying` is what an earlier connection offered and is still in hand: it has no outcome yet.
    """

    kind: str
    reaches_busy: bool = True
    wakes_idle: bool = True
    remembers: bool = False
    outcomes: tuple["Outcome", ...] = ()
    carrying: tuple[Place, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages that were carried for an earlier daemon."""

    messages: tuple[Place, ...]
    answer: str
    grade: str = ""


class AnswerOp(WireOp, frozen=True, kw_only=True, tag="answer"):
    """A lane's word on an offer: seen, refused, deferred or unconfirmed."""

    lane: int
    offer: int
    answer: str
    grade: str = ""
    reason: str = ""
    evidence: str = ""
    """What is kept with the step, such as the screen at that moment."""


Op = (
    Whoami
    | JoinOp
    | LeaveOp
    | SendOp
    | PutOp
    | ListenOp
    | UnlistenOp
    | AckOp
    | StatusOp
    | EventsOp
    | ToolOp
    | ListOp
    | ReceiptsOp
    | LaneOp
    | AnswerOp
    | HoldOp
    | GateOp
    | TypedOp
    | TellOp
    | SubBeginOp
    | SubEndOp
    | AccompanyOp
    | PermissionOp
)

_decoder: Final[msgspec.json.Decoder[Op]] = msgspec.json.Decoder(Op)
_number: Final = msgspec.json.Decoder(dict[str, object])
_encode: Final = msgspec.json.Encoder().encode


class LineReader:
    """Cuts a stream of bytes into lines. Half a line waits for its other half; one too long is dropped."""

    def __init__(self, limit_bytes: int = LIMIT_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Take bytes in and give every line that is whole, and None for each that was too long."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            if (whole := self._ended(line)) != b"":
                yield whole
        if self._is_dropping:
            return
        self._buffer += rest
        if len(self._buffer) > self._limit_bytes:
            self._is_dropping = True
            self._buffer.clear()
            yield None

    def rest(self) -> bytes:
        """Give what was begun and never ended."""
        return bytes(self._buffer)

    def _ended(self, line: bytes) -> bytes | None:
        if self._is_dropping:
            self._is_dropping = False
            return b""
        if self._buffer:
            line = bytes(self._buffer) + line
            self._buffer.clear()
        return line.strip() if len(line) <= self._limit_bytes else None


def op_from_json(line: bytes) -> Op:
    """Read one request; raises BadRequest with a sentence that names the field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def req_of(line: bytes) -> int:
    """Give the number of a request that could not be read, so that its error finds its way; 0 for none."""
    try:
        found = _number.decode(line).get("req", 0)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0


def answer_line(req: int, ok: object) -> bytes:
    """Write the answer to a request."""
    return _encode({"req": req, "ok": ok}) + b"\n"


def error_line(req: int, error: PalaverError) -> bytes:
    """Write a refusal."""
    return _encode({"req": req, **error_object(error)}) + b"\n"


def error_object(error: PalaverError) -> dict[str, object]:
    """Give an error as every JSON door shows it."""
    shown: dict[str, object] = {"error": error.code, "message": str(error)}
    if error.details:
        shown["details"] = dict(error.details)
    return shown


def push_line(kind: str, fields: Mapping[str, object]) -> bytes:
    """Write what nobody asked for just now."""
    return _encode({"push": kind, **fields}) + b"\n"
