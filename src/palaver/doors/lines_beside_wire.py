"""What is asked on a line by a process that stands beside an agent and has no terminal of it. Pure.

A companion is started by a harness itself: it sits down for one of its sessions (`accompany`). It, and a
holder whose harness says so, tell what a person is asked to allow (`permission`), and are told what a person
said to it:

{"push": "decision", "name": "luna", "request": "per_1", "allowed": true, "digest": "3f9c2a..."}

The digest is that of the session, the tool and the input that the person saw.
"""

from typing import Annotated, Final

import msgspec

from palaver.doors.lines_hold_wire import WireOp

TAKEN: Final = "taken"
GONE: Final = "gone"
"""What became of a request: the harness took a person's word, or asks no more."""

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class AccompanyOp(WireOp, frozen=True, kw_only=True, tag="accompany"):
    """Be the companion of one session of the harness that started this process. Again is the same one."""

    harness: Word
    session: Word
    cwd: str = ""
    version: str = ""


class PermissionOp(WireOp, frozen=True, kw_only=True, tag="permission"):
    """A person is asked to allow something; with an `outcome`, what became of that."""

    request: Word
    session: str = ""
    tool: str = ""
    input: dict[str, object] = msgspec.field(default_factory=dict)
    outcome: str = ""
