"""A home that an older version has made opens as before: see `recorded_home.py`."""

from collections.abc import Iterator

import pytest
from tests.daemon.recorded_home import opened_copy, read_all, read_recorded
from tests.daemon.stage import Home, check_output, run_as_person


@pytest.fixture
def old() -> Iterator[Home]:
    """The home of the older version, opened by the daemon of today."""
    with opened_copy() as home:
        yield home


def test_every_reading_command_prints_what_the_older_version_printed(old: Home) -> None:
    recorded = read_recorded()
    commands = [words.split() for words in recorded.output]

    found = read_all(old, commands, recorded.last, recorded.end_ms)

    assert {words: found[words] for words in found if found[words] != recorded.output[words]} == {}


def test_recording_contains_every_state_of_messages_agents_rooms_and_tasks() -> None:
    output = str(read_recorded().output)

    states = ("queued", "held", "submitted", "seen", "answered", "refused", "expired", "dead")
    assert [state for state in states if f"'state': '{state}'" not in output] == []
    others = (
        "'owned'",
        "'reserved'",
        "'closed'",
        "'in_progress'",
        "'completed'",
        "'unconfirmed': True",
        "[redacted]",
    )
    assert [word for word in others if word not in output] == []


def test_agents_of_the_older_version_continue(old: Home) -> None:
    nova, kira = old.shell(), old.shell()
    held = old.ok("pending", "--json").json["held"]

    check_output(run_as_person(old, "release", str(held)))
    nova.ok("join", "--as", "nova")
    kira.ok("join", "--as", "api-kira")
    mail = [line["text"] for line in nova.ok("recv", "--limit", "100", "--json").lines]
    turn = kira.ok("stick", "claim", "--room", "docs-mtqx", "--json").json
    kira.ok("token", "revoke", old.ok("token", "list", "--json").json["id"])
    check_output(run_as_person(old, "archive", "--before", "60"))

    assert {"later", "the fourth in a minute", "to all agents"} <= set(mail)
    assert (turn["status"], turn["handoff"]["status"]) == ("your_turn", "done")
    assert old.ok("token", "list", "--json").lines == []
    assert len(old.ok("events", "--archived", "--type", "message", "--json").lines) > len(mail)
