"""`pal mcp` with real processes: the official SDK's client next to a shell, and possible failures."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from tests.daemon.mcp_stage import (
    HANDSHAKE,
    Model,
    RawPump,
    handshaken,
    modern,
    notification,
    pump_parameters,
    request,
)
from tests.daemon.stage import Home, Shell, finish, run_script_as_person, wait_until
from tests.daemon.wires import connect, frame
from tests.daemon.wires import request as thin_request
from tests.limits import LIMIT_S

from palaver.protocol.thin import FrameReader

Open = Callable[[StdioServerParameters], AbstractAsyncContextManager[Model]]

HANDOFF = {"status": "half done", "next_action": "go on", "artifacts": [], "open_questions": [], "do_not": []}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
both_generations = pytest.mark.parametrize("open_", [handshaken, modern], ids=["handshake", "envelope"])


@pytest.fixture
def workspace(bus: Home) -> Path:
    """A folder in which people and agents work."""
    folder = bus.path.parent / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def nova(bus: Home, workspace: Path) -> Shell:
    """A shell that has joined as nova, in that folder."""
    shell = bus.shell()
    shell.begin_script(f"cd {workspace}").end()
    shell.ok("join", "--name", "nova")
    return shell


@pytest.fixture
def pump(bus: Home) -> RawPump:
    """A pump after its handshake; its agent's seat is the test process."""
    bus.ok("join", "--name", "luna")
    made = RawPump(bus)
    made.begin()
    return made


# Identity of the caller


@both_generations
async def test_agent_that_joins_by_mcp_is_the_same_on_the_command_line(
    bus: Home, workspace: Path, open_: Open
) -> None:
    async with open_(pump_parameters(bus)) as model:
        joined = await model.ok("join_path", context_path=str(workspace))

        assert bus.ok("whoami", "--json").json["name"] == joined["agent_id"]


async def test_joined_session_keeps_its_name_by_mcp(bus: Home, workspace: Path) -> None:
    async with handshaken(pump_parameters(bus, script="pal join --name luna")) as model:
        joined = await model.ok("join_path", context_path=str(workspace))

        assert joined["agent_id"] == "luna"
        (event,) = bus.events("--type", "member_joined")
        assert event["from"] == "luna"


async def test_relative_path_starts_at_the_working_directory_of_the_pump(bus: Home, workspace: Path) -> None:
    async with handshaken(pump_parameters(bus, cwd=workspace)) as model:
        joined = await model.ok("join_path", context_path=".")

        assert joined["canonical_path"] == str(workspace)


def test_sessions_that_share_a_server_are_separated_by_their_meta(bus: Home, workspace: Path) -> None:
    pump = RawPump(bus)
    pump.begin()

    one = pump.ask(1, "join_path", {"threadId": "t-1"}, context_path=str(workspace))
    other = pump.ask(
        2, "join_path", {"x-codex-turn-metadata": {"session_id": "t-2"}}, context_path=str(workspace)
    )
    again = pump.ask(3, "join_path", {"threadId": "t-1"}, context_path=str(workspace))
    stranger = pump.ask(4, "inbox", {"threadId": "t-3"})
    nobody = pump.ask(5, "inbox")

    assert again["agent_id"] == one["agent_id"] != other["agent_id"]
    assert stranger["error"] == nobody["error"] == "who_are_you"
    assert "has not joined" in str(stranger["message"])


@pytest.mark.parametrize("meta", [None, {"threadId": "t-1"}], ids=["a process", "a session"])
def test_calls_that_join_at_the_same_time_are_one_agent(
    bus: Home, workspace: Path, meta: dict[str, Any] | None
) -> None:
    pump = RawPump(bus)
    pump.begin()
    (bus.path.parent / "other").mkdir()

    pump.say(
        *(
            joining(number, folder, meta)
            for number, folder in enumerate((workspace, workspace.parent / "other"))
        )
    )
    joined = [json.loads(pump.hear()["result"]["content"][0]["text"]) for _ in range(2)]

    assert joined[0]["agent_id"] == joined[1]["agent_id"]
    assert [one["name"] for one in bus.ok("list", "--json").lines] == [joined[0]["agent_id"]]


