"""Power loss and full disks: acknowledged events stay, and the log continues."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.logs import all_rows, files_no_larger_than, fold, put

from palaver.clock import SystemClock
from palaver.errors import DiskFull
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query

ROOT = Path(__file__).parents[2]

CHILD = """
import asyncio, sys
from pathlib import Path
from palaver.clock import SystemClock
from palaver.log.sqlite import SqliteLog
from tests.log.logs import draft, fold, writes

async def main():
    log = await SqliteLog.open(Path(sys.argv[1]), apply=fold, clock=SystemClock())
    start = log.last()
    async def commit(number):
        text = "large " * 20_000 if number % 100 == 7 else "small"
        made = draft(text, id=f"{start}-{number}")
        commit = await log.commit(None, writes(made), request_key=made.id.encode())
        print(commit.event.seq, made.id, flush=True)
    number = 0
    while True:
        await asyncio.gather(*(commit(number + one) for one in range(number % 40 + 1)))
        number += number % 40 + 1

asyncio.run(main())
"""


async def open_log(directory: Path) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


def acknowledged_before_a_kill(directory: Path, lines: int) -> list[tuple[int, str]]:
    """Let a child commit continuously, kill it, and return the events that it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert child.stdout is not None
    read = [child.stdout.readline() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    # Lines in the pipe at its death were acknowledged too; the last may be incomplete.
    text = "".join(read) + child.stdout.read()
    child.stdout.close()
    child.wait()
    whole = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(int(seq), id_) for seq, id_ in whole]


async def fill(log: SqliteLog, text: str, written: list[Event]) -> None:
    for _ in range(1000):
        written.append(await put(log, text))


async def test_acknowledged_events_survive_a_kill(tmp_path: Path) -> None:
    for round_ in range(6):
        acknowledged = await asyncio.to_thread(acknowledged_before_a_kill, tmp_path, 40 + 37 * round_)

        connection = sqlite3.connect(tmp_path / FILE_NAME)
        checked = connection.execute("PRAGMA integrity_check").fetchall()
        connection.close()
        log = await open_log(tmp_path)
        for seq, id_ in acknowledged:
            event = log.event(seq)
            assert event is not None
            assert event.id == id_
            assert "missing_blob" not in event.payload
        grown = all_rows(log)
        await log.rebuild()
        assert checked == [("ok",)]
        assert all_rows(log) == grown
        await log.close()


async def test_commit_fails_on_a_full_disk_and_later_ones_succeed(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    first = await put(log)
    journal = (tmp_path / f"{FILE_NAME}-wal").stat().st_size

    with files_no_larger_than(journal + 4096):
        results = await asyncio.gather(*(put(log, "x" * 3000) for _ in range(50)), return_exceptions=True)
        with pytest.raises(DiskFull, match="no disk space"):
            await put(log, "x" * 30_000)
        with pytest.raises(DiskFull):
            await put(log, "x" * 90_000)
        assert log.event(first.seq) == first
    after = [await put(log, "room again") for _ in range(3)]

    assert any(isinstance(result, DiskFull) for result in results)
    written = [result for result in results if not isinstance(result, BaseException)]
    assert await log.read(Query()) == [first, *written, *after]
    assert log.rows.get("count", "message") == b"%d" % (4 + len(written))
    await log.close()


async def test_file_at_its_maximum_size_fails_without_damage(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    connection = log._writer._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 10}")

    with pytest.raises(DiskFull, match="full"):
        await fill(log, "x" * 3000, [])

    connection.execute(f"PRAGMA max_page_count = {pages + 10_000}")
    stored = log.last()
    assert (await put(log)).seq == stored + 1
    await log.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte. Only root may mount one."""
    directory = tmp_path / "disk"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(directory)]
    is_root = sys.platform == "linux" and os.geteuid() == 0
    if not is_root or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("A FULL DISK WAS NOT TESTED: mounting a small one needs root on Linux")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


async def test_full_disk_loses_nothing_and_free_space_fixes_it(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    log = await open_log(small_disk)
    written: list[Event] = []

    with pytest.raises(DiskFull):
        await fill(log, "x" * 2000, written)
    with pytest.raises(DiskFull):
        await put(log, "y" * 90_000)
    ballast.unlink()
    written.append(await put(log, "room again"))
    await log.close()

    log = await open_log(small_disk)
    assert await log.read(Query()) == written
    await log.close()


async def test_process_without_a_close_leaves_an_intact_log(tmp_path: Path) -> None:
    acknowledged = await asyncio.to_thread(acknowledged_before_a_kill, tmp_path, 1)

    log = await open_log(tmp_path)
    again = [await put(log, id=id_) for _, id_ in acknowledged[:5]]

    assert [event.seq for event in again] == [seq for seq, _ in acknowledged[:5]]
    await log.close()
