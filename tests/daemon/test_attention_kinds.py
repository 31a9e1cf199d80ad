"""Everything that waits for a person, with a real bus: each kind appears, its actions work, and it ends."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import (
    Home,
    JsonLine,
    Shell,
    check_output,
    new_home,
    run_as_person,
    run_script_as_person,
    wait_until,
    write_settings,
)

ASKED = {
    "session_id": "s1",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "touch x"},
}


@pytest.fixture
def bus() -> Iterator[Home]:
    with new_home() as home:
        settings = {"approvals": 1, "approvals_wait_s": 600, "stale_after_s": 1, "brake_per_minute": 3}
        write_settings(home, **settings)
        home.start_daemon()
        yield home


def join(bus: Home, name: str, harness: str = "") -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", name, *(("--harness", harness) if harness else ()))
    return shell


def pending(bus: Home) -> list[JsonLine]:
    return bus.ok("pending", "--json").lines


def one(bus: Home, kind: str) -> JsonLine:
    """Wait until an entry of a kind is listed, and return it."""
    wait_until(lambda: kind in [entry["kind"] for entry in pending(bus)])
    (found,) = (entry for entry in pending(bus) if entry["kind"] == kind)
    assert all(found[name] for name in ("agent", "what", "since", "why", "actions"))
    return found


def check_ended(bus: Home, entry: JsonLine) -> None:
    wait_until(lambda: entry["key"] not in [one["key"] for one in pending(bus)])


def line_of(bus: Home, entry: JsonLine, word: str) -> str:
    """Return the line of an action, as `pal pending` prints it."""
    (command,) = (action["command"] for action in entry["actions"] if action["word"] == word)
    line = shlex.join(command)
    assert line in run_as_person(bus, "pending").out
    return line


def type_line(bus: Home, line: str) -> str:
    """Run a line in a person's shell. It must succeed."""
    return check_output(run_script_as_person(bus, line)).out


def ask_permission(shell: Shell) -> None:
    shell.begin_script(f"printf %s {shlex.quote(json.dumps(ASKED))} | pal hook claude PermissionRequest")


@pytest.mark.parametrize("word", ["approve", "deny"])
def test_permission_request_is_decided(bus: Home, word: str) -> None:
    ask_permission(join(bus, "nova", "claude"))
    entry = one(bus, "permission")

    type_line(bus, line_of(bus, entry, word))

    assert (entry["agent"], entry["what"]) == ("nova", "Bash: touch x")
    check_ended(bus, entry)


@pytest.mark.parametrize("option", [("--intent", "request"), ("--expects-reply",)])
def test_request_to_the_person_is_answered(bus: Home, option: tuple[str, ...]) -> None:
    luna = join(bus, "luna")
    luna.ok("send", "@human", *option, "--", "may I?")
    entry = one(bus, "request")
    assert "may I?" in run_as_person(bus, "recv").out  # reading is not enough
    assert one(bus, "request") == entry

    type_line(bus, f"{line_of(bus, entry, 'reply')} -- yes")

    check_ended(bus, entry)
    assert "yes" in luna.ok("recv").out


def test_held_message_is_released(bus: Home) -> None:
    rex, luna = join(bus, "rex", "codex"), join(bus, "luna")
    for number in range(4):
        rex.pal("send", "@luna", "--", f"number {number}")
    entry = one(bus, "held")

    type_line(bus, line_of(bus, entry, "release"))

    assert "more than 3 messages a minute from rex to one agent" in entry["why"]
    check_ended(bus, entry)
    assert "number 3" in luna.ok("recv").out


def test_unconfirmed_message_is_sent_again(bus: Home) -> None:
    luna, nova = join(bus, "luna"), join(bus, "nova", "claude")

    def hook(event: str, **fields: str) -> str:
        data = json.dumps({"session_id": "s1", "hook_event_name": event, **fields})
        return nova.begin_script(f"printf %s {shlex.quote(data)} | pal hook claude {event}").end().out

    hook("UserPromptSubmit", prompt="go")
    luna.ok("send", "@nova", "--", "look here")
    assert "look here" in hook("PostToolUse")
    bus.kill()
    bus.ok("up")
    hook("SessionStart", source="startup")
    entry = one(bus, "unconfirmed")
    waiting = bus.ok("status", "nova").out

    type_line(bus, line_of(bus, entry, "redeliver"))

    assert "unconfirmed: the hook lane carried it to nova" in waiting
    check_ended(bus, entry)
    assert "look here" in hook("UserPromptSubmit", prompt="go on")


def test_dead_letters_are_cleared(bus: Home) -> None:
    join(bus, "luna").ok("send", "build/done", "--", "green")
    entry = one(bus, "dead")

    assert "green" in type_line(bus, line_of(bus, entry, "show"))
    type_line(bus, line_of(bus, entry, "clear"))

    check_ended(bus, entry)


@pytest.mark.parametrize("word", ["takeover", "kick"])
def test_stick_of_an_offline_owner_can_be_taken(bus: Home, tmp_path: Path, word: str) -> None:
    luna, ada = join(bus, "luna"), join(bus, "ada")
    room = luna.ok("room", "join", str(tmp_path), "--json").json["room_id"]
    ada.ok("room", "join", str(tmp_path))
    check_output(run_as_person(bus, "room", "join", str(tmp_path)))
    ada.ok("stick", "claim", "--room", room)
    ada.close()
    entry = one(bus, "stick")

    type_line(bus, line_of(bus, entry, "show"))
    type_line(bus, line_of(bus, entry, word))

    assert entry["why"].endswith("is offline.")
    check_ended(bus, entry)


def test_blocked_agent_is_listed_until_it_goes_on(bus: Home) -> None:
    luna = join(bus, "luna")
    luna.ok("status", "set", "blocked", "--detail", "which branch?")
    entry = one(bus, "blocked")

    assert "which branch?" in type_line(bus, line_of(bus, entry, "show"))
    luna.ok("status", "set", "idle")

    assert entry["what"] == "which branch?"
    check_ended(bus, entry)


def test_stale_agent_is_listed_until_it_reports(bus: Home) -> None:
    luna = join(bus, "luna")
    luna.ok("status", "set", "active", "--detail", "building")
    entry = one(bus, "stale")

    type_line(bus, line_of(bus, entry, "show"))
    luna.ok("status", "set", "idle")

    assert entry["what"] == "building"
    check_ended(bus, entry)


def test_status_counts_everything_that_waits(bus: Home) -> None:
    luna = join(bus, "luna")
    for number in range(2):
        luna.ok("send", "@human", "--intent", "request", "--", f"question {number}")

    assert bus.ok("status", "--json").json["attention"] == 2
    assert "2 for a person" in bus.ok("status").out