def joining(number: int, folder: Path, meta: dict[str, Any] | None) -> dict[str, Any]:
    """Return a call that joins the room of a folder."""
    more = {"_meta": meta} if meta else {}
    arguments = {"context_path": str(folder)}
    return request(number + 1, "tools/call", name="join_path", arguments=arguments, **more)


def test_session_can_send_only_after_it_has_joined(bus: Home, workspace: Path, nova: Shell) -> None:
    pump = RawPump(bus)
    pump.begin()
    meta = {"threadId": "t-2"}

    alone = pump.ask(1, "send", meta, to="@nova", text="from whom?")
    pump.ask(2, "join_path", {"threadId": "t-1"}, context_path=str(workspace))
    other = pump.ask(3, "send", meta, to="@nova", text="from whom?")
    own = pump.ask(4, "join_path", meta, context_path=str(workspace))["agent_id"]
    pump.ask(5, "send", meta, to="@nova", text="from me")

    for refused in (alone, other):
        assert refused["error"] == "who_are_you"
        assert "call join_path first" in str(refused["message"])
    messages = nova.ok("events", "--type", "message", "--json").lines
    assert [(one["from"], one["payload"]["text"]) for one in messages] == [(own, "from me")]


def test_as_option_acts_in_the_name_of_a_worker(bus: Home, nova: Shell) -> None:
    pump = RawPump(bus, "--as", "nova")
    pump.begin()

    pump.ask(1, "send", to="@nova", text="a note to myself")

    (event,) = bus.events("--type", "message")
    assert event["from"] == "nova"


def test_as_option_with_an_unknown_name_is_refused(bus: Home) -> None:
    pump = RawPump(bus, "--as", "zed")
    pump.begin()

    assert pump.ask(1, "list_agents")["error"] == "not_found"


# Usage


@both_generations
async def test_whole_turn_together_with_an_agent_on_the_command_line(
    bus: Home, workspace: Path, nova: Shell, open_: Open
) -> None:
    async with open_(pump_parameters(bus)) as model:
        room = (await model.ok("join_path", context_path=str(workspace)))["room_id"]
        nova.ok("room", "join", str(workspace))

        turn = await model.ok("wait_for_turn", room_id=room)
        assert turn["status"] == "your_turn"
        await model.ok("send_message", room_id=room, body="almost there", to_agent_id="nova")
        assert nova.ok("recv", "--json").json["text"] == "almost there"
        nova.ok("send", f"#{room}", "--", "take your time")
        heard = await model.ok("wait_for_events", room_id=room, event_type="message_sent")
        assert [event["payload"]["body"] for event in heard["events"]] == ["take your time"]
        passed = await model.ok(
            "pass_stick",
            room_id=room,
            lease_id=turn["lease_id"],
            expected_turn_id=turn["turn_id"],
            to_agent_id="nova",
            handoff=HANDOFF,
        )
        assert passed["reserved_for"] == "nova"

        mine = nova.ok("stick", "wait", "--json").json
        assert (mine["status"], mine["handoff"]["next_action"]) == ("your_turn", "go on")


def test_message_to_oneself_by_mcp_is_read_on_the_command_line(
    bus: Home, pump: RawPump, workspace: Path
) -> None:
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]

    pump.ask(2, "send_message", room_id=room, body="remember", to_agent_id="luna")

    assert bus.ok("recv", "--json").json["text"] == "remember"


def test_send_reaches_agents_outside_of_rooms(bus: Home, pump: RawPump, nova: Shell) -> None:
    sent = pump.ask(1, "send", to=["@nova"], text="can you look?", intent="request", thread="t")

    assert sent["delivered_to"] == ["nova"]
    letter = nova.ok("recv", "--json").json
    assert (letter["from"], letter["intent"], letter["thread"]) == ("luna", "request", "t")


