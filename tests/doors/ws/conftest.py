"""Fixtures: a bus with its WebSocket open."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import new_home, write_settings
from tests.doors.ws.stage import Stage, opened_stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A new bus without agents."""
    with new_home() as home:
        home.path.mkdir(mode=0o700)
        write_settings(home, http="127.0.0.1:0")
        home.start_daemon()
        with opened_stage(home) as made:
            yield made
