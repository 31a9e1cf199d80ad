"""Guarantees of rooms under many repeated requests from many callers, with real processes."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.crew import HANDOFF, Agent, Crew
from tests.daemon.mcp_stage import RawPump
from tests.daemon.stage import Home, Result, check_output

import palaver

WAITS = 10_000
SESSION = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "one-conversation"}


@pytest.fixture
def crew(bus: Home) -> Crew:
    return Crew(bus)


# Waiting for events


async def test_ten_thousand_waits_for_events_change_neither_log_nor_next_turn(bus: Home, crew: Crew) -> None:
    luna, nova = crew.member("luna", "codex"), crew.member("nova", "claude")
    luna.claim()
    waiting = nova.run_in_background("stick", "wait", "--json")
    luna.sees_waiting("nova")

    async with palaver.connect("looker", home=bus.path) as looker:
        joined: dict[str, Any] = await looker.call("join_path", context_path=str(crew.folder))
        room, before = joined["room_id"], joined["cursor_event_seq"]
        for _ in range(WAITS // 500):
            answers = await asyncio.gather(*(look(looker, room, before) for _ in range(500)))
            assert all(answer["events"] == [] for answer in answers)
            assert {answer["cursor_event_seq"] for answer in answers} == {before}
        state: dict[str, Any] = await looker.call("get_room_state", room_id=room)

    assert state["cursor_event_seq"] == before
    assert [member["agent_id"] for member in state["members"] if member["waiting"]] == ["nova"]
    released = luna.ok("stick", "release", *HANDOFF, "--json").json
    assert released["reserved_for"] == "nova"  # Not `looker`, which only waited for events.
    assert waiting.end().json["status"] == "your_turn"


async def look(me: palaver.Connection, room: str, after: int) -> dict[str, Any]:
    return await me.call("wait_for_events", room_id=room, after_event_seq=after, max_wait_ms=0)


# Joining


class Conversation:
    """One conversation of a harness: it outlives the process in which it runs."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.resume()

    def resume(self) -> None:
        """Continue in a new process, in the folder; the previous process may have ended."""
        self.process = self._crew.home.shell()
        self.process.begin_script(f"cd {self._crew.folder}").end()
        self.ok("join", "--name", "luna")

    def ok(self, *words: str) -> Result:
        return check_output(self.process.pal(*words, env=SESSION))


def test_fifty_reconnects_resumes_and_compactions_are_one_join(bus: Home, crew: Crew) -> None:
    luna = Conversation(crew)
    luna.ok("room", "join")

    for number in range(50):
        if number % 10 == 0:
            bus.kill()
        elif number % 3 == 0:
            luna.process.close()
            luna.resume()
        elif number % 3 == 1:
            luna.ok("status", "set", "active", "--detail", "compacting")
        joined = luna.ok("room", "join", "--json").json
        assert (joined["agent_id"], joined["is_new"]) == ("luna", False)

    assert [event["from"] for event in crew.events("member_joined", "member_left")] == ["luna"]


async def test_reconnects_of_the_sdk_and_of_mcp_are_one_join_each(bus: Home, crew: Crew) -> None:
    bus.ok("join", "--name", "luna")

    async with palaver.connect("nova", home=bus.path) as nova:
        for _ in range(5):
            pump = RawPump(bus)
            pump.begin()
            assert pump.ask(1, "join_path", context_path=str(crew.folder))["agent_id"] == "luna"
            await nova.call("join_path", context_path=str(crew.folder))
            pump.process.kill()
            bus.kill()

        joins = await nova.events(types=["member_joined"])

    assert [event.sender for event in joins] == ["luna", "nova"]


# Workspaces


@pytest.fixture
def luna(bus: Home) -> Agent:
    return Agent(bus, "luna", "codex", bus.path.parent)


def joined(agent: Agent, path: Path) -> tuple[str, str]:
    """Join the room of a path. Return the room and its workspace."""
    found = agent.ok("room", "join", str(path), "--json").json
    return found["room_id"], found["canonical_path"]


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(bus: Home) -> Path:
    """A git repository with a commit, below the person's home."""
    folder = bus.path.parent / "src" / "shop"
    folder.mkdir(parents=True)
    git(folder, "init")
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").touch()
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_worktree_shares_the_room_of_its_main_checkout(luna: Agent, checkout: Path) -> None:
    tree = checkout.parent / "shop-fix"
    git(checkout, "worktree", "add", str(tree))
    (tree / "deep").mkdir()

    rooms = {joined(luna, path) for path in (checkout, checkout / "sub" / "a.txt", tree, tree / "deep")}

    assert rooms == {(joined(luna, checkout)[0], str(checkout))}


def test_submodule_has_its_own_room(luna: Agent, checkout: Path) -> None:
    part = checkout.parent / "part"
    part.mkdir()
    git(part, "init")
    git(part, "commit", "--allow-empty", "-m", "first")
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", str(part), "part")

    assert joined(luna, checkout / "part")[1] == str(checkout / "part")


def test_symlink_leads_to_the_room_of_its_target(luna: Agent, checkout: Path) -> None:
    link = checkout.parent / "link"
    link.symlink_to(checkout, target_is_directory=True)
    (checkout.parent / "loop").symlink_to(checkout.parent / "loop")

    assert joined(luna, link / "sub") == joined(luna, checkout)
    refused = luna.pal("room", "join", str(checkout.parent / "loop"), "--json")
    assert refused.status == 1
    assert json.loads(refused.err)["error"] != "unavailable"


def test_folder_under_the_home_has_a_room_but_not_the_home_itself(bus: Home, luna: Agent) -> None:
    home = bus.path.parent
    plain = home / "notes" / "today"
    plain.mkdir(parents=True)
    (home / "Makefile").touch()  # A marker file in the home does not make the home a workspace.
    (home / "back").symlink_to(home)

    room, path = joined(luna, plain)
    refused = [luna.pal("room", "join", str(one), "--json") for one in (home, home / "back", Path("/"))]

    assert (room.startswith("today-"), path) == (True, str(plain))
    assert [one.error["error"] for one in refused] == ["not_a_place"] * 3


def test_same_folder_name_in_two_locations_is_two_rooms_and_ambiguous(bus: Home, luna: Agent) -> None:
    folders = [bus.path.parent / owner / "shop" for owner in ("ann", "bob")]
    for folder in folders:
        folder.mkdir(parents=True)

    rooms = [joined(luna, folder)[0] for folder in folders]
    ambiguous = luna.pal("room", "state", "--room", "shop", "--json")

    assert len(set(rooms)) == 2
    assert ambiguous.error["error"] == "ambiguous_recipient"
    assert sorted(ambiguous.error["details"]["candidates"]) == sorted(rooms)
    assert luna.ok("room", "state", "--room", rooms[1], "--json").json["canonical_path"] == str(folders[1])
