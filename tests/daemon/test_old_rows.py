"""A home of an older version: its state is built again at the first start, once."""

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from tests.daemon.stage import Home, run_as_person, wait_until
from tests.limits import LIMIT_S

from palaver.log.storage import FILE_NAME


def make_old(home: Home) -> None:
    """Make the log of a stopped bus one that the version before conversations wrote."""
    with closing(sqlite3.connect(home.path / FILE_NAME)) as connection, connection:
        connection.execute("DELETE FROM state WHERE tbl IN ('talk', 'talk_order', 'talk_open', 'attention')")
        connection.execute("DELETE FROM meta WHERE key = 'fold'")
        connection.execute("PRAGMA user_version = 8")


def count_rows(home: Home) -> dict[str, int]:
    with closing(sqlite3.connect(home.path / FILE_NAME)) as connection:
        return dict(connection.execute("SELECT tbl, count(*) FROM state GROUP BY tbl").fetchall())


def rebuilds(home: Home) -> list[str]:
    lines = (home.path / "daemon.log").read_text().splitlines()
    return [line for line in lines if "built again" in line]


def test_state_of_an_older_version_is_built_again_at_the_first_start(bus: Home) -> None:
    sent = bus.ok("send", "@human", "--intent", "request", "--json", "--", "may I?").json["seq"]
    bus.ok("down")
    rows = count_rows(bus)
    make_old(bus)
    assert count_rows(bus) != rows

    for _ in range(2):
        bus.ok("up")
        bus.ok("down")

    assert len(rebuilds(bus)) == 1
    assert f"the state was built again from {sent} events" in rebuilds(bus)[0]
    assert {table: count_rows(bus)[table] for table in rows} == rows
    bus.ok("up")
    assert f"#{sent}" in run_as_person(bus, "pending").out


MANY = 60_000


def make_long(home: Home) -> None:
    """Add events of another program to the log of a stopped bus, so that an upgrade takes a while."""
    with closing(sqlite3.connect(home.path / FILE_NAME)) as connection, connection:
        connection.executemany(
            "INSERT INTO events (type, id, sender, payload, ts, device) VALUES ('x', ?, 'a', '{}', 1, 'X')",
            ((f"X{number}",) for number in range(MANY)),
        )


@contextmanager
def paused_upgrade(home: Home) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start an old bus, and stop its daemon in the middle of the upgrade. Yield the client and the daemon."""
    mark = home.path / "upgrading"
    first = home.start("up")
    wait_until(mark.exists)
    pid = int(mark.read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield first, pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_all_clients_wait_for_an_upgrade_and_lose_nothing(bus: Home) -> None:
    bus.ok("down")
    make_old(bus)
    make_long(bus)

    with paused_upgrade(bus) as (first, _):
        second = bus.start("send", "@human", "--", "sent during the upgrade")
        assert second.stderr is not None
        line = second.stderr.readline().decode()
        first.kill()  # The client that started the daemon gives up, and no other one does.
        first.communicate()
        hook = bus.pal("hook", "claude", "Stop", content=b"{}")
    out, _ = second.communicate(timeout=LIMIT_S)

    assert re.fullmatch(r"pal: the bus is upgrading its log \(\d+ %\); waiting up to 10 minutes\n", line)
    assert (second.returncode, b"sent #" in out) == (0, True)
    assert (hook.status, hook.out, hook.err) == (0, "", "")
    assert bus.texts() == ["sent during the upgrade"]
    assert not (bus.path / "upgrading").exists()
    assert len(rebuilds(bus)) == 1


def test_upgrade_can_be_stopped_and_begins_again(bus: Home) -> None:
    bus.ok("down")
    make_old(bus)
    make_long(bus)

    with paused_upgrade(bus) as (first, pid):
        stopping = bus.start("down")
        wait_until((bus.path / "down").exists)
        os.kill(pid, signal.SIGCONT)
        out, _ = stopping.communicate(timeout=LIMIT_S)
        first.communicate(timeout=LIMIT_S)
    bus.ok("up")

    assert (stopping.returncode, b"the bus is stopped" in out) == (0, True)
    assert "the next start does it" in (bus.path / "daemon.log").read_text()
    assert len(rebuilds(bus)) == 2


def test_bus_starts_with_the_old_state_if_it_cannot_be_built_again(bus: Home) -> None:
    for number in range(4):
        bus.ok("send", "@human", "--", f"message {number}")
    assert run_as_person(bus, "archive", "--before", "3").status == 0
    bus.ok("down")
    make_old(bus)
    (archive,) = (bus.path / "archive").iterdir()
    archive.rename(bus.path / "away")

    bus.ok("up")
    bus.ok("send", "@human", "--", "still works")

    assert "the state could not be built again" in (bus.path / "daemon.log").read_text()
    bus.ok("down")
    (bus.path / "away").rename(archive)
    bus.ok("up")
    assert len(rebuilds(bus)) == 2
