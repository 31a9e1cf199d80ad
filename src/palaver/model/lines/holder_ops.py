"""What those ask on a line who stand beside an agent: its holder, or a companion without a terminal. Pure.

A holder owns the terminal of one agent. It registers the agent (`hold`), has mail offered (`lane`), says
whether the terminal can be typed into now (`gate`), what became of an offer (`answer`), what a person typed
there (`typed`), and answers what it is asked (`tell`):

{"push": "control", "ask": 3, "name": "luna", "verb": "peek", "lines": 0}     what the daemon asks of it
{"req": 9, "op": "tell", "ask": 3, "ok": {"text": "..."}}                     its answer

A companion is started by a harness itself: it sits down for one of its sessions (`accompany`). It, and a
holder whose harness says so, tell what a person is asked to allow (`permission`), and are told what a person
said to it:

{"push": "decision", "name": "luna", "request": "per_1", "allowed": true, "digest": "3f9c2a..."}

The digest is that of the session, the tool and the input that the person saw.
"""

from typing import Annotated, Final

import msgspec

from palaver.model.last_report import Outcome
from palaver.model.lines.op import WireOp
from palaver.model.place import Place

LIMIT_EVIDENCE_BYTES: Final = 16 * 1024
"""So much of a screen is kept with a delivery."""

LIMIT_AMONG: Final = 200
"""Sessions that a person may be about to choose from; older ones are left out."""

TAKEN: Final = "taken"
GONE: Final = "gone"
"""What became of a request: the harness took a person's word, or asks no more."""

Size = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""Columns or rows of a terminal; 0 is unknown."""

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class HoldOp(WireOp, frozen=True, kw_only=True, tag="hold"):
    """Register the agent that runs in process `pid`, a child of the one that asks, or take it up again.

    The first time with a `ticket`; later with the `secret` and the `name` that the first answer gave. A
    `secret` that stands beside the ticket is used instead of a drawn one: who then lost the answer brings
    both again.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    name: str = ""
    ticket: str = ""
    secret: str = ""
    cols: Size = 0
    rows: Size = 0
    version: str = ""
    session: str = ""
    """The session of its harness that it goes on with: a ticket without a name then means who had it."""
    among: Annotated[tuple[Word, ...], msgspec.Meta(max_length=LIMIT_AMONG)] = ()
    """Those that a person is about to choose from: where only one agent had any, it means that one."""


class AccompanyOp(WireOp, frozen=True, kw_only=True, tag="accompany"):
    """Be the companion of one session of the harness that started this process. Again is the same one."""

    harness: Word
    session: Word
    name: str = ""
    cwd: str = ""
    version: str = ""


class LaneOp(WireOp, frozen=True, kw_only=True, tag="lane"):
    """Hold a lane for the name: mail is offered on it, each offer once. `outcomes` are those of before.

    `carrying` is what an earlier connection offered and is still in hand: it has no outcome yet.
    """

    kind: str
    name: str = ""
    reaches_busy: bool = True
    wakes_idle: bool = True
    remembers: bool = False
    outcomes: tuple[Outcome, ...] = ()
    carrying: tuple[Place, ...] = ()


class GateOp(WireOp, frozen=True, kw_only=True, tag="gate"):
    """Say whether a lane lets mail through now, and why not. The level counts; the last word holds."""

    lane: int
    open: bool
    name: str = ""
    paused: bool = False
    reason: str = ""


class AnswerOp(WireOp, frozen=True, kw_only=True, tag="answer"):
    """A lane's word on an offer: seen, refused, deferred or unconfirmed."""

    lane: int
    offer: int
    answer: str
    name: str = ""
    grade: str = ""
    reason: str = ""
    evidence: str = ""
    """What is kept with the step, such as the screen at that moment."""


class TypedOp(WireOp, frozen=True, kw_only=True, tag="typed"):
    """A person typed this at the agent's terminal."""

    text: str = ""
    name: str = ""
    secret: int = 0
    """The number of characters of a secret, which is sent in place of its text."""


class TellOp(WireOp, frozen=True, kw_only=True, tag="tell"):
    """Answer what was asked in a `control` push; with `done` false a word on the way, `message`."""

    ask: int
    name: str = ""
    ok: dict[str, object] = msgspec.field(default_factory=dict)
    error: str = ""
    message: str = ""
    done: bool = True


class SubBeginOp(WireOp, frozen=True, kw_only=True, tag="sub_begin"):
    """A sub-agent of the named agent begins, or goes on: `key` is the id that its harness has for it."""

    key: str
    name: str = ""
    type: str = ""


class SubEndOp(WireOp, frozen=True, kw_only=True, tag="sub_end"):
    """A sub-agent of the named agent has ended."""

    key: str
    name: str = ""
    reason: str = "ended"


class PermissionOp(WireOp, frozen=True, kw_only=True, tag="permission"):
    """A person is asked to allow something; with an `outcome`, what became of that."""

    request: Word
    name: str = ""
    session: str = ""
    tool: str = ""
    input: dict[str, object] = msgspec.field(default_factory=dict)
    outcome: str = ""
