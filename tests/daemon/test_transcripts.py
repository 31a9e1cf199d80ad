"""Transcripts of harnesses, with the real client and daemon."""

import json
import os
import shlex
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Shell, finish, wait_until
from tests.harness.transcript_samples import SESSIONS, install_samples
from tests.limits import LIMIT_S

from palaver.harness.marks import SESSION_MARKS


@pytest.fixture
def recorded(bus: Home) -> Home:
    """A bus whose user has a stored session of each of the four harnesses."""
    install_samples(bus.path.parent)
    return bus


@pytest.fixture(scope="module")
def shared_told(shared_bus: Home) -> Home:
    """A bus with two agents, luna with a stored session, for all requests that are refused."""
    install_samples(shared_bus.path.parent)
    agent(shared_bus, "luna", "codex")
    shared_bus.shell().ok("join", "--name", "nova")
    return shared_bus


def agent(bus: Home, name: str, harness: str) -> Shell:
    """Return a shell that the bus takes for a session of a harness."""
    shell = bus.shell()
    mark = {SESSION_MARKS[harness][0]: SESSIONS[harness]}
    assert shell.pal("join", "--name", name, env=mark).status == 0
    return shell


@pytest.mark.parametrize("harness", sorted(SESSIONS))
def test_any_caller_can_read_the_transcript_of_an_agent(recorded: Home, harness: str) -> None:
    agent(recorded, "luna", harness)

    lines = recorded.ok("transcript", "luna", "1-2", "--detail", "detailed", "--json").lines

    assert [(line["number"], line["role"], line["text"]) for line in lines] == [
        (1, "user", "list the files"),
        (2, "assistant", "I look at the files first."),
    ]
    assert "notes.txt" in lines[1]["tools"][0]["output"]


def test_agent_reads_json_lines_and_a_person_reads_text(recorded: Home) -> None:
    luna = agent(recorded, "luna", "claude")

    assert [line["number"] for line in luna.ok("transcript", "luna", "--last", "2").lines] == [12, 13]
    assert recorded.ok("transcript", "luna", "12").out.endswith("\nand now?\n\n")


def test_search_of_all_transcripts_names_the_agent_of_each_entry(recorded: Home) -> None:
    agent(recorded, "luna", "codex")
    agent(recorded, "nova", "claude").ok("leave")
    recorded.shell().ok("join", "--name", "kira")

    found = recorded.ok("transcript", "--all", "--search", "list the files")
    as_json = recorded.ok("transcript", "--all", "--search", "list the files", "--json").lines

    assert [line.split("  ")[0] for line in found.out.splitlines() if "] user" in line] == [
        "luna [1] user",
        "nova [1] user",
    ]
    assert {line["agent"] for line in as_json} == {"luna", "nova"}


@pytest.mark.parametrize("words", [(), ("--all",), ("luna", "--all", "--search", "x")])
def test_transcript_needs_a_name_or_a_search_of_all(recorded: Home, words: tuple[str, ...]) -> None:
    refused = recorded.pal("transcript", *words)

    assert refused.status == 2
    assert "pal transcript --all --search RE" in refused.err or "--all --search RE" in refused.err


def test_search_covers_the_whole_transcript(recorded: Home) -> None:
    agent(recorded, "luna", "codex")

    found = recorded.ok("transcript", "luna", "--search", "EINS|über ALLES", "--json")
    again = recorded.ok("transcript", "luna", "--search", "(?i)EINS|über ALLES", "--json")

    assert found.out == ""
    assert [line["number"] for line in again.lines] == [4]


def test_transcript_ends_when_its_reader_closes_the_pipe(recorded: Home) -> None:
    agent(recorded, "luna", "claude")
    (path,) = recorded.path.parent.glob(".claude/projects/*/*.jsonl")
    path.write_bytes(path.read_bytes() * 200)
    out, into = os.pipe()
    reading = recorded.start("transcript", "luna", "1-", stdout=into)
    os.close(into)

    assert os.read(out, 10)
    os.close(out)

    assert reading.wait(timeout=LIMIT_S) == -signal.SIGPIPE


def test_output_error_is_reported(recorded: Home) -> None:
    agent(recorded, "luna", "claude")

    with Path("/dev/full").open("wb") as full:
        ended = finish(recorded.start("transcript", "luna", "1-", stdout=full))

    assert (ended.status, ended.err) == (1, "pal: standard output: No space left on device\n")