def test_refusal_is_data_that_a_model_can_act_on(pump: RawPump) -> None:
    pump.call(1, "send", to="@nobody", text="hello")

    answer = pump.hear()["result"]
    refusal = json.loads(answer["content"][0]["text"])
    assert answer["isError"] is True
    assert refusal["error"] == "unknown_recipient"
    assert refusal["message"].endswith("nothing was sent. list_agents shows the agents")


def test_broadcast_of_a_harness_to_many_needs_a_confirmation(bus: Home, workspace: Path) -> None:
    bus.ok("join", "--name", "luna", "--harness", "claude")
    for number in range(6):
        bus.shell().ok("join", "--name", f"agent{number}")
    pump = RawPump(bus)
    pump.begin()

    refused = pump.ask(1, "send", to="@all", text="all of you")
    sent = pump.ask(2, "send", to="@all", text="all of you", yes=True)

    assert "error" in refused
    assert len(sent["delivered_to"]) == 6


def test_send_tool_follows_the_rules_of_recipients_and_answers(bus: Home) -> None:
    bus.ok("join", "--name", "luna", "--harness", "claude")
    nova, kira = bus.shell(), bus.shell()
    nova.ok("join", "--name", "nova")
    kira.ok("join", "--name", "kira")
    kira.ok("leave")
    asked = nova.ok("send", "@luna", "--intent", "request", "--thread", "t", "--json", "--", "well?").json
    pump = RawPump(bus)
    pump.begin()

    nowhere = pump.ask(1, "send", text="hello all")
    blank = pump.ask(2, "send", to="@nova", text=" ")
    new = pump.ask(3, "send", thread="new", text="hello")
    unread = pump.ask(7, "send", thread="t", text="by the way")
    pump.ask(8, "inbox")
    in_thread = pump.ask(4, "send", thread="t", text="done")
    away = pump.ask(5, "send", to="@kira", intent="request", text="can you?")

    assert [one["error"] for one in (nowhere, blank, new)] == ["bad_request"] * 3
    assert "answers" not in unread
    assert (in_thread["delivered_to"], in_thread["answers"]) == (["nova"], asked["seq"])
    assert [(one["agent"], one["state"]) for one in away["exited"]] == [("kira", "exited")]
    assert pump.ask(6, "inbox", limit=1)["messages"][0]["text"] == (
        f"@luna kira is now stopped (request #{away['seq']})"
    )


def test_groups_choose_the_offered_tools(bus: Home) -> None:
    bus.ok("join", "--name", "luna")
    pump = RawPump(bus, "--tools", "notes,agents")
    pump.begin()

    pump.say(request(1, "tools/list"))
    names = {tool["name"] for tool in pump.hear()["result"]["tools"]}
    refused = pump.ask(2, "join_path", context_path="/")

    notes, agents = (
        {"add_note", "list_notes", "resolve_note"},
        {"list_agents", "inbox", "send", "route_message"},
    )
    assert names == notes | agents
    assert refused["error"] == "bad_request"


def test_unknown_group_ends_the_pump_with_the_list_of_groups(bus: Home) -> None:
    ended = bus.pal("mcp", "--tools", "dance")

    assert ended.status == 2
    assert "rooms, stick, messages, notes, agents" in ended.err


# Waiting


def test_wait_without_a_result_says_how_to_continue(pump: RawPump, workspace: Path, nova: Shell) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]

    turn = pump.ask(2, "wait_for_turn", room_id=room, max_wait_ms=0)
    events = pump.ask(3, "wait_for_events", room_id=room, after_event_seq=10_000, max_wait_ms=0)

    assert turn["status"] == "not_yet"
    assert "wait_for_turn again" in turn["hint"]
    assert events["events"] == []
    assert "after_event_seq=" in events["hint"]


