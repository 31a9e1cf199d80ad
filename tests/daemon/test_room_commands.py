"""`pal room`, `pal stick` and `pal note` with the real client, in a real folder."""

import json
import shlex
from pathlib import Path

import pytest
from tests.daemon.stage import (
    Home,
    Job,
    JsonLine,
    Result,
    Shell,
    check_output,
    run_script_as_person,
    wait_until,
    write_settings,
)
from tests.daemon.tmux import HAS_TMUX, pane
from tests.daemon.wires import ThinWire

HANDOFF = ("--status", "parser done", "--next", "wire it in")


class Worker:
    """An agent in a workspace."""

    def __init__(self, home: Home, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.shell: Shell = home.shell()
        self.shell.ok("join", "--name", name)

    def begin(self, *words: str, feed: str = "") -> Job:
        before = f"printf %s {shlex.quote(feed)} | " if feed else ""
        return self.shell.begin_script(
            f"cd {shlex.quote(str(self.folder))} && {before}pal {shlex.join(words)}"
        )

    def pal(self, *words: str, feed: str = "") -> Result:
        return self.begin(*words, feed=feed).end()

    def ok(self, *words: str, feed: str = "") -> Result:
        return check_output(self.pal(*words, feed=feed))


def person(home: Home, folder: Path, *words: str) -> Result:
    return run_script_as_person(home, f"cd {shlex.quote(str(folder))} && pal {shlex.join(words)}")


def set_up(home: Home, **settings: int) -> tuple[Worker, Worker]:
    write_settings(home, **settings)
    home.start_daemon()
    folder = home.path.parent / "talk"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    luna, nova = Worker(home, "luna", folder), Worker(home, "nova", folder)
    for one in (luna, nova):
        one.ok("room", "join")
    return luna, nova


@pytest.fixture
def pair(home: Home) -> tuple[Worker, Worker]:
    """The members luna and nova in one room; joining counts as waiting however long a test takes."""
    return set_up(home, room_waiter_grace_s=600)


@pytest.fixture
def luna(pair: tuple[Worker, Worker]) -> Worker:
    return pair[0]


@pytest.fixture
def nova(pair: tuple[Worker, Worker]) -> Worker:
    return pair[1]


def room_of(worker: Worker) -> str:
    return str(worker.ok("room", "state", "--json").json["room_id"])


# Rooms


def test_agent_in_any_subfolder_joins_the_room_of_the_workspace(luna: Worker, nova: Worker) -> None:
    sub = nova.folder / "src"
    sub.mkdir()
    nova.folder = sub

    joined = nova.ok("room", "join", "--json").json
    output = nova.ok("room", "join").out.splitlines()

    assert [member["agent_id"] for member in joined["members"]] == ["luna", "nova"]
    assert joined["canonical_path"] == str(luna.folder)
    assert output == [f"you are in {room_of(luna)}, the room of {luna.folder}", "members: luna, nova"]


@pytest.mark.parametrize("marker", ["CLAUDE.md", "AGENTS.md", "GEMINI.md"])
def test_folder_with_instructions_for_agents_is_one_workspace(
    pair: tuple[Worker, Worker], marker: str
) -> None:
    top = pair[0].folder.with_name("notes")
    for worker in pair:
        worker.folder = top / worker.name / "deep"
        worker.folder.mkdir(parents=True)
    (top / marker).touch()

    joined = [worker.ok("room", "join", "--json").json for worker in pair]

    assert {room["canonical_path"] for room in joined} == {str(top)}
    assert [member["agent_id"] for member in joined[1]["members"]] == ["luna", "nova"]


def test_nearest_folder_with_instructions_for_agents_is_the_workspace(luna: Worker) -> None:
    inner = luna.folder.with_name("notes") / "inner"
    luna.folder = inner / "deep"
    luna.folder.mkdir(parents=True)
    (inner.parent / "CLAUDE.md").touch()
    (inner / "AGENTS.md").touch()

    assert luna.ok("room", "join", "--json").json["canonical_path"] == str(inner)


def test_members_that_edit_one_file_are_both_notified(luna: Worker, nova: Worker) -> None:
    for worker in (luna, nova):
        worker.ok("status", "set", "active", "--file", "/shop/cart.py")

    for worker, other in ((luna, "nova"), (nova, "luna")):
        (notice,) = worker.ok("recv", "--wait", "--timeout", "5s", "--json").lines
        assert notice["from"] == "[pal-events]"
        assert notice["text"].startswith(f"@{worker.name} you and {other} edited /shop/cart.py")


def test_nested_room_is_opened_only_with_new(luna: Worker) -> None:
    part = luna.folder / "part"
    part.mkdir()
    (part / "pyproject.toml").touch()

    above = luna.ok("room", "join", "part").out.splitlines()
    inside = luna.ok("room", "join", "part", "--new").out.splitlines()

    assert above[-1].startswith("Joined ancestor room")
    assert inside[0].startswith("you are in part-")
    assert inside[-1].startswith("Created nested room inside")
    around = luna.ok("room", "list", "part", "--json").lines
    assert [room["canonical_path"] for room in around] == [str(part), str(luna.folder)]


def test_home_folder_has_no_room(home: Home, luna: Worker) -> None:
    refused = luna.pal("room", "join", str(home.path.parent), "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_a_place")


def test_home_folder_of_the_caller_has_no_room(luna: Worker) -> None:
    own = luna.folder.parent / "own"
    (own / "project").mkdir(parents=True)
    (own / "package.json").touch()

    refused = luna.shell.pal("room", "join", str(own), "--json", env={"HOME": str(own)})
    joined = luna.shell.pal("room", "join", str(own / "project"), "--json", env={"HOME": str(own)})

    assert (refused.status, refused.error["error"]) == (1, "not_a_place")
    assert joined.json["canonical_path"] == str(own / "project")


def test_command_without_a_room_uses_the_room_here_or_is_refused(home: Home, luna: Worker) -> None:
    elsewhere = home.path.parent / "elsewhere"
    elsewhere.mkdir()

    refused = luna.pal("room", "state", str(elsewhere), "--json")
    named = luna.ok("room", "state", "--room", "talk", "--json").json
    both = luna.pal("room", "state", str(elsewhere), "--room", "talk", "--json")

    assert (refused.status, refused.error["error"]) == (1, "room_not_found")
    assert named["room_id"] == room_of(luna)
    assert (both.status, both.error["error"]) == (2, "usage")


def test_room_can_be_named_by_a_path(pair: tuple[Worker, Worker]) -> None:
    luna, nova = pair
    inner = luna.folder / "src"
    inner.mkdir()
    luna.folder = inner

    luna.ok("send", "--room", ".", "nova", "--", "one")
    luna.ok("send", "--room", str(inner.parent), "--", "two")
    luna.ok("note", "add", "--room", "..", "three")
    luna.ok("stick", "claim", "--room", "./")
    missing = luna.pal("send", "--room", "/nowhere", "--json", "--", "four")
    empty = luna.pal("send", "--room", "", "--json", "--", "five")

    assert [line.json["text"] for line in [nova.ok("recv", "--limit", "1", "--json") for _ in range(2)]] == [
        "one",
        "two",
    ]
    assert luna.ok("room", "state", "--room", ".", "--json").json["owner_agent_id"] == "luna"
    assert (missing.status, missing.error["error"]) == (1, "room_not_found")
    assert (empty.status, empty.error["error"]) == (2, "usage")


def test_events_of_a_room_are_found_by_its_path(luna: Worker, nova: Worker) -> None:
    here = luna.ok("events", "--room", ".", "--all", "--json").lines

    assert here == nova.ok("events", "--room", room_of(nova), "--all", "--json").lines
    assert {event["payload"]["room"] for event in here} == {room_of(luna)}


def test_member_can_be_addressed_by_its_harness(home: Home, luna: Worker) -> None:
    shell = home.shell()
    shell.ok("join", "--name", "rosa", "--harness", "codex")
    shell.ok("room", "join", str(luna.folder))

    luna.ok("send", "--room", "talk", "codex", "--", "is the parser yours?")

    assert shell.ok("recv", "--json").json["text"] == "is the parser yours?"


def test_unknown_room_is_not_found_and_the_nearest_are_named(luna: Worker) -> None:
    refused = luna.pal("events", "--room", "tolk", "--json")

    assert (refused.status, refused.error["error"]) == (1, "room_not_found")
    assert room_of(luna) in refused.error["message"]


def test_waiting_for_the_stick_shows_messages_sent_meanwhile(pair: tuple[Worker, Worker]) -> None:
    luna, nova = pair
    luna.ok("send", "--room", "talk", "nova", "--", "look at\nthe parser")

    turn = nova.ok("stick", "wait", "--events").out
    again = nova.ok("stick", "wait", "--events", "--json", "--after", "0").json
    alone = nova.pal("stick", "wait", "--after", "0", "--json")

    assert "luna → nova: look at\n  the parser" in turn
    assert "message_sent" in [event["event_type"] for event in again["events"]]
    assert (alone.status, alone.error["error"]) == (2, "usage")


def test_new_opens_a_room_at_the_exact_folder(luna: Worker) -> None:
    part = luna.folder / "services"
    part.mkdir()

    nested = luna.ok("room", "join", "services", "--new", "--json").json
    luna.folder = part

    assert nested["canonical_path"] == str(part)
    assert nested["warning"].startswith("Created nested room inside")
    assert room_of(luna) == nested["room_id"]


def test_rooms_are_listed_and_a_closed_one_stays_readable(home: Home, luna: Worker) -> None:
    room = room_of(luna)
    before = luna.ok("room", "list").out.splitlines()

    refused = luna.pal("room", "close", "--json")
    closed = check_output(person(home, luna.folder, "room", "close", "--reason", "all done"))
    after = luna.ok("room", "list").out
    all_of_them = luna.ok("room", "list", "--all").out.splitlines()

    assert before[1].split() == ["*", room, "2/2", "idle", str(luna.folder)]
    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert closed.out == f"{room} is closed; its history stays readable\n"
    assert after == "there is no room; 'pal room join' opens one for the working directory\n"
    assert luna.ok("room", "list", ".").out == f"no open room is at {luna.folder} or above it\n"
    assert (all_of_them[1].split()[0], "closed" in all_of_them[1]) == (room, True)
    assert [event["type"] for event in home.events("--room", room)][-1] == "close"
    assert [event["type"] for event in home.events("--room", "talk")][-1] == "close"
    assert luna.pal("stick", "heartbeat", "--room", room, "--json").error["error"] == "room_closed"
    assert luna.ok("room", "join", "--json").json["room_id"] == f"{room}-2"


@pytest.mark.skipif(not HAS_TMUX, reason="needs tmux")
@pytest.mark.parametrize(("reply", "expected", "status"), [("y", "is closed", 0), ("", "stays open", 1)])
def test_person_at_a_terminal_is_asked_before_a_room_is_closed(
    home: Home, luna: Worker, reply: str, expected: str, status: int
) -> None:
    room = room_of(luna)

    with pane(home, f"pal room close --room {room}") as screen:
        screen.shows(f"close {room} for all its members? [y/N]")
        screen.say(reply)
        screen.shows(f"{room} {expected}", f"ended with {status}")
    with pane(home, f"pal room close --room {room} --yes") as screen:
        screen.shows("is closed", f"ended with {0 if status else 1}")

    assert [event["type"] for event in home.events("--room", room)][-1] == "close"


def test_agent_that_leaves_is_not_a_member_any_more(luna: Worker, nova: Worker) -> None:
    room = room_of(luna)

    left = nova.ok("room", "leave").out
    again = nova.pal("room", "leave", "--json")

    assert left == f"you have left {room}\n"
    assert (again.status, again.error["error"]) == (1, "unknown_member")
    assert [one["agent_id"] for one in luna.ok("room", "state", "--json").json["members"]] == ["luna"]


def test_present_member_is_removed_only_by_a_person_with_force(
    home: Home, luna: Worker, nova: Worker
) -> None:
    nova.ok("stick", "claim")
    refusals = [
        luna.pal("room", "kick", *words, "--json").error["error"] for words in (["nova"], ["luna"], ["x"])
    ]
    forced = luna.pal("room", "kick", "nova", "--force", "--json").error["error"]

    kicked = check_output(person(home, luna.folder, "room", "kick", "nova", "--force", "--reason", "loud"))

    assert refusals == ["target_active", "cannot_kick_self", "unknown_target"]
    assert forced == "not_allowed"
    assert kicked.out == f"nova was removed from {room_of(luna)}; the stick is free\n"


# The stick


def test_released_turn_passes_to_the_waiting_member_with_its_handoff(luna: Worker, nova: Worker) -> None:
    room = room_of(luna)
    claimed = luna.ok("stick", "claim").out.splitlines()
    waiting = nova.begin("stick", "wait")
    until_nova_waits(luna)

    released = luna.ok("stick", "release", *HANDOFF, "--artifact", "a.py:3", "--do-not", "publish").out
    turn = waiting.end()

    assert claimed[0] == f"it is your turn: turn 1 in {room}"
    assert released == "the stick is reserved for nova\n"
    assert turn.status == 0
    assert turn.out.splitlines()[:-1] == [
        f"it is your turn: turn 2 in {room}, after luna",
        "  status:    parser done",
        "  next:      wire it in",
        "  artifacts: a.py:3",
        "  do not:    publish",
    ]
    assert turn.out.splitlines()[-1].startswith("your lease runs until ")
    assert turn.err == ""


def until_nova_waits(luna: Worker) -> None:
    """Wait until the room shows that nova waits."""

    def is_waiting() -> bool:
        members = luna.ok("room", "state", "--json").json["members"]
        return any(member["agent_id"] == "nova" and member["waiting"] for member in members)

    wait_until(is_waiting)


def test_stick_is_passed_by_name_and_json_contains_all_fields(luna: Worker, nova: Worker) -> None:
    luna.ok("stick", "claim")
    handoff = {"status": "s", "next_action": "n", "mood": ["good"]}

    passed = luna.ok("stick", "pass", "nova", "--handoff", "-", "--json", feed=json.dumps(handoff)).json
    turn = nova.ok("stick", "claim", "--json").json

    assert (passed["status"], passed["reserved_for"]) == ("passed", "nova")
    assert (turn["status"], turn["reason"], turn["turn_id"]) == ("your_turn", "direct_pass", 2)
    assert (turn["handoff"], turn["from_agent_id"]) == (handoff, "luna")


def test_turn_and_lease_can_be_given_explicitly(luna: Worker) -> None:
    turn = luna.ok("stick", "claim", "--json").json
    lease = turn["lease_id"]

    beaten = luna.ok("stick", "heartbeat", "--turn", "1", "--lease", lease).out
    other_turn = luna.pal("stick", "release", *HANDOFF, "--turn", "7", "--lease", "x", "--json").error[
        "error"
    ]
    other_lease = luna.pal("stick", "release", *HANDOFF, "--lease", "x", "--json").error["error"]
    released = luna.ok("stick", "release", *HANDOFF, "--turn", "1", "--lease", lease).out

    assert beaten.startswith("your lease runs until ")
    assert (other_turn, other_lease) == ("turn_mismatch", "stale_lease")
    assert released == "the stick is reserved for nova\n"  # It has just joined, and that counts as waiting.


def test_only_the_owner_can_pass_the_stick(luna: Worker, nova: Worker) -> None:
    nobody = luna.pal("stick", "heartbeat", "--json").error["error"]
    luna.ok("stick", "claim")

    other = nova.pal("stick", "release", *HANDOFF, "--json").error
    early = nova.pal("stick", "pass", "luna", "--override", "--json").error

    assert nobody == "stale_lease"
    assert early["error"] == "not_owner"
    assert (other["error"], other["details"]["owner"]) == ("not_owner", "luna")


@pytest.mark.parametrize(
    ("words", "status", "code", "field"),
    [
        (["--status", "s"], 1, "invalid_handoff", "next_action"),
        (["--handoff", "[]"], 1, "invalid_handoff", "content"),
        (["--handoff", '{"status": "s", "next_action": "n", "do_not": 3}'], 1, "invalid_handoff", "do_not"),
        (["--handoff", "{}", "--status", "s"], 2, "usage", None),
    ],
)
def test_invalid_handoff_is_refused_by_field_and_the_turn_continues(
    luna: Worker, words: list[str], status: int, code: str, field: str | None
) -> None:
    luna.ok("stick", "claim")

    refused = luna.pal("stick", "release", *words, "--json")

    details = refused.error.get("details", {})
    assert (refused.status, refused.error["error"], details.get("field")) == (status, code, field)
    assert luna.ok("room", "state", "--json").json["owner_agent_id"] == "luna"


def test_wait_without_a_result_ends_with_status_3_and_names_the_owner(luna: Worker, nova: Worker) -> None:
    luna.ok("stick", "claim")

    waited = nova.pal("stick", "wait", "--timeout", "50ms")
    tried = nova.pal("stick", "claim", "--json")
    badly = nova.pal("stick", "wait", "--timeout", "1.5s")

    assert (waited.status, waited.out) == (3, "")
    assert waited.err.startswith("pal: not yet: luna owns the stick: turn 1, lease until ")
    assert (tried.status, tried.json["status"], tried.json["owner_agent_id"]) == (3, "not_yet", "luna")
    assert badly.status == 2


def test_parked_member_is_skipped_until_the_stick_is_passed_to_it(luna: Worker, nova: Worker) -> None:
    nova.ok("stick", "claim")
    nova.ok("stick", "release", *HANDOFF)
    luna.ok("room", "leave")  # The stick reserved for it is free again, with its handoff.
    in_vain = nova.pal("stick", "wait", "--park", "--timeout", "50ms")
    luna.ok("room", "join")
    parked = nova.begin("stick", "wait", "--park", "--json")
    until_nova_waits(luna)

    luna.ok("stick", "claim")
    luna.ok("stick", "pass", "nova", *HANDOFF)

    assert (in_vain.status, in_vain.out) == (3, "")
    assert parked.end().json["reason"] == "direct_pass"


def test_parked_member_is_notified_once_of_a_waiting_handoff(luna: Worker, nova: Worker) -> None:
    nova.ok("room", "leave")
    luna.ok("stick", "claim")
    luna.ok("stick", "release", *HANDOFF)

    first = luna.pal("stick", "wait", "--park", "--events", "--timeout", "100ms", "--json")
    second = luna.pal("stick", "wait", "--park", "--timeout", "100ms", "--json")

    assert (first.status, first.json["status"], first.json["reason"]) == (3, "not_yet", "auto_claim_disabled")
    assert first.json["hint"]
    assert list(first.json)[-3:] == ["events", "cursor_event_seq", "hint"]
    assert (second.status, second.json["reason"]) == (3, None)
    assert "hint" not in second.json


def test_no_solo_option_does_not_claim_the_stick_alone(luna: Worker, nova: Worker) -> None:
    nova.ok("room", "leave")

    alone = luna.pal("stick", "claim", "--no-solo", "--json")
    anyway = luna.ok("stick", "claim", "--json")

    assert (alone.status, alone.json["reason"]) == (3, "solo_claim_disabled")
    assert anyway.json["status"] == "your_turn"


def test_second_wait_of_a_member_is_refused(luna: Worker, nova: Worker) -> None:
    def state() -> JsonLine:
        return luna.ok("room", "state", "--json").json

    luna.ok("stick", "claim")
    nova.shell.begin_script(f"cd {nova.folder} && {{ pal stick wait >/dev/null 2>&1 & }}").end()
    wait_until(lambda: any(one["waiting"] for one in state()["members"]))

    refused = nova.pal("stick", "wait", "--json")

    assert (refused.status, refused.error["error"]) == (1, "duplicate_listener")
    luna.ok("stick", "release", *HANDOFF)
    wait_until(lambda: state()["owner_agent_id"] == "nova")


def test_closed_room_ends_a_wait(home: Home, luna: Worker, nova: Worker) -> None:
    luna.ok("stick", "claim")
    waiting = nova.begin("stick", "wait")
    until_nova_waits(luna)
    room = room_of(luna)

    check_output(person(home, luna.folder, "room", "close"))
    ended = waiting.end()

    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"pal: {room} is closed; 'pal room join' opens a new room\n"


def test_wait_continues_when_the_bus_is_killed(home: Home, luna: Worker, nova: Worker) -> None:
    luna.ok("stick", "claim")
    waiting = nova.begin("stick", "wait", "--json")
    until_nova_waits(luna)

    home.kill()
    until_nova_waits(luna)
    luna.ok("stick", "release", *HANDOFF)

    assert waiting.end().json["turn_id"] == 2


def test_repeated_stick_request_runs_once_and_has_the_same_result(
    home: Home, luna: Worker, nova: Worker
) -> None:
    room, release = room_of(luna), ("stick", "release", *HANDOFF, "--as", "luna", "--json")

    def ask(key: bytes, *words: str) -> bytes:
        with ThinWire(home.path) as wire:
            wire.ask(*words, "--room", room, key=key)
            return wire.output()[1]

    claims = [ask(b"c" * 16, "stick", "claim", "--as", "luna", "--json") for _ in range(2)]
    releases = [ask(b"r" * 16, *release) for _ in range(2)]
    nova.ok("stick", "claim")
    late = ask(b"r" * 16, *release)

    assert json.loads(claims[0])["turn_id"] == json.loads(claims[1])["turn_id"] == 1
    assert releases == [releases[0], releases[0]]
    assert json.loads(late) == json.loads(releases[0])
    types = [event["type"] for event in home.events("--room", room)]
    assert [types.count(type_) for type_ in ("claim", "release")] == [2, 1]


def test_takeover_needs_a_reason_and_a_live_owner_keeps_the_stick(
    home: Home, luna: Worker, nova: Worker
) -> None:
    luna.ok("stick", "claim")

    silent = nova.pal("stick", "takeover", "--json")
    blank = nova.pal("stick", "takeover", "--reason", "  ", "--json")
    refused = nova.pal("stick", "takeover", "--reason", "mine", "--json")
    override = nova.pal("stick", "takeover", "--reason", "mine", "--override", "--json")
    check_output(person(home, luna.folder, "room", "join"))
    taken = check_output(person(home, luna.folder, "stick", "takeover", "--reason", "mine", "--override"))

    assert (silent.status, silent.error["error"]) == (2, "usage")
    assert (blank.status, blank.error["error"]) == (2, "usage")
    assert refused.error["error"] == "takeover_not_available"
    assert override.error["error"] == "not_allowed"
    assert taken.out.splitlines()[0] == f"it is your turn: turn 2 in {room_of(luna)}, taken from luna"


def test_expired_lease_ends_a_wait_and_allows_a_takeover(home: Home) -> None:
    luna, nova = set_up(home, room_lease_s=1)
    luna.ok("stick", "claim")

    waited = nova.pal("stick", "wait")
    taken = nova.ok("stick", "takeover", "--reason", "luna is silent", "--json").json

    assert (waited.status, waited.out) == (1, "")
    assert waited.err == (
        "pal: luna owns the stick, but its lease has expired; "
        "to take it, run 'pal stick takeover --reason TEXT'\n"
    )
    assert (taken["status"], taken["reason"], taken["revoked"]) == ("your_turn", "owner_timeout", "luna")


def test_idle_owner_can_be_taken_over_and_does_not_end_a_wait(home: Home) -> None:
    luna, nova = set_up(home, room_owner_idle_s=1)
    luna.ok("stick", "claim")
    luna.ok("status", "set", "idle")

    waited = nova.pal("stick", "wait", "--timeout", "2s")
    tried = nova.pal("stick", "claim", "--json")

    assert (waited.status, waited.out) == (3, "")
    assert waited.err.startswith("pal: luna owns the stick, but is idle; to take it, run 'pal stick takeover")
    assert (tried.status, tried.json["status"], tried.json["reason"]) == (
        1,
        "takeover_available",
        "owner_idle",
    )


def test_stick_of_an_exited_owner_passes_to_the_waiting_member(home: Home) -> None:
    luna, nova = set_up(home, room_heartbeat_s=1)
    luna.ok("stick", "claim")
    waiting = nova.begin("stick", "wait", "--json")
    until_nova_waits(luna)

    luna.shell.close()

    turn = waiting.end().json
    assert (turn["status"], turn["turn_id"], turn["handoff"]) == ("your_turn", 2, None)


# Notes and messages


def test_note_stays_until_it_is_resolved(luna: Worker, nova: Worker) -> None:
    room = room_of(luna)
    added = luna.ok("note", "add", "no libpq; use the wheel", "--turn", "0").out
    note = added.split()[1]
    listed = nova.ok("note", "list").out.splitlines()

    resolved = nova.ok("note", "resolve", note).out

    assert added == f"note {note} was added to {room}\n"
    assert listed[0].startswith(f"{note} luna, ")
    assert listed[0].endswith(" ago, turn 0")
    assert listed[1:] == ["  no libpq; use the wheel"]
    assert resolved == f"note {note} is resolved\n"
    assert nova.ok("note", "list").out == "no notes; 'pal note add TEXT' adds one\n"
    assert " resolved by nova " in nova.ok("note", "list", "--all").out


def test_notes_are_read_page_by_page(luna: Worker) -> None:
    for number in range(3):
        luna.ok("note", "add", "--stdin", feed=f"note {number}")

    first = luna.ok("note", "list", "--limit", "2", "--json").lines
    rest = luna.ok("note", "list", "--after", first[-1]["note_id"], "--json").lines

    assert [note["body"] for note in first + rest] == ["note 0", "note 1", "note 2"]


@pytest.mark.parametrize(
    ("words", "feed", "status", "code"),
    [
        (["add"], "", 2, "usage"),
        (["add", "x", "--stdin"], "y", 2, "usage"),
        (["add", "  "], "", 1, "invalid_body"),
        (["add", "--stdin"], "x" * 16_385, 1, "body_too_large"),
        (["resolve", "zzzzzzzz"], "", 1, "not_found"),
        (["list", "--after", "nothing"], "", 1, "invalid_cursor"),
        (["add", "x", "--turn", "7"], "", 1, "not_found"),
    ],
)
def test_invalid_note_is_refused(luna: Worker, words: list[str], feed: str, status: int, code: str) -> None:
    refused = luna.pal("note", *words, "--json", feed=feed)

    assert (refused.status, refused.error["error"]) == (status, code)


def test_note_that_is_not_utf8_is_refused(luna: Worker) -> None:
    job = luna.shell.begin_script(f"cd {luna.folder} && printf '\\377' | pal note add --stdin --json")

    refused = job.end()

    assert (refused.status, refused.error["error"]) == (1, "bad_request")


def test_message_to_the_room_goes_to_the_members_of_the_room_here(
    home: Home, luna: Worker, nova: Worker
) -> None:
    other = home.path.parent / "other"
    other.mkdir()
    luna.ok("room", "join", str(other))

    sent = luna.ok("send", "room", "--json", "--", "hello").json
    named = luna.ok("send", "--room", "talk", "nova", "--json", "--", "you").json

    assert sent["delivered_to"] == named["delivered_to"] == ["nova"]
    mail = nova.ok("recv", "--json").lines
    assert [(one["text"], one["room"]) for one in mail] == [("hello", room_of(nova)), ("you", room_of(nova))]


def test_outside_a_room_a_command_uses_the_only_room_of_the_caller(
    home: Home, luna: Worker, nova: Worker
) -> None:
    room, nova.folder = room_of(nova), home.path.parent

    sent = nova.ok("send", "room", "hello")
    noted = nova.ok("note", "add", "beware", "--json").json
    turn = nova.ok("stick", "claim", "--json").json
    state = nova.ok("room", "state", "--json").json
    closed = nova.pal("room", "close", "--json")
    left = nova.ok("room", "leave")

    assert sent.out.endswith(f" to luna in {room}\n")
    assert noted["note_id"]
    assert (turn["status"], state["room_id"], state["owner_agent_id"]) == ("your_turn", room, "nova")
    assert (closed.status, closed.error["error"]) == (1, "room_not_found")
    assert left.out == f"you have left {room}\n"
    assert home.texts() == ["hello"]


def test_outside_a_room_a_caller_with_several_or_no_rooms_is_refused(
    home: Home, luna: Worker, nova: Worker
) -> None:
    other = home.path.parent / "other"
    other.mkdir()
    luna.ok("room", "join", str(other))
    nova.ok("room", "leave")
    luna.folder = nova.folder = home.path.parent

    several = luna.pal("send", "room", "hi", "--json")
    none = nova.pal("send", "room", "hi", "--json")

    assert (several.status, several.error["error"]) == (1, "bad_request")
    rooms = [room["room_id"] for room in luna.ok("room", "list", "--json").lines]
    assert all(room in several.error["message"] for room in rooms)
    assert (none.status, none.error["error"]) == (1, "room_not_found")
    assert f"at {home.path.parent} or above it" in none.error["message"]
    assert home.texts() == []


def test_completion_lists_rooms_and_notes(luna: Worker) -> None:
    note = luna.ok("note", "add", "beware").out.split()[1]

    rooms = luna.ok("__complete", "--", "stick", "wait", "--room", "").out.splitlines()
    notes = luna.ok("__complete", "--", "note", "resolve", "").out.splitlines()

    assert rooms == [f"{room_of(luna)}\t{luna.folder}"]
    assert notes == [f"{note}\tbeware"]


def test_help_for_messages_in_rooms_says_that_routing_is_not_privacy(luna: Worker) -> None:
    assert "Routing is not privacy" in " ".join(luna.ok("send", "--help").out.split())
