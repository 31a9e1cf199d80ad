"""Hooks that arrive as tool calls or over HTTP: handled like those of a process, and never an error.

A harness that calls a tool in a hook fills in single values, so each may come alone or all in one object.
"""

from collections.abc import Mapping
from typing import Final

from palaver.doors.hooks.desk import Answer, HookDesk
from palaver.harness.hooks import read_hook
from palaver.model.agent import Caller
from palaver.model.message import INSTANCE

_OF_TOOL: Final = ("command", "file_path")
_NOT_FILLED_IN: Final = "${"


def hook_input(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the input of a hook from the arguments of a call, without values that were not filled in."""
    whole = arguments.get("input")
    data: dict[str, object] = dict(whole) if isinstance(whole, Mapping) else {}
    given = {
        name: value
        for name, value in arguments.items()
        if name not in ("harness", "event", "input") and not str(value).startswith(_NOT_FILLED_IN)
    }
    of_tool = {name: given.pop(name) for name in _OF_TOOL if name in given}
    if of_tool:
        known = data.get("tool_input")
        data["tool_input"] = {**(known if isinstance(known, Mapping) else {}), **of_tool}
    if isinstance(said := given.get("stop_hook_active"), str):
        given["stop_hook_active"] = said.lower() == "true"
    return {**data, **given}


async def answer_hook(
    desk: HookDesk, caller: Caller, harness: str, event: str, data: Mapping[str, object]
) -> Answer | None:
    """Return the reply to a hook; None if the caller is not an agent or has another harness."""
    news = read_hook(harness, event, data)
    if news is None or caller.kind != INSTANCE or caller.harness != harness:
        return None
    speaks = await desk.speakers.of(caller, news)
    return None if speaks is None else await desk.answer(speaks[0], harness, speaks[1])