def test_unreadable_transcript_is_refused_with_a_sentence(recorded: Home) -> None:
    agent(recorded, "luna", "claude")
    (path,) = recorded.path.parent.glob(".claude/projects/*/*.jsonl")
    path.unlink()
    path.mkdir()

    refused = recorded.pal("transcript", "luna", "--json")

    assert refused.status == 1
    assert refused.error["error"] == "not_found"
    assert str(path.parent.parent) in refused.error["message"]


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["nobody"], 1, "there is no agent nobody"),
        (["nova"], 1, "the harness of the agent is not known"),
        (["luna", "5-2"], 2, "is not a range"),
        (["luna", "x"], 2, "100- for all from 100 on"),
        (["luna", "--search", "("], 2, "is not a regular expression"),
        (["luna", "--search", "x" * 1001], 2, "at most 1000 characters"),
        (["luna", "--last", "0"], 2, "--last requires a whole number of at least 1"),
        (["luna", "--detail", "loud"], 2, "--detail"),
        (["luna", "99"], 1, "it has 6 entries"),
    ],
)
def test_invalid_transcript_request_is_refused(
    shared_told: Home, words: list[str], status: int, complaint: str
) -> None:
    refused = shared_told.pal("transcript", *words)

    assert (refused.status, refused.out) == (status, "")
    assert complaint in refused.err


def test_bundle_contains_transcripts_of_the_caller_and_of_another_agent(recorded: Home) -> None:
    luna = agent(recorded, "luna", "opencode")
    agent(recorded, "nova", "gemini")
    marks = {SESSION_MARKS["opencode"][0]: SESSIONS["opencode"]}

    made = luna.pal(
        *(
            "bundle",
            "create",
            "How it went",
            "--transcript",
            "1-2:detailed",
            "--transcript",
            "nova:5",
            "--json",
        ),
        env=marks,
    ).json

    found = recorded.ok("bundle", "show", made["bundle_id"], "--full", "--json").lines[0]["transcripts"]
    assert [(one["agent"], one["first"], one["last"], one["level"]) for one in found] == [
        ("luna", 1, 2, "detailed"),
        ("nova", 5, 5, "normal"),
    ]
    assert found[0]["entries"][1]["tools"][0]["name"] == "bash"
    assert found[1]["entries"][0]["text"] == "is that all?\nreally?"
    assert [event["from"] for event in recorded.events("--type", "bundle")] == ["luna"]


def test_message_carries_a_transcript_and_its_text_from_standard_input(recorded: Home) -> None:
    agent(recorded, "luna", "claude")

    recorded.ok("send", "@luna", "--title", "How", "--transcript", "luna:1-3", "--stdin", content=b"look\n")

    (bundle,) = recorded.events("--type", "bundle")
    (message,) = recorded.events("--type", "message")
    assert message["payload"]["text"].rstrip() == "look"
    assert message["payload"]["bundle_id"] == bundle["payload"]["bundle_id"]
    assert bundle["payload"]["transcripts"][0]["entries"][0]["text"] == "list the files"


def test_missing_part_creates_no_bundle_and_sends_nothing(recorded: Home) -> None:
    agent(recorded, "luna", "claude")

    refused = recorded.pal(
        "send", "@luna", "--title", "How", "--transcript", "luna:90-99", "--json", "--", "look"
    )

    assert refused.status == 1
    assert refused.error["error"] == "not_found"
    assert recorded.events("--type", "bundle") == recorded.events("--type", "message") == []


def test_database_session_is_read_while_the_harness_writes_it(recorded: Home) -> None:
    agent(recorded, "luna", "opencode")
    database = recorded.path.parent / ".local/share/opencode/opencode.db"
    with sqlite3.connect(database, isolation_level=None) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE message SET data = 'changed, and not committed'")
        read = recorded.ok("transcript", "luna", "1-", "--json").lines
        writer.execute("ROLLBACK")
    writer.close()

    assert len(read) == 8


def test_hook_reports_the_path_of_the_transcript(recorded: Home) -> None:
    luna = agent(recorded, "luna", "claude")
    elsewhere = recorded.path.parent / "elsewhere.jsonl"
    elsewhere.write_text('{"type":"user","message":{"content":"said elsewhere"}}\n')
    told_by_hook = json.dumps(
        {"session_id": SESSIONS["claude"], "transcript_path": str(elsewhere), "prompt": "x"}
    )

    luna.begin_script(f"printf %s {shlex.quote(told_by_hook)} | pal hook claude UserPromptSubmit").end()

    # The fields of a hook are stored after its response: the status follows the path.
    wait_until(lambda: "active" in [one["payload"]["state"] for one in recorded.events("--type", "status")])
    assert [line["text"] for line in recorded.ok("transcript", "luna", "--json").lines] == ["said elsewhere"]


def test_agent_that_has_left_can_still_be_read(recorded: Home) -> None:
    agent(recorded, "luna", "claude").ok("leave")

    assert recorded.ok("transcript", "luna", "1", "--json").json["text"] == "list the files"
