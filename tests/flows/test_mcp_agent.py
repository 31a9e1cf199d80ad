"""An agent with only MCP tools: it works, and recovers from refusals by the tools that their texts name."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.daemon.mcp_stage import Model
from tests.flows.behaviours import behaviour
from tests.flows.room_door import Answer, HttpRooms, McpRooms, McpSeat, RoomDoor
from tests.flows.test_rooms import until_waiting
from tests.limits import LIMIT_S

HANDOFF = {"status": "the parser is done", "next_action": "review it"}


class ToolAgent:
    """An agent that knows the list of tools, the results of its calls, and nothing else."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._tools: set[str] = set()
        self.known: dict[str, Any] = {}
        """The arguments that the agent has, by name."""
        self.refusals: list[str] = []

    async def begin(self) -> None:
        """Read the list of tools."""
        listed = await self._model.session.list_tools()
        self._tools = {tool.name for tool in listed.tools}

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool that must succeed."""
        return await self._model.ok(tool, **arguments)

    async def follow_refusal(self, tool: str, arguments: Mapping[str, Any], helps: str) -> Answer:
        """Make a call that is refused; call the tool that its text names, and return the result of that.

        The text must name `helps`. Every tool name in the text must exist, and no shell command may be there.
        """
        refused = await self._model.ask(tool, **arguments)
        text = str(refused["message"])
        named = [word.strip(".,;:()") for word in text.split() if word.strip(".,;:()") in self._tools]
        assert refused.keys() <= {"error", "message", "details"}
        assert "pal " not in str(refused)
        assert "--" not in str(refused)
        assert helps in named, text
        self.refusals.append(str(refused["error"]))
        given = {
            "join_path": ("context_path",),
            "list_agents": (),
            "list_notes": ("room_id",),
            "get_room_state": ("room_id",),
            "wait_for_turn": ("room_id",),
        }
        return await self.call(helps, **{name: self.known[name] for name in given[helps]})


@behaviour("mcp-only")
async def test_agent_with_only_tools_recovers_from_refusals(
    all_rooms: dict[str, RoomDoor], workspace: Path
) -> None:
    mcp, http = all_rooms["mcp"], all_rooms["http"]
    assert isinstance(mcp, McpRooms)
    assert isinstance(http, HttpRooms)
    nova = await mcp.join("nova")
    joined = await nova.ask("join_path", context_path=str(workspace))
    turn = await nova.ask("wait_for_turn", room_id=joined["room_id"])
    await nova.ask("add_note", room_id=joined["room_id"], body="the CI image has no libpq")

    for seat in (await mcp.join("luna"), await http.join("mira")):
        agent = ToolAgent(seat.model)
        await agent.begin()
        await recover(agent, nova, seat, workspace, turn)

        assert agent.refusals == [
            "room_not_found",
            "unknown_recipient",
            "turn_mismatch",
            "not_found",
            "stale_lease",
        ]
        turn = await nova.ask("wait_for_turn", room_id=joined["room_id"])
        await nova.ask("add_note", room_id=joined["room_id"], body="the CI image has no libpq")


async def recover(agent: ToolAgent, nova: McpSeat, seat: McpSeat, workspace: Path, turn: Answer) -> None:
    """Join, wait, write and resolve a note; each first attempt is refused."""
    agent.known["context_path"] = str(workspace)

    # It guesses the name of the room. The refusal says how to join one.
    guess = {"room_id": "no-such-room", "body": "hello"}
    joined = await agent.follow_refusal("send_message", guess, "join_path")
    room = agent.known["room_id"] = joined["room_id"]
    sent = await agent.call("send_message", room_id=room, body="hello")
    assert sorted(sent["delivered_to"]) == sorted(
        member["agent_id"] for member in joined["members"] if member["agent_id"] != seat.name
    )

    # It misspells another agent. The refusal says where the names are.
    agents = await agent.follow_refusal("send", {"to": "@zzzz", "text": "hi"}, "list_agents")
    assert "nova" in [one["name"] for one in agents["agents"]]
    assert (await agent.call("send", to="@nova", text="hi"))["delivered_to"] == ["nova"]

    # It takes over a turn that is over. The refusal says where the current one is.
    old = {"room_id": room, "expected_turn_id": turn["turn_id"] + 5, "reason": "the owner is gone"}
    state = await agent.follow_refusal("takeover_stick", old, "get_room_state")
    assert (state["turn_id"], state["owner_agent_id"]) == (turn["turn_id"], "nova")

    # It resolves a note that does not exist. The refusal says where the notes are.
    wrong = {"room_id": room, "note_id": "ZZZZZZZZ"}
    (note,) = (await agent.follow_refusal("resolve_note", wrong, "list_notes"))["notes"]
    done = await agent.call("resolve_note", room_id=room, note_id=note["note_id"])
    assert done["resolved_by_agent_id"] == seat.name
    assert (await agent.call("list_notes", room_id=room))["notes"] == []

    # It releases a stick that it does not own. The refusal says how to get it: it waits, and nova passes it.
    lease = {"lease_id": "none", "expected_turn_id": turn["turn_id"], "handoff": HANDOFF}
    waiting = asyncio.create_task(
        agent.follow_refusal("release_stick", {"room_id": room, **lease}, "wait_for_turn")
    )
    await until_waiting(nova, room, seat.name)
    await nova.ask(
        "pass_stick",
        room_id=room,
        lease_id=turn["lease_id"],
        expected_turn_id=turn["turn_id"],
        to_agent_id=seat.name,
        handoff=HANDOFF,
    )
    async with asyncio.timeout(LIMIT_S):
        own = await waiting
    assert (own["status"], own["handoff"]) == ("your_turn", HANDOFF)

    # It writes its work as a note, and hands the stick back.
    await agent.call("heartbeat", room_id=room, lease_id=own["lease_id"], expected_turn_id=own["turn_id"])
    await agent.call("add_note", room_id=room, body="reviewed", turn_id=own["turn_id"])
    (written,) = (await agent.call("list_notes", room_id=room))["notes"]
    await agent.call("resolve_note", room_id=room, note_id=written["note_id"])
    freed = await agent.call(
        "pass_stick",
        room_id=room,
        lease_id=own["lease_id"],
        expected_turn_id=own["turn_id"],
        to_agent_id="nova",
        handoff=HANDOFF,
    )
    assert freed["reserved_for"] == "nova"
