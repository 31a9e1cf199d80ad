"""Every engine passes the one contract suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palaver.clock import SystemClock
from palaver.log.api import Log
from palaver.log.memory import MemoryLog
from palaver.log.sqlite import SqliteLog

pytest.register_assert_rewrite(
    "tests.log.logs", "tests.log.contract", "tests.log.contract_reading", "tests.log.contract_following"
)

from tests.log.contract import *  # noqa: E402, F403 - the suite itself
from tests.log.contract_following import *  # noqa: E402, F403
from tests.log.contract_reading import *  # noqa: E402, F403
from tests.log.logs import Engine, fold  # noqa: E402


async def open_sqlite(directory: Path) -> Log:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


async def open_memory(directory: Path) -> Log:
    return MemoryLog(apply=fold)


@pytest.fixture(scope="session", params=[open_sqlite, open_memory], ids=["sqlite", "memory"])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.param
    return made


@pytest.fixture
async def log(engine: Engine, tmp_path: Path) -> AsyncIterator[Log]:
    made = await engine(tmp_path)
    yield made
    await made.close()
