"""Every log engine passes the same contract suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.log.contract import *  # noqa: F403 - the suite itself
from tests.log.contract_archiving import *  # noqa: F403
from tests.log.contract_following import *  # noqa: F403
from tests.log.contract_reading import *  # noqa: F403
from tests.log.contract_redaction import *  # noqa: F403
from tests.log.logs import AtOnce, Engine, fold

from palaver.clock import SystemClock
from palaver.log.api import Log
from palaver.log.memory import MemoryLog
from palaver.log.sqlite import SqliteLog


async def open_sqlite(directory: Path) -> Log:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


async def open_sqlite_at_once(directory: Path) -> Log:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock(), pace=AtOnce())


async def open_memory(directory: Path) -> Log:
    return MemoryLog(apply=fold)


@pytest.fixture(
    scope="session",
    params=[open_sqlite, open_sqlite_at_once, open_memory],
    ids=["sqlite", "at once", "memory"],
)
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.param
    return made


@pytest.fixture
async def log(engine: Engine, tmp_path: Path) -> AsyncIterator[Log]:
    made = await engine(tmp_path)
    yield made
    await made.close()
