"""Hooks over HTTP, at `/hook/<harness>`, for harnesses that post the input. The token names the agent."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palaver.doors.hooks.handler import HookDesk, HookReply
from palaver.doors.http.app import TOKEN, caller_of
from palaver.errors import PalaverError
from palaver.harness.hooks import text_in
from palaver.harness.registry import read_hook
from palaver.protocol.agents import INSTANCE, Caller
from palaver.services.services import Services

# --------------------
# Hooks that arrive as tool calls or over HTTP: handled like those of a process, and never an error.
#
# A harness that calls a tool in a hook fills in single values, so each may come alone or all in one object.

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
) -> HookReply | None:
    """Return the reply to a hook; None if the caller is not an agent or has another harness."""
    news = read_hook(harness, event, data)
    if news is None or caller.kind != INSTANCE or caller.harness != harness:
        return None
    speaks = await desk.speakers.of(caller, news)
    return None if speaks is None else await desk.answer(speaks[0], harness, speaks[1])


_NOTHING: Final = b"{}"
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode
_encode: Final = msgspec.json.Encoder().encode


class HttpHooks:
    """The handler of one path. Without a reply, and after any error, it returns an empty object."""

    def __init__(self, services: Services, desk: HookDesk) -> None:
        self._services = services
        self._desk = desk

    async def answer(self, request: Request) -> Response:
        """Serve one hook. Its messages count as passed to the harness once the response is made."""
        try:
            data = _decode(await request.body())
            caller = caller_of(self._services, request.scope[TOKEN])
            harness, event = request.path_params["harness"], text_in(data, "hook_event_name")
            answer = await answer_hook(self._desk, caller, harness, event, data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, PalaverError):
            answer = None
        if answer is None:
            return _response(_NOTHING)
        self._desk.settle(answer, has_left=True)
        return _response(_encode(answer.said))


def _response(content: bytes) -> Response:
    return Response(content, media_type="application/json")
