"""A home that an older version has made opens as before: see `recorded_home.py`."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from tests.daemon.recorded_home import opened_copy, read_all, read_recorded
from tests.daemon.stage import Home, Result, check_output, run_as_person, run_script_as_person


@pytest.fixture
def old() -> Iterator[Home]:
    """The home of the older version, opened by the daemon of today."""
    with opened_copy() as home:
        yield home


def test_every_reading_command_prints_what_the_older_version_printed(old: Home) -> None:
    recorded = read_recorded()
    # A message that a terminal has taken is unconfirmed after a while, because that terminal is gone.
    in_order = sorted(recorded.output, key=lambda words: "'submitted'" not in str(recorded.output[words]))

    found = read_all(old, [words.split() for words in in_order], recorded.last, recorded.end_ms)

    expected = {words: _as_lines(lines) for words, lines in recorded.output.items()}
    assert {words: found[words] for words in found if found[words] != expected[words]} == {}


def _as_lines(printed: Sequence[object]) -> list[object]:
    """Return the rooms and notes, which the older version printed as one list, as lines."""
    whole = printed[0] if len(printed) == 1 else None
    lists = [whole[name] for name in ("rooms", "notes") if isinstance(whole, Mapping) and name in whole]
    return list(lists[0] if lists else printed)


def test_recording_has_every_state_of_messages_agents_rooms_and_tasks() -> None:
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
    held = next(line["held"] for line in old.ok("pending", "--json").lines if "held" in line)
    token = old.ok("token", "list", "--json").json["id"]

    check_output(run_as_person(old, "release", str(held)))
    nova = _in_shell(old, "pal join --as nova", "pal recv --limit 100 --json")
    kira = _in_shell(
        old, "pal join --as api-kira", f"pal token revoke {token}", "pal stick claim --room docs-mtqx --json"
    )
    check_output(run_as_person(old, "archive", "--before", "60"))

    mail, turn = [line["text"] for line in nova.lines], kira.json
    assert {"later", "the fourth in a minute", "to all agents"} <= set(mail)
    assert (turn["status"], turn["handoff"]["status"]) == ("your_turn", "done")
    assert old.ok("token", "list", "--json").lines == []
    assert len(old.ok("events", "--archived", "--type", "message", "--json").lines) > len(mail)


def _in_shell(home: Home, *commands: str) -> Result:
    """Run commands in the shell of a person; return the output of the last one."""
    *first, last = commands
    quiet = [f"{command} >/dev/null" for command in first]
    return check_output(run_script_as_person(home, " && ".join([*quiet, last])))
