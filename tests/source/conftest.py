"""A bus for each example, and one on which the short examples of a module follow each other."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, new_home
from tests.source.agents import Pair, hear_texts, meet


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


@pytest.fixture(scope="module")
def friends(shared_bus: Home) -> Pair:
    """Luna and nova, for a whole module."""
    luna, nova = meet(shared_bus, "luna", "nova")
    return luna, nova


@pytest.fixture
def pair(friends: Pair) -> Iterator[Pair]:
    """Luna and nova, with no mail."""
    yield friends

    for shell in friends:
        hear_texts(shell)
