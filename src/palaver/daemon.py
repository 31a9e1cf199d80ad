"""The daemon: one for each home. Knows every part, puts them together, and takes them apart again.

It opens no path that a client names, runs no program, and survives `kill -9` with nothing lost: what it has
answered is in the log.
"""

import argparse
import asyncio
import logging
import logging.handlers
import os
import secrets
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from palaver import __version__
from palaver.broker.broker import SYSTEM_CALLER, Broker
from palaver.clock import Clock, SystemClock
from palaver.config import Loaded, load
from palaver.delivery.allowances import Allowances
from palaver.delivery.delivery import Delivery
from palaver.doors.adopted import AdoptedDoor
from palaver.doors.argv.commands_http import wanted_settings, write_wanted
from palaver.doors.argv.parse import parse
from palaver.doors.argv.table import TABLE
from palaver.doors.dead_sockets import DeadSockets
from palaver.doors.desk import Desk
from palaver.doors.holds import Holds
from palaver.doors.hooks.conversation import Conversations
from palaver.doors.hooks.desk import HookDesk
from palaver.doors.hooks.permissions import PermissionBook
from palaver.doors.http.server import HttpDoor
from palaver.doors.reports import take_up_reports
from palaver.doors.services import DOWN, REPLACED, Services
from palaver.doors.tokens import TokenBook
from palaver.doors.transcripts import TranscriptBook
from palaver.doors.unix import UnixDoor, connect_socket
from palaver.doors.views import agents_view, mail_view
from palaver.errors import PalaverError, Unavailable, UsageError
from palaver.home import Ready, allow_many_files, lock_home, log_to, prepare_home, wait_for_successor
from palaver.links.attendance import AttendanceBook
from palaver.links.consumers import Consumers
from palaver.links.doorstep import Doorstep
from palaver.links.holders import Holders
from palaver.links.places import Places
from palaver.links.presence import Presence
from palaver.links.process import boot_id
from palaver.links.seats import SeatIndex
from palaver.links.terminals import HolderTerminals
from palaver.links.tickets import Tickets
from palaver.links.watch import ProcessWatch
from palaver.log.fold import agent_of, apply
from palaver.log.sqlite import SqliteLog
from palaver.log.state import read_agent, read_agents
from palaver.model.agent import Agent, Caller, Seat, standing_of_role
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.ids import UlidSource
from palaver.model.message import HUMAN, INSTANCE
from palaver.model.request import Gone, Request, SetStatus, Started
from palaver.model.setting import check_settings
from palaver.rooms.policy import policy_from
from palaver.routing.brakes import Brakes
from palaver.watches.nags import Nags
from palaver.watches.sticks import Sticks
from palaver.watches.watches import Watches

_logger: Final = logging.getLogger("palaver")

_FAREWELL: Final = "the bus was stopped with 'pal down'; 'pal up' starts it again"
_TRY_AGAIN_S: Final = 1.0
_AGENT_EVENTS: Final = frozenset({"agent.hello", "agent.bye", "life", "status"})


