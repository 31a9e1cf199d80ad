"""The parts of the daemon that are passed to every door. Doors do not create any of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver.broker.broker import Broker
from palaver.clock import Clock
from palaver.config import Origin, Settings
from palaver.doors.hooks.evidence import Conversations
from palaver.doors.http.server import HttpDoor
from palaver.identity.presence import Presence
from palaver.identity.room_presence import AttendanceBook
from palaver.identity.seats import SeatIndex
from palaver.identity.tokens import Tickets, TokenBook
from palaver.log.api import Log
from palaver.services.agents import Subagents, TranscriptBook
from palaver.services.consumers import Consumers
from palaver.services.export import Exports
from palaver.services.holders import CompanionBook, Holds
from palaver.services.messages import Delivering
from palaver.services.rooms import RoomService

if TYPE_CHECKING:
    from palaver.doors.hooks.handler import HookDesk  # it imports modules that all doors import
    from palaver.services.permissions import PermissionBook

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
    delivery: Delivering
    holds: Holds
    conversations: Conversations
    hooks: "HookDesk"
    subagents: Subagents
    tickets: Tickets
    seats: SeatIndex
    presence: Presence
    attendance: AttendanceBook
    desk: RoomService
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
