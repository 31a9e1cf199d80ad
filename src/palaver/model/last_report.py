"""What a holder could not tell anybody: how its agent ended, and what became of the messages it carried.

The holder writes it to a file, and the next daemon reads it.
"""

from typing import Final

import msgspec

from palaver.model.place import Place

REPORT_END: Final = ".report.json"
"""How the names of such files end, behind the agent's."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of messages that were carried for an earlier daemon."""

    messages: tuple[Place, ...]
    answer: str
    grade: str = ""
    name: str = ""
    """The sub-agent whose they were; empty for the agent itself."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon must still be told about one agent. It is believed for its secret alone."""

    name: str
    secret: str
    reason: str
    """How the agent ended."""
    outcomes: tuple[Outcome, ...] = ()
    ts: int = 0
