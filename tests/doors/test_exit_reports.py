"""Exit reports: which are taken up, and which stay for the next start."""

import asyncio
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.fakes import HUMAN, Bus, OpenLog, SlowLog, opened_bus, seat
from tests.limits import LIMIT_S

from palaver.doors.lines_holders import take_up_reports
from palaver.holder.agent import write_report
from palaver.log.api import Log
from palaver.protocol.events import ExitReport
from palaver.protocol.requests import Join
from palaver.services.services import Services

SECRET = "s" * 32
OLD, NEW = (hashlib.sha256(secret.encode()).hexdigest() for secret in (SECRET, "another"))


async def test_report_about_an_earlier_process_does_not_end_a_resumed_agent(
    open_log: OpenLog, tmp_path: Path
) -> None:
    logs: list[SlowLog] = []

    async def open_slow(directory: Path) -> Log:
        logs.append(SlowLog(await open_log(directory)))
        return cast("Log", logs[-1])

    async with opened_bus(open_slow, tmp_path) as bus:
        await bus.join("luna", seat=seat(7), holder=OLD, is_here=False)
        (tmp_path / "agents").mkdir()
        write_report(str(tmp_path), ExitReport(name="luna", secret=SECRET, reason="exited with 1"))
        services = _services(bus, tmp_path)

        logs[0].hold()
        resumed = asyncio.ensure_future(
            bus.broker.submit(HUMAN, Join(name="luna", seat=seat(8), holder=NEW, is_resumed=True))
        )
        await logs[0].next_held()
        reading = asyncio.ensure_future(take_up_reports(services))
        await logs[0].next_held()
        logs[0].release()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(resumed, reading)

        luna = bus.agent("luna")
        assert (luna.left, luna.seat) == (False, seat(8))


async def test_report_that_cannot_be_read_now_stays_until_the_next_start(
    open_log: OpenLog, tmp_path: Path
) -> None:
    async with opened_bus(open_log, tmp_path) as bus:
        await bus.join("luna", seat=seat(7), holder=OLD, is_here=False)
        (tmp_path / "agents").mkdir()
        report = write_report(str(tmp_path), ExitReport(name="luna", secret=SECRET, reason="exited with 1"))
        content = tmp_path / "content"
        report.rename(content)
        report.symlink_to(report)  # Reading it fails with an OSError: too many links.

        await take_up_reports(_services(bus, tmp_path))
        assert not bus.agent("luna").left
        assert report.is_symlink()

        content.replace(report)
        await take_up_reports(_services(bus, tmp_path))
        assert bus.agent("luna").left
        assert not report.exists()


@pytest.mark.parametrize("content", [b"{", b'{"name":"\xff"}', b'{"x":' + b"[" * 100_000])
async def test_invalid_report_is_removed_and_hides_no_report(
    open_log: OpenLog, tmp_path: Path, content: bytes
) -> None:
    async with opened_bus(open_log, tmp_path) as bus:
        await bus.join("luna", seat=seat(7), holder=OLD, is_here=False)
        (tmp_path / "agents").mkdir()
        invalid = tmp_path / "agents" / "a.report.json"
        invalid.write_bytes(content)
        write_report(str(tmp_path), ExitReport(name="luna", secret=SECRET, reason="exited with 1"))

        await take_up_reports(_services(bus, tmp_path))

        assert bus.agent("luna").left
        assert not invalid.exists()


async def test_folder_that_is_named_like_a_report_hides_no_report(open_log: OpenLog, tmp_path: Path) -> None:
    async with opened_bus(open_log, tmp_path) as bus:
        await bus.join("luna", seat=seat(7), holder=OLD, is_here=False)
        (tmp_path / "agents" / "a.report.json").mkdir(parents=True)
        write_report(str(tmp_path), ExitReport(name="luna", secret=SECRET, reason="exited with 1"))

        await take_up_reports(_services(bus, tmp_path))

        assert bus.agent("luna").left


def _services(bus: Bus, home: Path) -> Services:
    """Return the services that reports need."""
    parts = SimpleNamespace(broker=bus.broker, delivery=bus.delivery, daemon=SimpleNamespace(home=home))
    return cast("Services", parts)
