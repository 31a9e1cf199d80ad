"""Rooms with real processes: workspaces, turns that end with their owner, restarts, and mail to oneself."""

import json
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person, wait_until

from palaver.state.agents import AGENTS

HANDOFF = ("--status", "tests pass", "--next", "review")


@pytest.fixture
def quick(home: Home) -> Home:
    """A bus without a grace period for exited owners."""
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text("room_heartbeat_s = 0\nroom_waiter_grace_s = 60\n")
    home.start_daemon()
    return home


@pytest.fixture
def work(home: Home) -> Path:
    """A checkout under the home directory, with a linked worktree and a symlink to it."""
    folder = home.path.parent / "work"
    folder.mkdir()
    name = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (
        ["init", "-q"],
        [*name, "commit", "-q", "--allow-empty", "-m", "first"],
        ["worktree", "add", "-q", str(home.path.parent / "tree")],
    ):
        subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, env=home.environment)
    (home.path.parent / "link").symlink_to(folder)
    return folder


def agent(home: Home, name: str, work: Path) -> Shell:
    """Return a shell with an agent that is a member of the room."""
    shell = home.shell()
    shell.ok("join", "--name", name)
    shell.ok("room", "join", str(work))
    return shell


def types(home: Home) -> list[str]:
    return [event["type"] for event in home.events("--room", room_id(home))]


def room_id(home: Home) -> str:
    (room,) = home.ok("room", "list", "--json").lines
    return str(room["room_id"])


def test_worktree_symlink_and_subfolder_share_one_room(bus: Home, work: Path) -> None:
    luna = agent(bus, "luna", work)
    parent = bus.path.parent
    (work / "src").mkdir()

    found = {
        luna.ok("room", "join", str(path), "--json").json["room_id"]
        for path in (work, parent / "tree", parent / "link", work / "src")
    }
    refused = luna.pal("room", "join", str(parent), "--json")

    assert found == {room_id(bus)}
    assert types(bus) == ["member_joined"]
    assert refused.status == 1
    assert refused.error["error"] == "not_a_place"


def test_waiting_member_gets_the_stick_when_it_is_released(bus: Home, work: Path) -> None:
    luna, nova = agent(bus, "luna", work), agent(bus, "nova", work)
    room = room_id(bus)
    first = luna.ok("stick", "claim", "--room", room, "--json").json
    waiting = nova.begin("stick", "wait", "--room", room, "--json")

    luna.ok("stick", "release", "--room", room, *HANDOFF)
    second = check_output(waiting.end()).json

    assert (first["turn_id"], second["turn_id"]) == (1, 2)
    assert second["handoff"]["status"] == "tests pass"
    assert second["from_agent_id"] == "luna"


def test_killed_owner_loses_the_stick_to_the_waiting_member(quick: Home, work: Path) -> None:
    luna, nova = agent(quick, "luna", work), agent(quick, "nova", work)
    room = room_id(quick)
    luna.ok("stick", "claim", "--room", room)
    waiting = nova.begin("stick", "wait", "--room", room, "--json")

    luna.process.kill()
    luna.process.wait()
    result = waiting.end()

    if result.json["status"] == "takeover_available":
        result = nova.pal("stick", "wait", "--room", room, "--json")
    assert result.json["status"] == "your_turn"
    assert quick.ok("room", "state", "--room", room, "--json").json["owner_agent_id"] == "nova"


def test_owner_keeps_the_stick_over_restarts_and_joins_only_once(bus: Home, work: Path) -> None:
    luna, nova = agent(bus, "luna", work), agent(bus, "nova", work)
    room = room_id(bus)
    turn = luna.ok("stick", "claim", "--room", room, "--json").json

    for _ in range(3):
        bus.kill(signal.SIGKILL)
        luna.ok("room", "join", str(work))
        nova.ok("room", "join", str(work))

    assert types(bus) == ["member_joined", "member_joined", "claim"]
    beat = luna.ok("stick", "heartbeat", "--room", room, "--json").json
    assert (beat["status"], beat["turn_id"]) == ("ok", turn["turn_id"])


def long_gone(home: Home, name: str) -> None:
    """Kill the daemon, and date all of an agent's events except messages back by an hour."""
    home.kill(signal.SIGKILL)
    with closing(sqlite3.connect(home.path / "log.sqlite")) as log, log:
        (row,) = log.execute("SELECT value FROM state WHERE tbl = ? AND key = ?", (AGENTS, name)).fetchone()
        known = json.loads(row)
        changed = json.dumps({**known, "since": known["since"] - 3_600_000}).encode()
        log.execute("UPDATE state SET value = ? WHERE tbl = ? AND key = ?", (changed, AGENTS, name))
        log.execute("UPDATE events SET ts = ts - 3600000 WHERE sender = ? AND type <> 'message'", (name,))
    home.ok("up")


@pytest.mark.parametrize("has_written", [False, True])
def test_restart_does_not_extend_the_grace_of_an_exited_member(
    bus: Home, work: Path, has_written: bool
) -> None:
    luna, nova = agent(bus, "luna", work), agent(bus, "nova", work)
    room = room_id(bus)
    luna.process.kill()
    luna.process.wait()
    wait_until(lambda: bus.events("--type", "agent.bye"))
    if has_written:
        bus.ok("--as", "luna", "send", "@nova", "--", "one word more")

    long_gone(bus, "luna")
    asked = nova.pal("room", "kick", "luna", "--room", room, "--json")

    if has_written:
        assert asked.error["error"] == "target_active"
        assert asked.error["details"]["gone_in_s"] > 60
    else:
        assert asked.status == 0 or asked.error["details"]["gone_in_s"] <= 10


def test_message_to_oneself_in_a_room_is_read_by_recv(bus: Home, work: Path) -> None:
    luna = agent(bus, "luna", work)

    luna.ok("send", "luna", "--room", room_id(bus), "--", "remember")
    received = luna.ok("recv", "--json")

    assert [line["text"] for line in received.lines] == ["remember"]
    assert received.lines[0]["room"] == room_id(bus)


def test_person_closes_a_room_and_its_history_stays(bus: Home, work: Path) -> None:
    luna = agent(bus, "luna", work)
    room = room_id(bus)
    luna.ok("send", f"#{room}", "--", "last words")

    refused = luna.pal("room", "close", "--room", room, "--json")
    closed = check_output(run_as_person(bus, "room", "close", "--room", room, "--json"))

    assert refused.error["error"] == "not_allowed"
    assert closed.json["status"] == "closed"
    assert luna.pal("send", f"#{room}", "--", "more", "--json").status == 1
    assert [event["type"] for event in bus.events("--room", room)] == ["member_joined", "message", "close"]
