"""Requests and replies on lines of JSON, one struct per operation. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec

from palaver.errors import BadRequest, BadText, MessageTooLarge, PalaverError
from palaver.protocol.events import Outcome, Seq
from palaver.protocol.paths import (
    DEFAULT_COMMAND,
    INTERNAL,
    MigratedAutoRun,
    MigratedMessage,
    MigratedSession,
    MigratedSubscription,
)
from palaver.protocol.text import LIMIT_FRAME_BYTES
from palaver.protocol.views import AnyAsk

# --------------------
# The common part of every request on a line of JSON. Pure.


class WireOp(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", forbid_unknown_fields=True
):
    """Base of every request: `req` is returned with the response. Its name on the wire is its tag.

    Each also has a `name`, which chooses one of the names opened on the link. It follows the required fields.
    Defaults are omitted when a request is encoded; values are validated when it is decoded. An unknown field
    is refused, because a misspelt option, or one that this version does not know, would otherwise silently
    have no effect.
    """

    req: int = 0


# --------------------
# Requests of an agent's holder, or of a companion without a terminal, as lines. Pure.
#
# A holder owns the terminal of one agent. It registers the agent (`hold`), opens a lane for mail (`lane`),
# reports whether the terminal accepts input now (`gate`), the outcome of an offer (`answer`) and lines that a
# person typed (`typed`), and responds to requests of the daemon (`tell`):
#
# -> {"push": "control", "ask": 3, "name": "luna", "verb": "peek", "lines": 0}     a request of the daemon
# -> {"req": 9, "op": "tell", "ask": 3, "ok": {"text": "..."}}                     its response
#
# With the `digest` of a screen, `peek` is answered once the screen is another one, or after a while.
#
# A companion is started by a harness itself, for one of its sessions (`accompany`). It, and a holder whose
# harness supports it, report permission requests (`permission`), and receive a person's decision:
#
# -> {"push": "decision", "name": "luna", "request": "per_1", "allowed": true, "digest": "3f9c2a..."}
#
# The digest is that of the session, the tool and the input that the person saw.

LIMIT_EVIDENCE_BYTES: Final = 16 * 1024
"""Bytes of a screen that are stored with a delivery."""

LIMIT_AMONG: Final = 200
"""Sessions that a person may be about to choose from; older ones are left out."""

TAKEN: Final = "taken"
GONE: Final = "gone"
"""The outcome of a request: the harness accepted a person's decision, or does not ask any more."""

Size = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""Columns or rows of a terminal; 0 is unknown."""

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class HoldOp(WireOp, frozen=True, kw_only=True, tag="hold"):
    """Register the agent that runs in process `pid`, a child of the caller, or resume it.

    The first time with a `ticket`; later with the `secret` and the `name` of the first response. A `secret`
    given with the ticket is used instead of a drawn one: a holder that lost the response sends both again.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    name: str = ""
    ticket: str = ""
    secret: str = ""
    cols: Size = 0
    rows: Size = 0
    version: str = ""
    session: str = ""
    """The resumed session of its harness: a ticket without a name then selects the agent that had it."""
    among: Annotated[tuple[Word, ...], msgspec.Meta(max_length=LIMIT_AMONG)] = ()
    """The sessions a person is about to choose from: if only one agent had any of them, it is selected."""


class AccompanyOp(WireOp, frozen=True, kw_only=True, tag="accompany"):
    """Become the companion of one session of the harness that started this process. A repeat is harmless."""

    harness: Word
    session: Word
    name: str = ""
    cwd: str = ""
    version: str = ""


class LaneOp(WireOp, frozen=True, kw_only=True, tag="lane"):
    """Open a lane for the name: mail is offered on it, each offer once. `outcomes` are of earlier offers.

    `carrying` are messages that an earlier connection offered and that have no outcome yet.
    """

    kind: str
    name: str = ""
    reaches_busy: bool = True
    wakes_idle: bool = True
    remembers: bool = False
    outcomes: tuple[Outcome, ...] = ()
    carrying: tuple[Seq, ...] = ()


class GateOp(WireOp, frozen=True, kw_only=True, tag="gate"):
    """Report whether a lane accepts mail now, and if not, why. Only the last report counts."""

    lane: int
    open: bool
    name: str = ""
    paused: bool = False
    reason: str = ""


