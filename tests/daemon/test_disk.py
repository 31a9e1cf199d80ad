"""A full disk: a clear error, no damage, and writes continue when there is space again."""

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.stage import Home, Result, new_home, run_as_person, wait_until

from palaver.log.storage import FILE_NAME

SIZE_BYTES = 6 * 1024 * 1024
BODY = b"x" * 50_000
TRIES = 1000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def small() -> Iterator[Home]:
    """A home on its own small disk, with a running daemon."""
    with new_home() as home:
        home.path.mkdir(mode=0o700)
        options = ["-o", f"size={SIZE_BYTES},mode=0700"]
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(home.path)]
        mounted = subprocess.run(command, check=False, capture_output=True)
        if mounted.returncode:
            pytest.skip(f"no small disk can be mounted here: {mounted.stderr.decode().strip()}")
        try:
            home.ok("up")
            yield home
        finally:
            home.close()
            # A daemon that could not start may still be ending there.
            wait_until(lambda: not subprocess.run(["umount", home.path], check=False).returncode)


def fill(home: Home, body: bytes = BODY) -> tuple[list[int], Result]:
    """Send until the disk is full. Return the seqs of the stored messages and the first refusal."""
    seqs: list[int] = []
    for _ in range(TRIES):
        sent = home.pal("send", "--stdin", "--json", content=body)
        if sent.status:
            return seqs, sent
        seqs.append(sent.json["seq"])
    raise AssertionError("the disk was never full")


def test_full_disk_is_reported_as_an_error(small: Home) -> None:
    seqs, refused = fill(small)

    assert seqs
    assert refused.status == 1
    assert refused.error["error"] == "disk_full"
    assert small.pal("send", "--stdin", content=BODY).err.startswith("pal: ")


def test_everything_stored_before_the_disk_was_full_is_intact(small: Home) -> None:
    seqs, _ = fill(small)

    stored = [event["seq"] for event in small.events("--type", "message")]

    assert stored == seqs
    assert check(small) == "ok"


def test_writes_continue_when_there_is_space_again(small: Home) -> None:
    filler = small.path / "filler"
    filler.write_bytes(b"\0" * (SIZE_BYTES // 4))
    seqs, _ = fill(small)

    filler.unlink()
    sent = small.ok("send", "--json", "--", "there is disk space").json

    assert sent["seq"] > seqs[-1]
    assert small.texts()[-1] == "there is disk space"
    assert check(small) == "ok"


def test_daemon_killed_on_a_full_disk_loses_nothing(small: Home) -> None:
    filler = small.path / "filler"
    filler.write_bytes(b"\0" * (SIZE_BYTES // 4))
    seqs, _ = fill(small)
    small.kill()

    filler.unlink()
    stored = [event["seq"] for event in small.events("--type", "message")]

    assert stored == seqs
    assert check(small) == "ok"


def test_daemon_restarted_on_a_completely_full_disk_serves_reads(small: Home) -> None:
    nova = small.shell()
    nova.ok("join", "--name", "nova")
    small.ok("send", "@nova", "--", "hello")
    filler = small.path / "filler"
    filler.write_bytes(b"\0" * (SIZE_BYTES * 2 // 3))
    seqs, _ = fill(small)
    stuffing = stuff(small.path)
    seqs += fill(small, b"x")[0]

    refused = restart_until_full(small)
    starts_before = len(starts_of(small))
    stored = [event["seq"] for event in small.events("--type", "message")]
    agents = small.ok("list", "--json").out
    shown = small.ok("show", str(seqs[0])).out
    mail = nova.ok("recv", "--peek", "--limit", "1", "--json").lines

    assert stored[1:] == seqs
    assert "nova" in agents
    assert "xxx" in shown
    assert [message["text"] for message in mail] == ["hello"]
    assert (refused.status, refused.error["error"]) == (1, "disk_full")
    assert "only reading is possible until there is disk space" in refused.error["message"]

    stuffing.unlink()
    filler.unlink()
    wait_until(lambda: small.pal("send", "--", "room").status == 0)

    assert small.texts()[-1] == "room"
    starts = starts_of(small)
    assert [start["payload"]["pid"] for start in starts[starts_before:]] == [small.pid]
    assert starts[-1]["seq"] > seqs[-1]
    assert check(small) == "ok"


def test_daemon_that_cannot_create_its_log_on_a_full_disk_reports_it(small: Home) -> None:
    small.ok("down")
    for path in small.path.glob(f"{FILE_NAME}*"):
        path.unlink()
    stuff(small.path)

    refused = small.pal("up")

    assert refused.status == 1
    assert refused.err.startswith("pal: the daemon did not start: ")


def restart_until_full(home: Home) -> Result:
    """Kill and start the daemon until not even its start can be stored. Return the refusal of a message.

    A start needs less space than a message, so it may still fit when a message does not.
    """
    for _ in range(TRIES):
        home.kill()
        home.ok("up")
        refused = home.pal("send", "--json", "--", "no room")
        if "only reading is possible" in refused.err:
            return refused
    raise AssertionError("the start could always be stored")


def starts_of(home: Home) -> list[dict[str, Any]]:
    """Return the stored starts of the daemon."""
    return [event for event in home.events("--type", "life") if "daemon_started" in str(event)]


def stuff(directory: Path) -> Path:
    """Write until not one more byte fits. Return the file that uses the space."""
    stuffing = directory / "stuffing"
    with stuffing.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    return stuffing


def check(home: Home) -> str:
    """Return the result of SQLite's own integrity check."""
    connection = sqlite3.connect(f"file:{home.path / FILE_NAME}?mode=ro", uri=True)
    try:
        verdict: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
    return verdict


def test_upkeep_on_a_full_disk_says_so_and_loses_nothing(small: Home) -> None:
    seqs, _ = fill(small)
    before = {path.name for path in small.path.iterdir()}

    backup = small.pal("backup", str(small.path / "palaver.tar"))
    archive = run_as_person(small, "archive", "--before", str(seqs[-1]))
    redact = run_as_person(small, "redact", str(seqs[0]))
    small.ok("down")
    repair = small.pal("doctor", "--repair")
    left = {path.name for path in small.path.iterdir()} - before
    small.ok("up")

    for refused in (backup, archive, redact, repair):
        assert refused.status == 1
        assert "no disk space" in refused.err
    for refused in (backup, repair):
        assert "free some space and run this again" in refused.err
    assert left <= {"archive", "down"}
    assert [event["seq"] for event in small.events("--type", "message")] == seqs
