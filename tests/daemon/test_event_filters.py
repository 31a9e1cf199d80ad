"""The filters and subscriptions of `pal events`, and what its lines show, with the real client and daemon."""

from pathlib import Path

import pytest
from tests.daemon.stage import Home, run_as_person


@pytest.fixture(scope="module")
def talk(shared_bus: Home) -> Home:
    """A bus with two agents that have talked and worked."""
    luna, nova = shared_bus.shell(), shared_bus.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    luna.ok("send", "@nova", "--intent", "request", "--thread", "pr-1", "--", "请运行测试")
    request = shared_bus.events("--type", "message")[0]["seq"]
    nova.ok("send", "--reply-to", str(request), "--", "done")
    shared_bus.ok("send", "@nova", "--", "from the script")
    nova.ok("status", "set", "active", "--tool", "Bash", "--file", "src/a.py")
    nova.ok("status", "set", "active", "--tool", "Edit", "--file", "docs/b.md")
    return shared_bus


def texts(home: Home, *filters: str) -> list[str]:
    """Return the texts of messages and the files of states that match."""
    found = (event["payload"] for event in home.events(*filters))
    return [one.get("text") or one.get("file", "").rpartition("/")[2] for one in found]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--tool", "bash"), ["a.py"]),
        (("--tool", "Bash", "--tool", "Edit"), ["a.py", "b.md"]),
        (("--file", "*.py"), ["a.py"]),
        (("--file", "*/src/*"), ["a.py"]),
        (("--file", "*/[ab].??"), ["a.py", "b.md"]),
        (("--file", "c*"), []),
        (("--type", "message,status", "--participant", "luna"), ["请运行测试", "done"]),
        (("--type", "message", "--participant", "script"), ["from the script"]),
        (("--search", "测试"), ["请运行测试"]),
        (("--search", "试测"), []),
    ],
    ids=" ".join,
)
def test_filter_selects_its_events(talk: Home, filters: tuple[str, ...], expected: list[str]) -> None:
    assert texts(talk, *filters) == expected


def test_target_is_the_mailbox_of_a_session_whose_id_has_capitals(bus: Home) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")
    luna.ok("session", "create", "luna", "Chat-1")
    luna.ok("sub", "add", "ci/*", "--session", "Chat-1")
    seq = luna.ok("route", "ci/main", "--json").json["seq"]

    for target in ("luna+Chat-1", "@Luna+Chat-1"):
        assert [event["seq"] for event in bus.events("--target", target)] == [seq]
    assert bus.events("--target", "luna+chat-1") == []


def test_replies_to_a_message_are_found(talk: Home) -> None:
    request = talk.events("--intent", "request")[0]

    assert texts(talk, "--reply-to", str(request["seq"])) == ["done"]
    assert texts(talk, "--reply-to", request["id"]) == ["done"]
    assert talk.pal("events", "--reply-to", "9999").status == 1


def test_lines_show_intent_and_thread(talk: Home) -> None:
    request, answer = talk.ok("events", "--thread", "pr-1").out.splitlines()

    assert " message luna → @nova [request, pr-1]: " in request
    assert f" [pr-1, answers {request.split()[0]}]: done" in answer


@pytest.mark.parametrize("types", [",", "message,", ""])
def test_list_of_types_has_no_gaps(talk: Home, types: str) -> None:
    refused = talk.pal("events", f"--type={types}")

    assert refused.status == 2
    assert "--type requires one or more event types" in refused.err


def test_archived_hits_before_a_seq_are_reported(bus: Home) -> None:
    for number in range(5):
        bus.shell().ok("join", "--name", f"agent{number}")
    last = bus.events()[-1]["seq"]
    assert run_as_person(bus, "archive", "--before", str(last)).status == 0

    found = bus.pal("events", "--before", str(last))

    assert found.status == 0
    assert f"events up to #{last - 1} are archived in " in found.err
    assert "--archived shows them too" in found.err


def test_same_subscription_is_one_and_sends_its_text(bus: Home) -> None:
    luna, nova = bus.shell(), bus.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    wanted = ("--agent", "nova", "--send", "@nova well done")

    first = luna.ok("--text", "events", "sub", "--type", "status,task.done", *wanted).out
    again = luna.ok("--text", "events", "sub", "--type", "task.done", "--type", "status", *wanted).out

    assert again == f"already {first}"
    assert len(luna.ok("events", "subs", "--json").lines) == 1
    nova.ok("status", "set", "idle")
    assert "luna → nova: @nova well done" in nova.ok("recv", "--wait", "--timeout", "5s").out
    sent = bus.events("--type", "message", "--from", "luna")[0]["seq"]
    assert f"nova: idle; sent #{sent} to nova" in luna.ok("recv", "--wait", "--timeout", "5s").out


@pytest.mark.parametrize("form", ["path", "short name", "id"])
def test_subscription_finds_the_room_that_its_command_names(bus: Home, tmp_path: Path, form: str) -> None:
    luna, nova = bus.shell(), bus.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    room = nova.ok("room", "join", str(tmp_path), "--new", "--json").json["room_id"]
    named = {"path": str(tmp_path), "short name": room.rpartition("-")[0], "id": room}[form]

    made = luna.ok("--text", "events", "sub", "--room", named, "--type", "message").out
    nova.ok("send", "--room", room, "--", "the schema is done")

    assert made.endswith(f" --type message --room {room}\n")
    assert "the schema is done" in luna.ok("recv", "--wait", "--timeout", "5s").out


def test_subscription_to_an_unknown_room_is_refused(talk: Home) -> None:
    refused = talk.pal("events", "sub", "--for", "luna", "--room", "nosuch")

    assert refused.status == 1
    assert "no such room: nosuch" in refused.err