class AnswerOp(WireOp, frozen=True, kw_only=True, tag="answer"):
    """Report the outcome of an offer: seen, refused, deferred or unconfirmed."""

    lane: int
    offer: int
    answer: str
    name: str = ""
    grade: str = ""
    reason: str = ""
    evidence: str = ""
    """Evidence that is stored with the outcome, such as the screen at that time."""


class TypedOp(WireOp, frozen=True, kw_only=True, tag="typed"):
    """Report a line that a person typed at the agent's terminal."""

    text: str = ""
    name: str = ""
    secret: int = 0
    """The number of characters of a secret, which is sent instead of its text."""


class TellOp(WireOp, frozen=True, kw_only=True, tag="tell"):
    """Respond to a `control` push; with `done` false it is a progress `message`."""

    ask: int
    name: str = ""
    ok: dict[str, object] = msgspec.field(default_factory=dict)
    error: str = ""
    message: str = ""
    done: bool = True


def screen_digest(text: str) -> str:
    """Return a hash that identifies the text of a screen."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class SubBeginOp(WireOp, frozen=True, kw_only=True, tag="sub_begin"):
    """Start or resume a sub-agent of the named agent: `key` is the harness's id of it."""

    key: str
    name: str = ""
    type: str = ""


class SubEndOp(WireOp, frozen=True, kw_only=True, tag="sub_end"):
    """Report that a sub-agent of the named agent has ended."""

    key: str
    name: str = ""
    reason: str = "ended"


class PermissionOp(WireOp, frozen=True, kw_only=True, tag="permission"):
    """Report that a person is asked for permission; with an `outcome`, how that ended."""

    request: Word
    name: str = ""
    session: str = ""
    tool: str = ""
    input: dict[str, object] = msgspec.field(default_factory=dict)
    outcome: str = ""


# --------------------
# Requests that any program can send as a line: names, messages, status, the log, tools. Pure.

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Key = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")]
"""A request key, as 32 hexadecimal digits; empty for none."""


class WhoamiOp(WireOp, frozen=True, kw_only=True, tag="whoami"):
    """Return the caller's identity."""

    name: str = ""


class JoinOp(WireOp, frozen=True, kw_only=True, tag="join"):
    """Open a name on this connection. `secret` is that of an earlier join, to resume the same agent."""

    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    runtime: str = ""
    version: str = ""
    secret: str = ""


class LeaveOp(WireOp, frozen=True, kw_only=True, tag="leave"):
    """Release a name."""

    name: str = ""
    reason: str = "left"


class SendOp(WireOp, frozen=True, kw_only=True, tag="send"):
    """Send a text. With `mentions`, `@words` in it are recipients too. The same `id` again is sent once."""

    text: str
    name: str = ""
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
    """Store a foreign envelope and route it without reading its payload."""

    envelope: msgspec.Raw
    name: str = ""


class ListenOp(WireOp, frozen=True, kw_only=True, tag="listen"):
    """Push the name's mail as it comes; each message waits for its `ack`."""

    name: str = ""


class UnlistenOp(WireOp, frozen=True, kw_only=True, tag="unlisten"):
    """Stop pushing; messages without an acknowledgement are open again."""

    name: str = ""


class AckOp(WireOp, frozen=True, kw_only=True, tag="ack"):
    """Acknowledge these messages as seen."""

    messages: tuple[Seq, ...]
    name: str = ""
    # No other lanes, so that no program can record that a hook or a terminal has shown a message.
    lane: Literal["sdk", "ui"] = "sdk"
    """The kind of client that showed them: a program, or a view of the bus to a person."""


class StatusOp(WireOp, frozen=True, kw_only=True, tag="status"):
    """Report the activity of the name."""

    state: str
    name: str = ""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class EventsOp(WireOp, frozen=True, kw_only=True, tag="events"):
    """Read the log; with `follow`, push new events as they come."""

    name: str = ""
    types: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    after: Seq = 0
    last: Seq | None = None
    search: str = ""
    limit: Seq = 1000
    follow: bool = False


class ToolOp(WireOp, frozen=True, kw_only=True, tag="tool"):
    """Call one of the tools that models call, with the same parameters. The same `key` again runs once."""

    tool: str
    name: str = ""
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    cwd: str = ""
    key: Key = ""


