"""The context of every handler of the broker, and the caller that stands for the bus itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from palaver.clock import Clock
from palaver.log.api import Log
from palaver.model.agent import Caller, Standing
from palaver.model.ids import UlidSource
from palaver.model.message import SYSTEM
from palaver.rooms.attendance import Attendance, Unattended
from palaver.rooms.policy import Policy
from palaver.routing.brakes import Brakes
from palaver.routing.directory import Directory

SYSTEM_CALLER: Final = Caller(name="[pal-events]", standing=Standing.HUMAN, kind=SYSTEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The log to write to, and what a decision may read."""

    log: Log
    directory: Directory
    clock: Clock
    ids: UlidSource
    is_present: Callable[[str], bool]
    draw: Callable[[], int]
    brakes: Brakes = field(default_factory=lambda: Brakes(limit_hops=0, limit_a_minute=0))
    attendance: Attendance = field(default_factory=lambda: Unattended(lambda name: False))
    """Which agents are present in rooms, and which wait."""
    policy: Policy = field(default_factory=Policy)
    """The limits of rooms."""
