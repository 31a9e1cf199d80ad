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
from palaver.protocol.envelope import Event
from palaver.protocol.paths import Content, Delivered, route_result, routed_message
from palaver.services.rooms import LIMIT_WAIT_MS
from palaver.services.services import Services

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance")
KEY = b"k" * 16
LAST = 9


@dataclass
class FakeRooms:
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
    rooms: FakeRooms
    clock: FakeClock = field(default_factory=FakeClock)
    queries: FakeQueries = field(default_factory=FakeQueries)


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


async def luna(tool: Tool) -> Caller:
    return LUNA


async def call(
    rooms: FakeRooms, tool: str, /, offered: tuple[Tool, ...] = TOOLS, **options: Any
) -> ToolResult:
    given = {
        name: options.pop(name) for name in ("who", "cwd", "key", "waited", "on_wait") if name in options
    }
    asked = ToolRequest(tool=tool, arguments=options, **{"who": luna, **given})
    return await call_tool(cast("Services", FakeServices(rooms)), offered, asked)


async def test_tool_calls_the_method_of_its_name(rooms: FakeRooms) -> None:
    rooms.answer = {"status": "left"}

    answer = await call(rooms, "leave_room", room_id="r", key=KEY)

    assert answer == ToolResult({"status": "left"})
    assert rooms.asked == [("leave_room", LUNA, {"room_id": "r", "key": KEY})]


@pytest.mark.parametrize("tool", ["list_agents", "inbox"])
async def test_read_only_tools_get_no_request_key(rooms: FakeRooms, tool: str) -> None:
    await call(rooms, tool, key=KEY)

    assert rooms.asked == [(tool, LUNA, {})]


@pytest.mark.parametrize("fields", [{"to": []}, {"to": "@nova", "thread": ""}])
async def test_empty_recipient_list_or_thread_is_refused(rooms: FakeRooms, fields: dict[str, object]) -> None:
    answer = await call(rooms, "send", text="hello", **fields)  # type: ignore[arg-type]  # fields of the tool

    assert answer.is_refusal
    assert answer.content["error"] == "bad_request"


async def test_event_types_are_checked_by_the_room_services(rooms: FakeRooms) -> None:
    await call(rooms, "wait_for_events", room_id="r", event_type=[])

    assert rooms.asked[0][2]["event_type"] == []


async def test_delivery_hint_is_checked_by_the_room_services(rooms: FakeRooms) -> None:
    await call(rooms, "send_message", room_id="r", body="", delivery_hint="loud")

    assert rooms.asked[0][2] == {"room_id": "r", "body": "", "delivery_hint": "loud"}


async def test_default_wait_is_below_a_minute(rooms: FakeRooms) -> None:
    await call(rooms, "wait_for_turn", room_id="r")
    await call(rooms, "wait_for_events", room_id="r", max_wait_ms=90_000)

    assert [arguments["max_wait_ms"] for _, _, arguments in rooms.asked] == [WAIT_MS, 90_000]
    assert WAIT_MS < 60_000


@pytest.mark.parametrize(("asked_ms", "wait_ms"), [(None, WAIT_MS), (7, 7), (-1, 0), (10**9, LIMIT_WAIT_MS)])
async def test_wait_is_announced_before_it_starts(
    rooms: FakeRooms, asked_ms: int | None, wait_ms: int
) -> None:
    reported: list[ToolWait] = []
    rooms.answer = RuntimeError("it never came so far")

    await call(rooms, "wait_for_events", room_id="r", max_wait_ms=asked_ms, on_wait=reported.append)

    assert [wait.rest_ms(START_MS) for wait in reported] == [wait_ms]
    assert reported[0].seq == rooms.asked[0][2]["since_event_seq"] == LAST


@pytest.mark.parametrize(
    ("spent_ms", "rest_ms"), [(0, 90_000), (60_000, 30_000), (90_001, 0), (-5000, 90_000)]
)
async def test_repeated_wait_continues_for_the_rest_of_its_time(
    rooms: FakeRooms, spent_ms: int, rest_ms: int
) -> None:
    waited = ToolWait(until_ms=START_MS + 90_000 - spent_ms, seq=5)
    reported: list[ToolWait] = []

    for tool in ("wait_for_turn", "wait_for_events"):
        await call(rooms, tool, room_id="r", max_wait_ms=90_000, waited=waited, on_wait=reported.append)

    (_, _, turn), (_, _, events) = rooms.asked
    assert turn == events == {"room_id": "r", "max_wait_ms": rest_ms, "since_event_seq": 5}
    assert reported == [waited, waited]


@pytest.mark.parametrize(("path", "absolute"), [("a/../b", "/w/b"), (".", "/w"), ("/x/./y", "/x/y")])
async def test_path_is_made_absolute(rooms: FakeRooms, path: str, absolute: str) -> None:
    await call(rooms, "join_path", context_path=path, cwd="/w")

    assert rooms.asked[0][2]["context_path"] == absolute


async def test_relative_path_without_a_working_directory_is_refused(rooms: FakeRooms) -> None:
    answer = await call(rooms, "list_rooms", context_path="a")

    assert (answer.is_refusal, answer.content["error"], rooms.asked) == (True, "bad_request", [])


