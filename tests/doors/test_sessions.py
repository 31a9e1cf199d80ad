"""Finding the agent that owns a harness session."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.fakes import Bus, OpenLog, opened_bus, seat

from palaver.services.queries import Queries
from palaver.services.services import Services
from palaver.services.views import only_session


@pytest.fixture
async def bus(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_log, tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("among", "found"),
    [
        ((), ""),
        (("unknown",), ""),
        (("s1",), "s1"),
        (("unknown", "s1"), "s1"),
        (("s1", "s2"), ""),
        (("other",), ""),
    ],
)
async def test_session_is_found_when_only_one_agent_had_any_of_them(
    bus: Bus, among: tuple[str, ...], found: str
) -> None:
    await bus.join("luna", harness="claude", seat=seat(1), session="s1")
    await bus.join("nova", harness="claude", seat=seat(2), session="s2")
    await bus.join("kira", harness="codex", seat=seat(3), session="other")
    services = cast("Services", SimpleNamespace(queries=Queries(bus.log), broker=bus.broker))

    assert only_session(services, "claude", among) == found
