"""Buses with the page, for the tests of a file."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home
from tests.doors.web.client import PageClient, bus_with_page


@pytest.fixture(scope="module")
def bus() -> Iterator[Home]:
    """A bus whose HTTP door is open."""
    with bus_with_page() as home:
        yield home


@pytest.fixture(scope="module")
def signed_in(bus: Home) -> PageClient:
    """A client of the page that is signed in, for all tests of a file."""
    client = PageClient(bus)
    assert client.sign_in().status_code == 200
    return client
