"""The queue of automatic turns: which batch is due, what the runner does next, and the outcome of each job.

The queue and the turns are in the log, so a restart loses nothing. Only timers, triages that are under way,
and turns that a person waits for are in memory. It is level-triggered: each event about a session leads to
one look at its rows, and the cost of a look does not depend on the backlog.
"""

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Final, Protocol, TypeAlias

from palaver.clock import CallLater, Clock, Timer
from palaver.domain.turns import (
    Batch,
    Verdict,
    allowed_at_ms,
    batch_limit,
    batch_of,
    due_ms,
    held_notice,
    is_failed_reason,
    is_yes,
    judge_batch,
    no_runner_notice,
    resolve_auto_run,
    retry_at_ms,
    triage_prompt,
    turn_prompt,
)
from palaver.errors import BadRequest, NotFound, PalaverError, RequestError, Unavailable
from palaver.log.api import EventKey, EventKind, Log
from palaver.log.follow import HandlerSwitch
from palaver.protocol.agents import LAUNCHED, Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    AGENT_TYPES,
    SESSION_CREATED,
    SESSION_REMOVED,
    SETTING,
    TURN_TYPES,
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    DeliveryReport,
    MessageSent,
    SessionCreated,
    SessionRemoved,
    SettingChanged,
    State,
    TurnSkipped,
)
from palaver.protocol.message import MESSAGE
from palaver.protocol.paths import MAIN, CreateSession, mailbox_of, split_mailbox
from palaver.protocol.requests import Submit
from palaver.protocol.subscriptions import DELIVERY
from palaver.protocol.turns import (
    AUTO_RUN,
    LIMIT_OUTPUT,
    BatchMessage,
    FailTurn,
    FinishTurn,
    NoJob,
    RunnerJob,
    SkipTurn,
    StartTurn,
    TriageJob,
    TurnConfig,
    TurnJob,
    batch_of_start,
    is_harness_session,
    session_of_mailbox,
    turn_targets,
)
from palaver.state.agents import find_mail, read_agent, read_entry
from palaver.state.fold import agent_of
from palaver.state.paths import read_agent_session, session_of_harness
from palaver.state.turns import (
    TurnState,
    read_auto_run,
    read_auto_runs,
    read_held_for_turns,
    read_queued,
    read_queued_sessions,
    read_turn,
    read_turns,
)

_logger: Final = logging.getLogger("palaver.turns")

Target: TypeAlias = tuple[str, str]
"""An agent and one of its sessions."""

# Settings have a handler that is always on: one of them can turn on the switch of this handler.
_HANDLED: Final[frozenset[EventKey]] = (
    (AGENT_TYPES - {SETTING})
    | TURN_TYPES
    | {MESSAGE, DELIVERY, EventKind.DELIVERED, SESSION_CREATED, SESSION_REMOVED}
)

NO_RUNNER_S: Final = 30.0
"""How long a due batch waits for a runner before its senders are notified."""
_TRY_AGAIN_S: Final = 1.0
"""Seconds to the next attempt after a full disk or another temporary failure."""
_REFUSED_AGAIN_S: Final = 60.0
"""Seconds to the next attempt after a refusal: it is probably permanent, but may depend on another agent."""
_LOST: Final = "the runner ended before the turn did"
_LONGEST_S: Final = 24 * 3600.0
"""Longest timer of a session. When it rings and nothing is due, the next one is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The settings of automatic turns."""

    defaults: TurnConfig
    limit_an_hour: int
    triage_command: tuple[str, ...]
    command: tuple[str, ...]


class IsLive(Protocol):
    """Tells whether an agent is present with a harness."""

    def __call__(self, agent: Agent) -> bool: ...


class Step(enum.StrEnum):
    """The next step of a session, or the reason why it waits."""

    IDLE = "idle"
    OFF = "off"
    PAUSED = "paused"
    LIVE = "live"
    """The session is open in a harness, which gets its messages itself."""
    RUNNING = "running"
    TRIAGE = "triage"
    WAITING = "waiting"
    """Until a time: the debounce, a retry, or the limit in an hour."""
    DUE = "due"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """The next step of a session."""

    step: Step
    config: TurnConfig
    batch: tuple[BatchMessage, ...] = ()
    waiting: int = 0
    """Waiting messages, counted up to a limit."""
    until_ms: int = 0
    is_retry: bool = False
    is_limited: bool = False
    """It waits because of the limit in an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """How a turn ended that a caller has asked for."""

    turn: int
    text: str = ""
    error: str = ""
    messages: int = 0


@dataclass(slots=True)
class _Manual:
    """A turn that a caller has asked for, and its outcome."""

    batch: tuple[BatchMessage, ...]
    text: str
    id: str
    by: str
    outcome: asyncio.Future[TurnOutcome]

    def fail(self, error: Exception) -> None:
        # The caller may have been cancelled meanwhile.
        if not self.outcome.done():
            self.outcome.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A batch that a triage has accepted, with the outcome of the triage."""

    batch: tuple[BatchMessage, ...]
    triage: str


