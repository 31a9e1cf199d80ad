"""Bundles from one agent to another, with the real client and daemon."""

import hashlib
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Shell, run_as_person
from tests.daemon.wires import ThinWire


@pytest.fixture
def luna(bus: Home) -> Shell:
    """A shell that has joined as luna, in a directory with a file."""
    (directory_of(bus) / "app.py").write_text("x = 1\n")
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A shell that has joined as nova."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def directory_of(home: Home) -> Path:
    """Return the working directory of a home's shells."""
    return home.path.parent


def test_bundle_is_attached_to_a_message_and_read_by_the_recipient(
    bus: Home, luna: Shell, nova: Shell
) -> None:
    made = luna.ok("bundle", "create", "Review", "--files", "app.py", "--json").json
    luna.ok("send", "@nova", "--bundle", made["bundle_id"].upper(), "--", "look")
    (directory_of(bus) / "app.py").write_text("changed since")

    message = nova.ok("recv", "--json").json

    assert message["bundle_id"] == made["bundle_id"]
    assert nova.ok("bundle", "cat", message["bundle_id"], "app.py").out == "x = 1\n"
    assert nova.ok("bundle", "show", message["bundle_id"], "--json").json["files"][0]["path"] == "app.py"
    assert [line["title"] for line in nova.ok("bundle", "list", "--json").lines] == ["Review"]


def test_received_message_names_the_command_to_show_its_bundle(bus: Home, luna: Shell, nova: Shell) -> None:
    luna.ok("send", "@nova", "--title", "Review", "--", "look")

    received = nova.ok("recv").out

    (made,) = bus.events("--type", "bundle")
    assert received.endswith(
        f"luna → nova: look | (pal: #{made['seq'] + 1} comes with a bundle: "
        f"pal bundle show {made['payload']['bundle_id']})</pal>\n"
    )


def test_send_with_a_title_creates_the_bundle_before_the_message(bus: Home, luna: Shell, nova: Shell) -> None:
    luna.ok("send", "@nova", "--title", "Review", "--files", "app.py", "--", "look")

    message = nova.ok("recv", "--json").json

    (made,) = bus.events("--type", "bundle")
    assert message["bundle_id"] == made["payload"]["bundle_id"]
    assert made["seq"] < message["seq"]


def test_same_request_creates_one_bundle_and_one_message(bus: Home, nova: Shell) -> None:
    answers = []
    for _ in range(2):
        with ThinWire(bus.path) as wire:
            wire.ask("send", "@nova", "--title", "T", "--json", "--", "look", key=b"k" * 16)
            answers.append(wire.answer())

    assert answers[0] == answers[1]
    assert [event["type"] for event in bus.events("--from", "script")] == ["bundle", "message"]


