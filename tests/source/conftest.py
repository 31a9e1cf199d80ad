"""One bus per example, and a shared bus for the short examples of a module."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, new_home
from tests.source.agents import Pair, hear_texts, meet


@pytest.fixture
def bus() -> Iterator[Home]:
    """A home with a running daemon and no agents."""
    with new_home() as home:
        home.start_daemon()
        yield home


@pytest.fixture(scope="module")
def shared_bus() -> Iterator[Home]:
    """A home with a running daemon, shared by a module."""
    with new_home() as home:
        home.start_daemon()
        yield home


@pytest.fixture(scope="module")
def friends(shared_bus: Home) -> Pair:
    """Luna and nova, shared by a module."""
    luna, nova = meet(shared_bus, "luna", "nova")
    return luna, nova


@pytest.fixture
def pair(friends: Pair) -> Iterator[Pair]:
    """Luna and nova, without messages."""
    yield friends

    for shell in friends:
        hear_texts(shell)
