"""Fixtures of the tests of the IRC door."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.doors.irc.door_stage import IrcStage, opened_irc


@pytest.fixture
async def irc(tmp_path: Path) -> AsyncIterator[IrcStage]:
    """An open door, without a limit of lines."""
    async with opened_irc(tmp_path) as stage:
        yield stage
