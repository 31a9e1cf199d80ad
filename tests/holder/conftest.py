"""The stage fixture of the agent tests."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.holder.stage import Stage, new_stage
from tests.processes import end_processes_of


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    """Yield a home under a short path, with its fake daemon."""
    folder = Path(tempfile.mkdtemp(prefix="pal-agents-"))
    try:
        async with new_stage(folder / "home") as made:
            yield made
    finally:
        # Also a real daemon that a holder has started while the fake one was closed.
        await asyncio.to_thread(end_processes_of, folder)
        shutil.rmtree(folder, ignore_errors=True)
