"""Requests of an agent's holder, or of a companion without a terminal, as lines. Pure.

A holder owns the terminal of one agent. It registers the agent (`hold`), opens a lane for mail (`lane`),
reports whether the terminal accepts input now (`gate`), the outcome of an offer (`answer`) and lines that a
person typed (`typed`), and responds to requests of the daemon (`tell`):

{"push": "control", "ask": 3, "name": "luna", "verb": "peek", "lines": 0}     a request of the daemon
{"req": 9, "op": "tell", "ask": 3, "ok": {"text": "..."}}                     its response

A companion is started by a harness itself, for one of its sessions (`accompany`). It, and a holder whose
harness supports it, report permission requests (`permission`), and receive a person's decision:

{"push": "decision", "name": "luna", "request": "per_1", "allowed": true, "digest": "3f9c2a..."}

The digest is that of the session, the tool and the input that the person saw.
"""

from typing import Annotated, Final

import msgspec

from palaver.model.last_report import Outcome
from palaver.model.lines.op import WireOp
from palaver.model.place import Place

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
    carrying: tuple[Place, ...] = ()


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
