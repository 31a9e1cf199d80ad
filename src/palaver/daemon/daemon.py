"""Build and close everything that runs in one home. The only file that knows every part.

Read `_open` from top to bottom: presence, the broker, the reactors, the doors. The daemon runs no program of
a client, and opens no path that a client names, except the file of `pal import`, which only a person can
name. `kill -9` loses nothing: everything that the daemon has confirmed is in the log.
"""

import asyncio
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CoroutineType
from typing import Any, Final

import msgspec

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER
from palaver.clock import CallLater, Clock, Timer
from palaver.config import LiveSettings, LoadedSettings, Settings, load
from palaver.delivery.reactor import DeliveryReactor
from palaver.delivery.usage_limits import UsageLimits, is_same_limit
from palaver.domain.rights import Brakes
from palaver.domain.stick import Policy, change_policy, policy_from
from palaver.doors.cli.bus import require_person, write_wanted
from palaver.doors.hooks import HookHandler, run_hook
from palaver.doors.http.server import HttpDoor
from palaver.doors.irc.server import IrcDoor
from palaver.doors.lines_holders import take_up_reports
from palaver.doors.unix import AdoptedDoor, UnixDoor
from palaver.errors import DiskFull, PalaverError, ShuttingDown, Unavailable
from palaver.home import (
    LIMIT_DAEMON_TRACE_BYTES,
    StartReport,
    TraceFile,
    UpgradeMark,
    file_id,
    lift_stop,
    prune_traces,
    read_secret,
    set_log,
    trace_path,
    wait_for_successor,
)
from palaver.identity.accounts import Accounts, RunnerBook, Tickets, TokenBook, WebhookBook
from palaver.identity.caller import CallerClaim, CallerIdentifier, marks_of
from palaver.identity.presence import AgentIndex, MemberPresenceBook
from palaver.identity.process import ProcessWatch, ancestors, is_alive, read_process
from palaver.identity.web_sessions import WebSessions
from palaver.identity.workspace import Workspaces
from palaver.ids import UlidSource
from palaver.log.api import Log
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import damaged
from palaver.protocol.agents import Agent, Seat, caller_for
from palaver.protocol.events import AgentState
from palaver.protocol.requests import DaemonStarted, Gone, Request, SetStatus
from palaver.reactors.files import DeadSockets, MessageFiles, WorkspaceCleanup, remove_files
from palaver.reactors.subscriptions import Watches
from palaver.reactors.timers import Reminders, Sticks
from palaver.reactors.turns import AutomaticTurns
from palaver.services.agents import Consumers, HeldAgents, Subagents, TranscriptBook
from palaver.services.evidence import Conversations, HookOutcomes
from palaver.services.live_views import LiveViews
from palaver.services.metrics import Metrics, MetricSources
from palaver.services.otel import OtelExport
from palaver.services.past import PastViews
from palaver.services.paths import PathService
from palaver.services.permissions import NoticeBook, PermissionBook
from palaver.services.queries import Queries
from palaver.services.rooms import RoomService
from palaver.services.services import (
    DOWN,
    REPLACED,
    AgentBooks,
    CallerBooks,
    DaemonParts,
    Services,
    UseCases,
)
from palaver.services.turns import TurnService, turn_settings
from palaver.services.view_facts import ViewSources
from palaver.services.views import agents_view, attention_view, mail_view
from palaver.state.fold import FOLD_VERSION, apply
from palaver.version import __version__

# --------------------
# Tasks whose failure is logged and does not stop the others.

_logger: Final = logging.getLogger("palaver")


