"""The parts of the daemon that are passed to every door. Doors do not create any of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from palaver.broker.broker import Broker
from palaver.clock import Clock
from palaver.config import LiveSettings, Settings
from palaver.identity.accounts import Accounts, Tickets, TokenBook, WebhookBook
from palaver.identity.presence import MemberPresenceBook, Presence
from palaver.identity.seats import SeatIndex
from palaver.identity.web_sessions import WebSessions
from palaver.protocol.agents import Caller
from palaver.protocol.lanes import Delivering
from palaver.services.agents import CompanionBook, Consumers, HeldAgents, Subagents, TranscriptBook
from palaver.services.evidence import Conversations
from palaver.services.paths import PathService
from palaver.services.permissions import NoticeBook, PermissionBook
from palaver.services.queries import Queries
from palaver.services.rooms import RoomService
from palaver.services.turns import TurnService

if TYPE_CHECKING:  # A client that prints help needs neither, and they are slow to import.
    from palaver.services.live_views import LiveViews
    from palaver.services.metrics import Metrics

DOWN: Final = "down"
REPLACED: Final = "replaced"
"""Reasons to end the daemon: stopped by the user, or replaced by a newer version."""

RunHook = Callable[[Caller, str, str, Mapping[str, object]], Awaitable[dict[str, object]]]
"""Runs a hook of a caller (its harness, event and input), and returns the reply, which counts as received."""


class DoorSwitch(Protocol):
    """The HTTP door or the IRC door, as commands see it: it opens, moves and closes while the daemon runs."""

    where: str
    """The URL it listens at; empty if it is closed."""
    trouble: str
    """Why it cannot listen as configured, as a sentence; empty if there is no problem."""
    changed: dict[str, str | int]
    """Settings changed since the daemon started; they replace those of the start."""

    def describe(self) -> dict[str, str]:
        """Return its entry in the list of doors; empty if it is closed and should be."""
        ...

    async def open(self, services: "Services", settings: Settings) -> None:
        """Listen at the configured address instead of the current one; close the door if none is set."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonParts:
    """The daemon itself: its home, settings and version, and the controls that other doors need."""

    home: Path
    clock: Clock
    settings: LiveSettings
    """The present values are in `settings.now`."""
    version: str
    started_ms: int
    stop: Callable[[str], None]
    """Ends the daemon. The argument is the reason, DOWN or REPLACED."""
    doors: Mapping[str, DoorSwitch]
    """The doors that a person opens, by the setting with their address: `http` and `irc`."""
    run_hook: RunHook


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerBooks:
    """The daemon's knowledge about callers: which process is which agent, and which agents are present."""

    seats: SeatIndex
    presence: Presence
    member_presence: MemberPresenceBook
    tickets: Tickets
    tokens: TokenBook
    accounts: Accounts
    webhooks: WebhookBook
    web: WebSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBooks:
    """The daemon's knowledge about agents that is not in the log, because it ends with their connections."""

    holds: HeldAgents
    conversations: Conversations
    subagents: Subagents
    transcripts: TranscriptBook
    permissions: PermissionBook
    consumers: Consumers
    companions: CompanionBook = field(default_factory=CompanionBook)


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """The use cases that several doors share."""

    rooms: RoomService
    paths: PathService
    turns: TurnService
    metrics: "Metrics"
    notices: NoticeBook


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a running daemon, as doors see them."""

    daemon: DaemonParts
    queries: Queries
    broker: Broker
    delivery: Delivering
    callers: CallerBooks
    agents: AgentBooks
    cases: UseCases
    live: "LiveViews"
    """The open views, and the pages that they show."""

    @property
    def clock(self) -> Clock:
        """The clock of the daemon."""
        return self.daemon.clock

    @property
    def rooms(self) -> RoomService:
        """The use cases of rooms and the stick."""
        return self.cases.rooms

    @property
    def paths(self) -> PathService:
        """The use cases of paths."""
        return self.cases.paths

    @property
    def turns(self) -> TurnService:
        """The use cases of automatic turns."""
        return self.cases.turns

    @property
    def metrics(self) -> "Metrics":
        """The numbers about the bus."""
        return self.cases.metrics

    @property
    def notices(self) -> NoticeBook:
        """The book that decides which view tells the person of something."""
        return self.cases.notices