class ListOp(WireOp, frozen=True, kw_only=True, tag="list"):
    """List the agents; with `agent` only that one, with its queue."""

    name: str = ""
    agent: str = ""


class ReceiptsOp(WireOp, frozen=True, kw_only=True, tag="receipts"):
    """Return the receipts of a message."""

    message: str
    name: str = ""


NoticeKey = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class NoticeOp(WireOp, frozen=True, kw_only=True, tag="notice"):
    """Ask whether this view is the one that tells the person of something. The reply is a `NoticeReply`.

    Every open view of the person asks, also one in which the entry is in view.
    """

    key: NoticeKey
    name: str = ""
    is_in_view: bool = False


class NoticeReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decision whether to notify the person now, with the entries and the way to do it."""

    send: bool
    keys: tuple[str, ...] = ()
    """All keys that this notice is about: those that came while no notice was allowed are joined."""
    notify: str = ""
    """The setting `notify`."""
    command: tuple[str, ...] = ()
    """The words of the setting `notify_command`."""
    has_text: bool = False
    """Whether the notice may contain the beginning of a message."""


# --------------------
# Requests of a view of the bus. Their replies are the values of `protocol/views.py`. Pure.
#
# -> {"req": 1, "op": "view"}                                          open a view
# -> {"req": 1, "ok": {"epoch": "...", "seq": 42, ...}}                the snapshot
# -> {"push": "view", "changes": {"after": 42, "seq": 45, ...}}        the changes after it
# -> {"push": "view", "snapshot": {...}}                               instead, if the view missed some


class ViewOp(WireOp, frozen=True, kw_only=True, tag="view"):
    """Open a view on this connection, which has one at most: the snapshot now, then every change.

    A view that continues sends the `seq` of its last snapshot or changes as `after`, and their `epoch`.
    """

    name: str = ""
    after: Seq = 0
    epoch: Annotated[str, msgspec.Meta(max_length=256)] = ""


class AskOp(WireOp, frozen=True, kw_only=True, tag="ask"):
    """Return one page of a list of the bus, or the details of one thing."""

    ask: AnyAsk
    name: str = ""


ViewRequest = ViewOp | AskOp


# --------------------
# Requests about paths. Their replies have the JSON keys of `protocol/paths.py`. Pure.


class RouteOp(WireOp, frozen=True, kw_only=True, tag="route"):
    """Send a command and a payload to a path. The same `id` again is sent once."""

    path: str
    name: str = ""
    command: str = DEFAULT_COMMAND
    payload: object = None
    source: str = INTERNAL
    external_id: str = ""
    id: str = ""


class SubscribeOp(WireOp, frozen=True, kw_only=True, tag="subscribe"):
    """Subscribe the name, or one of its sessions, to a pattern of paths."""

    pattern: str
    name: str = ""
    session: str = ""


class UnsubscribeOp(WireOp, frozen=True, kw_only=True, tag="unsubscribe"):
    """End a path subscription of the name, or of one of its sessions."""

    pattern: str
    name: str = ""
    session: str = ""


class SubscriptionsOp(WireOp, frozen=True, kw_only=True, tag="subscriptions"):
    """List the path subscriptions of an agent or session, without the automatic one."""

    name: str = ""
    agent: str = ""
    session: str = ""


class ReceiveOp(WireOp, frozen=True, kw_only=True, tag="receive"):
    """Take the waiting messages of the name, or of one of its sessions. The same `key` again takes once."""

    name: str = ""
    session: str = ""
    limit: Seq = 100
    since: Milliseconds | None = None
    until: Milliseconds | None = None
    key: Key = ""


class HistoryOp(WireOp, frozen=True, kw_only=True, tag="history"):
    """Return the messages that an agent or session has received, the newest first."""

    name: str = ""
    agent: str = ""
    session: str = ""
    limit: Seq = 100
    since: Milliseconds | None = None
    until: Milliseconds | None = None


class DeadLettersOp(WireOp, frozen=True, kw_only=True, tag="dead_letters"):
    """Return the dead letters since the list was cleared, the newest first."""

    name: str = ""
    limit: Seq = 100
    since: Milliseconds | None = None
    until: Milliseconds | None = None


class ClearDeadLettersOp(WireOp, frozen=True, kw_only=True, tag="clear_dead_letters"):
    """Empty the list of dead letters. The same `key` again clears no later ones."""

    name: str = ""
    key: Key = ""


class MigrateOp(WireOp, frozen=True, kw_only=True, tag="migrate"):
    """Store agents, sessions, subscriptions and messages of another path broker. A repeat changes nothing."""

    name: str = ""
    agents: tuple[str, ...] = ()
    sessions: tuple[MigratedSession, ...] = ()
    subscriptions: tuple[MigratedSubscription, ...] = ()
    messages: tuple[MigratedMessage, ...] = ()
    auto_runs: tuple[MigratedAutoRun, ...] = ()


PathOp = (
    RouteOp
    | SubscribeOp
    | UnsubscribeOp
    | SubscriptionsOp
    | ReceiveOp
    | HistoryOp
    | DeadLettersOp
    | ClearDeadLettersOp
    | MigrateOp
)


# --------------------
# Requests of a bridge to another network. Pure.
#
# A bridge registers once on each connection (`bridge`), stores the lines of the other network (`relay`), and
# reads the log for the messages that it sends there.


class BridgeOp(WireOp, frozen=True, kw_only=True, tag="bridge"):
    """Carry the messages for the paths `irc/<network>/…` from now on, so that they are not dead letters."""

    network: Word
    name: str = ""


class RelayOp(WireOp, frozen=True, kw_only=True, tag="relay"):
    """Store a line that a nick wrote on another network. The same `id` again is stored once.

    With a `channel` it goes to the path of the channel and to the agents that it names. Otherwise it was
    written to the bridge, for the agents that it names, or to the connection of the agent `to`.
    """

    network: Word
    nick: Word
    text: str
    channel: str = ""
    to: str = ""
    id: str = ""
    name: str = ""


BridgeRequest = BridgeOp | RelayOp


class BridgeOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of `pal bridge irc`. The daemon checks them, and the process of the caller runs the
    bridge."""

    host: str
    port: int
    network: str
    channels: tuple[str, ...]
    nick: str = "palaver"
    has_tls: bool = False
    has_each: bool = False
    """Each agent that speaks has its own connection."""
    has_broadcasts: bool = True
    sasl_file: str = ""
    """The file with the account and the password. The password itself is in no command line."""
    rate: float = 1.0
    """Lines a second, after the first few."""
    is_json: bool = False


