"""A bus on each log engine: the broker's guarantees do not depend on the storage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import Bus, OpenLog, check_payloads, opened_bus


@pytest.fixture
async def bus(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_log, tmp_path) as made:
        yield made
        await check_payloads(made.log)
