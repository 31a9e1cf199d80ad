"""Companions of an OpenCode that `pal` did not start, with real daemons: each session is its own agent."""

import signal
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from tests.daemon.plain_opencode import PlainOpenCode
from tests.daemon.stage import Home, JsonLine, Shell, run_as_person, set_approvals, wait_until
from tests.daemon.wires import LinesWire

Start = Callable[[Home], PlainOpenCode]


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """Return a function that starts an OpenCode; all are ended with the test."""
    running: list[PlainOpenCode] = []

    def begin(home: Home) -> PlainOpenCode:
        running.append(PlainOpenCode(home))
        return running[-1]

    yield begin
    for one in running:
        if one.process.returncode is None:
            one.close()


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


def send(shell: Shell, *words: str) -> int:
    seq: int = shell.ok("send", "--json", *words).json["seq"]
    return seq


def receipt(home: Home, seq: int) -> JsonLine:
    (line,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    found: JsonLine = line
    return found


def state(home: Home, name: str) -> tuple[str, str]:
    for agent in home.ok("list", "--json").lines:
        if agent["name"] == name:
            return agent["state"], agent["detail"] or ""
    return "", ""


def texts(opencode: PlainOpenCode, session: str) -> list[str]:
    return [str(part["text"]) for part in opencode.texts[session]]


def test_each_session_receives_only_its_own_mail(bus: Home, luna: Shell, start: Start) -> None:
    opencode = start(bus)
    opencode.begin("ses_1")
    opencode.begin("ses_2")
    one, two = opencode.name_of("ses_1"), opencode.name_of("ses_2")

    first = send(luna, f"@{one}", "--", "for the first")
    opencode.until(lambda: opencode.texts["ses_1"])
    second = send(luna, f"@{two}", "--", "for the second")
    opencode.until(lambda: opencode.texts["ses_2"])

    assert texts(opencode, "ses_1") == [f"<pal>[new message #{first}] luna → {one}: for the first</pal>"]
    assert texts(opencode, "ses_2") == [f"<pal>[new message #{second}] luna → {two}: for the second</pal>"]
    assert receipt(bus, first)["state"] == receipt(bus, second)["state"] == "submitted"

    opencode.answer("ses_2")

    wait_until(lambda: receipt(bus, second)["state"] == "seen")
    assert (receipt(bus, second)["grade"], receipt(bus, second)["lane"]) == ("context", "native")
    assert receipt(bus, first)["state"] == "submitted"


def test_permission_dialog_blocks_the_agent_and_its_mail_waits(bus: Home, luna: Shell, start: Start) -> None:
    opencode = start(bus)
    opencode.begin("ses_1")
    name = opencode.name_of("ses_1")
    opencode.status("ses_1", "busy")
    opencode.ask_leave("ses_1")
    wait_until(lambda: state(bus, name) == ("blocked", "permission: bash: rm x"))

    seq = send(luna, f"@{name}", "--interrupt", "--", "stop")
    wait_until(lambda: receipt(bus, seq)["state"] == "held")

    assert receipt(bus, seq)["reason"] == "dialog"
    assert [one["id"] for one in bus.ok("pending", "--json").lines] == [None]
    assert (opencode.texts["ses_1"], opencode.replies) == ([], [])

    opencode.permissions.clear()
    opencode.say("permission.replied", sessionID="ses_1", requestID="per_1")

    opencode.until(lambda: opencode.texts["ses_1"])
    assert "stop" in texts(opencode, "ses_1")[0]


def approving(home: Home) -> None:
    home.ok("down")
    set_approvals(home)
    home.ok("up")


def pending(home: Home) -> JsonLine:
    wait_until(lambda: any(one["id"] for one in home.ok("pending", "--json").lines))
    (line,) = home.ok("pending", "--json").lines
    return line


@pytest.mark.parametrize(("verb", "reply"), [("approve", "once"), ("deny", "reject")])
def test_decision_of_a_person_reaches_the_session(bus: Home, start: Start, verb: str, reply: str) -> None:
    approving(bus)
    opencode = start(bus)
    opencode.begin("ses_1")
    opencode.name_of("ses_1")
    opencode.status("ses_1", "busy")
    opencode.ask_leave("ses_1")
    line = pending(bus)
    assert (line["tool"], line["input"]) == ("bash", {"command": "rm x", "patterns": []})

    result = run_as_person(bus, verb, str(line["id"]))

    assert (result.status, result.err) == (0, "")
    ((request, given),) = opencode.replies
    assert (request, dict(given)["reply"]) == ("per_1", reply)  # type: ignore[call-overload]  # an object
    wait_until(lambda: bus.ok("pending", "--json").lines == [])


def test_permission_request_that_changed_meanwhile_is_not_approved(bus: Home, start: Start) -> None:
    approving(bus)
    opencode = start(bus)
    opencode.begin("ses_1")
    opencode.name_of("ses_1")
    opencode.status("ses_1", "busy")
    opencode.ask_leave("ses_1")
    line = pending(bus)
    opencode.permissions[0]["metadata"] = {"command": "rm everything"}

    result = run_as_person(bus, "approve", str(line["id"]))

    assert result.status == 1
    assert "did not accept the decision" in result.err
    assert opencode.replies == []


def test_only_a_person_can_approve(bus: Home, luna: Shell, start: Start) -> None:
    approving(bus)
    opencode = start(bus)
    opencode.begin("ses_1")
    opencode.name_of("ses_1")
    opencode.status("ses_1", "busy")
    opencode.ask_leave("ses_1")
    line = pending(bus)

    refused = luna.pal("approve", str(line["id"]), "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert opencode.replies == []


def test_sub_agent_has_its_own_name_mail_and_status(bus: Home, luna: Shell, start: Start) -> None:
    opencode = start(bus)
    opencode.begin("ses_1")
    name = opencode.name_of("ses_1")
    opencode.status("ses_1", "busy")

    opencode.begin("ses_2", parent="ses_1", kind="general")
    opencode.status("ses_2", "busy")
    child = f"{name}_general_1"
    wait_until(lambda: state(bus, child)[0] == "active")
    opencode.until(lambda: child in opencode.told.get("ses_2", ""))
    send(luna, f"@{child}", "--", "for the child")
    opencode.until(lambda: opencode.texts["ses_2"])

    assert "for the child" in texts(opencode, "ses_2")[0]
    assert opencode.texts["ses_1"] == []

    opencode.ask_leave("ses_2")
    asked = ("blocked", "permission: bash: rm x")
    wait_until(lambda: state(bus, child) == asked and state(bus, name) == asked)
    opencode.status("ses_2", "idle")

    wait_until(lambda: state(bus, child)[0] in ("", "exited"))
    wait_until(lambda: state(bus, name) == ("active", "thinking"))


def test_companion_reconnects_to_a_new_daemon_and_ends_with_its_harness(
    bus: Home, luna: Shell, start: Start
) -> None:
    opencode = start(bus)
    opencode.begin("ses_1")
    name = opencode.name_of("ses_1")
    bus.kill(signal.SIGKILL)
    opencode.told.clear()
    bus.ok("up")

    assert opencode.name_of("ses_1") == name

    assert opencode.close() == 0
    wait_until(lambda: state(bus, name)[0] in ("", "exited"))


def test_companion_waits_for_a_daemon_and_does_not_start_one(home: Home, start: Start) -> None:
    opencode = start(home)
    opencode.begin("ses_1")
    assert not (home.path / "daemon.sock").exists()

    home.ok("up")

    assert opencode.name_of("ses_1")


def test_only_a_harness_can_have_a_companion(bus: Home) -> None:
    with closing(LinesWire(bus.path)) as wire:
        refused = wire.ask("accompany", harness="opencode", session="ses_1")

    assert refused["error"] == "bad_request"
    assert bus.ok("list", "--json").lines == []
