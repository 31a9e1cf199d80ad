"""`pal redact`: a text is removed from every file of the home, and a record says so."""

import asyncio
import base64
import json
import os
import shlex
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import (
    Home,
    Result,
    Shell,
    check_output,
    run_as_person,
    run_script_as_person,
    wait_until,
)
from tests.daemon.test_terminals import at_once, send_keys
from tests.daemon.wires import ThinWire

from palaver.client.connection import connect
from palaver.protocol.envelope import Draft

SECRET = "hunter2-correcthorse"
OWN_ID = "01K0ABCDEFGHJKMNPQRSTVWXYZ"


@pytest.fixture
def luna(bus: Home) -> Iterator[FakeHolder]:
    with FakeHolder(bus) as holder:
        holder.hold(ticket_of(words_of(bus, "run", "--name", "luna", "--", "bash")))
        holder.open_lane(is_open=False)
        yield holder


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    check_output(shell.pal("join", "--name", "nova"))
    return shell


def files_with(home: Home, text: str) -> list[str]:
    """Return the files of a home that contain a text, in clear or as base64, in any case."""
    found = []
    wanted = [text.encode().lower(), base64.b64encode(text.encode()).lower().rstrip(b"=")[:-1]]
    for path in home.path.rglob("*"):
        if path.is_file() and any(piece in path.read_bytes().lower() for piece in wanted):
            found.append(str(path.relative_to(home.path)))
    return found


def redact(home: Home, reference: object) -> dict[str, object]:
    done: dict[str, object] = check_output(run_as_person(home, "redact", str(reference), "--json")).json
    return done


def test_redacted_message_is_in_no_file_of_the_home(bus: Home, luna: FakeHolder) -> None:
    seq = run_as_person(bus, "send", "@luna", "--json", "--", f"it is {SECRET}").json["seq"]
    for number in range(80):
        bus.ok("send", "@luna", "--", f"message {number}")
    wait_until(lambda: any("messages/luna/" in path for path in files_with(bus, SECRET)))
    assert bus.ok("events", "--search", SECRET, "--json").lines
    assert "log.sqlite" in str(files_with(bus, SECRET))

    done = redact(bus, seq)

    assert done["redacted"] == seq
    assert files_with(bus, SECRET) == []
    assert bus.ok("show", str(seq), "--json").json["text"] == "[redacted]"
    assert bus.ok("events", "--search", SECRET, "--json").lines == []
    assert bus.ok("events", "--search", "redacted", "--json").lines
    assert SECRET not in run_as_person(bus, "export", "--no-redact").out
    (record,) = bus.events("--type", "redacted")
    assert (record["from"], record["payload"]["event"]) == ("human", seq)
    assert record["payload"]["hash"].startswith("scrypt$")
    assert bus.ok("receipts", str(seq), "--json").json["receipts"][0]["state"] == "queued"


def test_redacted_routed_message_loses_its_command_and_payload_everywhere(
    bus: Home, luna: FakeHolder
) -> None:
    payload = json.dumps({"login": [SECRET]})
    sent = bus.ok("route", "agent/luna", "--command", f"use-{SECRET}", "--payload", payload, "--json").json
    wait_until(lambda: any("messages/luna/" in path for path in files_with(bus, SECRET)))

    done = redact(bus, sent["seq"])

    shown = bus.ok("show", str(sent["seq"]), "--json").json
    assert done["redacted"] == sent["seq"]
    assert files_with(bus, SECRET) == []
    assert (shown["text"], shown["path"]) == ("[redacted]", "agent/luna")
    assert {"command", "payload"}.isdisjoint(shown)
    assert bus.ok("history", "luna", "--json").json["payload"] == {"text": "[redacted]"}
    assert run_as_person(bus, "redact", str(sent["seq"])).out == f"already redacted: #{sent['seq']}\n"


