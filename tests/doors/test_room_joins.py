"""Room services: joining by path, lists, leaving, and choosing the room of a directory."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import Stage, opened_stage
from tests.fakes import HUMAN, SCRIPT, caller

from palaver.errors import (
    BadRequest,
    CannotKickSelf,
    NotAllowed,
    NotAPlace,
    RoomNotFound,
    TargetActive,
    UnknownMember,
    UnknownTarget,
    WhoAreYou,
)
from palaver.protocol.agents import Caller
from palaver.protocol.query import Query
from palaver.protocol.requests import Join, Leave, SetStatus


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path / "home") as made:
        yield made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "work" / "pyproject.toml").touch()
    return tmp_path / "work"


def names(answer: Any) -> list[str]:
    return [member["agent_id"] for member in answer["members"]]


async def count(stage: Stage, type: str) -> int:
    return len(await stage.log.read(Query(types=(type,))))


async def test_join_returns_room_members_limits_and_cursor(stage: Stage, work: Path) -> None:
    luna = await stage.join("luna", harness="codex")

    answer = await stage.rendered.join_path(luna, context_path=str(work / "src"))

    assert answer["room_id"] == stage.room().id
    assert str(answer["room_id"]).startswith("work-")
    assert (answer["agent_id"], answer["canonical_path"]) == ("luna", str(work))
    assert (answer["room_state"], answer["turn_id"], answer["is_new"]) == ("idle", 0, True)
    assert answer["cursor_event_seq"] == stage.log.last()
    assert answer["policy"]["message_bytes"] == 4096
    assert answer["members"][0]["harness"] == "codex"
    assert "warning" not in answer


async def test_fifty_joins_resumes_and_reconnects_are_one_join(stage: Stage, work: Path) -> None:
    luna = await stage.join("luna", harness="codex", session="s1")
    await stage.rendered.join_path(luna, context_path=str(work))
    await stage.rendered.send_message(HUMAN, room_id="work", body="unread")

    for number in range(50):
        stage.present.discard("luna")
        await stage.submit(luna, SetStatus(state="active", detail="compacting"))
        await stage.broker.submit(luna, Join(name="luna", harness="codex", session="s1", runtime=str(number)))
        stage.present.add("luna")
        answer = await stage.rendered.join_path(luna, context_path=str(work / "src"))

    assert await count(stage, "member_joined") == 1
    assert await count(stage, "member_left") == 0
    assert answer["is_new"] is False
    read = await stage.rendered.wait_for_events(
        luna, room_id="work", after_event_seq=int(str(answer["cursor_event_seq"])), max_wait_ms=0
    )
    assert [event["payload"]["body"] for event in read["events"]] == ["unread"]


async def test_join_below_a_room_joins_it_unless_new_is_forced(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    inner = work / "packages"
    (inner / ".git").mkdir(parents=True)
    (inner / ".git" / "HEAD").touch()
    nova = await stage.join("nova")

    above = await stage.rendered.join_path(nova, context_path=str(inner))
    nested = await stage.rendered.join_path(nova, context_path=str(inner), force_new=True)
    again = await stage.rendered.join_path(luna, context_path=str(inner))

    assert above["canonical_path"] == str(work)
    assert above["warning"] == f"Joined ancestor room {work} above this workspace root {inner}"
    assert nested["canonical_path"] == again["canonical_path"] == str(inner)
    assert str(nested["warning"]).startswith(f"Created nested room inside {work}")
    assert "warning" not in again


async def test_forced_new_room_is_at_the_given_folder_and_covers_subfolders(stage: Stage, work: Path) -> None:
    os.makedirs(work / ".git")
    (work / ".git" / "HEAD").touch()
    await stage.seat(work, "luna")
    inner = work / "services" / "api"
    os.makedirs(inner / "deep")
    nova, rosa = await stage.join("nova"), await stage.join("rosa")

    nested = await stage.rendered.join_path(nova, context_path=str(inner), force_new=True)
    below = await stage.rendered.join_path(rosa, context_path=str(inner / "deep"))
    other = await stage.rendered.join_path(rosa, context_path=str(work / "services"))

    assert nested["canonical_path"] == below["canonical_path"] == str(inner)
    assert str(nested["warning"]).startswith(f"Created nested room inside {work}")
    assert "warning" not in below
    assert other["canonical_path"] == str(work)
    assert await stage.rendered.room_here(rosa, str(inner / "deep")) == nested["room_id"]
    around = await stage.rendered.list_rooms(rosa, context_path=str(inner))
    assert [room["room_id"] for room in around["rooms"]] == [nested["room_id"], other["room_id"]]


async def test_invalid_paths_and_scripts_cannot_create_rooms(stage: Stage, work: Path) -> None:
    luna = await stage.join("luna")

    with pytest.raises(NotAPlace):
        await stage.rendered.join_path(luna, context_path="/")
    with pytest.raises(NotAPlace):
        await stage.rendered.join_path(luna, context_path="work")
    with pytest.raises(WhoAreYou):
        await stage.rendered.join_path(SCRIPT, context_path=str(work))


async def test_room_list_shows_all_rooms_or_those_around_a_path(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    other = work.parent / "other"
    await stage.seat(other, "nova")
    await stage.rendered.close_room(HUMAN, room_id="other")

    open_ones = await stage.rendered.list_rooms(luna)
    everything = await stage.rendered.list_rooms(luna, include_closed=True)
    around = await stage.rendered.list_rooms(luna, context_path=str(work / "src"))
    at_other = await stage.rendered.list_rooms(luna, context_path=str(other))
    closed = await stage.rendered.list_rooms(luna, context_path=str(other), include_closed=True)

    line = open_ones["rooms"][0]
    assert len(open_ones["rooms"]) == 1
    assert (line["canonical_path"], line["is_member"], line["present_count"]) == (str(work), True, 1)
    assert len(everything["rooms"]) == 2
    assert around["rooms"] == open_ones["rooms"]
    assert at_other["rooms"] == []
    assert [room["room_state"] for room in closed["rooms"]] == ["closed"]


async def test_room_and_history_remain_after_the_last_member_leaves(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)

    first = await stage.rendered.leave_room(luna, room_id="work")
    last = await stage.rendered.leave_room(nova, room_id="#work")

    assert first == {
        "status": "left",
        "room_id": stage.room().id,
        "room_state": "idle",
        "remaining_members": 1,
    }
    assert last["remaining_members"] == 0
    state = await stage.rendered.get_room_state(luna, room_id="work")
    assert state["conditions"] == ["dormant"]
    history = await stage.rendered.get_room_events(luna, room_id="work")
    assert len(history["events"]) == 5
    with pytest.raises(UnknownMember):
        await stage.rendered.leave_room(luna, room_id="work")


async def test_members_are_removed_by_the_rules(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    mona = await stage.join("mona")
    await stage.claim(nova)

    with pytest.raises(CannotKickSelf):
        await stage.rendered.kick_member(luna, room_id="work", target_agent_id="luna")
    with pytest.raises(UnknownMember):
        await stage.rendered.kick_member(mona, room_id="work", target_agent_id="nova")
    with pytest.raises(UnknownTarget):
        await stage.rendered.kick_member(luna, room_id="work", target_agent_id="ghost")
    with pytest.raises(TargetActive):
        await stage.rendered.kick_member(luna, room_id="work", target_agent_id="nova")
    with pytest.raises(NotAllowed):
        await stage.rendered.kick_member(luna, room_id="work", target_agent_id="nova", force=True)
    answer = await stage.rendered.kick_member(
        HUMAN, room_id="work", target_agent_id="@nova", force=True, reason="asleep"
    )

    assert (answer["status"], answer["target_agent_id"], answer["target_was_owner"]) == (
        "kicked",
        "nova",
        True,
    )
    assert answer["room_state"] == "idle"
    event = stage.log.event(stage.log.last())
    assert event is not None
    assert (event.type, event.payload["reason"]) == ("kick", "asleep")


async def test_only_an_operator_closes_and_the_next_room_is_new(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    first = stage.room().id

    with pytest.raises(NotAllowed):
        await stage.rendered.close_room(luna, room_id="work")
    closed = await stage.rendered.close_room(HUMAN, room_id="work", reason="done")
    again = await stage.rendered.join_path(luna, context_path=str(work))

    assert (closed["status"], closed["room_id"]) == ("closed", first)
    assert again["room_id"] == f"{first}-2"
    assert names(again) == ["luna"]


async def test_room_here_is_the_deepest_room_of_the_caller(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    inner = work / "src" / "inner"
    inner.mkdir()
    (inner / "package.json").touch()
    mona = await stage.join("mona")
    nested = await stage.rendered.join_path(nova, context_path=str(inner), force_new=True)
    outer = (await stage.rendered.get_room_state(luna, room_id="work"))["room_id"]

    assert await stage.rendered.room_here(luna, str(inner)) == outer
    assert await stage.rendered.room_here(nova, str(inner)) == nested["room_id"]
    assert await stage.rendered.room_here(mona, str(inner)) == nested["room_id"]
    assert await stage.rendered.room_here(mona, str(work)) == outer
    assert await stage.rendered.room_here(luna, str(work.parent)) is None
    assert await stage.rendered.room_here(luna, "/") is None


async def test_default_room_is_the_only_room_of_the_caller(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    mona = await stage.join("mona")
    other = work.parent / "other"
    other.mkdir()
    room = (await stage.rendered.get_room_state(luna, room_id="work"))["room_id"]
    theirs = (await stage.rendered.join_path(mona, context_path=str(other)))["room_id"]

    assert await stage.rendered.own_room_here(luna, str(work)) == room
    assert await stage.rendered.own_room_here(luna, str(other)) is None
    assert await stage.rendered.own_room_here(luna, "/") is None
    assert await stage.rendered.room_meant(luna, str(other)) == room
    assert await stage.rendered.room_meant(luna, "/") == room
    assert await stage.rendered.room_meant(await stage.join("rosa"), str(other)) == theirs
    assert await stage.rendered.room_meant(SCRIPT, "/") is None


async def test_caller_in_several_rooms_elsewhere_must_name_one(stage: Stage, work: Path) -> None:
    (luna,) = await stage.seat(work, "luna")
    other = work.parent / "other"
    other.mkdir()
    await stage.rendered.join_path(luna, context_path=str(other))
    rooms = sorted(str(room["room_id"]) for room in (await stage.rendered.list_rooms(luna))["rooms"])

    with pytest.raises(BadRequest) as refused:
        await stage.rendered.room_meant(luna, "/")

    assert all(room in str(refused.value) for room in rooms)


async def test_default_room_of_a_person_is_the_room_here(stage: Stage, work: Path) -> None:
    await stage.seat(work, "luna")
    other = work.parent / "other"
    other.mkdir()
    theirs = (await stage.rendered.join_path(HUMAN, context_path=str(other)))["room_id"]

    assert await stage.rendered.room_meant(HUMAN, str(work)) == stage.room("work").id
    assert await stage.rendered.room_meant(HUMAN, "/") == theirs


async def test_room_state_shows_the_status_of_every_member(stage: Stage, work: Path) -> None:
    luna, nova, rosa = await stage.seat(work, "luna", "nova", "rosa")
    await stage.claim(luna)
    stage.present -= {"nova", "rosa"}
    await stage.submit(rosa, Leave())
    await stage.rendered.join_path(rosa, context_path=str(work))
    stage.clock.advance(601)

    state: Any = await stage.rendered.get_room_state(nova, room_id="work")

    assert {one["agent_id"]: one["status"] for one in state["members"]} == {
        "luna": "active",
        "nova": "away",
        "rosa": "gone",
    }
    assert (state["owner_agent_id"], state["room_state"]) == ("luna", "owned")
    assert [one["is_owner"] for one in state["members"]] == [True, False, False]
    with pytest.raises(RoomNotFound):
        await stage.rendered.get_room_state(nova, room_id="nowhere")


async def test_human_member_has_no_agent_state(stage: Stage, work: Path) -> None:
    await stage.seat(work, "luna")

    answer: Any = await stage.rendered.join_path(HUMAN, context_path=str(work))

    person = next(one for one in answer["members"] if one["agent_id"] == "human")
    assert (person["state"], person["harness"]) == (None, "human")


async def test_room_state_shows_a_pending_handoff_with_its_author(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    await stage.claim(luna)
    await stage.release(luna)

    state: Any = await stage.rendered.get_room_state(luna, room_id="work")

    assert state["pending_handoff"]["from_agent_id"] == "luna"
    assert state["pending_handoff"]["handoff"]["status"] == "tests pass"
    assert state["prior_owner_agent_id"] == "luna"


async def test_agent_list_shows_all_and_inbox_only_the_callers_messages(stage: Stage) -> None:
    luna = await stage.join("luna")
    agents = await stage.rendered.list_agents(luna)
    sent = [(await stage.send(HUMAN, str(number), "@luna")).seq for number in range(2)]

    everything = await stage.rendered.inbox(luna, limit=10_000)
    newest = await stage.rendered.inbox(luna, limit=-1)

    assert [agent["name"] for agent in agents["agents"]] == ["luna"]
    assert [message["seq"] for message in everything["messages"]] == sent
    assert [message["seq"] for message in newest["messages"]] == sent[1:]
    with pytest.raises(WhoAreYou):
        await stage.rendered.inbox(SCRIPT)


async def test_same_request_key_returns_the_same_result(stage: Stage, work: Path) -> None:
    luna: Caller = caller(await stage_join(stage))

    first = await stage.rendered.join_path(luna, context_path=str(work), key=b"k" * 16)
    again = await stage.rendered.join_path(luna, context_path=str(work), key=b"k" * 16)
    sent = [
        await stage.rendered.send_message(luna, room_id="work", body="once", key=b"m" * 16) for _ in range(2)
    ]

    assert first["room_id"] == again["room_id"]
    assert sent[0] == sent[1]


async def stage_join(stage: Stage) -> Any:
    await stage.join("luna")
    return stage.agent("luna")
