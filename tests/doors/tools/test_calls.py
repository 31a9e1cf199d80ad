"""One tool call: the arguments passed to the room services, and the result."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.fakes import START_MS, FakeClock

from palaver.doors.tools import (
    TOOLS,
    WAIT_MS,
    Tool,
    ToolRequest,
    ToolResult,
    ToolWait,
    call_tool,
    choose_tools,
)
from palaver.errors import BadRequest, WhoAreYou
from palaver.protocol.agents import Caller, Standing
from palaver.services.rooms import LIMIT_WAIT_MS
from palaver.services.services import Services

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance")
KEY = b"k" * 16
LAST = 9


@dataclass
class FakeDesk:
    """Record all calls and return the prepared result."""

    answer: dict[str, object] | Exception = field(default_factory=dict)
    asked: list[tuple[str, Caller, dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        async def method(caller: Caller, **arguments: Any) -> dict[str, object]:
            self.asked.append((name, caller, arguments))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return method


@dataclass
class FakeQueries:
    def last(self) -> int:
        return LAST


@dataclass
class FakeServices:
    rooms: FakeDesk
    clock: FakeClock = field(default_factory=FakeClock)
    queries: FakeQueries = field(default_factory=FakeQueries)


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


async def luna(tool: Tool) -> Caller:
    return LUNA


async def call(desk: FakeDesk, tool: str, /, offered: tuple[Tool, ...] = TOOLS, **options: Any) -> ToolResult:
    given = {
        name: options.pop(name) for name in ("who", "cwd", "key", "waited", "on_wait") if name in options
    }
    asked = ToolRequest(tool=tool, arguments=options, **{"who": luna, **given})
    return await call_tool(cast("Services", FakeServices(desk)), offered, asked)


async def test_tool_calls_the_method_of_its_name(desk: FakeDesk) -> None:
    desk.answer = {"status": "left"}

    answer = await call(desk, "leave_room", room_id="r", key=KEY)

    assert answer == ToolResult({"status": "left"})
    assert desk.asked == [("leave_room", LUNA, {"room_id": "r", "key": KEY})]


@pytest.mark.parametrize("tool", ["list_agents", "inbox"])
async def test_read_only_tools_get_no_request_key(desk: FakeDesk, tool: str) -> None:
    await call(desk, tool, key=KEY)

    assert desk.asked == [(tool, LUNA, {})]


@pytest.mark.parametrize("fields", [{"to": []}, {"to": "@nova", "thread": ""}])
async def test_empty_recipient_list_or_thread_is_refused(desk: FakeDesk, fields: dict[str, object]) -> None:
    answer = await call(desk, "send", text="hello", **fields)  # type: ignore[arg-type]  # fields of the tool

    assert answer.is_refusal
    assert answer.content["error"] == "bad_request"


async def test_event_types_are_checked_by_the_room_services(desk: FakeDesk) -> None:
    await call(desk, "wait_for_events", room_id="r", event_type=[])

    assert desk.asked[0][2]["event_type"] == []


async def test_delivery_hint_is_checked_by_the_room_services(desk: FakeDesk) -> None:
    await call(desk, "send_message", room_id="r", body="", delivery_hint="loud")

    assert desk.asked[0][2] == {"room_id": "r", "body": "", "delivery_hint": "loud"}


async def test_default_wait_is_below_a_minute(desk: FakeDesk) -> None:
    await call(desk, "wait_for_turn", room_id="r")
    await call(desk, "wait_for_events", room_id="r", max_wait_ms=90_000)

    assert [arguments["max_wait_ms"] for _, _, arguments in desk.asked] == [WAIT_MS, 90_000]
    assert WAIT_MS < 60_000


@pytest.mark.parametrize(("asked_ms", "wait_ms"), [(None, WAIT_MS), (7, 7), (-1, 0), (10**9, LIMIT_WAIT_MS)])
async def test_wait_is_announced_before_it_starts(desk: FakeDesk, asked_ms: int | None, wait_ms: int) -> None:
    told: list[ToolWait] = []
    desk.answer = RuntimeError("it never came so far")

    await call(desk, "wait_for_events", room_id="r", max_wait_ms=asked_ms, on_wait=told.append)

    assert [wait.rest_ms(START_MS) for wait in told] == [wait_ms]
    assert told[0].place == desk.asked[0][2]["since_event_seq"] == LAST


@pytest.mark.parametrize(
    ("spent_ms", "rest_ms"), [(0, 90_000), (60_000, 30_000), (90_001, 0), (-5000, 90_000)]
)
async def test_repeated_wait_continues_for_the_rest_of_its_time(
    desk: FakeDesk, spent_ms: int, rest_ms: int
) -> None:
    waited = ToolWait(until_ms=START_MS + 90_000 - spent_ms, place=5)
    told: list[ToolWait] = []

    for tool in ("wait_for_turn", "wait_for_events"):
        await call(desk, tool, room_id="r", max_wait_ms=90_000, waited=waited, on_wait=told.append)

    (_, _, turn), (_, _, events) = desk.asked
    assert turn == events == {"room_id": "r", "max_wait_ms": rest_ms, "since_event_seq": 5}
    assert told == [waited, waited]


@pytest.mark.parametrize(("path", "absolute"), [("a/../b", "/w/b"), (".", "/w"), ("/x/./y", "/x/y")])
async def test_path_is_made_absolute(desk: FakeDesk, path: str, absolute: str) -> None:
    await call(desk, "join_path", context_path=path, cwd="/w")

    assert desk.asked[0][2]["context_path"] == absolute


async def test_relative_path_without_a_working_directory_is_refused(desk: FakeDesk) -> None:
    answer = await call(desk, "list_rooms", context_path="a")

    assert (answer.is_refusal, answer.content["error"], desk.asked) == (True, "bad_request", [])


async def test_error_is_returned_as_a_result(desk: FakeDesk) -> None:
    desk.answer = BadRequest("not like this")

    answer = await call(desk, "inbox")

    assert answer == ToolResult({"error": "bad_request", "message": "not like this"}, is_refusal=True)


async def test_unidentified_caller_gets_an_error(desk: FakeDesk) -> None:
    async def nobody(tool: Tool) -> Caller:
        raise WhoAreYou("you could be two")

    answer = await call(desk, "inbox", who=nobody)

    assert (answer.content["error"], desk.asked) == ("who_are_you", [])


async def test_internal_error_is_reported_without_details(desk: FakeDesk) -> None:
    desk.answer = RuntimeError("secret of the inside")

    answer = await call(desk, "inbox")

    assert answer.is_refusal
    assert "secret" not in str(answer.content["message"])


@pytest.mark.parametrize("tool", ["join_path", "no_such_tool"])
async def test_tool_outside_the_offered_groups_is_unknown(desk: FakeDesk, tool: str) -> None:
    answer = await call(desk, tool, offered=choose_tools("notes"))

    assert answer.content["error"] == "bad_request"
    assert "add_note, list_notes" in str(answer.content["message"])


@pytest.mark.parametrize(
    ("tool", "found", "hint"),
    [
        ("wait_for_turn", {"status": "not_yet"}, "wait_for_turn again"),
        ("wait_for_events", {"events": [], "cursor_event_seq": 7}, "after_event_seq=7"),
        ("wait_for_turn", {"status": "not_yet", "hint": "as the desk says"}, "as the desk says"),
    ],
)
async def test_wait_without_a_result_says_how_to_continue(
    desk: FakeDesk, tool: str, found: dict[str, object], hint: str
) -> None:
    desk.answer = found

    answer = await call(desk, tool, room_id="r")

    assert hint in str(answer.content["hint"])


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ("wait_for_turn", {"status": "your_turn"}),
        ("wait_for_events", {"events": [{}], "cursor_event_seq": 7}),
        ("get_room_state", {"status": "not_yet"}),
    ],
)
async def test_result_is_returned_unchanged(desk: FakeDesk, tool: str, found: dict[str, object]) -> None:
    desk.answer = found

    assert (await call(desk, tool, room_id="r")).content == found
