"""A bus for each example, and one that the examples of a module share where nothing is left behind."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, new_home


@pytest.fixture
def bus() -> Iterator[Home]:
    """A home in which the daemon runs, and nobody has joined."""
    with new_home() as home:
        home.ok("up")
        yield home


@pytest.fixture(scope="module")
def shared_bus() -> Iterator[Home]:
    """The same, for a whole module."""
    with new_home() as home:
        home.ok("up")
        yield home
