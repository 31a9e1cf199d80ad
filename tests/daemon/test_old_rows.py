"""A home of an older version: its state is built again at the first start, once."""

import sqlite3
from contextlib import closing

from tests.daemon.stage import Home, run_as_person

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
