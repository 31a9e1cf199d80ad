"""What only a holder asks over lines of JSON, and what every request on that wire has. Pure.

A holder owns the terminal of one agent. It registers the agent (`hold`), says whether the terminal can be
typed into now (`gate`), what a person typed there (`typed`), and answers what it is asked (`tell`):

{"push": "control", "ask": 3, "name": "luna", "verb": "peek", "lines": 0}     what the daemon asks of it
{"req": 9, "op": "tell", "ask": 3, "ok": {"text": "..."}}                     its answer
"""

from typing import Annotated, Final

import msgspec

LIMIT_EVIDENCE_BYTES: Final = 16 * 1024
"""So much of a screen is kept with a delivery."""

Size = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""Columns or rows of a terminal; 0 is unknown."""


class WireOp(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", forbid_unknown_fields=True):
    """Every request: `req` comes back with the answer; `name` chooses one of the names opened on the link."""

    req: int = 0
    name: str = ""


class HoldOp(WireOp, frozen=True, kw_only=True, tag="hold"):
    """Register the agent that runs in process `pid`, a child of the one that asks, or take it up again.

    The first time with a `ticket`; later with the `secret` and the `name` that the first answer gave. A
    `secret` that stands beside the ticket is used instead of a drawn one: who then lost the answer brings
    both again.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    ticket: str = ""
    secret: str = ""
    cols: Size = 0
    rows: Size = 0
    version: str = ""
    session: str = ""
    """The session of its harness that it goes on with: a ticket without a name then means who had it."""


class GateOp(WireOp, frozen=True, kw_only=True, tag="gate"):
    """Say whether a lane lets mail through now, and why not. The level counts; the last word holds."""

    lane: int
    open: bool
    paused: bool = False
    reason: str = ""


class TypedOp(WireOp, frozen=True, kw_only=True, tag="typed"):
    """A person typed this at the agent's terminal."""

    text: str


class SubBeginOp(WireOp, frozen=True, kw_only=True, tag="sub_begin"):
    """A sub-agent of the named agent begins, or goes on: `key` is the id that its harness has for it."""

    key: str
    type: str = ""


class SubEndOp(WireOp, frozen=True, kw_only=True, tag="sub_end"):
    """A sub-agent of the named agent has ended."""

    key: str
    reason: str = "ended"


class TellOp(WireOp, frozen=True, kw_only=True, tag="tell"):
    """Answer what was asked in a `control` push; with `done` false a word on the way, `message`."""

    ask: int
    ok: dict[str, object] = {}
    error: str = ""
    message: str = ""
    done: bool = True