def test_wait_with_a_progress_token_reports_that_it_waits(
    pump: RawPump, workspace: Path, nova: Shell
) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", {"progressToken": "unused"}, context_path=str(workspace))["room_id"]

    pump.call(2, "wait_for_turn", {"progressToken": "t-2"}, room_id=room)
    report = pump.hear()
    nova.ok("stick", "pass", "luna", "--status", "done", "--next", "review")
    turn = pump.answer(2)

    assert (report["method"], report["params"]["progressToken"]) == ("notifications/progress", "t-2")
    assert report["params"]["progress"] == 0
    assert "wait_for_turn" in report["params"]["message"]
    assert turn["status"] == "your_turn"


@both_generations
async def test_client_gets_the_progress_of_its_waits(
    bus: Home, workspace: Path, nova: Shell, open_: Open
) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    reports: asyncio.Queue[float] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.put_nowait(progress)

    async with open_(pump_parameters(bus, script="pal join --name luna")) as model:
        room = (await model.ok("join_path", context_path=str(workspace)))["room_id"]
        waiting = asyncio.create_task(
            model.session.call_tool("wait_for_turn", {"room_id": room}, progress_callback=on_progress)
        )
        async with asyncio.timeout(LIMIT_S):
            assert await reports.get() == 0
        await asyncio.to_thread(nova.ok, "stick", "pass", "luna", "--status", "done", "--next", "review")

        assert "your_turn" in str(await waiting)


def test_second_wait_for_the_stick_is_refused(pump: RawPump, workspace: Path, nova: Shell) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_turn", room_id=room)

    refused = pump.ask(3, "wait_for_turn", room_id=room)

    assert refused["error"] == "duplicate_listener"
    assert refused["details"] == {"agent_id": "luna", "room": room}


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("takeover_stick", {"expected_turn_id": 1, "reason": " \t"}, "bad_request"),
        ("add_note", {"body": "x", "turn_id": 2}, "not_found"),
        ("resolve_note", {"note_id": "x" * 500}, "not_found"),
        ("get_room_state", {"room_id": "x" * 500}, "room_not_found"),
    ],
)
def test_bad_values_are_refused_with_a_short_text(
    pump: RawPump, workspace: Path, nova: Shell, tool: str, arguments: dict[str, Any], code: str
) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim", "--room", str(workspace))
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]

    refused = pump.ask(2, tool, **{"room_id": room, **arguments})

    assert refused["error"] == code
    assert "x" * 80 not in str(refused)
    assert refused.keys() <= {"error", "message", "details"}


def test_wait_for_the_stick_with_events_ends_with_a_message(
    pump: RawPump, workspace: Path, nova: Shell
) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_turn", room_id=room, events=True)
    wait_until(lambda: any(one["waiting"] for one in nova.ok("room", "state", "--json").json["members"]))

    nova.ok("send", "--room", room, "luna", "--", "almost done")
    found = pump.answer(2)

    assert (found["status"], found["events"][0]["payload"]["body"]) == ("not_yet", "almost done")
    assert f"after_event_seq={found['cursor_event_seq']}" in found["hint"]


def test_release_says_who_is_next(pump: RawPump, workspace: Path, nova: Shell) -> None:
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    turn = pump.ask(2, "wait_for_turn", room_id=room)
    own = {"room_id": room, "handoff": HANDOFF}

    alone = pump.ask(3, "release_stick", lease_id=turn["lease_id"], expected_turn_id=1, **own)
    turn = pump.ask(4, "wait_for_turn", room_id=room)
    nova.ok("room", "join", str(workspace))
    waiting = nova.begin("stick", "wait", "--room", room)
    wait_until(lambda: pump.ask(5, "get_room_state", room_id=room)["members"][1]["waiting"])
    after = pump.ask(6, "release_stick", lease_id=turn["lease_id"], expected_turn_id=2, **own)

    assert (alone["reserved_for"], "no member waits" in alone["hint"]) == (None, True)
    assert (after["reserved_for"], "nova is next" in after["hint"]) == ("nova", True)
    assert waiting.end().status == 0


