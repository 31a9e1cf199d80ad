"""Homes with a real daemon, which ends with its test, and homes with a fake daemon that the test controls."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.client.bus import Bus
from tests.client.fake import FakeDaemon
from tests.daemon_log import check_daemon_log
from tests.forked_daemons import fork_daemon
from tests.processes import end_processes_of


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield an empty home under a short path."""
    directory = Path(tempfile.mkdtemp(prefix="pal-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)  # an ending process may still write there


@pytest.fixture
def bus(home: Path) -> Iterator[Bus]:
    """Yield a home with a running daemon."""
    fork_daemon(home, {"PATH": os.environ["PATH"], "PALAVER_HOME": str(home)})
    yield Bus(home)
    end_processes_of(home)
    check_daemon_log(home)


@pytest.fixture
def idle_bus(home: Path) -> Iterator[Bus]:
    """Yield a home whose daemon is started by the first client."""
    yield Bus(home)
    end_processes_of(home)
    check_daemon_log(home)


@pytest.fixture
async def fake(home: Path) -> AsyncIterator[FakeDaemon]:
    daemon = FakeDaemon(home)
    await daemon.open()
    yield daemon
    await daemon.close()
