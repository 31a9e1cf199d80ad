"""The table of a running daemon: for each event type, the handlers of it in the order of their calls."""

from contextlib import ExitStack
from pathlib import Path

from palaver.clock import SystemClock
from palaver.config import load
from palaver.daemon.daemon import Daemon, GuardedTasks, end_all_tasks
from palaver.home import prepare_home
from palaver.log.api import EventKey, EventKind
from palaver.log.sqlite import SqliteLog
from palaver.protocol.events import BYE, HELLO, LIFE, PAUSED, UNPAUSED
from palaver.protocol.message import MESSAGE
from palaver.protocol.subscriptions import DELIVERY
from palaver.state.fold import apply

MAIL = ["DeliveryReactor._hear", "Allowances._hear", "MessageFiles._follow"]
STATE = ["Broker._follow", "DeliveryReactor._hear", "Roll._follow"]
LIMITED = ["Broker._follow", "DeliveryReactor._hear", "Allowances._hear", "Roll._follow"]
SEAT = ["Subagents._follow", "Sticks._hear"]

TABLE: dict[EventKey, list[str]] = {
    # Any event is a sign of life, may match a subscription, wakes waits in its room, or shows free space.
    EventKind.ANY: [
        "AttendanceBook._hear",
        "Watches.start.<locals>.<lambda>",
        "Nags._hear",
        "Bell._hear",
    ],
    EventKind.DELIVERED: MAIL,
    MESSAGE: MAIL,
    DELIVERY: ["DeliveryReactor._hear", "Conversations._follow"],
    "status": LIMITED,
    PAUSED: STATE,
    UNPAUSED: STATE,
    HELLO: [*LIMITED, *SEAT, "UnixDoor._follow_seats"],
    LIFE: [*STATE, *SEAT, "UnixDoor._follow_seats"],
    BYE: [
        *LIMITED,
        *SEAT,
        "Conversations._follow",
        "UnixDoor._follow_seats",
        "DeadSockets._follow",
        "DeadPlaces._follow",
    ],
    "redacted": ["MessageFiles._follow"],
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