def test_cancelled_wait_ends_and_takes_nothing(pump: RawPump, workspace: Path, nova: Shell) -> None:
    nova.ok("room", "join", str(workspace))
    turn = nova.ok("stick", "claim", "--json").json
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_events", room_id=room, after_event_seq=10_000)
    pump.call("3", "wait_for_turn", room_id=room)

    pump.say(
        notification("notifications/cancelled", requestId=2),
        notification("notifications/cancelled", requestId=3),
    )
    pump.say(request(4, "ping"))
    assert pump.hear()["id"] == 4
    nova.ok("room", "leave")

    state = pump.ask(5, "get_room_state", room_id=room)
    assert turn["turn_id"] == state["turn_id"]
    assert state["owner_agent_id"] is None


def test_end_of_input_ends_waiting_calls(pump: RawPump, workspace: Path, nova: Shell) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_turn", room_id=room)

    ended = finish(pump.process, b"")

    assert ended.status == 0


def test_requests_before_the_end_of_input_are_answered(bus: Home) -> None:
    lines = [request(1, "initialize", **HANDSHAKE), request(2, "tools/list"), request(3, "ping")]
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    ended = bus.pal("mcp", content=content)

    assert ended.status == 0
    assert {line["id"] for line in ended.lines} == {1, 2, 3}


# Bad input


