"""The tools as data: size, completeness, and selection by group."""

import inspect

import msgspec
import pytest

from palaver.doors.mcp.server import make_server
from palaver.doors.tools import GROUPS, INSTRUCTIONS, TOOLS, Tool, choose_tools, input_schema
from palaver.errors import UsageError
from palaver.services.rooms import RoomService

LIMIT_BYTES = 12 * 1024

PROMISED = {
    "join_path": "context_path force_new?",
    "list_rooms": "context_path?",
    "leave_room": "room_id",
    "kick_member": "room_id target_agent_id force? reason?",
    "wait_for_turn": "room_id max_wait_ms? events? after_event_seq?",
    "heartbeat": "room_id lease_id expected_turn_id",
    "release_stick": "room_id lease_id expected_turn_id handoff",
    "pass_stick": "room_id lease_id expected_turn_id to_agent_id handoff",
    "takeover_stick": "room_id expected_turn_id reason",
    "get_room_state": "room_id",
    "get_room_events": "room_id after_event_seq? limit?",
    "send_message": "room_id body to_agent_id? delivery_hint?",
    "wait_for_events": "room_id after_event_seq? event_type? target_agent_id? from_agent_id? max_wait_ms?",
    "add_note": "room_id body turn_id?",
    "list_notes": "room_id after_note_id? include_resolved? limit?",
    "resolve_note": "room_id note_id",
    "list_agents": "",
    "inbox": "limit?",
    "route_message": "to command? payload? source? external_id? yes?",
}
"""Names and parameters that external clients rely on."""


async def _listed(offered: tuple[Tool, ...]) -> bytes:
    """Return the tool list as it is sent over the wire."""

    async def call(context: object, params: object) -> None:
        raise AssertionError

    server = make_server("1", offered, call)  # type: ignore[arg-type]  # never called
    entry = server.get_request_handler("tools/list")
    assert entry is not None
    result = await entry.handler(None, None)  # type: ignore[arg-type]  # uses neither argument
    assert not isinstance(result, dict)
    assert result is not None
    return result.model_dump_json(by_alias=True, exclude_none=True).encode()


def test_every_promised_tool_has_exactly_its_parameters() -> None:
    found = {
        tool.name: " ".join(param.name + "?" * param.optional for param in tool.params) for tool in TOOLS
    }

    assert {name: found[name] for name in PROMISED} == PROMISED
    assert set(found) - set(PROMISED) == {"send", "hook"}


@pytest.mark.parametrize(
    "tool",
    [tool for tool in TOOLS if tool.name not in ("send", "route_message", "hook")],
    ids=lambda tool: tool.name,
)
def test_room_services_accept_every_parameter_of_a_tool(tool: Tool) -> None:
    parameters = inspect.signature(getattr(RoomService, tool.name)).parameters

    assert {param.name for param in tool.params} <= set(parameters)


async def test_tool_list_with_schemas_is_below_twelve_kilobytes() -> None:
    line = await _listed(choose_tools(None))

    assert len(line) + len(INSTRUCTIONS.encode()) < LIMIT_BYTES


async def test_tool_list_is_json_schema_with_required_parameters() -> None:
    listed = msgspec.json.decode(await _listed(choose_tools("stick")))

    (one,) = [tool for tool in listed["tools"] if tool["name"] == "takeover_stick"]
    assert one["inputSchema"] == {
        "type": "object",
        "properties": {
            "room_id": {"type": "string"},
            "expected_turn_id": {"type": "integer"},
            "reason": {"type": "string"},
        },
        "required": ["room_id", "expected_turn_id", "reason"],
    }


def test_schema_contains_choices_and_descriptions() -> None:
    (send,) = [tool for tool in TOOLS if tool.name == "send"]

    properties = input_schema(send.params)["properties"]

    assert isinstance(properties, dict)
    assert properties["intent"] == {"type": "string", "enum": ["request", "inform", "ack"]}
    assert properties["yes"]["description"] == "Confirm a broadcast to more than five agents."


def test_groups_select_tools_and_the_default_is_all_model_tools() -> None:
    assert choose_tools(None) == tuple(tool for tool in TOOLS if tool.group != "hooks")
    assert {tool.group for tool in choose_tools("rooms, notes")} == {"rooms", "notes"}
    assert choose_tools(",".join(GROUPS)) == TOOLS


@pytest.mark.parametrize("words", ["rooms,dance", "dance", "", ","])
def test_unknown_group_is_refused_with_the_known_ones(words: str) -> None:
    with pytest.raises(UsageError) as refused:
        choose_tools(words)

    assert "rooms, stick, messages, notes, agents" in str(refused.value)