# --------------------
# Requests of the runner of automatic turns. Pure.
#
# The runner registers once (`runner`) and again after each reconnect. It asks for jobs (`turn_next`), names
# the process of each job before that process runs (`turn_process`), and reports the outcome (`turn_triaged`,
# `turn_end`). Every request can be repeated.


class RunnerOp(WireOp, frozen=True, kw_only=True, tag="runner"):
    """Register as the runner of this home: the first time with a ticket, later with the same secret.

    `running` are the seqs of the turns that it still runs. Every other open turn has ended without a result.
    """

    secret: Word
    ticket: str = ""
    running: tuple[Seq, ...] = ()
    leaves: bool = False
    """It is about to end, and takes no more jobs."""
    name: str = ""


class NextJobOp(WireOp, frozen=True, kw_only=True, tag="turn_next"):
    """Wait for the next job, for up to about half a minute."""

    name: str = ""


class TurnProcessOp(WireOp, frozen=True, kw_only=True, tag="turn_process"):
    """Name the process of a triage or turn, a child of the runner that waits until this has returned.

    From then on the process and its descendants act as the agent of that job. Use `job` or `turn`.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    job: Seq = 0
    turn: Seq = 0
    name: str = ""


class TriagedOp(WireOp, frozen=True, kw_only=True, tag="turn_triaged"):
    """Report the output of a triage, or why it failed."""

    job: Seq
    output: str = ""
    error: str = ""
    name: str = ""


class TurnEndOp(WireOp, frozen=True, kw_only=True, tag="turn_end"):
    """Report the reply of a turn, or why it failed."""

    turn: Seq
    output: str = ""
    error: str = ""
    harness_session: str = ""
    name: str = ""


RunnerRequest = RunnerOp | NextJobOp | TurnProcessOp | TriagedOp | TurnEndOp


# --------------------
# Every request that can be sent as a line, and its encoding. Pure.
#
# -> {"req": 7, "op": "send", "to": ["@nova"], "text": "hello"}        a request, tagged by its sender
#
# Clients only encode requests, and the door only decodes them.

Op = (
    WhoamiOp
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
    | ViewRequest
    | NoticeOp
    | PathOp
    | BridgeRequest
    | RunnerRequest
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

_encode: Final = msgspec.json.Encoder().encode


def op_to_json(number: int, op: Op) -> bytes:
    """Encode a request on one line, without its end. Its response carries the same number.

    The number comes first, as `req`: the request itself has no number yet. Raises BadText for a lone
    surrogate and MessageTooLarge for a line that the daemon would not read.
    """
    try:
        # The tag is always written, so a field follows the comma. Its own `req` is the default 0 and is left
        # out.
        line = b'{"req":%d,%b' % (number, _encode(op)[1:])
    except UnicodeEncodeError as error:
        raise BadText("the request", ord(error.object[error.start]), error.start) from error
    if len(line) > LIMIT_FRAME_BYTES:
        raise MessageTooLarge("the request", len(line), LIMIT_FRAME_BYTES)
    return line


# --------------------
# Lines of JSON on the Unix door: split a stream into lines, decode requests, encode replies. Pure.
#
# -> {"req": 7, "op": "send", "to": ["@nova"], "text": "hello"}        a request, numbered by its sender
# -> {"req": 7, "ok": {...}}                                           its reply
# -> {"req": 7, "error": "unknown_recipient", "message": "...", "details": {...}}
# -> {"push": "message", "name": "luna", "message": {...}}             sent without a request

_decoder: Final[msgspec.json.Decoder[Op]] = msgspec.json.Decoder(Op)
_number: Final = msgspec.json.Decoder(dict[str, object])
_encode_line: Final = msgspec.json.Encoder().encode


class LineReader:
    """Splits a stream of bytes into lines. An incomplete line is kept; a line over the limit is dropped.

    Empty lines are skipped. The buffer never holds much more than the limit and one piece of input.
    """

    def __init__(self, limit_bytes: int = LIMIT_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Add bytes and yield every complete line, and None for each line that was too long."""
        # Only the last part has no line end yet: it is kept for the next piece.
        *lines, rest = data.split(b"\n")
        for line in lines:
            if (whole := self._ended(line)) != b"":
                yield whole
        # The rest belongs to a line that is reported already.
        if self._is_dropping:
            return
        self._buffer += rest
        # Reported now and not at its end, which may never come. The connection stays usable for later lines.
        if len(self._buffer) > self._limit_bytes:
            self._is_dropping = True
            self._buffer.clear()
            yield None

    def rest(self) -> bytes:
        """Return the incomplete line at the end."""
        return bytes(self._buffer)

    def _ended(self, line: bytes) -> bytes | None:
        if self._is_dropping:
            self._is_dropping = False
            return b""  # the end of a line that is reported already
        if self._buffer:
            line = bytes(self._buffer) + line
            self._buffer.clear()
        return line.strip() if len(line) <= self._limit_bytes else None


def op_from_json(line: bytes) -> Op:
    """Decode one request. Raise BadRequest with a sentence that names the bad field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def req_of(line: bytes) -> int:
    """Return the number of a request that cannot be decoded, for its error reply; 0 if it has no number."""
    # Read without any check of the other fields: the sender needs the number to find out which request has
    # failed.
    try:
        found = _number.decode(line).get("req", 0)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0


def answer_line(req: int, ok: object) -> bytes:
    """Encode the reply to a request."""
    return _encode_line({"req": req, "ok": ok}) + b"\n"


def error_line(req: int, error: PalaverError) -> bytes:
    """Encode an error."""
    return _encode_line({"req": req, **error_object(error)}) + b"\n"


def error_object(error: PalaverError) -> dict[str, object]:
    """Return an error as every door shows it: its fields are in `details`, if it has any."""
    named: dict[str, object] = {"error": error.code, "message": str(error)}
    # In an object of their own, so that no field can replace the code or the sentence.
    return {**named, "details": dict(error.details)} if error.details else named


def push_line(kind: str, fields: Mapping[str, object]) -> bytes:
    """Encode a push, which is sent without a request."""
    return _encode_line({"push": kind, **fields}) + b"\n"
