"""`pal import`: the events of an export are stored once, as history, and nothing follows from them."""

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.stage import (
    Home,
    JsonLine,
    check_output,
    new_home,
    run_as_person,
    run_script_as_person,
    wait_until,
)

MANY = 20_000
"""Events whose import takes long enough to be killed in the middle."""


@pytest.fixture
def other() -> Iterator[Home]:
    """A second home with a running daemon."""
    with new_home() as made:
        made.start_daemon()
        yield made


def export_of(home: Home) -> list[JsonLine]:
    """Return all events of a home, as a person exports them."""
    return check_output(run_as_person(home, "export", "--no-redact")).lines


def write_export(path: Path, events: list[JsonLine]) -> str:
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return str(path)


def without_seq(events: list[JsonLine]) -> list[JsonLine]:
    return [{key: value for key, value in event.items() if key != "seq"} for event in events]


def made_events(count: int) -> list[JsonLine]:
    """Return the export of a log that another machine may have written."""
    return [
        {
            "v": 1,
            "type": "message",
            "id": f"01HF7YAT00{number:016d}",
            "from": "kira",
            "to": ["@vega"],
            "ts": 1_700_000_000_000 + number,
            "payload": {"text": f"old {number}", "scope": "mentions", "delivered_to": ["vega"]},
            "seq": number,
            "device": "MABU",
        }
        for number in range(1, count + 1)
    ]


def used_log(home: Home) -> list[JsonLine]:
    """Use a home for a while, with mail that waits, a request, a room, a task and a thread; export it."""
    luna, nova = home.shell(), home.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    asked = luna.ok("send", "@nova", "--intent", "request", "--thread", "pr-1", "--json", "--", "look?")
    nova.ok("recv")
    nova.ok("send", "@luna", "--reply-to", str(asked.json["seq"]), "--", "x" * 70_000)
    luna.ok("send", "@nova", "--expects-reply", "--", "are you there?")
    luna.ok("room", "join", str(home.path))
    luna.ok("task", "create", "write it")
    check_output(run_as_person(home, "redact", str(asked.json["seq"])))
    return export_of(home)


def stored(home: Home) -> int:
    """Return how many imported events are in the log."""
    with closing(sqlite3.connect(home.path / "log.sqlite")) as connection:
        count: int = connection.execute("SELECT count(*) FROM events WHERE imported > 0").fetchone()[0]
        return count


def test_imported_events_are_the_exported_ones_under_new_numbers(bus: Home, other: Home) -> None:
    before, events = export_of(other), used_log(bus)
    file = write_export(bus.path / "log.jsonl", events)

    done = run_as_person(other, "import", file)

    assert (done.status, done.err) == (0, "")
    assert done.out == f"imported {len(events)} events; 0 were here already\n"
    after = export_of(other)
    assert without_seq(after)[len(before) :] == without_seq(events)
    seqs = [event["seq"] for event in after]
    assert seqs == sorted(set(seqs))
    shown = [event for event in other.ok("events", "--all", "--json").lines if "imported" in event]
    assert [event["imported"] for event in shown] == [event["seq"] for event in events]


def test_second_import_stores_nothing(bus: Home, other: Home) -> None:
    file = write_export(bus.path / "log.jsonl", used_log(bus))
    check_output(run_as_person(other, "import", file))
    once = export_of(other)

    again = check_output(run_as_person(other, "import", file, "--json")).json
    own = check_output(run_as_person(bus, "import", file, "--json")).json

    count = len(once) - 1
    assert again == {"imported": 0, "known": count, "different": []}
    assert own == again
    assert export_of(other) == once


def test_imported_mail_reaches_no_agent_and_no_follower(bus: Home, other: Home) -> None:
    events = used_log(bus)
    luna, nova = other.shell(), other.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    check_output(run_as_person(other, "events", "sub", "--type", "message"))
    last = other.events()[-1]["seq"]
    follower = other.shell().begin("events", "--follow", "--after", str(last), "--json")

    check_output(run_as_person(other, "import", write_export(bus.path / "log.jsonl", events)))
    luna.ok("send", "@nova", "--", "a new message")

    # The first thing that follows is the new message, and there is nothing else for the agents.
    assert json.loads(follower.line())["payload"]["text"] == "a new message"
    assert [line["text"] for line in nova.ok("inbox", "--json").lines] == ["a new message"]
    assert luna.ok("inbox", "--json").lines == []
    assert luna.pal("recv", "--after", "0", "--json").out == ""
    assert [one["text"] for one in nova.ok("recv", "--after", "0", "--json").lines] == ["a new message"]
    assert other.ok("task", "list", "--json").out == ""
    notices = other.events("--from", "[pal-events]", "--type", "message")
    assert ["a new message" in str(one) for one in notices if "imported" not in one] == [True]


def test_imported_thread_can_be_read_and_searched(bus: Home, other: Home) -> None:
    events = used_log(bus)
    check_output(run_as_person(other, "import", write_export(bus.path / "log.jsonl", events)))

    (found,) = other.ok("events", "--search", "there", "--json").lines
    thread = other.ok("thread", "show", "pr-1").out

    device = events[0]["device"]
    asked = next(event for event in events if event["payload"].get("intent") == "request")
    assert found["payload"]["text"] == "are you there?"
    assert f"answers #{asked['seq']}:{device}" in thread
    shown = other.ok("show", str(found["seq"])).out
    assert f"imported; it was #{found['imported']} in the log of {device}" in shown
    assert "was imported" in other.ok("receipts", str(found["seq"])).out
    refused = other.pal("show", f"{found['seq']}:{device}")
    assert refused.status == 1


