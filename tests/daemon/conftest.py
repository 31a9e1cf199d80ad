"""Fixtures that create a home for each test."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, new_home


@pytest.fixture
def home() -> Iterator[Home]:
    """An empty home without a daemon."""
    with new_home() as made:
        yield made


@pytest.fixture(scope="module")
def shared_bus() -> Iterator[Home]:
    """A home with a running daemon for all tests of a file that change nothing in it."""
    with new_home() as made:
        made.start_daemon()
        yield made


@pytest.fixture
def bus(home: Home) -> Home:
    """A home with a running daemon."""
    home.start_daemon()
    return home