def test_bad_lines_are_answered_and_the_session_continues(pump: RawPump) -> None:
    cases: list[tuple[bytes, Any, int]] = [
        (b"{", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[]", None, -32600),
        (b'{"id":5,"method":1}', 5, -32600),
        (b'{"jsonrpc":"2.0","id":6,"method":"no/such"}', 6, -32601),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":3}}', 7, -32602),
        (
            json.dumps(request("half", "tools/call", name="send", arguments={"text": "a\ud800b"})).encode(),
            "half",
            -32602,
        ),
    ]
    for line, id, code in cases:
        pump.say(line)
        answer = pump.hear()
        assert (answer["id"], answer["error"]["code"]) == (id, code)

    pump.say(request(8, "ping"))
    assert pump.hear()["id"] == 8


@pytest.mark.parametrize("is_first", [True, False])
def test_line_of_ten_megabytes_is_refused_by_its_id(pump: RawPump, is_first: bool) -> None:
    id, rest = (
        {"id": 1},
        {"method": "tools/call", "params": {"name": "send", "arguments": {"text": "x" * 10_000_000}}},
    )
    line = {"jsonrpc": "2.0", **id, **rest} if is_first else {**rest, "jsonrpc": "2.0", **id}

    pump.say(line, request(2, "ping"))

    refused = pump.hear()
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert "1048576 bytes" in refused["error"]["message"]
    assert pump.hear()["id"] == 2


def test_flood_of_notifications_waits_for_its_server_and_none_is_lost(bus: Home) -> None:
    """The daemon confirms a line when it is passed on, so a limited queue confirms few before a reply."""
    flood = [notification("notifications/roots/list_changed")] * 1_000
    lines = [request(1, "initialize", **HANDSHAKE), request(2, "ping"), *flood, request(3, "ping")]
    with connect(bus.path) as wire:
        wire.sendall(b"PALM" + thin_request("mcp"))
        wire.sendall(
            b"".join(
                frame(b"L", number.to_bytes(4, "big") + json.dumps(line).encode())
                for number, line in enumerate(lines, start=1)
            )
            + frame(b"Z")
        )
        reader = FrameReader()
        settled = [
            int.from_bytes(payload[:4], "big")
            for kind, payload in reader.feed(wire.makefile("rb").read())
            if kind == b"L"
        ]

    assert sorted(settled) == list(range(len(lines) + 1))  # and 0, the greeting
    assert settled.index(2) < 500
    assert settled[-1] == len(lines)


def test_flood_of_cancelled_calls_does_not_disturb_the_session(pump: RawPump, workspace: Path) -> None:
    room = pump.ask(0, "join_path", context_path=str(workspace))["room_id"]
    for id in range(1, 301):
        pump.call(id, "wait_for_events", room_id=room, event_type="message_sent")
        pump.say(notification("notifications/cancelled", requestId=id))

    pump.say(request(0, "ping"))

    assert pump.hear()["id"] == 0
    assert pump.ask(1, "list_agents")["agents"]


def test_call_beyond_the_limit_of_waiting_calls_is_refused(pump: RawPump, workspace: Path) -> None:
    room = pump.ask(0, "join_path", context_path=str(workspace))["room_id"]
    for id in range(1, 130):
        pump.call(id, "wait_for_events", room_id=room, event_type="message_sent")
    refused = pump.hear()
    pump.say(notification("notifications/cancelled", requestId=1))
    pump.call(130, "wait_for_events", room_id=room, event_type="message_sent")

    pump.say(request(131, "ping"))

    assert (refused["id"], refused["error"]["code"]) == (129, -32000)
    assert "128 calls of this session wait already" in refused["error"]["message"]
    assert pump.hear()["id"] == 131


def test_long_line_of_another_client_is_refused_by_its_id(bus: Home) -> None:
    long = json.dumps({**request(7, "ping"), "filling": "x" * 2_000_000}).encode()
    with connect(bus.path) as wire:
        wire.sendall(b"PALM" + thin_request("mcp"))
        wire.sendall(frame(b"L", (1).to_bytes(4, "big") + long))
        shake = json.dumps(request(8, "initialize", **HANDSHAKE)).encode()
        wire.sendall(frame(b"L", (2).to_bytes(4, "big") + shake) + frame(b"Z"))
        output = wire.makefile("rb").read()

    assert b'"id":7,"error":{"code":-32600,"message":"a message is at most 1048576 bytes' in output
    assert b"serverInfo" in output


def test_client_may_discover_with_the_newer_protocol_and_use_the_older(bus: Home) -> None:
    bus.ok("join", "--name", "luna")
    pump = RawPump(bus)

    pump.say(request(1, "server/discover", _meta=ENVELOPE))
    discovered = pump.hear()["result"]
    pump.begin()
    agents = pump.ask(2, "list_agents")
    newer = pump.ask(3, "list_agents", ENVELOPE)

    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert agents == newer


def test_discovery_without_an_envelope_is_refused_until_the_handshake(bus: Home) -> None:
    pump = RawPump(bus)

    pump.say(request(1, "server/discover"))
    assert pump.hear()["error"]["code"] == -32601

    pump.begin()


def test_id_in_use_is_refused_and_the_pending_call_continues(
    pump: RawPump, workspace: Path, nova: Shell
) -> None:
    nova.ok("room", "join", str(workspace))
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_events", room_id=room, event_type="message_sent")

    pump.say(request(2, "ping"))
    refused = pump.hear()
    nova.ok("send", f"#{room}", "--", "now")

    assert (refused["id"], refused["error"]["code"]) == (2, -32600)
    assert len(pump.answer(2)["events"]) == 1


@pytest.mark.parametrize("other", ["2", " 02"])
def test_ids_that_are_one_number_are_not_open_at_the_same_time(
    pump: RawPump, workspace: Path, other: str
) -> None:
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_events", room_id=room, event_type="message_sent")

    pump.call(other, "wait_for_events", room_id=room, event_type="message_sent")
    refused = pump.hear()
    pump.say(notification("notifications/cancelled", requestId=other))
    pump.say(notification("notifications/cancelled", requestId=2))
    after = pump.ask(other, "list_rooms")

    assert (refused["id"], refused["error"]["code"]) == (other, -32600)
    assert "in progress" in refused["error"]["message"]
    assert len(after["rooms"]) == 1


@pytest.mark.parametrize("name", [[], {}, None, 5])
def test_tool_name_that_is_not_a_text_is_refused_and_the_session_continues(
    pump: RawPump, name: object
) -> None:
    pump.say(request(2, "tools/call", name=name, arguments={}))
    refused = pump.hear()
    pump.say(request(3, "ping"))

    assert (refused["id"], refused["error"]["code"]) == (2, -32602)
    assert pump.hear()["id"] == 3


def test_foreign_token_does_not_replace_the_handshake(bus: Home) -> None:
    for token in (b"\xff", b"[]", b'{"protocolVersion": 5}'):
        with connect(bus.path) as wire:
            wire.sendall(b"PALM" + thin_request("mcp", token=token))
            shake = json.dumps(request(1, "initialize", **HANDSHAKE)).encode()
            wire.sendall(frame(b"L", (1).to_bytes(4, "big") + shake) + frame(b"Z"))
            assert b"serverInfo" in wire.makefile("rb").read()


@pytest.mark.parametrize(
    "data",
    [frame(b"L", b"\0\0\0\1{}"), thin_request("mcp") + frame(b"?"), thin_request("mcp") + frame(b"L", b"\0")],
    ids=["no-request", "unknown-frame", "short-line"],  # not the bytes: a request has a random key
)
def test_malformed_frames_are_answered_with_an_error(bus: Home, data: bytes) -> None:
    with connect(bus.path) as wire:
        wire.sendall(b"PALM" + data)
        output = wire.makefile("rb").read()

    assert b"pal: " in output
    assert output.endswith(frame(b"Q", b"\1"))


def test_client_without_a_pump_is_asked_to_update(bus: Home) -> None:
    with connect(bus.path) as wire:
        wire.sendall(b"PAL1" + thin_request("mcp"))
        output = wire.makefile("rb").read()

    assert b"this client does not support MCP" in output


# When the bus ends


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_wait_continues_when_the_daemon_is_killed(
    bus: Home, pump: RawPump, workspace: Path, nova: Shell, number: int
) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_turn", room_id=room)
    pump.say(request(3, "ping"))
    assert pump.hear()["id"] == 3

    bus.kill(number)
    nova.ok("stick", "release", "--status", "half done", "--next", "go on")

    turn = pump.answer(2)
    assert (turn["status"], turn["handoff"]["next_action"]) == ("your_turn", "go on")
    assert pump.ask(4, "get_room_state", room_id=room)["owner_agent_id"] == "luna"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_event_during_a_restart_ends_a_wait_that_continues(
    bus: Home, pump: RawPump, workspace: Path, nova: Shell, number: int
) -> None:
    nova.ok("room", "join", str(workspace))
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_events", room_id=room, target_agent_id="any", event_type="note_added")
    pump.ask(3, "list_agents")  # its response comes after the start of the wait

    for _ in range(2):
        bus.kill(number)
        nova.ok("list")  # a daemon runs again, and the pump may not have found it yet
    nova.ok("note", "add", "the first there is")
    nova.ok("note", "add", "and the next")

    assert [event["payload"]["text"] for event in pump.answer(2)["events"]][:1] == ["the first there is"]


def test_resumed_wait_ends_at_its_deadline(bus: Home, pump: RawPump, workspace: Path) -> None:
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    arguments = {"room_id": room, "max_wait_ms": 110_000}
    call = json.dumps(request(1, "tools/call", name="wait_for_events", arguments=arguments)).encode()
    waits = {"palaver/waits": {"7": {"until_ms": 1, "place": 1_000_000}}}

    with connect(bus.path) as wire:
        wire.sendall(b"PALM" + thin_request("mcp", token=json.dumps({**HANDSHAKE, **waits}).encode()))
        wire.sendall(frame(b"M", (7).to_bytes(4, "big") + call))
        output = b""
        while b"not_yet" not in output:
            output += wire.recv(1 << 16)

    assert b"call wait_for_events again" in output


def test_session_continues_after_many_restarts_and_joins_once(
    bus: Home, pump: RawPump, workspace: Path
) -> None:
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]

    for number in range(2, 6):
        bus.kill()
        assert pump.ask(number, "join_path", context_path=str(workspace))["room_id"] == room

    (event,) = bus.events("--type", "member_joined")
    assert event["from"] == "luna"


