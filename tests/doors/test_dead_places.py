"""Folders whose holder was killed."""

import os
from pathlib import Path

from tests.fakes import open_memory, opened_bus

from palaver.doors.dead_places import DeadPlaces
from palaver.model.request import Leave

DEAD = 2**22 + 1
"""No process has such a number."""


def place(home: Path, name: str, holder: str | None) -> Path:
    folder = home / "agents" / "native" / name
    folder.mkdir(parents=True)
    (folder / "server.json").write_text("{}")
    if holder is not None:
        (folder / "holder").write_text(holder)
    return folder


async def test_only_what_a_dead_holder_left_goes(tmp_path: Path) -> None:
    dead = place(tmp_path, "opencode-1", str(DEAD))
    kept = [
        place(tmp_path, "opencode-2", str(os.getpid())),
        place(tmp_path, "opencode-3", None),
        place(tmp_path, "opencode-4", "no number"),
    ]

    async with opened_bus(open_memory, tmp_path) as bus:
        DeadPlaces(tmp_path, bus.log)

    assert not dead.exists()
    assert all(folder.exists() for folder in kept)


async def test_it_is_looked_at_again_when_an_agent_has_gone(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        DeadPlaces(tmp_path, bus.log)
        luna = await bus.join("luna")
        dead = place(tmp_path, "opencode-1", str(DEAD))

        await bus.broker.submit(luna, Leave())

    assert not dead.exists()
