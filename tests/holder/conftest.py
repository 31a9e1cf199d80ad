"""The stage fixture of the agent tests."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.holder.stage import Stage, new_stage


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    """Yield a home under a short path, with its fake daemon."""
    folder = Path(tempfile.mkdtemp(prefix="pal-agents-"))
    try:
        async with new_stage(folder / "home") as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