@dataclass(frozen=True, slots=True)
class _Triage:
    """A triage that the runner makes now."""

    job: int
    target: Target
    batch: tuple[BatchMessage, ...]


class AutomaticTurns:
    """The sessions with automatic turns. Belongs to the loop's thread."""

    def __init__(
        self,
        log: Log,
        submit: Submit,
        *,
        clock: Clock,
        settings: Callable[[], TurnSettings],
        is_live: IsLive,
        is_in_hand: Callable[[str, int], bool],
        call_later: CallLater,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """`is_in_hand` returns whether a reader of a mailbox has a message now: it starts no turn then."""
        self._log = log
        self._submit = submit
        self._clock = clock
        self._settings = settings
        self._is_live = is_live
        self._is_in_hand = is_in_hand
        self._call_later = call_later
        self._tasks = tasks
        self._switch = HandlerSwitch(log, self._hear, _HANDLED)
        """On while an agent has automatic turns, so that messages cost nothing otherwise."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._agents: set[str] = set()
        """Agents that have a configuration, or a session with one. Messages to others need no look."""
        self._dirty: dict[Target, None] = {}
        self._waiting: set[Target] = set()
        """Sessions that have messages or an open turn, to be looked at when their agent changes.

        Also after their automatic turns were turned off: an open turn still has to end.
        """
        self._ready: dict[Target, None] = {}
        """Sessions whose batch is due, in the order in which they became due."""
        self._timers: dict[Target, Timer] = {}
        self._triages: dict[int, _Triage] = {}
        self._accepted: dict[Target, _Accepted] = {}
        self._manual: dict[Target, deque[_Manual]] = {}
        self._started: dict[int, _Manual] = {}
        """Turns that a person waits for, by the seq of their start."""
        self._numbers = count(1)
        self._news = asyncio.Event()
        self._is_due = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._runner_timer: Timer | None = None
        self.has_runner = False

    # The life of the reactor

    def start(self) -> None:
        """Look at every session with waiting messages or an open turn."""
        self._unsubscribe = self._log.subscribe(self._hear_settings, {SETTING})
        # First, because a look at a session of any other agent is ignored.
        self._read_agents()
        for key in (*read_queued_sessions(self._log.rows), *(key for key, _ in read_turns(self._log.rows))):
            self._look_at(session_of_mailbox(key))
        self._work = self._tasks.create_task(self._run())
        self._tasks.create_task(self._tell_held())

    def close(self) -> None:
        """Stop. The queue and open turns stay in the log, for the next daemon. Closing twice is harmless."""
        self._unsubscribe()
        self._switch.turn(is_on=False)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._watch_runner(is_awaited=False)
        if self._work is not None:
            self._work.cancel()

    async def _tell_held(self) -> None:
        """Repeat the notices about held messages, which the last daemon may not have written."""
        # Read as a whole, because other commits change these rows during the awaits below.
        for seq, queued in list(read_held_for_turns(self._log.rows)):
            event, entry = self._log.event(seq), read_entry(self._log.rows, seq, queued.mailbox)
            if event is None or entry is None or entry.state != State.HELD:
                continue
            if not is_failed_reason(entry.reason):
                continue  # held for another reason, such as a brake
            # The id of the notice is derived from the message, so a repeat is not stored.
            if (notice := held_notice(event, queued.mailbox, entry.reason)) is not None:
                await self._submit(notice)

    # New events

    def _hear_settings(self, events: Sequence[Event]) -> None:
        changed = {
            event.body.agent
            for event in events
            if isinstance(event.body, SettingChanged) and event.body.key == AUTO_RUN
        }
        if not changed:
            return
        self._read_agents()
        for target in map(session_of_mailbox, read_queued_sessions(self._log.rows)):
            if target[0] in changed:
                self._look_at(target)

    def _read_agents(self) -> None:
        self._agents = {split_mailbox(key)[0] for key, _ in read_auto_runs(self._log.rows)}
        self._turn_switch()

    def _turn_switch(self) -> None:
        self._switch.turn(is_on=bool(self._agents) or any(self._manual.values()))

    def settings_changed(self) -> None:
        """Look again at every session with messages or an open turn, after a setting has changed."""
        for target in self._waiting:
            self._look_at(target)

    def messages_released(self, mailbox: str) -> None:
        """Look again at the session of a mailbox whose messages a reader had in hand: no event says so."""
        self._look_at(session_of_mailbox(mailbox))

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            match event.body:
                case DeliveryReport(agent=mailbox):
                    self._look_at(session_of_mailbox(mailbox))
                case (
                    AutoTurnStarted(agent=agent, session=session)
                    | AutoTurnResult(agent=agent, session=session)
                    | AutoTurnError(agent=agent, session=session)
                    | TurnSkipped(agent=agent, session=session)
                    | SessionCreated(agent=agent, session=session)
                    | SessionRemoved(agent=agent, session=session)
                ):
                    self._look_at((agent, session))
                case _ if event.type in AGENT_TYPES:
                    self._look_at_agent(agent_of(event))
                case MessageSent(delivered_to=mailboxes):
                    self._look_at_mailboxes(mailboxes)
                case _:
                    self._look_at_mailboxes(event.delivered_to)

    def _look_at_mailboxes(self, mailboxes: Sequence[str]) -> None:
        for mailbox in turn_targets(mailboxes):
            self._look_at(session_of_mailbox(mailbox))

    def _look_at_agent(self, agent: str) -> None:
        # Presence, pauses and the harness session concern all sessions of the agent.
        for target in [target for target in self._waiting if target[0] == agent]:
            self._look_at(target)
        self._look_at((agent, MAIN))

    def _look_at(self, target: Target) -> None:
        if target[0] in self._agents or target in self._waiting or self._is_wanted(target):
            self._dirty[target] = None
            self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._dirty:
                target = next(iter(self._dirty))
                # Before the look: news during its await must cause another one.
                del self._dirty[target]
                try:
                    await self._look(target)
                except Unavailable as error:
                    _logger.warning("an automatic turn of %s waits: %s", mailbox_of(*target), error)
                    self._wait(target, _TRY_AGAIN_S)
                except PalaverError as error:
                    self._refuse(target, error)
                await asyncio.sleep(0)  # many sessions may have news at once, and others wait for the loop

    async def _look(self, target: Target) -> None:
        """Act on the state of one session: wait, skip the batch, or make it ready for the runner."""
        if (timer := self._timers.pop(target, None)) is not None:
            timer.cancel()
        plan = self.plan(*target)
        # A session that is still due keeps its position: otherwise a busy one would never be the first.
        if plan.step is not Step.DUE:
            self._ready.pop(target, None)
        if plan.step is Step.IDLE:
            self._waiting.discard(target)
            self._accepted.pop(target, None)
            return
        self._waiting.add(target)
        if plan.step is Step.WAITING:
            self._wait(target, (plan.until_ms - self._clock.now_ms()) / 1000)
        elif plan.step is Step.DUE:
            if not self._is_wanted(target) and self._verdict(target, plan) is Verdict.SKIP:
                self._ready.pop(target, None)
                skipped = SkipTurn(agent=target[0], session=target[1], batch=plan.batch, reason="reject list")
                await self._submit(skipped)
                self._look_at(target)
                return
            self._ready[target] = None
            self._is_due.set()
        self._watch_runner(is_awaited=bool(self._ready) and not self.has_runner)

    def _refuse(self, target: Target, error: PalaverError) -> None:
        """Log a refusal, and look again later."""
        _logger.warning("no automatic turn of %s: %s", mailbox_of(*target), error)
        # Without it, the messages would wait for the next event about their session, which may never come.
        self._wait(target, _REFUSED_AGAIN_S)

    def _wait(self, target: Target, wait_s: float) -> None:
        def look_again() -> None:
            self._timers.pop(target, None)
            self._look_at(target)

        self._timers[target] = self._call_later(min(max(wait_s, 0.0), _LONGEST_S), look_again)

    # Plans

    def config(self, agent: str, session: str) -> TurnConfig:
        """Return the configuration of a session."""
        rows = self._log.rows
        values = read_auto_run(rows, agent, session), read_auto_run(rows, agent)
        return resolve_auto_run(*values, self._settings().defaults)

    def plan(self, agent: str, session: str) -> TurnPlan:
        """Return the next step of a session. Changes nothing."""
        rows, target = self._log.rows, (agent, session)
        turn, config = read_turn(rows, agent, session), self.config(agent, session)
        # At least as many as the failed batch has, so that its messages are found for the next attempt.
        limit = max(batch_limit(config), len(turn.batch))
        waiting = list(islice(self._eligible(target), limit))
        size = len(waiting)
        if turn.active:
            return TurnPlan(step=Step.RUNNING, config=config, batch=turn.batch, waiting=size)
        if any(one.target == target for one in self._triages.values()):
            return TurnPlan(step=Step.TRIAGE, config=config, waiting=size)
        known = read_agent(rows, agent)
        is_wanted = self._is_wanted(target)
        if known is None or not (config.enabled or is_wanted):
            return TurnPlan(step=Step.OFF if waiting else Step.IDLE, config=config, waiting=size)
        if not waiting and not is_wanted:
            return TurnPlan(step=Step.IDLE, config=config)
        # Two processes must not continue one session at the same time, also for a turn that a person wants.
        if self.is_live(known, session):
            return TurnPlan(step=Step.LIVE, config=config, waiting=size)
        # Before the pause: a person asks for this turn explicitly, and a pause stops only automatic ones.
        if is_wanted:
            return TurnPlan(step=Step.DUE, config=config, waiting=size)
        if known.paused:
            return TurnPlan(step=Step.PAUSED, config=config, waiting=size)
        if (accepted := self._accepted.get(target)) is not None:
            # A reader may have taken some of these since the triage.
            free = tuple(one for one in accepted.batch if not self._is_in_hand(one.mailbox, one.seq))
            return TurnPlan(step=Step.DUE, config=config, batch=free, waiting=size)
        return self._plan_batch(turn, config, waiting)

    def _plan_batch(
        self, turn: TurnState, config: TurnConfig, waiting: Sequence[tuple[BatchMessage, int]]
    ) -> TurnPlan:
        now_ms = self._clock.now_ms()
        # A failed batch is tried again without newer messages: with them it would be another batch, whose
        # attempts are counted from the beginning, and it would never be held.
        again = {one.seq for one in turn.batch} if turn.failed_ms else set()
        retried = tuple(one for one, _ in waiting if one.seq in again)
        if retried:
            batch, until_ms = retried, retry_at_ms(turn.failed_ms, turn.attempt)
        else:
            batch = batch_of([one for one, _ in waiting], config)
            until_ms = due_ms(waiting[0][1], waiting[-1][1], len(waiting), config)
        allowed_ms = allowed_at_ms(turn.starts, self._settings().limit_an_hour, now_ms)
        until_ms = max(until_ms, allowed_ms)
        return TurnPlan(
            step=Step.WAITING if until_ms > now_ms else Step.DUE,
            config=config,
            batch=batch,
            waiting=len(waiting),
            until_ms=until_ms,
            is_retry=bool(retried),
            is_limited=allowed_ms > now_ms,
        )

    def _eligible(self, target: Target) -> Iterator[tuple[BatchMessage, int]]:
        """Iterate over the messages that can start a turn, oldest first, each with its time."""
        rows = self._log.rows
        for seq, queued in read_queued(rows, *target):
            found = find_mail(rows, queued.mailbox, seq)
            is_open = found is not None and found[1].state == State.QUEUED
            if is_open and not self._is_in_hand(queued.mailbox, seq):
                yield BatchMessage(seq=seq, mailbox=queued.mailbox), queued.ts

    def is_live(self, agent: Agent, session: str) -> bool:
        """Return whether a session is open in a harness now."""
        if not self._is_live(agent):
            return False
        return session_of_harness(self._log.rows, agent.name, agent.session) == session

    def _is_wanted(self, target: Target) -> bool:
        return bool(self._manual.get(target))

    def _verdict(self, target: Target, plan: TurnPlan) -> Verdict:
        if plan.is_retry or target in self._accepted:
            return Verdict.RUN  # a retried batch was accepted before
        return judge_batch(plan.config, self._batch(target, plan.batch).routed())

    def _batch(self, target: Target, batch: Collection[BatchMessage]) -> Batch:
        agent = read_agent(self._log.rows, target[0])
        if agent is None:
            raise NotFound(f"agent {target[0]}")
        found = [(self._log.event(one.seq), one.mailbox) for one in batch]
        events = tuple((event, mailbox) for event, mailbox in found if event is not None)
        return Batch(agent=agent, session=target[1], events=events)

    # Turns that a person asks for

    async def run(
        self, target: Target, batch: Sequence[BatchMessage], text: str, *, by: str, id_: str = ""
    ) -> TurnOutcome:
        """Run a turn without a triage, after a running one, and return its outcome. Needs a runner.

        `by` is the caller, and `id_` the id of the event of its start, derived from the request.
        """
        agent = read_agent(self._log.rows, target[0])
        if agent is not None and self.is_live(agent, target[1]):
            raise BadRequest(
                f"the session {target[1]} of {agent.name} is open in {agent.harness}; write to it with "
                f"'pal send {agent.name}', or end it first"
            )
        wanted = _Manual(tuple(batch), text, id_, by, asyncio.get_running_loop().create_future())
        self._manual.setdefault(target, deque()).append(wanted)
        self._turn_switch()
        self._look_at(target)
        try:
            return await wanted.outcome
        finally:
            # The runner may have taken it, or may have ended.
            if wanted in self._manual[target]:
                self._manual[target].remove(wanted)
            self._turn_switch()

    # The runner

    async def register(self, running: Collection[int]) -> None:
        """Accept a runner that runs these turns. Every other open turn has ended without a result."""
        # The end of its last connection may not be noticed yet, and a runner that reconnects has no triages.
        self.disconnect_runner()
        self.has_runner = True
        self._watch_runner(is_awaited=False)
        # One of the two has lost them: the last runner was killed, or the daemon ended between the stored
        # start and the job.
        for turn in self._open_turns():
            if turn not in running:
                await self._fail(turn, _LOST)

    async def lose_runner(self) -> None:
        """Record that the runner has ended: open and requested turns failed, and triages begin again."""
        self.disconnect_runner()
        for target, queue in self._manual.items():
            for wanted in queue:
                wanted.fail(Unavailable("the runner has ended; a person can start it with 'pal turn start'"))
            queue.clear()
            self._look_at(target)
        for turn in self._open_turns():
            await self._fail(turn, _LOST)

    def disconnect_runner(self) -> None:
        """Record that the runner is not connected. It may come back, and its turns may still run."""
        self.has_runner = False
        # A triage changes nothing, so it is made again. The turns are not ended here, because they may still
        # run.
        triages, self._triages = self._triages, {}
        for triage in triages.values():
            self._look_at(triage.target)
        self._watch_runner(is_awaited=bool(self._ready))

    async def next_job(self, limit_s: float) -> RunnerJob:
        """Wait for a job, for up to `limit_s` seconds."""
        until_s = asyncio.get_running_loop().time() + limit_s
        while (job := await self._take_ready()) is None:
            # No await between the look and this: a session that becomes due later sets it again.
            self._is_due.clear()
            try:
                # The timeout is only here: a turn that has started must reach the runner.
                async with asyncio.timeout_at(until_s):
                    await self._is_due.wait()
            except TimeoutError:
                return NoJob()
        return job

    async def _take_ready(self) -> RunnerJob | None:
        """Return the job of the first session that is due. Checks again, because time has passed."""
        while self._ready:
            target = next(iter(self._ready))
            # Before the first await, so that a second request for a job cannot take the same batch.
            del self._ready[target]
            plan = self.plan(*target)
            if plan.step is not Step.DUE:
                self._look_at(target)
                continue
            try:
                job = await self._begin_job(target, plan)
            except Unavailable:
                self._wait(target, _TRY_AGAIN_S)
                raise
            except PalaverError as error:
                # Not raised: the refusal concerns one session, and would end the runner with all its turns.
                self._refuse(target, error)
                continue
            if job is not None:
                return job
        return None

    async def _begin_job(self, target: Target, plan: TurnPlan) -> RunnerJob | None:
        if wanted := self._manual.get(target):
            return await self._begin_manual(target, wanted.popleft(), plan.config)
        verdict = self._verdict(target, plan)
        if verdict is Verdict.SKIP:  # its configuration has changed since the last look
            self._look_at(target)
            return None
        if verdict is Verdict.ASK:
            return self._begin_triage(target, plan)
        accepted = self._accepted.get(target)
        triage = "" if accepted is None else accepted.triage
        job = await self._begin(target, plan.batch, triage, plan.config)
        # Not before: if the start cannot be written, no second triage runs.
        self._accepted.pop(target, None)
        return job

    def _begin_triage(self, target: Target, plan: TurnPlan) -> TriageJob:
        number = next(self._numbers)
        self._triages[number] = _Triage(number, target, plan.batch)
        batch = self._batch(target, plan.batch)
        model = plan.config.triage_model
        return TriageJob(
            job=number,
            agent=target[0],
            session=target[1],
            # In each word after the split, so that a model's name is never more than one argument.
            command=tuple(word.replace("{model}", model) for word in self._settings().triage_command),
            prompt=triage_prompt(batch),
            timeout_ms=plan.config.triage_timeout_ms,
            cwd=batch.agent.cwd,
        )

    async def _begin_manual(self, target: Target, wanted: _Manual, config: TurnConfig) -> TurnJob | None:
        try:
            job = await self._begin(target, wanted.batch, "", config, wanted)
        except RequestError as refusal:
            wanted.fail(refusal)
            self._look_at(target)
            return None
        except BaseException:
            # The runner may have lost its connection meanwhile, and then no one reports an outcome.
            wanted.fail(Unavailable("the turn could not be started; try again"))
            raise
        if job is None:
            wanted.fail(BadRequest("the turn has ended already, or another one has just started; try again"))
            return None
        self._started[job.turn] = wanted
        return job

    async def _begin(
        self,
        target: Target,
        batch: tuple[BatchMessage, ...],
        triage: str,
        config: TurnConfig,
        wanted: _Manual | None = None,
    ) -> TurnJob | None:
        """Write the start of a turn and return its job; None if it is not needed any more."""
        text = "" if wanted is None else wanted.text
        request = StartTurn(
            agent=target[0],
            session=target[1],
            batch=batch,
            triage=triage,
            text=text,
            started_by="" if wanted is None else wanted.by,
            id="" if wanted is None else wanted.id,
        )
        written = await self._write_start(request)
        event = getattr(written, "event", None)
        active = read_turn(self._log.rows, *target).active
        # A repeated request returns the start of its first turn, which may have ended.
        if not isinstance(event, Event) or not isinstance(event.body, AutoTurnStarted) or event.seq != active:
            self._look_at(target)
            return None
        made = self._batch(target, batch_of_start(event.body))
        agent = made.agent
        is_launched = agent.argv[: len(LAUNCHED)] == LAUNCHED
        return TurnJob(
            turn=event.seq,
            agent=target[0],
            session=target[1],
            prompt=turn_prompt(made, self._log.device, text, request.started_by),
            timeout_ms=config.execution_timeout_ms,
            harness=agent.harness,
            harness_session=self._harness_session(agent, target[1]),
            arguments=agent.argv[len(LAUNCHED) + 1 :] if is_launched else (),
            cwd=agent.cwd,
            command=self._settings().command,
        )

    async def _write_start(self, request: StartTurn) -> object:
        """Write the start of a turn. If the request for its job is cancelled meanwhile, the turn fails."""
        # Shielded: a write that is cancelled may be stored all the same, and no runner would end that turn.
        writing = asyncio.ensure_future(self._submit(request))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._tasks.create_task(self._give_up((request.agent, request.session), writing))
            raise

    async def _give_up(self, target: Target, writing: asyncio.Future[object]) -> None:
        try:
            event = getattr(await writing, "event", None)
            if isinstance(event, Event):
                await self._fail(event.seq, _LOST)
        except PalaverError as error:
            _logger.warning("a turn of %s that no runner has was not ended: %s", mailbox_of(*target), error)
            # If the write itself failed, there is no turn and no event, and its batch is no longer due.
            self._look_at(target)

    def _harness_session(self, agent: Agent, session: str) -> str:
        """Return the harness's own id of a session; for `main`, that of the agent's last session."""
        known = read_agent_session(self._log.rows, agent.name, session)
        found = "" if known is None else known.harness_session or ""
        is_last = session_of_harness(self._log.rows, agent.name, agent.session) == session
        # For a link `session` is the hash of its secret, and not the id of a session in a harness.
        if not found and is_last and agent.harness and not agent.link:
            found = agent.session
        # It becomes an argument of the harness, so it must not look like an option.
        return found if is_harness_session(found) else ""

    async def triaged(self, job: int, output: str, error: str) -> None:
        """Act on the outcome of a triage. After an error the turn runs: no message may be missed.

        A job that is not known was begun again meanwhile: do nothing.
        """
        triage = self._triages.get(job)
        if triage is None:
            return
        agent, session = triage.target
        try:
            if error or is_yes(output):
                self._accepted[triage.target] = _Accepted(triage.batch, "error" if error else "accepted")
                return
            skipped = SkipTurn(
                agent=agent,
                session=session,
                batch=triage.batch,
                reason="triage",
                output=output[:LIMIT_OUTPUT],
            )
            await self._submit(skipped)
        finally:
            # Not before the batch is skipped, or it would be triaged again; but also if that failed.
            self._triages.pop(job, None)
            self._look_at(triage.target)

    async def ended(self, turn: int, output: str, error: str, harness_session: str) -> None:
        """Store the outcome of a turn. A repeat changes nothing. Raises NotFound for an unknown turn."""
        if error:
            await self._fail(turn, error)
            return
        started = self._started_of(turn)
        is_running = read_turn(self._log.rows, started.agent, started.session).active == turn
        # It comes from the output of the harness, and becomes an argument of the next turn.
        if is_harness_session(harness_session) and is_running:
            request = CreateSession(
                agent=started.agent,
                session=started.session,
                harness_session=harness_session,
                only_existing=True,  # it may have been removed during the turn
            )
            # Before the end of the turn, because the next turn may begin with that event and continues this
            # session.
            await self._submit(request)
        text = output[:LIMIT_OUTPUT]
        await self._submit(FinishTurn(turn=turn, text=text))
        # After the write: a caller that has the outcome must find it in the log.
        self._settle(turn, TurnOutcome(turn=turn, text=text, messages=len(started.messages)))

    async def _fail(self, turn: int, error: str) -> None:
        error = error[:LIMIT_OUTPUT]
        await self._submit(FailTurn(turn=turn, error=error))
        count = len(self._started_of(turn).messages)
        self._settle(turn, TurnOutcome(turn=turn, error=error, messages=count))

    def target_of(self, *, job: int = 0, turn: int = 0) -> Target:
        """Return the session of a triage or of a running turn. Raises NotFound."""
        if job:
            if (triage := self._triages.get(job)) is None:
                raise NotFound(f"triage {job}", "it was started again")
            return triage.target
        started = self._started_of(turn)
        if read_turn(self._log.rows, started.agent, started.session).active != turn:
            raise NotFound(f"running turn #{turn}", "it has ended")
        return started.agent, started.session

    def _started_of(self, turn: int) -> AutoTurnStarted:
        event = self._log.event(turn)
        if event is None or not isinstance(event.body, AutoTurnStarted):
            raise NotFound(f"automatic turn #{turn}")
        return event.body

    def _settle(self, turn: int, outcome: TurnOutcome) -> None:
        """Return the outcome of a turn to the person who waits for it."""
        wanted = self._started.pop(turn, None)
        if wanted is not None and not wanted.outcome.done():
            wanted.outcome.set_result(outcome)

    def _open_turns(self) -> list[int]:
        return [turn.active for _, turn in read_turns(self._log.rows) if turn.active]

    # A missing runner

    def _watch_runner(self, *, is_awaited: bool) -> None:
        """Notify the senders of due messages once they have waited for a runner for a while."""
        if not is_awaited and self._runner_timer is not None:
            self._runner_timer.cancel()
            self._runner_timer = None
        elif is_awaited and self._runner_timer is None:
            self._runner_timer = self._call_later(NO_RUNNER_S, self._miss_runner)

    def _miss_runner(self) -> None:
        self._runner_timer = None
        if not self.has_runner:
            self._tasks.create_task(self._tell_missing())

    async def _tell_missing(self) -> None:
        try:
            # A copy, because sessions become due or are taken during the awaits.
            for target in list(self._ready):
                # Planned now, because the batch may have changed while earlier notices were written.
                for one in self.plan(*target).batch:
                    event = self._log.event(one.seq)
                    if event is not None and (notice := no_runner_notice(event, one.mailbox)) is not None:
                        await self._submit(notice)
        except Unavailable as error:
            _logger.warning("the notices that no runner is running wait: %s", error)
            # By time, because there may be no other event of a session that is due.
            self._watch_runner(is_awaited=bool(self._ready) and not self.has_runner)
