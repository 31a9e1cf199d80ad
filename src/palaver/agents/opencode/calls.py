"""What the tools that an OpenCode runs now were given, so that a person sees what is asked. Pure.

A request for a permission names the call that it is about, and often says nothing of what the call was given.
A call whose input is not surely known has none: one that has ended, one that was forgotten for more recent
ones, and one of two that a model gave the same name.
"""

from collections.abc import Mapping
from typing import Final

from palaver.harness.hook_news import as_map, text_in

_LIMIT_INPUTS: Final = 100
"""Inputs that are remembered in each session; then the oldest is forgotten."""
_LIMIT_CALLS: Final = 10_000
"""Calls of which is remembered that there were some."""
_RUNNING: Final = "running"
_PENDING: Final = "pending"
"""The model still writes what it wants."""

CallName = tuple[str, str]
"""Its message, and the name that the model gave it there."""


class Calls:
    """The calls of one session."""

    def __init__(self) -> None:
        self._inputs: dict[CallName, Mapping[str, object] | None] = {}
        """None: what it was given is not surely known, or it has ended."""

    def take(self, part: Mapping[str, object]) -> None:
        """Take in a part of a message that is a call of a tool."""
        name = text_in(part, "messageID"), text_in(part, "callID")
        state = as_map(part.get("state"))
        status, given = state.get("status"), state.get("input")
        if not all(name) or status == _PENDING:
            return
        is_whole = status == _RUNNING and isinstance(given, dict)
        is_same = name not in self._inputs or self._inputs[name] == given
        self._inputs[name] = as_map(given) if is_whole and is_same else None
        known = [one for one, value in self._inputs.items() if value is not None]
        if len(known) > _LIMIT_INPUTS:
            self._inputs[known[0]] = None
        if len(self._inputs) > _LIMIT_CALLS:
            del self._inputs[next(iter(self._inputs))]

    def input_of(self, name: CallName) -> Mapping[str, object] | None:
        """Give what a call was given; None where that is not surely known."""
        return self._inputs.get(name)

    def clear(self) -> None:
        """Nothing runs any more."""
        self._inputs.clear()
