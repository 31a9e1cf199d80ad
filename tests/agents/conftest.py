"""A stage for each test."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.agents.stage import Stage, new_stage


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    """A home under a short path, with its daemon."""
    folder = Path(tempfile.mkdtemp(prefix="pal-agents-"))
    try:
        async with new_stage(folder / "home") as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
