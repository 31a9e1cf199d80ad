"""A bus on each log engine: the guarantees of delivery do not depend on the storage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import Bus, OpenLog, opened_bus


@pytest.fixture
async def bus(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_log, tmp_path) as made:
        yield made
