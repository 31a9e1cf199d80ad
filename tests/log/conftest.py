"""A SQLite log in its own directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.log.logs import fold

from palaver.clock import SystemClock
from palaver.log.sqlite import SqliteLog


@pytest.fixture
async def sqlite_log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())
    yield log
    await log.close()
