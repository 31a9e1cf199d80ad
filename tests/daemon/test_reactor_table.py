"""The table of a running daemon: for each event type, the handlers of it in the order of their calls."""

from contextlib import ExitStack
from pathlib import Path

from palaver.clock import SystemClock
from palaver.config import load
from palaver.daemon.daemon import Daemon, GuardedTasks, end_all_tasks
from palaver.home import prepare_home
from palaver.log.api import EventKey, EventKind
from palaver.log.sqlite import SqliteLog
from palaver.protocol.events import BYE, HELLO, LIFE, PAUSED, SETTING, UNPAUSED
from palaver.protocol.message import MESSAGE
from palaver.protocol.subscriptions import DELIVERY
from palaver.state.fold import apply

STATE = ["Broker._follow", "DeliveryReactor._hear", "AgentIndex._follow"]
LIMITED = ["Broker._follow", "DeliveryReactor._hear", "UsageLimits._hear_agents", "AgentIndex._follow"]
SEAT = ["Subagents._follow", "Sticks._hear"]
DOORS = ["RoomNotifier._hear", "UnixDoor._follow_seats", "MessageFiles._follow_agents"]

# No agent is blocked, owes a reply, runs in a terminal or has a session with hooks, and nothing subscribes.
# So no handler of these is in the table: a plain message costs only the delivery to its recipients.
TABLE: dict[EventKey, list[str]] = {
    EventKind.ANY: ["MemberPresenceBook._hear"],  # Any event is a sign of life.
    EventKind.DELIVERED: ["DeliveryReactor._hear"],
    EventKind.IN_ROOM: ["RoomNotifier._hear"],
    EventKind.EXPECTS_REPLY: ["Reminders._hear_request"],
    MESSAGE: ["DeliveryReactor._hear"],
    DELIVERY: ["DeliveryReactor._hear"],
    "status": [*LIMITED, "RoomNotifier._hear"],
    PAUSED: [*STATE, "RoomNotifier._hear"],
    UNPAUSED: [*STATE, "RoomNotifier._hear"],
    SETTING: [
        "Broker._follow",
        "AgentIndex._follow",
        "AutomaticTurns._hear_settings",
        "RoomNotifier._hear",
    ],
    HELLO: [*LIMITED, *SEAT, DOORS[0], "Accounts._hear_names", *DOORS[1:]],  # No guest keeps a nick like it.
    LIFE: [*STATE, *SEAT, *DOORS],
    BYE: [
        "TokenBook.end_with_agents.<locals>.hear",
        *LIMITED,
        *SEAT,
        "Conversations._follow_ends",
        *DOORS,
        "DeadSockets._follow",
        "WorkspaceCleanup._follow",
    ],
    "path.subscribed": ["Broker._follow"],
    "path.unsubscribed": ["Broker._follow"],
    "session.created": ["Broker._follow", "DeliveryReactor._hear"],  # The session that an agent runs in.
    "session.removed": ["Broker._follow", "DeliveryReactor._hear"],
    "redacted": ["MessageFiles._follow_redacted"],
    "member_joined": ["Sticks._hear"],
    "member_left": ["Sticks._hear"],
    "kick": ["Sticks._hear"],
    "close": ["Sticks._hear"],
    "claim": ["Sticks._hear"],
    "takeover": ["Sticks._hear"],
    "release": ["Sticks._hear"],
    "pass": ["Sticks._hear"],
    "reservation_expired": ["Sticks._hear"],
}


async def handlers(home: Path) -> dict[EventKey, list[str]]:
    """Return the table of a daemon that has opened its doors."""
    log = await SqliteLog.open(home, apply=apply, clock=SystemClock())
    try:
        async with GuardedTasks() as tasks:
            with ExitStack() as closing:
                doors = await Daemon(home, load(home, {}), SystemClock())._open(log, tasks, closing)
                table = log._newest.handlers._table
                found = {key: [one.__qualname__ for one in by.values()] for key, by in table.items()}
                doors.unix.shut()
                await doors.unix.close(None)
            end_all_tasks()
    finally:
        await log.close()
    return found


async def test_table_has_every_type_that_a_handler_acts_on(tmp_path: Path) -> None:
    found = await handlers(prepare_home(tmp_path / "home"))

    assert found == TABLE
