"""Brakes hold the messages of harness agents that write too often; a person releases them."""

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person, wait_until, write_settings


@pytest.fixture
def bus(home: Home) -> Home:
    """A bus that lets through two messages a minute and two replies in a row."""
    write_settings(home, brake_per_minute=2, brake_hops=2)
    home.start_daemon()
    return home


def coder(bus: Home, name: str) -> Shell:
    """Return a shell that has joined as an agent under a harness."""
    shell = bus.shell()
    shell.ok("join", "--name", name, "--harness", "claude")
    return shell


def test_message_over_the_rate_limit_is_held_until_a_person_releases_it(bus: Home) -> None:
    luna, nova = coder(bus, "luna"), coder(bus, "nova")
    for word in ("one", "two"):
        luna.ok("send", "@nova", "--", word)

    refused = luna.pal("send", "@nova", "--json", "--", "three")
    seq = refused.error["details"]["message"]
    waiting = nova.ok("recv", "--peek", "--json").lines
    unread = bus.ok("status", "nova", "--json").json["unread"]
    receipt = bus.ok("receipts", str(seq), "--json").json["receipts"][0]
    notice = check_output(run_as_person(bus, "recv", "--json")).json
    released = check_output(run_as_person(bus, "release", str(seq)))

    assert (refused.status, refused.error["error"]) == (1, "rate_limited")
    assert f"'pal release {seq}'" in refused.error["message"]
    assert [line["text"] for line in waiting] == ["one", "two"]
    assert unread == 2
    assert (receipt["state"], receipt["reason"]) == ("held", refused.error["details"]["reason"])
    assert notice["from"] == "[pal-events]"
    assert f"#{seq} from luna to nova is held" in notice["text"]
    assert released.out == f"#{seq} is queued now\n"
    assert [line["text"] for line in nova.ok("recv", "--json").lines] == ["one", "two", "three"]


def test_held_messages_are_listed_with_the_command_to_release_them(bus: Home) -> None:
    luna, _ = coder(bus, "luna"), coder(bus, "nova")
    for word in ("one", "two"):
        luna.ok("send", "@nova", "--", word)
    refused = [luna.pal("send", "@nova", "--json", "--", word).error for word in ("three", "four", "five")]
    seqs = [refusal["details"]["message"] for refusal in refused]

    lines = bus.ok("pending", "--json").lines
    page = bus.ok("pending").out
    check_output(run_as_person(bus, "release", str(seqs[1])))

    assert [(line["held"], line["agent"], line["to"]) for line in lines] == [
        (seq, "luna", ["nova"]) for seq in seqs
    ]
    assert {line["text"] for line in lines} == {refused[0]["details"]["reason"]}
    assert {(line["id"], line["answerable"]) for line in lines} == {(None, False)}
    for seq in seqs:
        assert f"#{seq} held, luna → nova: " in page
        assert f"    pal release {seq} | pal show {seq}\n" in page
    left = bus.ok("pending", "--json").lines
    assert [line["held"] for line in left] == [seqs[0], seqs[2]]


def test_message_that_continues_without_a_person_is_not_pending(bus: Home) -> None:
    nova = coder(bus, "nova")
    nova.ok("status", "set", "blocked", "--detail", "usage limit")
    sent = bus.ok("send", "@nova", "--json", "--", "hello").json
    wait_until(lambda: bus.ok("receipts", str(sent["seq"]), "--json").json["receipts"][0]["state"] == "held")

    assert [line for line in bus.ok("pending", "--json").lines if "held" in line] == []


def test_agents_that_reply_to_each_other_in_circles_are_held(bus: Home) -> None:
    pair = coder(bus, "luna"), coder(bus, "nova")
    seq = pair[0].ok("send", "@nova", "--json", "--", "0").json["seq"]
    for hop in (1, 2):
        sent = pair[hop % 2].ok("send", "--reply-to", str(seq), "--json", "--", str(hop))
        seq = sent.json["seq"]

    refused = pair[1].pal("send", "--reply-to", str(seq), "--json", "--", "3")

    assert refused.error["error"] == "rate_limited"
    assert "3 replies between agents" in refused.error["message"]


def test_person_and_script_have_no_rate_limit(bus: Home) -> None:
    nova = coder(bus, "nova")

    for number in range(3):
        bus.ok("send", "@nova", "--", f"script {number}")
        bus.ok("send", "--as", "nova", "@nova", "--", f"for nova {number}")
        check_output(run_as_person(bus, "send", "@nova", "--", f"person {number}"))

    assert len(nova.ok("recv", "--json").lines) == 9


def test_only_a_person_releases_a_held_message(bus: Home) -> None:
    luna, _ = coder(bus, "luna"), coder(bus, "nova")
    for word in ("one", "two"):
        luna.ok("send", "@nova", "--", word)
    seq = str(luna.pal("send", "@nova", "--json", "--", "three").error["details"]["message"])

    refused = [asking.pal("release", seq, "--json") for asking in (luna, bus)]
    wrong = run_as_person(bus, "redeliver", seq)
    released = check_output(run_as_person(bus, "release", seq, "--json")).json
    again = run_as_person(bus, "release", seq)

    assert [one.error["error"] for one in refused] == ["not_allowed"] * 2
    assert f"#{seq} has no unconfirmed delivery" in wrong.err
    assert released["receipts"][0]["reason"] == "released by human"
    assert f"#{seq} is not held" in again.err