class GuardedTasks(asyncio.TaskGroup):
    """A task group in which a failing task is logged and does not stop the others.

    A plain group would cancel all other tasks: one bug in one connection would stop the daemon.
    """

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # the same call, every task guarded
        guarded = self._guard(coro)
        try:
            task = super().create_task(guarded, **options)
        except RuntimeError:  # the group has ended
            # Otherwise Python warns about two coroutines that were never awaited.
            guarded.close()
            coro.close()
            raise
        # A task cancelled before its first step never awaits its coroutine, so close it.
        task.add_done_callback(lambda done: coro.close())
        return task

    async def _guard(self, coro: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coro
        except PalaverError as error:
            _logger.warning("a task was refused: %s: %s", error.code, error)
        except Exception:
            _logger.exception("a task failed")
        return None


def end_all_tasks() -> None:
    """Cancel every task of this loop except the current one.

    Followers and timers never end by themselves, and the task group would wait for them indefinitely. All
    tasks of the loop are cancelled, because they are too many to keep track of.
    """
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not current:
            task.cancel()


# --------------------
# Check that the home and its files still exist.
#
# A daemon whose home was removed stops, so that another can start. Sockets that were removed are created
# again.

_LOOK_EVERY_S: Final = 1.0
"""Seconds between two checks. Commands wait for a removed socket, which is usually back after this time."""


class HomeWatch:
    """Checks regularly that the lock at the home's path is the one that this daemon holds."""

    def __init__(
        self,
        home: Path,
        lost: Callable[[], None],
        call_later: CallLater,
        look_after: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Requires the lock; `lost` is called once, if it was removed or replaced.

        At each check the functions in `look_after` are called too, in order, to maintain other parts of this
        home.
        """
        self._lock = home / "daemon.lock"
        self._file = file_id(self._lock)
        self._lost = lost
        self._look_after = look_after
        self._call_later = call_later
        self._timer: Timer = call_later(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        """Stop checking."""
        self._timer.cancel()

    def _look(self) -> None:
        # The lock belongs to the open file, not to its name. Another process could lock a new file of this
        # name, and two daemons would serve one home.
        if file_id(self._lock) == self._file:
            # They must not raise: without a new timer the home would not be checked any more.
            for look in self._look_after:
                look()
            self._timer = self._call_later(_LOOK_EVERY_S, self._look)
        else:
            self._lost()


# --------------------
# Log callbacks that block the event loop.
#
# Every callback of the loop is measured by the processor time of the loop's thread, not by a clock: a busy
# machine makes a callback late, but does not make it long. Reading that time is a system call, which costs as
# much as a short callback, so it is read at most once a millisecond.

_READ_EVERY_S: Final = 0.001
"""Seconds of a clock between two readings. A callback may be measured too long by this much."""
_LIMIT_LINES_PER_MINUTE: Final = 20
"""More lines add no information, and would fill the log."""

_watchdog_logger: Final = logging.getLogger("palaver.watchdog")


def watch_loop(limit_ms: int, count: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Log each callback that takes more than `limit_ms` of processor time; return a function that stops it.

    `count` is called for each of them, also for those that are not logged because there are too many.

    Call it in the thread of the running loop. A daemon has one such thread, so all callbacks of the process
    are its callbacks. 0 watches nothing.
    """
    if not limit_ms:
        return lambda: None
    limit_s = limit_ms / 1000
    lines = _Lines()
    # Replaced in the class, because the loop calls `_run` of every handle.
    plain: Callable[[asyncio.Handle], None] = asyncio.Handle._run
    read_at_s, used_s = time.monotonic(), time.thread_time()

    def run_watched(handle: asyncio.Handle) -> None:
        nonlocal read_at_s, used_s
        plain(handle)
        now_s = time.monotonic()
        if now_s - read_at_s < _READ_EVERY_S:
            return
        read_at_s, used_before_s, used_s = now_s, used_s, time.thread_time()
        took_s = used_s - used_before_s
        if took_s <= limit_s:
            return
        count()
        if lines.may_write(now_s):
            _watchdog_logger.warning(
                "watchdog: the event loop was busy for %d ms with %s", took_s * 1000, _describe(handle)
            )
            # Otherwise the time of writing this line would count for the next callback.
            used_s = time.thread_time()

    def stop() -> None:
        asyncio.Handle._run = plain  # type: ignore[method-assign, assignment]  # the original method

    asyncio.Handle._run = run_watched  # type: ignore[method-assign, assignment]  # there is no public hook
    return stop


class _Lines:
    """Counts the lines of the last minute."""

    def __init__(self) -> None:
        self._begin_s = float("-inf")
        self._count = 0

    def may_write(self, now_s: float) -> bool:
        if now_s - self._begin_s >= 60:
            self._begin_s, self._count = now_s, 0
        self._count += 1
        return self._count <= _LIMIT_LINES_PER_MINUTE


def _describe(handle: asyncio.Handle) -> str:
    """Describe a callback: for a task the stack of functions that it is in, else the function."""
    callback: object = handle._callback  # type: ignore[attr-defined]  # the loop's own report uses it too
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return getattr(callback, "__qualname__", None) or repr(callback)
    names = []
    inner: object = owner.get_coro()
    while isinstance(inner, CoroutineType):
        # The callback is over: a coroutine that has ended in it has no frame any more.
        line = inner.cr_frame.f_lineno if inner.cr_frame is not None else inner.cr_code.co_firstlineno
        names.append(f"{inner.__qualname__}:{line}")
        inner = inner.cr_await
    return " > ".join(names) or repr(owner)


# --------------------
# Reactors: they read the log and submit requests that follow from it: delivery, usage limits, watches.


class Reactors:
    """All reactors. Each receives new events at once, and processes older ones at its start."""

    def __init__(
        self,
        log: Log,
        broker: Broker,
        member_presence: MemberPresenceBook,
        *,
        settings: LiveSettings,
        policy: Policy,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        is_present: Callable[[str], bool],
    ) -> None:
        async def submit(request: Request) -> object:
            return await broker.submit(SYSTEM_CALLER, request)

        async def rest(agent: Agent) -> object:
            return await broker.submit_status(
                caller_for(agent),
                SetStatus(state=AgentState.IDLE),
                only_if=lambda now: is_same_limit(now, agent),
            )

        call_later = asyncio.get_running_loop().call_later
        self.delivery = DeliveryReactor(
            log, submit, clock=clock, tasks=tasks, native_wait_s=settings.now.native_wait_s
        )
        self._usage_limits = UsageLimits(log, submit, rest, clock=clock, call_later=call_later, tasks=tasks)
        self._watches = Watches(log, submit, tasks=tasks)
        after_s = settings.now.remind_after_s
        self._reminders = Reminders(
            log, submit, clock=clock, after_s=after_s, call_later=call_later, tasks=tasks
        )
        settings.watch(lambda now: self._reminders.set_after(now.remind_after_s))
        self._sticks = Sticks(
            log, submit, member_presence, clock=clock, policy=policy, call_later=call_later, tasks=tasks
        )
        self.turns = AutomaticTurns(
            log,
            submit,
            clock=clock,
            settings=lambda: turn_settings(settings.now),
            is_live=lambda agent: bool(agent.harness) and not agent.left and is_present(agent.name),
            is_in_hand=self.delivery.is_in_hand,
            call_later=call_later,
            tasks=tasks,
        )
        settings.watch(lambda now: self.turns.settings_changed())
        # Set afterwards, because the sticks need the presence book as a parameter.
        member_presence.fell_silent = self._sticks.look_at
        member_presence.is_in_hand = self.delivery.is_in_hand
        self.delivery.messages_released = self.turns.messages_released

    def start(self) -> None:
        """Process unfinished work in the log."""
        self._watches.start()
        self._reminders.start()
        self._sticks.start()
        self.turns.start()

    def close(self) -> None:
        """Stop following the log. Unfinished work stays in the log, for the next daemon."""
        self.turns.close()
        self._sticks.close()
        self._reminders.close()
        self._watches.close()
        self._usage_limits.close()
        self.delivery.close()


# --------------------
# The timer of delivery: wakes it when something is due, such as a message that expires.

_TRY_AGAIN_S: Final = 1.0
"""Seconds after failed work. It is still due, so without a pause the timer would try again at once."""


class DeliveryTimer:
    """The single timer of a delivery."""

    def __init__(self, delivery: DeliveryReactor) -> None:
        self._delivery = delivery
        self._has_changed = asyncio.Event()
        delivery.deadline_changed = self._has_changed.set

    async def run(self) -> None:
        """Wake delivery at its next deadline, and recompute when that changes; runs until cancelled."""
        while True:
            # Before the deadline is computed, with no await in between. Otherwise a change could be cleared
            # that the deadline does not contain.
            self._has_changed.clear()
            try:
                async with asyncio.timeout(self._delivery.next_wait_s()):
                    await self._has_changed.wait()
            except TimeoutError:
                await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            await self._delivery.catch_up()
        except Unavailable as error:
            _logger.warning("nothing could expire or be held: %s: %s", error.code, error)
            await asyncio.sleep(_TRY_AGAIN_S)
        except Exception:  # A bug. Without this timer nothing would expire, be held or be given up any more.
            _logger.exception("the work of delivery that was due has failed")
            await asyncio.sleep(_TRY_AGAIN_S)


# --------------------
# The daemon itself: it builds all parts in order, and closes them in the reverse order.

_STOPPED_TEXT: Final = "the bus was stopped with 'pal down'; 'pal up' starts it again"

_LOST: Final = "the home was removed"
_REPORTED_EVENTS: Final = 100_000
"""How often a rebuild of the state reports its progress, in events."""

DISK_HAS_ROOM: Final = "the disk has room again"


class Daemon:
    """One per home. Call `run` once."""

    def __init__(
        self, home: Path, loaded: LoadedSettings, clock: Clock, wanted: Mapping[str, str | int] | None = None
    ) -> None:
        """`wanted` are settings to write to the file first, if a person started this process."""
        self._wanted = wanted or {}
        self._home = home
        self._live = LiveSettings(loaded)
        self._policy = policy_from(loaded.settings)
        self._clock = clock
        self._stopped = asyncio.Event()
        self._reason = ""
        self._is_log_lost = False

    def stop(self, reason: str) -> None:
        """Stop; the first reason counts. Stopping a daemon that is about to restart ends it permanently.

        Can be called at any time, also before the doors are open, and again.
        """
        if self._reason in ("", DISK_HAS_ROOM):
            self._reason = reason
        self._stopped.set()

    async def run(self, ready: StartReport) -> bool:
        """Serve until stopped. `ready` is notified once the door is open.

        True means: start again with a new daemon, because a disk that was full at the start has room now.
        """
        sql_limit_s = self._live.now.sql_timeout_ms / 1000
        mark = UpgradeMark(self._home)
        mark.remove()  # It may be that of a daemon that was killed.
        log = await SqliteLog.open(
            self._home,
            apply=apply,
            fold_version=FOLD_VERSION,
            clock=self._clock,
            sql_limit_s=sql_limit_s,
            upgrading=lambda: self._begin_upgrade(mark),
        )
        if log.lost:
            _logger.error("%s; 'pal doctor' says what to do", log.lost)
        try:
            await self._renew_rows(log, mark)
            mark.remove()
            failure = await self._serve(log, ready)
        finally:
            await log.close()
        if failure is not None:
            raise failure
        return self._reason == DISK_HAS_ROOM

    def _begin_upgrade(self, mark: UpgradeMark) -> None:
        """Let other clients wait, also after 'pal down': the daemon listens only after the upgrade."""
        mark.write(0, 0)
        if not self._stopped.is_set():
            lift_stop(self._home)

    async def _renew_rows(self, log: SqliteLog, mark: UpgradeMark) -> None:
        """Build the state again if an older version made it: once after an upgrade, before any door opens.

        If that fails, or the daemon is stopped meanwhile, the next start tries again. After a failure the
        daemon serves with the old state.
        """
        if not log.is_fold_old:
            return
        self._begin_upgrade(mark)
        began_s = self._clock.monotonic_s()
        last = log.last()
        _logger.info("building the state again from the events, up to #%d, after an upgrade", last)

        def report(count: int) -> None:
            if self._stopped.is_set():
                # A rebuild can take minutes, and `pal down` must not wait for it.
                raise ShuttingDown("the daemon was stopped")
            mark.write(count, last)
            if count % _REPORTED_EVENTS == 0:
                _logger.info("building the state again: %d events so far", count)

        try:
            count = await log.rebuild(report)
        except ShuttingDown:
            _logger.info("the state was not built again: the daemon was stopped; the next start does it")
        except PalaverError as error:
            _logger.error("the state could not be built again, so some lists are not complete: %s", error)
        else:
            took_s = self._clock.monotonic_s() - began_s
            _logger.info("the state was built again from %d events in %.1f s", count, took_s)

    async def _serve(self, log: SqliteLog, ready: StartReport) -> Exception | None:
        """Open the doors and close them again; return an error, which a task group would wrap."""
        async with GuardedTasks() as tasks:
            try:
                with ExitStack() as closing:
                    doors = await self._open(log, tasks, closing)
                    if not self._stopped.is_set():  # A 'pal down' may have come already.
                        lift_stop(self._home)
                    ready.say("ok")
                    count = doors.services.metrics.count_slow_step
                    closing.callback(watch_loop(self._live.now.watchdog_ms, count))
                    _logger.info("listening in %s at seq %d, version %s", self._home, log.last(), __version__)
                    await self._stopped.wait()
                    _logger.info("stopping: %s", self._reason)
                    # Inside this block: the doors must have closed before the parts that they use.
                    await self._shut(doors)
            except (sqlite3.Error, UnicodeError, msgspec.MsgspecError) as error:  # Rows cannot be decoded.
                _logger.error("the log cannot be read: %s", error)
                return damaged(error)
            except Exception as error:
                return error
            finally:
                end_all_tasks()
        return None

    async def _open(self, log: SqliteLog, tasks: GuardedTasks, closing: ExitStack) -> "_Doors":
        """Create every part, in the order of the data flow. They are closed in reverse order."""
        middle = self._make_middle(log, tasks, closing)
        reactors = Reactors(
            log,
            middle.broker,
            middle.member_presence,
            settings=self._live,
            policy=self._policy,
            clock=self._clock,
            tasks=tasks,
            is_present=middle.agent_index.presence.is_present,
        )
        closing.callback(reactors.close)
        trace = TraceFile(trace_path(self._home), LIMIT_DAEMON_TRACE_BYTES, self._clock.now_ms)
        closing.callback(trace.close)
        reactors.delivery.trace = trace.note
        prune_traces(self._home)
        is_read_only = False
        try:
            await middle.broker.submit(SYSTEM_CALLER, DaemonStarted(pid=os.getpid(), version=__version__))
        except DiskFull as error:
            is_read_only = True
            _logger.error("%s; only reading is possible until there is disk space", error)
            # Also once there is room: the start of a daemon is stored before anything else, so another one
            # must begin.
            log.refuse_commits(DiskFull(f"{error}; only reading is possible until there is disk space"))
        # Events about offline agents must come after the start event.
        middle.agent_index.start()
        if self._wanted:
            self._take_wanted(middle.identifier)
        subagents = Subagents(log, middle.broker, tasks)
        closing.callback(subagents.close)
        # Each of these may write: the daemon that starts once there is disk space begins with them.
        if not is_read_only:
            subagents.start()
            await middle.member_presence.recall()
            await middle.tokens.catch_up(log)
            reactors.start()
        doors = self._make_doors(log, middle, reactors, subagents, tasks, closing)
        if not is_read_only:
            doors.services.turns.start()
            await doors.hooks.outcomes.start(self._clock.now_ms() / 1000)
        # Only now: the first caller must find its agent, its mailbox and its stick as they were.
        doors.unix.open()
        doors.adopted.open()
        closing.callback(MessageFiles(self._home, log, tasks).close)
        closing.callback(DeadSockets(self._home, log).close)
        closing.callback(WorkspaceCleanup(self._home, log, tasks, read_process).close)
        if not is_read_only:
            tasks.create_task(take_up_reports(doors.services))
            tasks.create_task(self._finish_redactions(middle.broker))
        for door in (doors.http, doors.irc):
            await door.open(doors.services, self._live.now)
        tasks.create_task(DeliveryTimer(reactors.delivery).run())
        call_later = asyncio.get_running_loop().call_later
        look_after: list[Callable[[], object]] = [
            doors.unix.look_after,
            doors.adopted.look_after,
            lambda: self._look_after_log(log, tasks),
        ]
        if is_read_only:
            # Polled, because no event reports that another program has freed disk space.
            look_after.append(lambda: tasks.create_task(self._begin_with_room(log)))
        closing.callback(HomeWatch(self._home, lambda: self.stop(_LOST), call_later, look_after).close)
        return doors

    async def _begin_with_room(self, log: SqliteLog) -> None:
        """Start again once a full disk has room: the start must be stored before anything else."""
        if await log.has_room():
            self.stop(DISK_HAS_ROOM)

    def _look_after_log(self, log: SqliteLog, tasks: GuardedTasks) -> None:
        """Log once that a file of the log was lost, and save the committed events."""

        async def save() -> None:
            _logger.error("%s", trouble)
            try:
                await log.save()
            except PalaverError as error:
                _logger.error("earlier events could not be synced to disk: %s", error)
            else:
                _logger.error("earlier events are on disk")

        if not self._is_log_lost and (trouble := log.find_trouble()):
            # Set before the task runs: the next check comes a second later, and must not save again.
            self._is_log_lost = True
            tasks.create_task(save())

    async def _finish_redactions(self, broker: Broker) -> None:
        for seq, reason in (await broker.finish_redactions(self._remove_files)).items():
            _logger.error("the text of #%d is not removed yet: %s", seq, reason)

    async def _remove_files(self, ids: Sequence[str]) -> None:
        await asyncio.to_thread(remove_files, self._home, ids)

    def _take_wanted(self, identifier: CallerIdentifier) -> None:
        """Write the settings that this process was started with; refuse unless a person started it."""
        # Only a daemon in the foreground has wanted settings, and its ancestors and environment are those of
        # its caller. Without this check an agent could open a door by starting the bus.
        require_person(identifier.who(ancestors(os.getpid()), CallerClaim(marks=marks_of(os.environ))))
        write_wanted(self._home, self._wanted)
        self._live.begin(load(self._home, os.environ))

    async def _shut(self, doors: "_Doors") -> None:
        # First, so that later callers wait for the next daemon instead of being cut off by this one.
        doors.unix.shut()
        if self._reason == REPLACED:
            await wait_for_successor(self._home)
        await doors.http.close()
        await doors.irc.close()
        # With a text waiting commands end and show it. Without one they reconnect to the next daemon.
        await doors.unix.close(_STOPPED_TEXT if self._reason == DOWN else None)

    def _make_middle(self, log: SqliteLog, tasks: GuardedTasks, closing: ExitStack) -> "_Middle":
        """Create the broker and the parts that its decisions read."""

        def gone(name: str, seat: Seat | None, reason: str) -> None:
            # A task, because presence calls this from callbacks, which cannot await. `broker` exists by then:
            # the index is empty until it starts.
            tasks.create_task(broker.submit(SYSTEM_CALLER, Gone(name=name, reason=reason, seat=seat)))

        ids = UlidSource(self._clock, secrets.token_bytes)
        # Ids grow across restarts, even if the clock was set back in the meantime.
        if largest := log.largest_id():
            ids.start_above(largest)
        agent_index = AgentIndex(
            log, gone, asyncio.get_running_loop().call_later, read_secret(self._home / "seat.key")
        )
        closing.callback(agent_index.close)
        tokens = TokenBook(self._home, self._clock)
        closing.callback(tokens.end_with_agents(log, tasks))
        member_presence = MemberPresenceBook(
            log,
            clock=self._clock,
            is_present=agent_index.is_in_reach,
            has_token=tokens.has_one_of,
            policy=self._policy,
        )
        closing.callback(member_presence.close)
        settings = self._live.now
        brakes = Brakes(limit_hops=settings.brake_hops, limit_a_minute=settings.brake_per_minute)
        broker = Broker(
            log,
            clock=self._clock,
            ids=ids,
            is_present=agent_index.presence.is_present,
            draw=lambda: secrets.randbelow(1_000_000),
            brakes=brakes,
            member_presence=member_presence,
            policy=self._policy,
        )
        closing.callback(broker.close)

        def change(now: Settings) -> None:
            # Changed in place, because the broker and the rooms have these objects.
            brakes.set_limits(limit_hops=now.brake_hops, limit_a_minute=now.brake_per_minute)
            change_policy(self._policy, now)
            set_log(now)

        self._live.watch(change)
        identifier = CallerIdentifier(
            agent_index.seats,
            agent_index.terminals,
            holders=agent_index.holders,
            agent_terminals=agent_index.agent_terminals,
        )
        return _Middle(
            agent_index=agent_index,
            identifier=identifier,
            tokens=tokens,
            member_presence=member_presence,
            broker=broker,
        )

    def _make_doors(
        self,
        log: SqliteLog,
        middle: "_Middle",
        reactors: Reactors,
        subagents: Subagents,
        tasks: GuardedTasks,
        closing: ExitStack,
    ) -> "_Doors":
        """Create the doors, which turn bytes into requests, and the services that they use."""
        delivery = reactors.delivery
        agent_index, broker = middle.agent_index, middle.broker
        http, irc = HttpDoor(tasks), IrcDoor(tasks)
        queries = Queries(log)
        conversations, transcripts = Conversations(delivery, queries, tasks), TranscriptBook()
        closing.callback(conversations.close)
        rooms = RoomService(
            log=log,
            broker=broker,
            clock=self._clock,
            member_presence=middle.member_presence,
            workspaces=Workspaces(),
            policy=self._policy,
            # `services` contains these rooms and is created below, so it is looked up at each call.
            agents=lambda: agents_view(services),
            inbox=lambda name, limit: mail_view(services, name, limit),
        )
        closing.callback(rooms.close)
        hooks = HookHandler(
            queries=queries,
            broker=broker,
            delivery=delivery,
            conversations=conversations,
            transcripts=transcripts,
            subagents=subagents,
            outcomes=HookOutcomes(self._home, queries, broker),
            hints=lambda name: broker.directory.hints_for(name, self._live.now.hints),
            tasks=tasks,
        )
        tickets, permissions = Tickets(self._clock), PermissionBook()
        accounts = Accounts(
            tokens=middle.tokens,
            directory=broker.directory,
            presence=agent_index.presence,
            submit=broker.submit,
            gone=lambda name, reason: broker.submit(SYSTEM_CALLER, Gone(name=name, reason=reason)),
            live=self._live,
            clock=self._clock,
        )
        closing.callback(accounts.follow(log))
        turns = TurnService(
            broker=broker,
            queries=queries,
            turns=reactors.turns,
            seats=agent_index.seats,
            tickets=tickets,
            runners=RunnerBook(self._home, is_alive),
            watch=ProcessWatch(),
            clock=self._clock,
            spawn=tasks.create_task,
        )
        closing.callback(turns.close)
        call_later = asyncio.get_running_loop().call_later
        past = PastViews(self._home, last=queries.last, tasks=tasks, call_later=call_later)
        closing.callback(past.close)
        notices = NoticeBook(self._live, self._clock, call_later)
        closing.callback(notices.close)
        metrics = Metrics(
            MetricSources(
                queries=queries,
                home=self._home,
                clock=self._clock,
                live=self._live,
                agents=broker.directory.all,
                attention=lambda: attention_view(services),
                count_waiting=middle.member_presence.count_waiting,
            )
        )
        live = LiveViews(
            ViewSources(
                queries=queries,
                directory=broker.directory,
                delivery=delivery,
                presence=agent_index.presence,
                members=middle.member_presence,
                permissions=permissions,
                policy=self._policy,
                settings=lambda: self._live.now,
                clock=self._clock,
                version=__version__,
                count_slow=metrics.count_slow_follower,
            ),
            # The id of the home, which `LiveViews.open` compares, and a part that is new at each start.
            epoch=f"{queries.device}-{secrets.token_hex(8)}",
            call_later=call_later,
            spawn=tasks.create_task,
            past=past.answer,
        )
        closing.callback(live.close)
        services = Services(
            daemon=DaemonParts(
                home=self._home,
                clock=self._clock,
                settings=self._live,
                version=__version__,
                started_ms=self._clock.now_ms(),
                stop=self.stop,
                doors={"http": http, "irc": irc},
                run_hook=partial(run_hook, hooks),
            ),
            queries=queries,
            broker=broker,
            delivery=delivery,
            callers=CallerBooks(
                seats=agent_index.seats,
                presence=agent_index.presence,
                member_presence=middle.member_presence,
                tickets=tickets,
                tokens=middle.tokens,
                accounts=accounts,
                webhooks=WebhookBook(self._home, self._clock),
                web=WebSessions(self._home, self._clock),
            ),
            agents=AgentBooks(
                holds=HeldAgents(agent_index.holders.meet),
                conversations=conversations,
                subagents=subagents,
                transcripts=transcripts,
                permissions=permissions,
                consumers=Consumers(self._home / "consumers"),
            ),
            live=live,
            cases=UseCases(
                rooms=rooms,
                paths=PathService(broker, queries, delivery),
                turns=turns,
                metrics=metrics,
                notices=notices,
            ),
        )
        exporting = OtelExport(queries, metrics, self._live, tasks.create_task)
        closing.callback(exporting.close)
        exporting.start()
        adopted = AdoptedDoor(services, middle.identifier, tasks)
        closing.callback(adopted.close)
        unix = UnixDoor(services, middle.identifier, hooks, tasks)
        return _Doors(services=services, unix=unix, adopted=adopted, http=http, irc=irc, hooks=hooks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Middle:
    """The broker, and the parts that know callers and presence, which its decisions read."""

    agent_index: AgentIndex
    identifier: CallerIdentifier
    tokens: TokenBook
    member_presence: MemberPresenceBook
    broker: Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doors:
    """The open doors, and the services that they share."""

    services: Services
    unix: UnixDoor
    adopted: AdoptedDoor
    http: HttpDoor
    irc: IrcDoor
    hooks: HookHandler