def test_message_repeated_with_its_id_creates_no_second_bundle(bus: Home, nova: Shell) -> None:
    words = ("send", "@nova", "--id", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--title", "T", "--json", "--", "look")

    first, second = bus.ok(*words).json, bus.ok(*words).json

    assert (second["seq"], second["repeat"]) == (first["seq"], True)
    assert len(bus.events("--type", "bundle")) == 1


def test_repeat_does_not_add_a_bundle_to_a_message_sent_without_one(bus: Home, nova: Shell) -> None:
    words = ("send", "@nova", "--id", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--json")
    first = bus.ok(*words, "--", "look").json

    second = bus.ok(*words, "--title", "T", "--", "look").json

    assert (second["seq"], second["repeat"]) == (first["seq"], True)
    assert bus.events("--type", "bundle") == []


def test_bundle_survives_a_crash_of_the_daemon(bus: Home, luna: Shell) -> None:
    large = "y" * 200_000
    (directory_of(bus) / "large.txt").write_text(large)
    made = luna.ok("bundle", "create", "T", "--files", "large.txt", "--json").json

    bus.kill()

    assert luna.ok("bundle", "cat", made["bundle_id"], "large.txt").out == large


def headed(bundle_id: str, path: str, content: str) -> str:
    hash_ = hashlib.sha256(content.encode()).hexdigest()
    return f"==> {bundle_id} {path} ({len(content)} bytes, sha256 {hash_}) <==\n{content}"


def test_bundle_returns_original_bytes_parents_first_after_archiving(
    bus: Home, luna: Shell, nova: Shell
) -> None:
    (directory_of(bus) / "notes.txt").write_text("first\n")
    luna.ok("send", "@nova", "--", "what happened")
    parent = luna.ok("bundle", "create", "One", "--files", "app.py,notes.txt", "--json").json
    (directory_of(bus) / "app.py").write_text("x = 2\n")
    child = luna.ok(
        *("bundle", "create", "Two", "--files", "app.py", "--extends", parent["bundle_id"]),
        *("--events", str(parent["seq"] - 1), "--json"),
    ).json
    (directory_of(bus) / "app.py").write_text("changed since\n")
    (directory_of(bus) / "notes.txt").unlink()

    archived = run_as_person(bus, "archive", "--before", str(child["seq"] + 1))

    assert archived.out.startswith(f"archived {child['seq']} events, up to #{child['seq']}, in ")
    assert nova.ok("bundle", "cat", child["bundle_id"]).out == (
        headed(parent["bundle_id"], "app.py", "x = 1\n")
        + headed(parent["bundle_id"], "notes.txt", "first\n")
        + headed(child["bundle_id"], "app.py", "x = 2\n")
    )
    assert nova.ok("bundle", "cat", child["bundle_id"], "app.py").out == "x = 2\n"
    assert nova.ok("bundle", "show", child["bundle_id"]).out.endswith(" luna → @nova: what happened\n")


def test_request_is_recognised_after_its_events_are_archived(bus: Home, nova: Shell) -> None:
    answers = []
    for _ in range(2):
        with ThinWire(bus.path) as wire:
            wire.ask("send", "@nova", "--title", "T", "--json", "--", "look", key=b"k" * 16)
            answers.append(wire.answer())
        run_as_person(bus, "archive", "--before", "1000")

    assert answers[0] == answers[1]
    assert bus.ok("events", "--archived", "--json", "--type", "bundle").out.count("\n") == 1
    assert nova.ok("recv", "--json").out.count("\n") == 1


def test_archived_unread_mail_is_still_shown(bus: Home, luna: Shell, nova: Shell) -> None:
    for word in ("one", "two", "three"):
        luna.ok("send", "@nova", "--", word)
    first, second, _ = bus.events("--type", "message")
    run_as_person(bus, "archive", "--before", str(second["seq"] + 1))

    inbox = nova.ok("inbox", "--json").lines
    behind = nova.ok("recv", "--after", "0", "--json").lines
    some = nova.ok("recv", "--after", str(first["seq"]), "--limit", "1", "--json").lines
    taken = nova.ok("recv", "--json").lines

    assert [line["text"] for line in inbox] == ["one", "two", "three"]
    assert [line["text"] for line in behind] == ["one", "two", "three"]
    assert [line["text"] for line in some] == ["two"]
    assert [line["text"] for line in taken] == ["one", "two", "three"]


def test_doctor_reports_a_missing_archive_file(bus: Home, luna: Shell) -> None:
    made = luna.ok("bundle", "create", "T", "--files", "app.py", "--json").json
    run_as_person(bus, "archive", "--before", str(made["seq"] + 1))
    well = bus.ok("doctor").out
    (file,) = (bus.path / "archive").iterdir()
    file.rename(directory_of(bus) / "away")

    ill = bus.pal("doctor")
    shown = luna.pal("bundle", "cat", made["bundle_id"], "--json")

    assert f"ok   {made['seq']} archived events, all in their files\n" in well
    assert ill.status == 1
    assert f"look the archive {file} cannot be read" in ill.out
    assert shown.error["error"] == "storage_failed"
    assert str(file) in shown.error["message"]


def test_agent_cannot_bundle_a_file_from_outside_and_a_person_can(bus: Home, luna: Shell) -> None:
    refused = luna.pal("bundle", "create", "T", "--files", "/etc/hostname", "--json")

    allowed = run_as_person(bus, "bundle", "create", "T", "--files", "/etc/hostname", "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert allowed.json["files"][0]["path"] == "/etc/hostname"


def test_message_with_an_unknown_bundle_is_not_sent(bus: Home, luna: Shell, nova: Shell) -> None:
    refused = luna.pal("send", "@nova", "--bundle", "7f3q9x2m", "--json", "--", "look")

    assert (refused.status, refused.error["error"]) == (1, "not_found")
    assert bus.texts() == []


def test_list_of_events_shows_a_bundle_on_one_short_line(bus: Home, luna: Shell) -> None:
    luna.ok("bundle", "create", "T", "--files", "app.py")

    shown = bus.ok("events", "--type", "bundle").out

    assert shown.endswith(" T, 1 file\n")
