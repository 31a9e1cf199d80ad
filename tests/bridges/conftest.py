"""Close what a test has opened."""

from collections.abc import Iterator

import pytest
from tests.bridges.stage import close_all


@pytest.fixture(autouse=True)
def _closed_connections() -> Iterator[None]:
    yield
    close_all()
