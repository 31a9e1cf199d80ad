"""Homes with a real daemon, which always ends with its test, and one whose every word a test says itself."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.client.bus import Bus
from tests.client.fake import FakeDaemon
from tests.daemon_log import check_daemon_log


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home under a short path."""
    directory = Path(tempfile.mkdtemp(prefix="pal-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)  # one who is just ending may still write there


@pytest.fixture
def bus(home: Path) -> Iterator[Bus]:
    """A home whose daemon is started by the first who connects."""
    made = Bus(home)
    yield made
    made.kill()
    check_daemon_log(home)


@pytest.fixture
async def fake(home: Path) -> AsyncIterator[FakeDaemon]:
    daemon = FakeDaemon(home)
    await daemon.open()
    yield daemon
    await daemon.close()
