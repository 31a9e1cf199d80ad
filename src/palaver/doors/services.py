"""The parts of the daemon that are passed to every door. Doors do not create any of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver.broker.broker import Broker
from palaver.clock import Clock
from palaver.config import Origin, Settings
from palaver.delivery.delivery import Delivery
from palaver.doors.argv.export_process import Exports
from palaver.doors.companions import CompanionBook
from palaver.doors.desk import Desk
from palaver.doors.holds import Holds
from palaver.doors.hooks.conversation import Conversations
from palaver.doors.http.server import HttpDoor
from palaver.doors.subagents import Subagents
from palaver.doors.tokens import TokenBook
from palaver.doors.transcripts import TranscriptBook
from palaver.links.attendance import AttendanceBook
from palaver.links.consumers import Consumers
from palaver.links.presence import Presence
from palaver.links.seats import SeatIndex
from palaver.links.tickets import Tickets
from palaver.log.api import Log

if TYPE_CHECKING:
    from palaver.doors.hooks.desk import HookDesk  # it imports modules that all doors import
    from palaver.doors.permissions import PermissionBook

DOWN: Final = "down"
REPLACED: Final = "replaced"
"""Reasons to end the daemon: stopped by the user, or replaced by a newer version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a running daemon, as doors see them."""

    home: Path
    settings: Settings
    origins: Mapping[str, Origin]
    """For each setting, the source of its value at the start."""
    clock: Clock
    log: Log
    broker: Broker
    delivery: Delivery
    holds: Holds
    conversations: Conversations
    hooks: "HookDesk"
    subagents: Subagents
    tickets: Tickets
    seats: SeatIndex
    presence: Presence
    attendance: AttendanceBook
    desk: Desk
    consumers: Consumers
    tokens: TokenBook
    http: HttpDoor
    transcripts: TranscriptBook
    permissions: "PermissionBook"
    version: str
    started_ms: int
    stop: Callable[[str], None]
    """Ends the daemon. The argument is the reason, DOWN or REPLACED."""
    companions: CompanionBook = field(default_factory=CompanionBook)
    exports: Exports = field(default_factory=Exports)
    describe_doors: Callable[[], dict[str, str]]