async def test_error_is_returned_as_a_result(rooms: FakeRooms) -> None:
    rooms.answer = BadRequest("not like this")

    answer = await call(rooms, "inbox")

    assert answer == ToolResult({"error": "bad_request", "message": "not like this"}, is_refusal=True)


async def test_unidentified_caller_gets_an_error(rooms: FakeRooms) -> None:
    async def nobody(tool: Tool) -> Caller:
        raise WhoAreYou("you could be two")

    answer = await call(rooms, "inbox", who=nobody)

    assert (answer.content["error"], rooms.asked) == ("who_are_you", [])


async def test_internal_error_is_reported_without_details(rooms: FakeRooms) -> None:
    rooms.answer = RuntimeError("secret of the inside")

    answer = await call(rooms, "inbox")

    assert answer.is_refusal
    assert "secret" not in str(answer.content["message"])


@pytest.mark.parametrize("tool", ["join_path", "no_such_tool"])
async def test_tool_outside_the_offered_groups_is_unknown(rooms: FakeRooms, tool: str) -> None:
    answer = await call(rooms, tool, offered=choose_tools("notes"))

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
    rooms: FakeRooms, tool: str, found: dict[str, object], hint: str
) -> None:
    rooms.answer = found

    answer = await call(rooms, tool, room_id="r")

    assert hint in str(answer.content["hint"])


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ("wait_for_turn", {"status": "your_turn"}),
        ("wait_for_events", {"events": [{}], "cursor_event_seq": 7}),
        ("get_room_state", {"status": "not_yet"}),
    ],
)
async def test_result_is_returned_unchanged(rooms: FakeRooms, tool: str, found: dict[str, object]) -> None:
    rooms.answer = found

    assert (await call(rooms, tool, room_id="r")).content == found


@dataclass
class FakePaths:
    """Record routed messages; reach one agent, or none."""

    reached: tuple[str, ...] = ("nova",)
    asked: list[tuple[str, Content, bytes | None]] = field(default_factory=list)
    confirmed: list[bool] = field(default_factory=list)

    async def route(
        self, caller: Caller, path: str, content: Content, *, is_confirmed: bool, key: bytes | None
    ) -> Delivered:
        self.confirmed.append(is_confirmed)
        self.asked.append((path, content, key))
        payload: dict[str, object] = {"path": path, "delivered_to": list(self.reached)}
        event = Event(type="message", id="01", sender="luna", ts=1, payload=payload, seq=4, device="TEST")
        return Delivered(message=routed_message(event), result=route_result("01", self.reached), seq=4)


@dataclass
class PathServices:
    paths: FakePaths = field(default_factory=FakePaths)


async def route(services: PathServices, **arguments: Any) -> ToolResult:
    asked = ToolRequest(tool="route_message", arguments=arguments, who=luna, key=KEY)
    return await call_tool(cast("Services", services), TOOLS, asked)


@pytest.mark.parametrize(
    ("to", "path"),
    [
        ("nova", "agent/nova"),
        ("@nova", "agent/nova"),
        ("agent/nova", "agent/nova"),
        ("slack/team/#general", "slack/team/#general"),
        ("mine/topic", "mine/topic"),
        ("/nova", "/nova"),
    ],
)
async def test_recipient_without_a_slash_is_an_agent(to: str, path: str) -> None:
    services = PathServices()

    result = await route(services, to=to)

    assert services.paths.asked == [(path, Content(), KEY)]
    assert result.content == {
        "delivered": True,
        "deliveredTo": ("nova",),
        "deliveredToSessions": (),
        "messageId": "01",
        "unmatched": False,
    }


async def test_routed_message_has_all_given_fields() -> None:
    services = PathServices()

    for payload in ({"a": 1.0}, [2.0], 5.0, "x", True):
        await route(services, to="a/b", command="go", payload=payload, source="slack", external_id="e")

    assert [content for _, content, _ in services.paths.asked] == [
        Content(command="go", payload=payload, source="slack", external_id="e")
        for payload in ({"a": 1.0}, [2.0], 5.0, "x", True)
    ]
    assert [type(content.payload) for _, content, _ in services.paths.asked[2:3]] == [float]


async def test_route_to_many_agents_is_confirmed_with_yes() -> None:
    services = PathServices()

    await route(services, to="agent/**")
    await route(services, to="agent/**", yes=True)

    assert services.paths.confirmed == [False, True]


async def test_message_that_reaches_no_recipient_says_so() -> None:
    services = PathServices(FakePaths(reached=()))

    result = await route(services, to="ghost")

    assert (result.is_refusal, result.content["unmatched"]) == (False, True)
    assert result.content["hint"] == (
        "no agent or session is subscribed to agent/ghost: it is now a dead letter"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"to": ""}, "to is empty"),
        ({"to": "@"}, "to is empty"),
        ({"to": 5}, "to of route_message must be a string"),
        ({}, "route_message requires to"),
        ({"to": "x", "payload": "\ud800"}, "payload of route_message must be a JSON value"),
    ],
)
async def test_bad_route_is_refused(arguments: dict[str, Any], text: str) -> None:
    services = PathServices()

    result = await route(services, **arguments)

    assert (result.is_refusal, result.content["error"], services.paths.asked) == (True, "bad_request", [])
    assert text in str(result.content["message"])
