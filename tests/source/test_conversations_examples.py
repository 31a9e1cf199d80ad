"""Examples of the source document about related messages: request watches, threads and bundles."""

import json
from pathlib import Path

import pytest
from tests.daemon.stage import Home, JsonLine, Shell
from tests.source.agents import Pair, hear, hear_texts, meet, say, wait_for_texts, why_refused

# Request watch


def test_sender_of_a_request_is_notified_when_the_recipient_is_idle(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you review this?")["seq"]
    hear(nova)
    nova.ok("status", "set", "active")

    nova.ok("status", "set", "listening")

    (notice,) = luna.ok("recv", "--wait", "--timeout", "30", "--json").lines
    assert (notice["from"], notice["sender_kind"]) == ("[pal-events]", "system")
    assert notice["text"] == f"@luna nova is now idle (request #{asked})"


def test_sender_of_a_request_is_notified_when_the_recipient_stops(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you review this?")["seq"]

    nova.close()

    assert wait_for_texts(luna) == [f"@luna nova is now stopped (request #{asked})"]


def test_sender_of_a_request_is_notified_when_the_recipient_leaves(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you review this?")["seq"]
    hear(nova)

    nova.ok("leave")

    assert wait_for_texts(luna) == [f"@luna nova is now stopped (request #{asked})"]


def test_every_recipient_of_a_request_is_watched(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")
    asked = say(luna, "@all", "--intent", "request", "--", "who can review this?")["seq"]
    hear(nova)
    hear(kira)

    nova.ok("status", "set", "idle")
    first = wait_for_texts(luna)
    kira.ok("status", "set", "idle")
    second = wait_for_texts(luna)

    assert first == [f"@luna nova is now idle (request #{asked})"]
    assert second == [f"@luna kira is now idle (request #{asked})"]


def test_answered_request_is_no_longer_watched(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you review this?")["seq"]
    say(nova, "@luna", "--reply-to", str(asked), "--", "looks good")
    hear(luna)

    nova.ok("status", "set", "idle")
    later = say(luna, "@nova", "--intent", "request", "--", "and this?")["seq"]
    hear(nova)
    nova.ok("status", "set", "idle")

    assert wait_for_texts(luna) == [f"@luna nova is now idle (request #{later})"]


def test_idle_recipient_that_has_not_seen_the_request_is_not_reported(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")
    say(luna, "@nova", "--intent", "request", "--", "unseen")
    seen = say(luna, "@kira", "--intent", "request", "--", "seen")["seq"]
    hear(kira)

    nova.ok("status", "set", "idle")
    kira.ok("status", "set", "idle")

    assert wait_for_texts(luna) == [f"@luna kira is now idle (request #{seen})"]


def test_message_that_is_not_a_request_is_not_watched(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    say(luna, "@nova", "--intent", "inform", "--", "by the way")
    asked = say(luna, "@nova", "--intent", "request", "--", "can you?")["seq"]
    hear(nova)

    nova.ok("status", "set", "idle")

    assert wait_for_texts(luna) == [f"@luna nova is now idle (request #{asked})"]


# Threading


def test_thread_is_started_by_its_first_message(pair: Pair) -> None:
    luna, nova = pair

    say(luna, "@nova", "--thread", "pr-123", "--", "can you review?")

    assert nova.ok("recv", "--json").json["thread"] == "pr-123"


def test_reply_is_in_the_thread_and_names_the_original_message(pair: Pair) -> None:
    luna, nova = pair
    asked = say(luna, "@nova", "--thread", "pr-123", "--", "can you review?")["seq"]

    say(nova, "@luna", "--thread", "pr-123", "--reply-to", str(asked), "--", "looks good")

    answer = luna.ok("recv", "--json").json
    assert (answer["thread"], answer["reply_to"], answer["text"]) == ("pr-123", str(asked), "looks good")


def test_thread_is_queried_by_its_name(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    asked = say(luna, "@nova", "--thread", "pr-123", "--", "can you review?")["seq"]
    say(luna, "@nova", "--thread", "pr-124", "--", "something else")
    answer = say(nova, "@luna", "--thread", "pr-123", "--reply-to", str(asked), "--", "looks good")["seq"]

    shown = luna.ok("events", "--thread", "pr-123").out

    assert [line.split()[0] for line in shown.splitlines()] == [f"#{asked}", f"#{answer}"]
    assert [event["seq"] for event in bus.events("--thread", "pr-123")] == [asked, answer]


def test_thread_does_not_change_the_recipients(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")
    say(luna, "@nova", "--thread", "pr-123", "--", "for nova")

    sent = say(luna, "@kira", "--thread", "pr-123", "--", "for kira")

    assert sent["delivered_to"] == ["kira"]
    assert hear_texts(nova) == ["for nova"]
    assert hear_texts(kira) == ["for kira"]


# Bundles


@pytest.fixture
def coders(pair: Pair) -> Pair:
    """Luna and nova, in a directory with the example files and a transcript of twenty entries."""
    directory = pair[0].home.path.parent
    for name, content in (("src/app.tsx", "app\n"), ("tests/app.test.tsx", "test\n")):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content)
    write_transcript(directory / "transcript.jsonl")
    return pair


def write_transcript(path: Path) -> None:
    entries = [
        {"role": "assistant", "text": f"entry {number}", "tools": [{"name": "Edit", "input": "src/app.tsx"}]}
        for number in range(1, 21)
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def create_bundle(shell: Shell) -> JsonLine:
    """Create the bundle of the example."""
    return shell.ok(
        *("bundle", "create", "Review PR-123", "--description", "Frontend changes"),
        *("--files", "src/app.tsx,tests/app.test.tsx"),
        *("--transcript", "10-15:normal", "--transcript-file", "transcript.jsonl"),
        *("--events", "1-3", "--json"),
    ).json


def test_bundle_is_created_from_files_a_transcript_and_events(coders: Pair) -> None:
    luna, _ = coders

    made = create_bundle(luna)

    assert (made["from"], made["title"], made["description"]) == ("luna", "Review PR-123", "Frontend changes")
    assert [file["path"] for file in made["files"]] == ["src/app.tsx", "tests/app.test.tsx"]
    (transcript,) = made["transcripts"]
    assert transcript == {"agent": "luna", "first": 10, "last": 15, "level": "normal"}
    assert made["events"] == [[1, 3]]


def test_bundle_is_attached_to_a_message(coders: Pair) -> None:
    luna, nova = coders
    bundle = create_bundle(luna)["bundle_id"]

    say(luna, "@nova", "--bundle", bundle, "--", "please review")

    message = nova.ok("recv", "--json").json
    assert (message["text"], message["bundle_id"]) == ("please review", bundle)
    assert nova.ok("bundle", "show", bundle, "--json").json["title"] == "Review PR-123"


def test_reader_of_a_message_sees_how_to_open_its_bundle(coders: Pair) -> None:
    luna, nova = coders
    bundle = create_bundle(luna)["bundle_id"]
    say(luna, "@nova", "--bundle", bundle, "--", "please review")

    heard = nova.ok("recv").out

    assert f"pal bundle show {bundle}" in heard


def test_unknown_bundle_is_not_attached(coders: Pair) -> None:
    luna, nova = coders

    refused = luna.pal("send", "@nova", "--bundle", "bundle:abc12345", "--json", "--", "please review")

    assert why_refused(refused)[0] == "not_found"
    assert hear_texts(nova) == []


def test_bundle_keeps_the_content_of_its_files(coders: Pair) -> None:
    luna, nova = coders
    bundle = create_bundle(luna)["bundle_id"]
    (luna.home.path.parent / "src/app.tsx").write_text("changed since\n")

    kept = nova.ok("bundle", "cat", bundle, "src/app.tsx").out

    assert kept == "app\n"


@pytest.mark.parametrize(
    ("level", "fields"),
    [
        ("normal", {"number", "role", "text"}),
        ("detailed", {"number", "role", "text", "tools"}),
        ("full", {"number", "role", "text", "tools", "whole"}),
    ],
)
def test_bundle_keeps_a_transcript_in_the_requested_detail(
    coders: Pair, level: str, fields: set[str]
) -> None:
    luna, nova = coders
    part = ["--transcript", f"10-15:{level}", "--transcript-file", "transcript.jsonl"]
    bundle = luna.ok("bundle", "create", "How it went", *part, "--json").json["bundle_id"]

    (transcript,) = nova.ok("bundle", "show", bundle, "--full", "--json").json["transcripts"]

    assert [entry["text"] for entry in transcript["entries"]] == [f"entry {n}" for n in range(10, 16)]
    assert [set(entry) for entry in transcript["entries"]] == [fields] * 6


def test_bundle_shows_the_range_of_events_it_refers_to(coders: Pair) -> None:
    luna, nova = coders
    first, _, last = [say(luna, "@nova", "--", text)["seq"] for text in ("one", "two", "three")]
    say(luna, "@nova", "--", "four")
    made = luna.ok("bundle", "create", "How it broke", "--events", f"{first}-{last}", "--json").json

    _, *events = nova.ok("bundle", "show", made["bundle_id"], "--full", "--json").lines

    assert [event["payload"]["text"] for event in events] == ["one", "two", "three"]


def test_missing_transcript_is_an_error_that_names_the_file_option(coders: Pair) -> None:
    luna, _ = coders

    refused = luna.pal("bundle", "create", "How it went", "--transcript", "10-15:normal", "--json")

    code, sentence = why_refused(refused)
    assert code == "not_found"
    assert "transcript of luna" in sentence
    assert "--transcript-file" in sentence


def test_bundle_extends_an_earlier_one(coders: Pair) -> None:
    luna, nova = coders
    first = create_bundle(luna)["bundle_id"]

    second = nova.ok("bundle", "create", "Second round", "--extends", first, "--json").json

    assert second["extends"] == first
    assert [parent["title"] for parent in second["parents"]] == ["Review PR-123"]
    assert luna.ok("bundle", "cat", second["bundle_id"], "src/app.tsx").out == "app\n"
