"""The inputs of running OpenCode tool calls, so that the user sees what a permission is for. Pure.

A permission request refers to a tool call, often without its input. The input of a call counts as unknown if
it is not certain: if the call has ended, was dropped for newer ones, or shares its id with another call.
"""

from collections.abc import Mapping
from typing import Final

from palaver.harness.hook_news import as_map, text_in

_LIMIT_INPUTS: Final = 100
"""Inputs to remember per session; when full, the oldest is dropped."""
_LIMIT_CALLS: Final = 10_000
"""Calls to remember by id, with or without an input; when full, the oldest is dropped."""
_RUNNING: Final = "running"
_PENDING: Final = "pending"
"""The model is still writing the input."""

CallName = tuple[str, str]
"""The id of its message, and the id that the model gave the call."""


class Calls:
    """The calls of one session."""

    def __init__(self) -> None:
        self._inputs: dict[CallName, Mapping[str, object] | None] = {}
        """None if the input is not certain, or the call has ended."""

    def take(self, part: Mapping[str, object]) -> None:
        """Apply a message part that is a tool call."""
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
        """Return the input of a call; None if it is not certain."""
        return self._inputs.get(name)

    def clear(self) -> None:
        """Forget all calls: the session is idle."""
        self._inputs.clear()
