"""What every handler of the broker is given."""

from collections.abc import Callable
from dataclasses import dataclass

from palaver.clock import Clock
from palaver.log.api import Log
from palaver.model.ids import UlidSource
from palaver.routing.directory import Directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The log to write to, and what a decision may look at."""

    log: Log
    directory: Directory
    clock: Clock
    ids: UlidSource
    is_present: Callable[[str], bool]
    draw: Callable[[], int]