def test_removals_of_another_log_remove_nothing_here(bus: Home, other: Home) -> None:
    other.shell().ok("join", "--name", "luna")
    for number in range(12):
        other.ok("send", "@luna", "--", f"keep {number}")
    events = used_log(bus)
    assert any(event["type"] == "redacted" for event in events)

    check_output(run_as_person(other, "import", write_export(bus.path / "log.jsonl", events)))
    other.kill()
    check_output(run_as_person(other, "redact", "4"))

    texts = [text for text in other.texts() if text.startswith("keep")]
    assert len(texts) == 11


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "truncated"),
        ("## No thread", "malformed"),
        ('{"v":1,"type":"message","id":"1","from":"kira","ts":1}', "the field `seq` is missing"),
        (
            '{"v":1,"type":"message","id":"1","from":"kira","ts":1,"seq":0,"device":"MABU"}',
            "must be 1 or more",
        ),
        ('{"v":1,"type":"","id":"1","from":"kira","ts":1,"seq":1,"device":"MABU"}', "`type` is empty"),
        (
            '{"v":1,"type":"x","id":"1","from":"kira","ts":1,"seq":1,"device":"MABU","payload":{"a":'
            + "[" * 300
            + "]" * 300
            + "}}",
            "levels deep",
        ),
    ],
)
def test_bad_line_is_named_and_nothing_is_imported(bus: Home, line: str, reason: str) -> None:
    file = Path(write_export(bus.path / "log.jsonl", made_events(400)))
    file.write_text(f"{file.read_text()}\n{line}\n")
    before = export_of(bus)

    refused = run_as_person(bus, "import", str(file))

    assert refused.status == 1
    assert f"line 402 of {file} is not an exported event: " in refused.err
    assert reason in refused.err
    assert "nothing was imported" in refused.err
    assert export_of(bus) == before


def test_missing_file_and_pipe_are_refused(bus: Home) -> None:
    pipe = bus.path / "pipe"
    os.mkfifo(pipe)

    missing = run_as_person(bus, "import", "nowhere.jsonl")
    refused = run_as_person(bus, "import", str(pipe))

    assert (missing.status, refused.status) == (1, 1)
    assert "nowhere.jsonl cannot be read: No such file or directory; nothing was imported" in missing.err
    assert f"{pipe} is not a file; nothing was imported" in refused.err


def test_only_a_person_imports(bus: Home) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna", "--role", "worker")
    file = write_export(bus.path / "log.jsonl", made_events(3))

    refused = [luna.pal("import", file), bus.pal("import", file)]
    borrowed = run_as_person(bus, "import", file, "--as", "luna")

    assert [one.status for one in (*refused, borrowed)] == [1, 1, 1]
    assert all("import" in one.err for one in (*refused, borrowed))
    assert not any("imported" in event for event in bus.events())


def test_event_with_a_taken_id_is_named_and_left_out(bus: Home) -> None:
    events = made_events(3)
    check_output(run_as_person(bus, "import", write_export(bus.path / "one.jsonl", events)))
    events[1] = {**events[1], "type": "other"}

    done = run_as_person(bus, "import", write_export(bus.path / "two.jsonl", events))

    assert done.status == 1
    assert done.out == "imported 0 events; 2 were here already\n"
    assert "not imported, because another event here has the same sender and id: #2" in done.err


@pytest.mark.parametrize("victim", ["client", "daemon"])
def test_import_that_was_killed_is_finished_by_the_next_one(bus: Home, victim: str) -> None:
    before, events = export_of(bus), made_events(MANY)
    file = write_export(bus.path / "log.jsonl", events)
    number = bus.path / "client.pid"
    script = f"pal import {file} & echo $! >{number}; wait $!"

    def kill_in_the_middle() -> None:
        wait_until(lambda: stored(bus) > 0)
        if victim == "daemon":
            bus.kill()
        else:
            os.kill(int(number.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    first = run_script_as_person(bus, script)
    killer.join()
    done = stored(bus)
    check_output(run_as_person(bus, "import", file))

    # The client repeats its command when the daemon is gone, and so finishes the import itself.
    assert done == MANY if victim == "daemon" else (first.status != 0 and 0 < done < MANY)
    after = export_of(bus)
    imported = [event for event in after if event["device"] == "MABU"]
    assert without_seq(imported) == without_seq(events)
    assert [event["id"] for event in after if event["device"] != "MABU"][: len(before)] == [
        event["id"] for event in before
    ]


@pytest.mark.parametrize("ts", [2**63 - 1, -(2**63)])
def test_imported_event_of_an_impossible_year_is_shown(bus: Home, tmp_path: Path, ts: int) -> None:
    (event,) = made_events(1)
    exported = write_export(tmp_path / "export", [{**event, "ts": ts}])

    check_output(run_as_person(bus, "import", exported))
    listed = check_output(run_as_person(bus, "events", "--type", "message", "--last", "1")).out

    assert listed.split()[1] == "?"
