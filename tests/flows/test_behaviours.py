"""Every id has exactly one test, and every test has an id."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from tests.flows.behaviours import BEHAVIOURS
from tests.flows.room_behaviours import ROOM_BEHAVIOURS

ALL = {**BEHAVIOURS, **ROOM_BEHAVIOURS}


def shown() -> Iterator[tuple[str, str | None]]:
    """Yield every test of the flows with its behaviour."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        # The day with real agents goes through many behaviours, which have their own tests.
        if path.name not in (Path(__file__).name, "test_day.py"):
            module = importlib.import_module(f"tests.flows.{path.stem}")
            for name, found in vars(module).items():
                if name.startswith("test_"):
                    yield f"{path.name}::{name}", getattr(found, "behaviour", None)


def test_every_test_covers_a_listed_behaviour() -> None:
    without = [name for name, id_ in shown() if id_ not in ALL]

    assert without == []


def test_every_behaviour_is_covered_by_one_test() -> None:
    ids = [id_ for _, id_ in shown()]

    assert sorted(filter(None, ids)) == sorted(ALL)
