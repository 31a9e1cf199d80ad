"""Fixtures with an open IRC door."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home
from tests.irc.stage import irc_bus


@pytest.fixture
def bus() -> Iterator[Home]:
    """A home with a running daemon, an open IRC door, and guests that may talk."""
    with irc_bus() as home:
        yield home
