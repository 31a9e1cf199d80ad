"""What a person can do on the page, and how it is refused when it is too late."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.daemon.stage import Home, run_as_person, wait_until
from tests.daemon.test_permissions import ask, decision, session
from tests.doors.web.client import PageClient, bus_with_page


@pytest.fixture
def held(bus: Home) -> int:
    """A message that a brake holds."""
    sender, receiver = bus.shell(), bus.shell()
    names = [f"{word}{os.urandom(3).hex()}" for word in ("s", "r")]
    sender.ok("join", "--name", names[0], "--harness", "claude")
    receiver.ok("join", "--name", names[1])
    while (result := sender.pal("send", f"@{names[1]}", "--json", "--", "again")).status == 0:
        pass
    return int(result.error["details"]["message"])


@pytest.fixture(scope="module")
def bus() -> Iterator[Home]:
    with bus_with_page(brake_per_minute=1) as home:
        yield home


def test_message_of_the_page_is_the_persons(bus: Home, signed_in: PageClient) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")

    sent = signed_in.act(do="send", to=["@luna"], text="hello <b>", intent="request", priority="idle")

    assert sent.status_code == 200, sent.text
    seq = sent.json()["seq"]
    event = bus.ok("events", "--after", str(seq - 1), "--json", "--last", "1").lines[-1]
    assert (event["from"], event["payload"]["text"], event["payload"]["intent"]) == (
        "human",
        "hello <b>",
        "request",
    )
    assert sent.json()["text"] == f"sent #{seq} to luna"


def test_message_without_a_mailbox_says_where_it_went(bus: Home, signed_in: PageClient) -> None:
    bus.shell().ok("join", "--name", "nora")

    on_irc = signed_in.act(do="send", to=["irc/local/#dev"], text="hello").json()
    dead = signed_in.act(do="send", to=["news/build"], text="done").json()

    assert on_irc["text"] == f"sent #{on_irc['seq']} to irc/local/#dev"
    assert dead["text"].split("; ") == [
        f"stored as #{dead['seq']}",
        "it has no recipient now",
        "no agent is subscribed to news/build: dead letter",
    ]


def test_repeated_act_is_done_once(signed_in: PageClient) -> None:
    act = {"do": "send", "key": os.urandom(16).hex(), "to": ["@all"], "text": "once"}

    first, second = signed_in.post("/api/act", act), signed_in.post("/api/act", act)

    assert first.json()["seq"] == second.json()["seq"]


def test_refusal_is_the_sentence_of_the_bus(signed_in: PageClient) -> None:
    answer = signed_in.act(do="send", to=["@nobody_here"], text="x")

    assert (answer.status_code, answer.json()["error"]) == (400, "unknown_recipient")


def test_held_message_is_released_once(signed_in: PageClient, held: int) -> None:
    done = signed_in.act(do="release", message=str(held))
    again = signed_in.act(do="release", message=str(held))

    assert (done.status_code, done.json()["text"]) == (200, f"#{held} is queued now")
    assert again.status_code == 400
    assert "held" in again.json()["message"]


def test_message_released_elsewhere_is_refused(bus: Home, signed_in: PageClient, held: int) -> None:
    assert run_as_person(bus, "release", str(held)).status == 0

    late = signed_in.act(do="release", message=str(held))

    assert late.status_code == 400, late.text


def test_several_agents_are_changed_and_each_result_is_reported(bus: Home, signed_in: PageClient) -> None:
    for name in ("mira", "kilo"):
        bus.shell().ok("join", "--name", name)

    paused = signed_in.act(do="pause", names=["mira", "kilo", "nemo"]).json()
    tagged = signed_in.act(do="tag", names=["mira"], tag="api").json()
    freed = signed_in.act(do="unpause", names=["mira"]).json()
    stopped = signed_in.act(do="stop", names=["mira"]).json()

    assert [(one["name"], one["is_done"]) for one in paused["results"]] == [
        ("mira", True),
        ("kilo", True),
        ("nemo", False),
    ]
    assert paused["text"] == "2 of 3 done"
    assert tagged["results"][0]["text"] == "has the tag api"
    assert freed["results"][0]["is_done"]
    assert not stopped["results"][0]["is_done"]
    paused_now = [name for name in ("mira", "kilo") if bus.ok("status", name, "--json").json["paused"]]
    assert paused_now == ["kilo"]


def test_messages_to_the_person_are_marked_as_seen(bus: Home, signed_in: PageClient) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "asker")
    seq = shell.ok("send", "@human", "--json", "--", "look").json["seq"]

    signed_in.act(do="seen", messages=[seq, 1])

    receipt = bus.ok("receipts", str(seq), "--json").json["receipts"][0]
    assert (receipt["state"], receipt["lane"]) == ("seen", "web")


# --------------------
# Permission requests.


def test_approval_is_off_until_the_setting_is_on(signed_in: PageClient) -> None:
    answer = signed_in.act(do="answer", id="x", digest="y", is_allowed=True)

    assert answer.status_code == 403
    assert "web_approvals" in answer.json()["message"]
    assert signed_in.get("/api/session").json()["approvals"] is False


@pytest.fixture
def approving() -> Iterator[PageClient]:
    """A client on a bus where the page may answer permission requests."""
    with bus_with_page(approvals=1, approvals_wait_s=600, web_approvals=1) as home:
        client = PageClient(home)
        client.sign_in()
        yield client


def _wait_for_request(client: PageClient, agent: str) -> dict[str, Any]:
    """Return the open request of an agent, as the page shows it."""
    found: list[dict[str, Any]] = []

    def is_open() -> bool:
        entries = client.ask(what="attention")["entries"]
        found[:] = [one for one in entries if one["kind"] == "permission" and one["who"] == agent]
        return bool(found)

    wait_until(is_open)
    return client.ask(what="permission", id=found[0]["id"])


@pytest.mark.parametrize(("is_allowed", "behaviour"), [(True, "allow"), (False, "deny")])
def test_request_that_was_shown_is_answered(approving: PageClient, is_allowed: bool, behaviour: str) -> None:
    shell = session(approving.home)
    job = ask(shell)
    shown = _wait_for_request(approving, "nova")

    done = approving.act(do="answer", id=shown["id"], digest=shown["digest"], is_allowed=is_allowed)

    assert done.status_code == 200, done.text
    assert json.loads(shown["input"]) == {"command": "touch x"}
    assert decision(job.end())["behavior"] == behaviour


def test_request_that_took_the_place_of_another_is_not_answered(approving: PageClient) -> None:
    shell, other = session(approving.home), session(approving.home, "luna")
    job = ask(shell)
    first = _wait_for_request(approving, "nova")
    later = ask(other, session_id="s2", tool_input={"command": "rm -rf /"})
    second = _wait_for_request(approving, "luna")

    mixed = approving.act(do="answer", id=second["id"], digest=first["digest"], is_allowed=True)
    done = approving.act(do="answer", id=first["id"], digest=first["digest"], is_allowed=False)
    late = approving.act(do="answer", id=first["id"], digest=first["digest"], is_allowed=True)
    right = approving.act(do="answer", id=second["id"], digest=second["digest"], is_allowed=False)

    assert (mixed.status_code, done.status_code, right.status_code) == (400, 200, 200)
    assert "not the one that you were shown" in mixed.json()["message"]
    assert late.status_code == 404
    assert "already answered" in late.json()["message"]
    assert [decision(one.end())["behavior"] for one in (job, later)] == ["deny", "deny"]