class GuardedTasks(asyncio.TaskGroup):
    """A task group in which one task that fails is written down and stops nobody else."""

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # the same call, every task guarded
        return super().create_task(self._guard(coro), **options)

    async def _guard(self, coro: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coro
        except PalaverError as error:
            _logger.warning("a task was refused: %s: %s", error.code, error)
        except Exception:
            _logger.exception("a task failed")
        return None


class Daemon:
    """Everything that runs in one home."""

    def __init__(self, home: Path, loaded: Loaded, clock: Clock) -> None:
        self._home = home
        self._loaded = loaded
        self._settings = loaded.settings
        self._clock = clock
        self._stopped = asyncio.Event()
        self._deadline_changed = asyncio.Event()
        self._reason = ""

    def stop(self, reason: str) -> None:
        """End; the first reason counts."""
        self._reason = self._reason or reason
        self._stopped.set()

    async def run(self, ready: Ready) -> None:
        """Serve until stopped. `ready` is told once the door is open."""
        sql_limit_s = self._settings.sql_timeout_ms / 1000
        log = await SqliteLog.open(self._home, apply=apply, clock=self._clock, sql_limit_s=sql_limit_s)
        try:
            failure = await self._serve(log, ready)
        finally:
            await log.close()
        if failure is not None:
            raise failure

    async def _serve(self, log: SqliteLog, ready: Ready) -> Exception | None:
        """Open the door and close it again; give what went wrong, which a task group would wrap."""
        async with GuardedTasks() as tasks:
            try:
                door = await self._open(log, tasks)
                ready.say("ok")
                _logger.info("listening in %s at place %d, version %s", self._home, log.last(), __version__)
                await self._stopped.wait()
                _logger.info("stopping: %s", self._reason)
                door.shut()
                if self._reason == REPLACED:
                    await wait_for_successor(self._home)
                await self._http.close()
                await door.close(_FAREWELL if self._reason == DOWN else None)
                self._close()
            except Exception as error:
                return error
            finally:
                _end_all_tasks()
        return None

    async def _open(self, log: SqliteLog, tasks: GuardedTasks) -> UnixDoor:
        ids = UlidSource(self._clock, secrets.token_bytes)
        if largest := log.largest_id():
            ids.start_above(largest)

        def gone(name: str, seat: Seat | None, reason: str) -> None:
            tasks.create_task(broker.submit(SYSTEM_CALLER, Gone(name=name, reason=reason, seat=seat)))

        async def submit(request: Request) -> object:
            return await broker.submit(SYSTEM_CALLER, request)

        async def rest(agent: Agent) -> object:
            caller = Caller(name=agent.name, standing=standing_of_role(agent.role), kind=INSTANCE)
            return await broker.submit(caller, SetStatus(state=AgentState.IDLE))

        call_later, policy = asyncio.get_running_loop().call_later, policy_from(self._settings)
        self._presence = Presence(ProcessWatch(), gone, call_later)
        tokens = TokenBook(self._home)
        self._attendance = AttendanceBook(
            log,
            clock=self._clock,
            is_present=self._is_in_reach,
            has_token=tokens.has_one_of,
            policy=policy,
        )
        self._broker = broker = Broker(
            log,
            clock=self._clock,
            ids=ids,
            is_present=self._presence.is_present,
            draw=lambda: secrets.randbelow(1_000_000),
            brakes=Brakes(
                limit_hops=self._settings.brake_hops, limit_a_minute=self._settings.brake_per_minute
            ),
            attendance=self._attendance,
            policy=policy,
        )
        self._delivery = Delivery(log, submit, clock=self._clock, tasks=tasks)
        self._delivery.deadline_changed = self._deadline_changed.set
        self._allowances = Allowances(
            log, submit, rest, clock=self._clock, call_later=call_later, tasks=tasks
        )
        self._watches = Watches(log, submit, tasks=tasks)
        self._nags = Nags(
            log,
            submit,
            clock=self._clock,
            after_s=self._settings.remind_after_s,
            call_later=call_later,
            tasks=tasks,
        )
        self._sticks = Sticks(
            log,
            submit,
            self._attendance,
            clock=self._clock,
            policy=policy,
            call_later=call_later,
            tasks=tasks,
        )
        self._attendance.fell_silent = self._sticks.look_at
        self._seats = SeatIndex(boot_id())
        self._terminals, self._holders = HolderTerminals(boot_id()), Holders(boot_id())
        self._log = log
        log.subscribe(self._follow_agents)
        await broker.submit(SYSTEM_CALLER, Started(pid=os.getpid(), version=__version__))
        for agent in read_agents(log.rows):
            self._seats.put(agent)
            self._presence.put(agent)
            self._terminals.put(agent)
            self._holders.put(agent)
        self._watches.start()
        self._nags.start()
        self._sticks.start()
        self._desk = Desk(
            log=log,
            broker=broker,
            clock=self._clock,
            attendance=self._attendance,
            places=Places(),
            policy=policy,
            agents=lambda: agents_view(services),
            inbox=lambda name, limit: mail_view(services, name, limit),
        )
        self._http = http = HttpDoor(tasks)
        conversations, transcripts = Conversations(self._delivery, log, tasks), TranscriptBook()
        services = Services(
            home=self._home,
            settings=self._settings,
            origins=self._loaded.origins,
            clock=self._clock,
            log=log,
            broker=broker,
            delivery=self._delivery,
            holds=Holds(self._holders.meet),
            conversations=conversations,
            hooks=HookDesk(
                log=log,
                broker=broker,
                delivery=self._delivery,
                conversations=conversations,
                transcripts=transcripts,
                hints=self._settings.hints,
                tasks=tasks,
            ),
            tickets=Tickets(self._clock),
            seats=self._seats,
            presence=self._presence,
            attendance=self._attendance,
            desk=self._desk,
            consumers=Consumers(self._home / "consumers"),
            tokens=tokens,
            transcripts=transcripts,
            permissions=PermissionBook(),
            http=http,
            version=__version__,
            started_ms=self._clock.now_ms(),
            stop=self.stop,
            describe_doors=lambda: {"unix": str(self._home / "daemon.sock"), **http.describe()},
        )
        doorstep = Doorstep(self._seats, self._terminals, holders=self._holders)
        door = UnixDoor(services, doorstep, tasks)
        await door.open()
        self._adopted = AdoptedDoor(services, doorstep, tasks)
        self._adopted.open()
        DeadSockets(self._home, log)
        tasks.create_task(take_up_reports(services))
        await http.open(services, self._settings)
        tasks.create_task(self._expire())
        return door

    def _close(self) -> None:
        self._adopted.close()
        self._watches.close()
        self._nags.close()
        self._sticks.close()
        self._desk.close()
        self._attendance.close()
        self._allowances.close()
        self._delivery.close()
        self._broker.close()
        self._presence.close()

    def _is_in_reach(self, name: str) -> bool:
        """Tell whether a member of a room is there: a person always is, whichever terminal they look at."""
        return name == HUMAN or self._presence.is_present(name)

    def _follow_agents(self, events: Sequence[Event]) -> None:
        """Seats and presence are what the state says, before the one who joined is answered."""
        for event in events:
            is_news = event.type in _AGENT_EVENTS
            if is_news and (agent := read_agent(self._log.rows, agent_of(event))) is not None:
                self._seats.put(agent)
                self._presence.put(agent)
                self._terminals.put(agent)
                self._holders.put(agent)

    async def _expire(self) -> None:
        """Wake when something falls due, such as a message that expires, and when that moment changes."""
        while True:
            self._deadline_changed.clear()
            try:
                async with asyncio.timeout(self._delivery.next_wait_s()):
                    await self._deadline_changed.wait()
            except TimeoutError:
                await self._expire_due()

    async def _expire_due(self) -> None:
        try:
            await self._delivery.catch_up()
        except Unavailable as error:
            _logger.warning("nothing could expire or be held: %s: %s", error.code, error)
            await asyncio.sleep(_TRY_AGAIN_S)


def _end_all_tasks() -> None:
    """End every task of this loop but the one that asks. One by one they are not kept: they are too many."""
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not current:
            task.cancel()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; returns its exit status."""
    parser = argparse.ArgumentParser(prog="palaver.daemon", allow_abbrev=False)
    parser.add_argument("--home", required=True, type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--foreground", action="store_true")
    options, others = parser.parse_known_args(argv)
    ready = Ready(options.ready_fd, is_foreground=options.foreground)
    try:
        wanted = wanted_settings(parse(TABLE, ["up", *others]))
        return _run(options.home, ready, wanted, is_foreground=options.foreground)
    except UsageError as error:
        ready.say(str(error))
        return 2
    except (PalaverError, OSError) as error:
        _logger.error("did not start: %s", error)
        ready.say(str(error))
    except Exception as error:
        _logger.exception("ended by a mistake of its own")
        ready.say(f"{type(error).__name__}: {error}")
    return 1


def _run(home: Path, ready: Ready, wanted: Mapping[str, str | int], *, is_foreground: bool) -> int:
    os.umask(0o077)
    home = prepare_home(home)
    if wanted:
        write_wanted(home, wanted)
    loaded = load(home, os.environ)
    check_settings(loaded.settings)
    lock = lock_home(home, lambda: _is_listening(home))
    if lock is None:
        ready.say(
            "the bus is already running" if is_foreground else f"another daemon holds {home / 'daemon.lock'}"
        )
        return 1
    with lock:
        allow_many_files()
        log_to(home, loaded.settings, is_foreground=is_foreground)
        asyncio.run(_serve(home, loaded, ready))
    return 0


async def _serve(home: Path, loaded: Loaded, ready: Ready) -> None:
    daemon = Daemon(home, loaded, SystemClock())
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_write_down)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop, number.name)
    await daemon.run(ready)


def _write_down(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    _logger.error("%s", context["message"], exc_info=context.get("exception"))


def _is_listening(home: Path) -> bool:
    try:
        connect_socket(home / "daemon.sock").close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