async def test_client_of_the_sdk_does_not_notice_a_restart(bus: Home, workspace: Path) -> None:
    async with modern(pump_parameters(bus)) as model:
        first = await model.ok("join_path", context_path=str(workspace))
        bus.kill()
        waiting = asyncio.create_task(model.ok("wait_for_turn", room_id=first["room_id"]))

        assert (await waiting)["status"] == "your_turn"


def test_repeated_call_runs_once(bus: Home, pump: RawPump) -> None:
    key = os.urandom(16)
    call = json.dumps(request(1, "tools/call", name="send", arguments={"to": "@luna", "text": "once"}))
    shake = json.dumps(HANDSHAKE).encode()

    for kind in (b"L", b"M", b"M"):
        with connect(bus.path) as wire:
            wire.sendall(b"PALM" + thin_request("mcp", key=key, token=shake))
            wire.sendall(frame(kind, (7).to_bytes(4, "big") + call.encode()) + frame(b"Z"))
            answers = wire.makefile("rb").read()
            assert b"delivered_to" in answers

    assert bus.texts() == ["once"]


def test_calls_are_refused_after_down_and_the_session_continues_after_up(
    bus: Home, pump: RawPump, workspace: Path, nova: Shell
) -> None:
    nova.ok("room", "join", str(workspace))
    nova.ok("stick", "claim")
    room = pump.ask(1, "join_path", context_path=str(workspace))["room_id"]
    pump.call(2, "wait_for_turn", room_id=room)

    bus.ok("down")
    reply = pump.hear()
    pump.call(3, "list_agents")
    refused = pump.hear()
    bus.ok("up")

    assert (reply["id"], refused["id"]) == (2, 3)
    assert "pal up" in reply["error"]["message"]
    assert "pal up" in refused["error"]["message"]
    assert pump.ask(4, "get_room_state", room_id=room)["room_id"] == room


