"""A home with a running daemon for each attack."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, new_home


@pytest.fixture
def home() -> Iterator[Home]:
    """An empty home without running processes."""
    with new_home() as made:
        yield made


@pytest.fixture
def bus(home: Home) -> Home:
    """A home with a running daemon."""
    home.start_daemon()
    return home
