"""The exit report of a holder without a daemon: how its agent ended, and the outcomes of its messages.

The holder writes it to a file, and the next daemon reads it.
"""

from typing import Final

import msgspec

from palaver.model.place import Place

REPORT_END: Final = ".report.json"
"""Suffix of the names of such files, after the agent's name."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of messages that were carried for an earlier daemon."""

    messages: tuple[Place, ...]
    answer: str
    grade: str = ""
    name: str = ""
    """The sub-agent they were for; empty for the agent itself."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outstanding report about one agent. Only its secret proves that it is genuine."""

    name: str
    secret: str
    reason: str
    """How the agent ended."""
    outcomes: tuple[Outcome, ...] = ()
    ts: int = 0
