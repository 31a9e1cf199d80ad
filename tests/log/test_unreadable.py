"""Rows that are not events: every reader skips them, and the rest of the log stays usable."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.log.logs import draft, fold, put, writes

from palaver.clock import SystemClock
from palaver.errors import StorageFailed
from palaver.log.sqlite import SqliteLog
from palaver.protocol.query import Query

Row = tuple[str, str, str | bytes, str | None, str | bytes]

BAD: dict[str, Row] = {
    "empty sender": ("type", "01", "", None, "{}"),
    "empty type": ("", "02", "luna", None, "{}"),
    "empty id": ("type", "", "luna", None, "{}"),
    "payload is no JSON": ("type", "03", "luna", None, "{"),
    "payload is no object": ("type", "04", "luna", None, "[]"),
    "recipients are no list": ("type", "05", "luna", "{}", "{}"),
    "payload is no UTF-8": ("type", "06", "luna", None, b'{"text":"\xee\xee"}'),
    "sender is no UTF-8": ("type", "07", b"l\xffna", None, "{}"),
}


def poison(directory: Path, *rows: Row, key: bytes | None = None) -> None:
    """Write rows that no commit would write into the file of a log."""
    with closing(sqlite3.connect(directory / "log.sqlite")) as connection, connection:
        connection.executemany(
            "INSERT INTO events (type, id, sender, recipients, payload, ts, device, request_key)"
            " VALUES (?, ?, CAST(? AS TEXT), ?, CAST(? AS TEXT), 1, 'TEST', ?)",
            [(*row, key) for row in rows],
        )


async def opened(directory: Path) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


@pytest.mark.parametrize("row", BAD.values(), ids=BAD)
async def test_every_reader_skips_a_row_that_is_not_an_event(tmp_path: Path, row: Row) -> None:
    log = await opened(tmp_path)
    first = await put(log, "before")
    await log.close()
    poison(tmp_path, row)
    log = await opened(tmp_path)
    last = await put(log, "after")

    assert await log.read(Query()) == [first, last]
    assert await log.read(Query(search="after")) == [last]
    assert log.event(first.seq + 1) is None
    assert await log.count_unreadable() == 1
    assert await log.rebuild() >= 2
    assert (await log.archive(last.seq + 1)).count == 2
    assert (await log.read_archived(Query())).events == [first, last]
    assert await log.check_archives() == 2
    assert await log.count_unreadable() == 1
    assert (await log.archive(last.seq + 1)).count == 0
    await log.close()


async def test_many_unreadable_rows_do_not_prevent_archiving(tmp_path: Path) -> None:
    await (await opened(tmp_path)).close()
    poison(tmp_path, *[("type", f"{number}", "", None, "{}") for number in range(300)])
    log = await opened(tmp_path)
    event = await put(log)

    assert (await log.archive(event.seq + 1)).count == 1
    assert await log.read(Query()) == []
    assert await log.count_unreadable() == 300
    await log.close()


async def test_repeat_of_an_unreadable_request_is_refused(tmp_path: Path) -> None:
    await (await opened(tmp_path)).close()
    poison(tmp_path, BAD["empty sender"], key=b"k" * 16)
    log = await opened(tmp_path)

    with pytest.raises(StorageFailed, match="cannot be read"):
        await log.commit(None, writes(draft()), request_key=b"k" * 16)
    assert await put(log)
    await log.close()
