"""Exit reports that are read while their agent comes back."""

import asyncio
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.fakes import HUMAN, OpenLog, SlowLog, opened_bus, seat
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
        services = SimpleNamespace(
            broker=bus.broker, delivery=bus.delivery, daemon=SimpleNamespace(home=tmp_path)
        )

        logs[0].hold()
        resumed = asyncio.ensure_future(
            bus.broker.submit(HUMAN, Join(name="luna", seat=seat(8), holder=NEW, is_resumed=True))
        )
        await logs[0].next_held()
        reading = asyncio.ensure_future(take_up_reports(cast("Services", services)))
        await logs[0].next_held()
        logs[0].release()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(resumed, reading)

        luna = bus.agent("luna")
        assert (luna.left, luna.seat) == (False, seat(8))
