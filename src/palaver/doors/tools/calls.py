"""Run one tool call: check arguments, call the room tools, return one object. Knows no protocol.

`call_tool` is the only function that catches errors; it returns them as `{"error": code, "message": …}`.
"""

import logging
import os.path
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from palaver.broker.outcome import Sent
from palaver.doors.argv.style import safe
from palaver.doors.desk import LIMIT_WAIT_MS
from palaver.doors.hooks.tool import answer_hook, hook_input
from palaver.doors.lines_wire import error_object
from palaver.doors.services import Services
from palaver.doors.tools.arguments import checked_arguments
from palaver.doors.tools.tools import TOOLS, Tool
from palaver.doors.tools.wait import Wait
from palaver.doors.views import sent_view
from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.model.agent import Caller
from palaver.model.request import Send

WAIT_MS: Final = 50_000
"""Milliseconds that a call waits by default. Harnesses abort a call after a minute."""

_FAILED: Final = Unavailable("this went wrong inside the daemon; daemon.log in its home says how")
_BY_NAME: Final = {tool.name: tool for tool in TOOLS}
HOOK: Final = "hook"

_logger: Final = logging.getLogger("palaver.doors")

Who = Callable[[Tool], Awaitable[Caller]]
"""Returns the caller of a tool; raises if it may not call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call as a door received it."""

    tool: str
    arguments: Mapping[str, object] | None
    who: Who
    cwd: str = ""
    """Base of relative paths; empty if the caller has no directory on this machine."""
    home: str = ""
    """The caller's home directory, where no room may be; empty if unknown."""
    key: bytes | None = None
    """The request key: a repeated call with the same key is done once and has the same result."""
    waited: Wait | None = None
    """The wait of the same call in an earlier daemon, which continues."""
    on_wait: Callable[[Wait], None] | None = None
    """Called with the wait before it begins, if the door can pass it to the next daemon."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool."""

    content: dict[str, object]
    is_refusal: bool = False


async def call_tool(services: Services, offered: tuple[Tool, ...], asked: Asked) -> Answer:
    """Run one call and return its result or its error. Only cancellation is raised."""
    try:
        return Answer(await run_tool(services, offered, asked))
    except PalaverError as error:
        if asked.tool == HOOK:  # a hook must never block its harness
            return Answer({})
        _logger.info("refused tool %s: %s: %s", safe(asked.tool[:64]), error.code, safe(str(error)))
        return Answer(error_object(error), is_refusal=True)
    except Exception:
        _logger.exception("the tool %s failed", safe(asked.tool[:64]))
        return Answer(error_object(_FAILED), is_refusal=True)


async def run_tool(services: Services, offered: tuple[Tool, ...], asked: Asked) -> dict[str, object]:
    """Run one call and return its result. Errors are raised."""
    tool = _BY_NAME.get(asked.tool)
    if tool is None or tool not in offered:
        names = ", ".join(one.name for one in offered)
        raise BadRequest(f"there is no tool {asked.tool[:64]!r} here; there are {names}")
    return await _run(services, tool, asked)


async def _run(services: Services, tool: Tool, asked: Asked) -> dict[str, object]:
    arguments = checked_arguments(tool, asked.arguments)
    if "context_path" in arguments:
        arguments["context_path"] = _absolute(str(arguments["context_path"]), asked.cwd)
    if tool.name == "join_path":
        arguments["home"] = asked.home
    caller = await asked.who(tool)
    if tool.name == HOOK:
        return await _hook(services, caller, arguments)
    if tool.name == "send":
        return await _send(services, caller, arguments, asked.key)
    if asked.key is not None and not tool.is_reading and tool.name not in _KEYLESS:
        arguments["key"] = asked.key
    if tool.is_waiting:
        arguments |= _waiting(services, tool, asked, arguments)
    method = getattr(services.desk, tool.name)
    found: dict[str, object] = await method(caller, **arguments)
    return _with_way_on(tool, found)


_EVENTS: Final = "wait_for_events"
_KEYLESS: Final = frozenset({"heartbeat", _EVENTS})
"""They store nothing, so they have no request key."""


def _waiting(
    services: Services, tool: Tool, asked: Asked, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Return how long a call may wait and, for a repeated one, the last seq when it first started."""
    wait_ms = arguments.get("max_wait_ms", WAIT_MS)
    assert isinstance(wait_ms, int)  # its parameter is a number
    if asked.on_wait is None:
        return {"max_wait_ms": wait_ms}
    now_ms, limit_ms = services.clock.now_ms(), min(wait_ms, LIMIT_WAIT_MS)
    wait = asked.waited or Wait(until_ms=now_ms + limit_ms, place=services.log.last())
    asked.on_wait(wait)
    rest: dict[str, object] = {"max_wait_ms": min(limit_ms, wait.rest_ms(now_ms))}
    return {**rest, "since_event_seq": wait.place} if tool.name == _EVENTS else rest


async def _hook(services: Services, caller: Caller, arguments: Mapping[str, object]) -> dict[str, object]:
    desk, harness, event = services.hooks, str(arguments["harness"]), str(arguments["event"])
    answer = await answer_hook(desk, caller, harness, event, hook_input(arguments))
    if answer is None:
        return {}
    desk.settle(answer, has_left=True)
    return answer.said


async def _send(
    services: Services, caller: Caller, arguments: Mapping[str, object], key: bytes | None
) -> dict[str, object]:
    to = arguments.get("to", [])
    words = [to] if isinstance(to, str) else to
    assert isinstance(words, list)
    if "to" in arguments and not words:
        raise BadRequest("to is empty: leave it out to write to everybody. Nothing was sent")
    request = Send(
        text=str(arguments["text"]),
        to=tuple(words),
        intent=str(arguments.get("intent", "")),
        thread=str(arguments.get("thread", "")),
        reply_to=str(arguments.get("reply_to", "")),
        priority=str(arguments.get("priority", "")),
        is_confirmed=arguments.get("yes") is True,
    )
    sent = await services.broker.submit(caller, request, key=key)
    assert isinstance(sent, Sent)
    return sent_view(sent)


def _absolute(path: str, cwd: str) -> str:
    if path.startswith("/"):
        return os.path.normpath(path)
    if not cwd:
        raise BadRequest("context_path must be absolute: a caller over HTTP is in no directory")
    return os.path.normpath(f"{cwd}/{path}")


def _with_way_on(tool: Tool, found: dict[str, object]) -> dict[str, object]:
    """Add to an empty result how to continue waiting, unless it has a hint already."""
    if not tool.is_waiting or found.get("hint"):
        return found
    if found.get("status") == "not_yet":
        return {**found, "hint": "it is not your turn: call wait_for_turn again to keep your place in line"}
    if tool.name == _EVENTS and not found.get("events"):
        cursor = found.get("cursor_event_seq")
        return {
            **found,
            "status": "not_yet",
            "hint": f"nothing happened: call wait_for_events again with after_event_seq={cursor}",
        }
    return found
