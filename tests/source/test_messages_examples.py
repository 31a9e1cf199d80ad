"""Examples of the source document about messages: fields, the three intents, and valid text."""

import pytest
from tests.daemon.stage import Home, Shell
from tests.source.agents import Pair, hear_texts, meet, say, state_of, why_refused

# Message structure


def test_message_is_stored_with_all_fields_of_the_example(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    earlier = say(nova, "@luna", "--thread", "pr-123", "--", "I am at it")["seq"]
    bundle = luna.ok("bundle", "create", "PR-123", "--json").json["bundle_id"]
    options = ["--intent", "request", "--thread", "pr-123", "--reply-to", str(earlier), "--bundle", bundle]

    sent = say(luna, *options, "hey @nova can you help?")

    (event,) = [one for one in bus.events("--type", "message") if one["seq"] == sent["seq"]]
    message = {
        "text": "hey @nova can you help?",
        "scope": "mentions",
        "mentions": ["nova"],
        "sender_kind": "instance",
        "delivered_to": ["nova"],
        "intent": "request",
        "thread": "pr-123",
        "reply_to": str(earlier),
        "bundle_id": bundle,
    }
    assert event["from"] == "luna"
    assert event["payload"] == message
    received = nova.ok("recv", "--json").json
    assert {key: received[key] for key in ("from", *message)} == {"from": "luna", **message}


def test_bundle_id_has_its_prefix_and_eight_characters(bus: Home) -> None:
    (luna,) = meet(bus, "luna")

    bundle = luna.ok("bundle", "create", "PR-123", "--json").json["bundle_id"]

    prefix, _, characters = bundle.partition(":")
    assert (prefix, len(characters)) == ("bundle", 8)


# Message intents


def test_request_creates_a_watch_for_its_sender(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")

    sent = say(luna, "@nova", "--intent", "request", "--", "can you review this?")

    (watch,) = luna.ok("events", "subs", "--json").lines
    assert (watch["kind"], watch["owner"], watch["agent"], watch["request"]) == (
        "watch",
        "luna",
        "nova",
        sent["seq"],
    )
    assert nova.ok("recv", "--json").json["intent"] == "request"


def test_inform_creates_no_watch(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")

    say(luna, "@nova", "--intent", "inform", "--", "the build is green")

    assert luna.ok("events", "subs", "--json").lines == []
    assert nova.ok("recv", "--json").json["intent"] == "inform"


def test_ack_answers_a_request_and_ends_its_watch(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you review this?")["seq"]

    say(nova, "@luna", "--intent", "ack", "--reply-to", str(asked), "--", "on it")

    assert luna.ok("recv", "--json").json["intent"] == "ack"
    assert state_of(luna, asked, "nova") == "answered"
    assert luna.ok("events", "subs", "--json").lines == []


def test_ack_without_a_reply_id_is_refused(pair: Pair) -> None:
    luna, nova = pair

    refused = luna.pal("send", "@nova", "--intent", "ack", "--json", "--", "ok")

    assert why_refused(refused) == ("bad_request", "an ack requires --reply-to ID")
    assert hear_texts(nova) == []


def test_ack_of_an_ack_is_refused(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you?")["seq"]
    ack = say(nova, "@luna", "--intent", "ack", "--reply-to", str(asked), "--", "yes")["seq"]

    refused = luna.pal("send", "@nova", "--intent", "ack", "--reply-to", str(ack), "--json", "--", "ok")

    assert why_refused(refused) == ("bad_request", f"#{ack} is an ack, which needs no ack; nothing was sent")
    assert bus.texts() == ["can you?", "yes"]


def test_ack_of_an_inform_is_refused(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    seq = say(luna, "@nova", "--intent", "inform", "--", "by the way")["seq"]

    refused = nova.pal("send", "@luna", "--intent", "ack", "--reply-to", str(seq), "--json", "--", "ok")

    assert why_refused(refused) == (
        "bad_request",
        f"#{seq} is an inform, which needs no ack; nothing was sent",
    )
    assert hear_texts(luna) == []


def test_unknown_intent_is_refused(pair: Pair) -> None:
    luna, nova = pair

    refused = luna.pal("send", "@nova", "--intent", "demand", "--", "now")

    assert refused.status == 2
    assert "request, inform, ack" in refused.err
    assert hear_texts(nova) == []


# Message validation


def send_file(shell: Shell, content: bytes) -> list[str]:
    """Write a text into a file, because an argument cannot hold every character; return the send command."""
    path = shell.home.spare_path()
    path.write_bytes(content)
    return ["send", "@nova", "--json", "--file", str(path)]


def test_message_of_100000_bytes_is_accepted(pair: Pair) -> None:
    luna, nova = pair
    text = "x" * 100_000

    luna.ok(*send_file(luna, text.encode()))

    assert [one == text for one in hear_texts(nova)] == [True]


def test_message_of_100001_bytes_is_refused(pair: Pair) -> None:
    luna, nova = pair

    refused = luna.pal(*send_file(luna, b"x" * 100_001))

    assert why_refused(refused)[0] == "message_too_large"
    assert hear_texts(nova) == []


def test_size_limit_is_in_bytes_and_not_in_characters(pair: Pair) -> None:
    luna, nova = pair

    refused = luna.pal(*send_file(luna, ("é" * 50_000 + "x").encode()))

    assert why_refused(refused)[0] == "message_too_large"
    assert hear_texts(nova) == []


@pytest.mark.parametrize(
    ("first", "last"),
    [(0x00, 0x08), (0x0B, 0x0C), (0x0E, 0x1F), (0x7F, 0x9F), (0x202A, 0x202E), (0x2066, 0x2069)],
    ids=lambda code: f"{code:02X}",
)
def test_control_characters_of_each_class_are_refused(pair: Pair, first: int, last: int) -> None:
    luna, nova = pair
    codes = range(first, last + 1)

    refused = [luna.pal(*send_file(luna, f"ab{chr(code)}c".encode())) for code in codes]

    assert [why_refused(one)[0] for one in refused] == ["bad_text"] * len(codes)
    details = [one.error["details"] for one in refused]
    assert [(one["codepoint"], one["position"]) for one in details] == [(code, 2) for code in codes]
    assert hear_texts(nova) == []


@pytest.mark.parametrize("character", ["\t", "\n", "\r"], ids=["tab", "LF", "CR"])
def test_tab_and_line_breaks_are_kept(pair: Pair, character: str) -> None:
    luna, nova = pair
    text = f"before{character}after"

    luna.ok(*send_file(luna, text.encode()))

    assert hear_texts(nova) == [text]


# Searching


def test_content_of_messages_can_be_searched(bus: Home) -> None:
    luna, _ = meet(bus, "luna", "nova")
    say(luna, "@nova", "--", "the flaky test is back")
    say(luna, "@nova", "--", "the test is green")

    found = bus.events("--search", "flaky test")

    assert [event["payload"]["text"] for event in found] == ["the flaky test is back"]