def test_redacted_text_does_not_return_by_a_repeat_or_a_restart(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    own = ("--id", OWN_ID)
    seq = nova.pal("send", "@luna", *own, "--json", "--", SECRET).json["seq"]
    redact(bus, seq)

    again = nova.pal("send", "@luna", *own, "--json", "--", SECRET)
    assert again.json["seq"] == seq
    bus.ok("down")
    bus.ok("up")

    assert files_with(bus, SECRET) == []
    luna.again()
    assert luna.open_lane().offered()["message"]["text"] == "[redacted]"


def test_archived_and_large_texts_are_removed_too(bus: Home, luna: FakeHolder) -> None:
    large = f"{SECRET} " + "x" * 70_000
    first = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    path = bus.spare_path()
    path.write_text(large)
    second = run_as_person(bus, "send", "@luna", "--json", "--file", str(path)).json["seq"]
    check_output(run_as_person(bus, "archive", "--before", str(second)))
    found = files_with(bus, SECRET)
    assert any(name.startswith("archive/") for name in found)
    assert any(name.startswith("blobs/") for name in found)

    assert redact(bus, first)["also_in"] == []
    redact(bus, second)

    assert files_with(bus, SECRET) == []
    assert bus.ok("show", str(first), "--json").json["text"] == "[redacted]"
    assert bus.ok("show", str(second), "--json").json["text"] == "[redacted]"
    assert "archived events, all in their files" in bus.pal("doctor").out


def test_notices_that_quote_the_text_are_redacted_too(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    nova.pal("events", "sub", "--type", "message", "--search", "hunter2")
    seq = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    other = nova.pal("send", "@luna", "--json", "--", f"he said {SECRET}").json["seq"]

    done = redact(bus, seq)

    assert other in done["also_in"]  # type: ignore[operator]  # a list
    redact(bus, other)
    for also in done["also_in"]:  # type: ignore[attr-defined]  # a list
        redact(bus, also)
    assert files_with(bus, SECRET) == []


def test_stored_screen_is_redacted_with_its_raw_keys(bus: Home, luna: FakeHolder) -> None:
    def type_them() -> None:
        luna.answer(luna.offered(), evidence=f"login: {SECRET}")

    sent, _ = at_once(lambda: send_keys(bus, f"{SECRET}\r", "--json"), type_them)
    assert files_with(bus, SECRET)

    done = redact(bus, check_output(sent).json["seq"])

    assert len(done["copies"]) == 1  # type: ignore[arg-type]  # a list
    assert files_with(bus, SECRET) == []


def test_notes_and_tasks_lose_their_text(bus: Home, nova: Shell) -> None:
    task = nova.pal("task", "create", SECRET, "--json").json
    assert files_with(bus, SECRET)

    redact(bus, task["seq"])

    assert files_with(bus, SECRET) == []
    assert "[redacted]" in json.dumps(bus.ok("task", "list", "--json").lines)


def test_only_a_person_redacts(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    seq = nova.pal("send", "@luna", "--json", "--", SECRET).json["seq"]

    by_agent = nova.pal("redact", str(seq), "--json")
    by_script = bus.pal("redact", str(seq), "--json")
    in_a_name = run_as_person(bus, "redact", str(seq), "--as", "nova", "--json")

    for refused in (by_agent, by_script, in_a_name):
        assert refused.error["error"] == "not_allowed"
    assert bus.ok("show", str(seq), "--json").json["text"] == SECRET


def test_event_without_a_text_is_refused(bus: Home, luna: FakeHolder) -> None:
    (hello,) = bus.events("--type", "agent.hello")

    refused = run_as_person(bus, "redact", str(hello["seq"]))

    assert refused.status == 1
    assert "has no text to remove" in refused.err


def test_doctor_names_typed_lines_and_keys_that_look_like_secrets(bus: Home, luna: FakeHolder) -> None:
    def type_them() -> None:
        luna.answer(luna.offered(), evidence="Welcome\nPassword:")

    luna.ok("typed", text="now run the tests")
    luna.ok("typed", text="Tr0ub4dor&3")
    keys, _ = at_once(lambda: send_keys(bus, "correct horse\r", "--json"), type_them)
    harmless, _ = at_once(lambda: send_keys(bus, "y", "--json"), lambda: luna.answer(luna.offered()))
    (typed,) = [event["seq"] for event in bus.events("--type", "life") if "Tr0ub" in str(event["payload"])]
    check_output(harmless)

    output = bus.pal("doctor").out

    assert f"maybe secrets: #{typed}, #{keys.json['seq']}\n" in output
    assert f"pal redact {typed}; pal redact {keys.json['seq']}" in output
    redact(bus, typed)
    redact(bus, keys.json["seq"])
    assert "no typed line or key looks like a secret" in bus.pal("doctor").out


def kill_between_record_and_removal(home: Home, reference: object) -> None:
    """Kill client and daemon after the removal is recorded, while the bytes still exist.

    A program that reads the log meanwhile makes the removal wait at its last step.
    """
    client = home.spare_path()
    command = f"echo $$ >{shlex.quote(str(client))}; exec pal redact {reference}"
    with closing(sqlite3.connect(home.path / "log.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        script = f"sh -c {shlex.quote(command)}"
        person = threading.Thread(target=lambda: run_script_as_person(home, script))
        person.start()
        with closing(sqlite3.connect(home.path / "log.sqlite", isolation_level=None)) as watcher:
            wait_until(
                lambda: watcher.execute("SELECT 1 FROM events WHERE type = 'redacted'").fetchone() is not None
            )
        os.kill(int(client.read_text()), signal.SIGKILL)
        home.kill()
        person.join()


def test_removal_interrupted_by_a_crash_is_finished_at_the_next_start(bus: Home, luna: FakeHolder) -> None:
    large = f"{SECRET} " + "x" * 70_000
    path = bus.spare_path()
    path.write_text(large)
    seq = run_as_person(bus, "send", "@luna", "--json", "--file", str(path)).json["seq"]
    path.unlink()
    kill_between_record_and_removal(bus, seq)
    assert files_with(bus, SECRET)

    bus.ok("up")

    wait_until(lambda: files_with(bus, SECRET) == [])
    assert bus.ok("show", str(seq), "--json").json["text"] == "[redacted]"
    (record,) = bus.events("--type", "redacted")
    assert record["payload"]["event"] == seq


def test_task_is_also_removed_from_the_state_after_a_crash(bus: Home, nova: Shell) -> None:
    task = nova.pal("task", "create", SECRET, "--json").json
    kill_between_record_and_removal(bus, task["seq"])
    assert files_with(bus, SECRET)

    bus.ok("up")

    wait_until(lambda: files_with(bus, SECRET) == [])
    assert "[redacted]" in json.dumps(bus.ok("task", "list", "--json").lines)


def as_person(bus: Home, nova: Shell, *words: str) -> Result:
    return run_as_person(bus, *words)


def as_agent(bus: Home, nova: Shell, *words: str) -> Result:
    return nova.pal(*words)


def as_script(bus: Home, nova: Shell, *words: str) -> Result:
    return bus.pal(*words)


@pytest.mark.parametrize("act", [as_person, as_agent, as_script])
def test_repeat_of_a_redacted_message_returns_it_and_writes_nothing(
    bus: Home, luna: FakeHolder, nova: Shell, act: Callable[..., Result]
) -> None:
    words = ("send", "@luna", "--id", OWN_ID, "--json", "--", SECRET)
    seq = act(bus, nova, *words).json["seq"]
    redact(bus, seq)
    before = len(bus.events())

    again = check_output(act(bus, nova, *words)).json
    assert len(bus.events()) == before
    check_output(run_as_person(bus, "archive", "--before", str(seq + 1)))
    archived = check_output(act(bus, nova, *words)).json

    assert again["seq"] == archived["seq"] == seq
    assert files_with(bus, SECRET) == []
    other = act(bus, nova, "send", "--thread", "elsewhere", *words[1:])
    assert other.error["error"] == "id_taken"
    assert files_with(bus, SECRET) == []


def test_different_sender_with_the_same_id_sends_another_message(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    words = ("send", "@luna", "--id", OWN_ID, "--json", "--", SECRET)
    seq = nova.pal(*words).json["seq"]
    redact(bus, seq)

    other = run_as_person(bus, *words).json["seq"]

    assert other != seq
    redact(bus, other)
    assert files_with(bus, SECRET) == []


@pytest.mark.parametrize("own", [(), ("--id", OWN_ID)])
@pytest.mark.parametrize("bundle", [(), ("--title", f"title {SECRET}")])
def test_request_repeated_at_the_next_daemon_writes_nothing(
    bus: Home, luna: FakeHolder, own: tuple[str, ...], bundle: tuple[str, ...]
) -> None:
    def ask() -> object:
        with ThinWire(bus.path) as wire:
            wire.ask("send", "@luna", *own, *bundle, "--json", "--", SECRET, key=b"k" * 16)
            return json.loads(wire.answer()[1])["seq"]

    first = ask()
    for event in bus.events("--from", "script"):
        redact(bus, event["seq"])
    bus.kill()
    bus.ok("up")
    before = bus.events()

    assert ask() == first
    assert bus.events() == before
    assert files_with(bus, SECRET) == []


async def test_program_that_repeats_a_message_or_envelope_gets_the_redacted_one(
    bus: Home, luna: FakeHolder
) -> None:
    envelope = Draft(
        type="deploy.done", sender="orion", to=("luna",), id=OWN_ID[::-1], payload={"token": SECRET}
    )
    async with connect("orion", home=bus.path) as orion:
        sent = await orion.send("@luna", SECRET, id=OWN_ID)
        put = await orion.put(envelope)
        await asyncio.to_thread(redact, bus, sent.seq)
        await asyncio.to_thread(redact, bus, put.seq)

        await asyncio.to_thread(bus.kill)  # The repeats go to another daemon.

        assert (await orion.send("@luna", SECRET, id=OWN_ID)).seq == sent.seq
        assert (await orion.put(envelope)).seq == put.seq
        assert files_with(bus, SECRET) == []


def test_files_that_a_repair_has_kept_are_named(bus: Home, luna: FakeHolder) -> None:
    seq = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    bus.ok("down")
    kept = bus.path / "damaged-1"
    kept.mkdir(mode=0o700)
    (kept / "log.sqlite").write_bytes((bus.path / "log.sqlite").read_bytes())
    bus.ok("up")

    done = redact(bus, seq)

    assert done["kept"] == [str(kept)]
    assert files_with(bus, SECRET) == ["damaged-1/log.sqlite"]
    result = run_as_person(bus, "redact", str(seq))
    assert result.out == f"already redacted: #{seq}\n"
    assert f"{kept} contains the log from before a repair" in result.err


def test_two_simultaneous_redactions_are_both_told_the_truth(bus: Home, luna: FakeHolder) -> None:
    seq = bus.ok("send", "@luna", "--json", "--", SECRET).json["seq"]

    both = f"pal redact {seq} & pal redact {seq}; wait"
    result = run_script_as_person(bus, both)

    (record,) = bus.events("--type", "redacted")
    output = sorted(line for line in result.out.splitlines() if line)
    assert output == [
        f"already redacted: #{seq}",
        f"removed the text of #{seq}; recorded as #{record['seq']}",
    ], result
    assert "Traceback" not in (bus.path / "daemon.log").read_text()


def test_second_redaction_of_the_same_event_writes_nothing(bus: Home, luna: FakeHolder) -> None:
    seq = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    redact(bus, seq)
    before = bus.events()

    again = run_as_person(bus, "redact", str(seq))
    in_json = redact(bus, seq)

    assert (again.status, again.out) == (0, f"already redacted: #{seq}\n")
    assert in_json["event"] is None
    assert bus.events() == before


def break_first_line(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:20] + b"\xff" * 20 + content[40:])


@pytest.mark.parametrize("harm", [Path.unlink, break_first_line])
def test_unreadable_target_of_an_unfinished_redaction_stops_nothing_else(
    bus: Home, luna: FakeHolder, harm: Callable[[Path], None]
) -> None:
    bus.ok("send", "@luna", "--", "first")
    target = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    other = run_as_person(bus, "send", "@luna", "--json", "--", "hunter3-batterystaple").json["seq"]
    check_output(run_as_person(bus, "archive", "--before", str(target + 1)))
    kill_between_record_and_removal(bus, target)
    (file,) = (bus.path / "archive").glob("*.jsonl")  # the kill may leave an unfinished file too
    content = file.read_bytes()
    text = content.decode().splitlines()[-1]
    file.write_text(text + "\n")  # Only the target is in it, and its name stays.
    complete = file.read_bytes()
    harm(file)

    bus.ok("up")
    redacted = run_as_person(bus, "redact", str(other))
    archived = run_as_person(bus, "archive", "--before", str(other + 1))
    in_json = check_output(run_as_person(bus, "archive", "--before", "1", "--json")).json

    for result in (redacted, archived):
        assert result.status == 0, result
        assert f"the text of #{target} is not removed yet: " in result.err
        assert "pal doctor --repair" in result.err
    assert in_json["unredacted"] == [target]
    assert f"the text of #{target} is not removed yet" in (bus.path / "daemon.log").read_text()
    assert files_with(bus, "hunter3-batterystaple") == []
    file.write_bytes(complete)
    bus.ok("down")
    bus.ok("up")
    wait_until(lambda: files_with(bus, SECRET) == [])
    in_json = check_output(run_as_person(bus, "archive", "--before", "1", "--json")).json
    assert in_json["unredacted"] == []


def test_text_next_to_a_damaged_line_of_an_archive_is_removed(bus: Home, luna: FakeHolder) -> None:
    bus.ok("send", "@luna", "--", "first")
    seq = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    check_output(run_as_person(bus, "archive", "--before", str(seq + 1)))
    (file,) = (bus.path / "archive").iterdir()
    break_first_line(file)

    done = check_output(run_as_person(bus, "redact", str(seq)))

    assert f"removed the text of #{seq}" in done.out
    assert files_with(bus, SECRET) == []


def test_bus_that_stops_during_a_redaction_ends_without_a_traceback(bus: Home, luna: FakeHolder) -> None:
    seq = run_as_person(bus, "send", "@luna", "--json", "--", SECRET).json["seq"]
    with closing(sqlite3.connect(bus.path / "log.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        person = threading.Thread(target=lambda: run_as_person(bus, "redact", str(seq)))
        person.start()
        with closing(sqlite3.connect(bus.path / "log.sqlite", isolation_level=None)) as watcher:
            wait_until(
                lambda: watcher.execute("SELECT 1 FROM events WHERE type = 'redacted'").fetchone() is not None
            )
        bus.ok("down")
        person.join()

    assert "Traceback" not in (bus.path / "daemon.log").read_text()
    assert "ValueError" not in (bus.path / "daemon.log").read_text()
    bus.ok("up")
    wait_until(lambda: files_with(bus, SECRET) == [])
