"""Every id has its one test, and every test its id."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from tests.flows.behaviours import BEHAVIOURS
from tests.flows.room_behaviours import ROOM_BEHAVIOURS

ALL = {**BEHAVIOURS, **ROOM_BEHAVIOURS}


def shown() -> Iterator[tuple[str, str | None]]:
    """Every test of the flows, with the behaviour it shows."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path != Path(__file__):
            module = importlib.import_module(f"tests.flows.{path.stem}")
            for name, found in vars(module).items():
                if name.startswith("test_"):
                    yield f"{path.name}::{name}", getattr(found, "behaviour", None)


def test_every_test_shows_a_behaviour_that_is_listed() -> None:
    without = [name for name, id_ in shown() if id_ not in ALL]

    assert without == []


def test_every_behaviour_is_shown_by_one_test() -> None:
    ids = [id_ for _, id_ in shown()]

    assert sorted(filter(None, ids)) == sorted(ALL)