def test_pump_starts_the_bus_as_other_commands_do(home: Home) -> None:
    pump = RawPump(home)
    pump.begin()

    assert home.ok("status", "--json").json["pid"] == home.pid


def test_person_who_runs_the_pump_is_the_human(bus: Home) -> None:
    call = request(1, "tools/call", name="send", arguments={"to": "@human", "text": "me"})
    path = bus.spare_path()
    path.write_text(f"{json.dumps(request(0, 'initialize', **HANDSHAKE))}\n{json.dumps(call)}\n")

    run_script_as_person(bus, f"pal mcp <{path}")

    (event,) = bus.events("--type", "message")
    assert event["from"] == "human"


# Costs


def test_daemon_loads_the_sdk_at_first_use(home: Home) -> None:
    def is_loaded() -> bool:
        return "pydantic_core" in Path(f"/proc/{home.pid}/maps").read_text()

    home.ok("up")
    before = is_loaded()
    RawPump(home).begin()

    assert (before, is_loaded()) == (False, True)


def test_pump_uses_few_megabytes(pump: RawPump) -> None:
    status = Path(f"/proc/{pump.process.pid}/status").read_text()

    (resident,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(resident.split()[1]) < 4 * 1024


def test_daemon_greets_a_pump_at_once(bus: Home) -> None:
    with connect(bus.path) as wire:
        wire.sendall(b"PALM" + thin_request("mcp"))

        assert wire.makefile("rb").read(9) == frame(b"L", bytes(4))
