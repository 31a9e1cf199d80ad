"""Automatic turns as doors see them: configuration, statistics, turns on demand, and the runner."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from palaver.broker.broker import Broker
from palaver.clock import Clock
from palaver.config import Settings, split_command
from palaver.domain.rights import require, require_turns_of
from palaver.errors import AlreadyRunning, BadRequest, NotFound, NotYou, Unavailable, cut_name
from palaver.identity.accounts import RunnerBook, Ticket, Tickets, TurnProcess
from palaver.identity.caller import anchor_for_child
from palaver.identity.presence import ExitWatch
from palaver.identity.process import Process, ancestors, is_alive
from palaver.identity.seats import SeatIndex, TurnSeat
from palaver.ids import derived_id
from palaver.protocol.agents import Agent, Caller, Seat, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    AUTO_TURN_ERROR,
    AUTO_TURN_RESULT,
    TURN_TYPES,
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    TurnBody,
)
from palaver.protocol.paths import MAIN, check_session, mailbox_of, readable_mailbox
from palaver.protocol.query import Query
from palaver.protocol.text import check_text
from palaver.protocol.turns import (
    BatchMessage,
    RunnerJob,
    SetAutoRun,
    TurnConfig,
    TurnStats,
    session_of_mailbox,
)
from palaver.reactors.turns import AutomaticTurns, Step, TurnPlan, TurnSettings
from palaver.services.paths import Range
from palaver.services.queries import Queries
from palaver.state.agents import read_line
from palaver.state.paths import read_agent_session, session_of_harness
from palaver.state.turns import is_turn_on, read_auto_runs, read_queued_sessions, read_turn, read_turn_stats

_AT_ONCE: Final = 500
"""Events of turns that are read together."""
POLL_S: Final = 25.0
"""How long a request of the runner for a job waits."""
RUNNER_TICKET: Final = "the runner"
"""The harness in a ticket that lets a process become the runner."""


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a turn that a person asked for."""

    turn: int
    session: str
    text: str = ""
    error: str = ""
    messages: int = 0


class TurnSessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session with automatic turns, and what it does now."""

    agent: str
    session: str
    config: TurnConfig
    state: str
    """A step of `reactors.turns.Step`."""
    waiting: int = 0
    until_ms: int = 0
    """When it continues, if it waits for a time; when the turn started, if one runs."""
    reason: str = ""
    """Why it waits, and what would move it, as a sentence; empty if nothing waits."""


class RunnerLink(Protocol):
    """The connection of a runner."""

    def end(self) -> None:
        """Cancel its wait for a job, and refuse new ones."""
        ...


class RunnerView(msgspec.Struct, frozen=True, kw_only=True):
    """The runner of this home."""

    pid: int
    since_ms: int
    is_connected: bool


def turn_settings(now: Settings) -> TurnSettings:
    """Return the settings of automatic turns."""
    # A person can set 0: then every batch would be empty, and every timeout would be over at once.
    defaults = TurnConfig(
        triage_model=now.auto_turn_triage_model,
        debounce_ms=now.auto_turn_debounce_ms,
        max_batch_size=max(1, now.auto_turn_max_batch),
        triage_timeout_ms=max(1, now.auto_turn_triage_timeout_s) * 1000,
        execution_timeout_ms=max(1, now.auto_turn_timeout_s) * 1000,
    )
    return TurnSettings(
        defaults=defaults,
        limit_an_hour=now.auto_turn_limit_per_hour,
        triage_command=tuple(split_command(now.auto_turn_triage_command)),
        command=tuple(split_command(now.auto_turn_command)),
    )


class TurnService:
    """The use cases of automatic turns. `services.turns` in every door."""

    def __init__(
        self,
        *,
        broker: Broker,
        queries: Queries,
        turns: AutomaticTurns,
        seats: SeatIndex,
        tickets: Tickets,
        runners: RunnerBook,
        watch: ExitWatch,
        clock: Clock,
        spawn: Callable[..., object],
    ) -> None:
        """`spawn` starts a task. `watch` reports the end of the runner's process."""
        self._broker = broker
        self._queries = queries
        self._turns = turns
        self._seats = seats
        self._tickets = tickets
        self._runners = runners
        self._watch = watch
        self._clock = clock
        self._spawn = spawn
        self._connection: RunnerLink | None = None
        self._recording = asyncio.Lock()
        """Held while the record of the runner is changed."""
        self._processes: dict[tuple[int, int], Seat] = {}
        """The processes of jobs that act as an agent, each by its triage or its turn."""

    def start(self) -> None:
        """Recognize the runner of the last daemon and the processes of its turns; else its turns failed."""
        # Also a runner that has ended: processes that it left running must not become the human.
        if (last := self._runners.last) is not None:
            self._seats.remember(last.seat)
        runner = self._runners.current()
        if runner is None:
            self._spawn(self._turns.lose_runner())
            return
        self._watch.add(runner.seat, self._end_runner)
        for process in runner.turns:
            agent = self._broker.directory.get(process.agent)
            is_open = read_turn(self._queries.rows, process.agent, process.session).active == process.turn
            if agent is not None and is_open and is_alive(process.seat):
                self._begin(process.seat, TurnSeat(agent=agent, session=process.session), 0, process.turn)

    def close(self) -> None:
        """Stop watching the runner."""
        self._watch.close()

    # Configuration and statistics

    async def set_auto_run(
        self, caller: Caller, agent: str, session: str, value: object, *, key: bytes | None = None
    ) -> TurnConfig:
        """Change the configuration of an agent or session, and return the resulting one.

        None removes the value, so that a session has that of its agent.
        """
        name = self._agent(agent).name
        request = SetAutoRun(agent=name, session=session, value=value)
        await self._broker.submit(caller, request, key=key)
        # Without a session, the agent's own: the value of `main` may differ.
        return self._turns.config(name, session)

    def stats(self) -> TurnStats:
        """Return the counters of this home."""
        return read_turn_stats(self._queries.rows)

    def sessions(self) -> list[TurnSessionView]:
        """Return the sessions whose automatic turns are on, by name: those with a value or a queue."""
        rows = self._queries.rows
        keys = [*(key for key, _ in read_auto_runs(rows)), *read_queued_sessions(rows)]
        named = {session_of_mailbox(key) for key in keys}
        on = sorted(target for target in named if is_turn_on(rows, *target))
        return [self._view(agent, session) for agent, session in on]

    def _view(self, agent: str, session: str) -> TurnSessionView:
        plan = self._turns.plan(agent, session)
        turn = read_turn(self._queries.rows, agent, session)
        return TurnSessionView(
            agent=agent,
            session=session,
            config=plan.config,
            state=plan.step.value,
            waiting=plan.waiting,
            until_ms=turn.started_ms if plan.step is Step.RUNNING else plan.until_ms,
            reason=self._reason(plan, agent, session),
        )

    def _reason(self, plan: TurnPlan, agent: str, session: str) -> str:
        name = readable_mailbox(mailbox_of(agent, session))
        match plan.step:
            case Step.LIVE:
                return f"{name} is open in a harness, which gets the messages itself"
            case Step.PAUSED:
                return f"{agent} is paused: 'pal unpause {agent}' continues"
            case Step.WAITING if plan.is_limited:
                return "the limit of turns in an hour is reached (setting auto_turn_limit_per_hour)"
            case Step.WAITING if plan.is_retry:
                return "the last turn failed and is tried again"
            case Step.WAITING:
                return "it waits for further messages"
            case Step.DUE if not self._turns.has_runner:
                return "no runner is running: a person can start it with 'pal turn start'"
            case Step.DUE:
                return "the runner is busy with other turns"
            case _:
                return ""

    async def history(self, agent: str, session: str, wanted: Range) -> list[Event]:
        """Return the newest events of a session's automatic turns, the newest first."""
        types = tuple(sorted(TURN_TYPES))
        found: list[Event] = []
        before: int | None = None
        # In pages, because a query cannot select events by their session.
        while len(found) < wanted.limit:
            query = Query(types=types, senders=(agent,), before=before, last=_AT_ONCE)
            events = await self._queries.read(query)
            found += [
                event
                for event in reversed(events)
                if isinstance(event.body, TurnBody) and event.body.session == session and wanted.has(event)
            ]
            if len(events) < _AT_ONCE:
                break
            before = events[0].seq
        return found[: wanted.limit]

    def check_free(self, agent: Agent) -> None:
        """Refuse to open the session that an agent was in last while an automatic turn runs in it."""
        session = session_of_harness(self._queries.rows, agent.name, agent.session)
        turn = read_turn(self._queries.rows, agent.name, session)
        if turn.active:
            raise BadRequest(
                f"an automatic turn of {agent.name} runs in this session (#{turn.active}): wait until it has "
                "ended, or end it with 'pal turn stop'"
            )

    # Turns on demand

    async def run(
        self,
        caller: Caller,
        agent: str,
        session: str,
        references: Sequence[str],
        text: str,
        *,
        key: bytes | None = None,
    ) -> TurnResult:
        """Run a turn without a triage and return its outcome. It waits for a running turn of that session."""
        found = self._agent(agent)
        require_turns_of(caller, found)
        target = found.name, check_session(session or MAIN)
        if read_agent_session(self._queries.rows, *target) is None:
            raise NotFound(
                f"session {cut_name(session)} of {found.name}", f"'pal session list {found.name}' shows them"
            )
        batch = [self._copy_for(*target, reference) for reference in references]
        if not batch and not text:
            raise BadRequest("the turn has no content: add --message ID or --text TEXT")
        check_text(text, "the text")
        id_ = derived_id(key.hex(), "turn") if key is not None else ""
        # A client repeats the request after a restart of the daemon: the turn must not run twice.
        if id_ and (known := await self._outcome_of(id_, *target)) is not None:
            return known
        # No await between here and the queue: the end of the runner fails only turns that are in it.
        if self._runners.current() is None:
            raise Unavailable("no runner is running: a person can start it with 'pal turn start'")
        outcome = await self._turns.run(target, batch, text, by=caller.name, id_=id_)
        return TurnResult(
            turn=outcome.turn,
            session=target[1],
            text=outcome.text,
            error=outcome.error,
            messages=outcome.messages,
        )

    def _copy_for(self, agent: str, session: str, reference: str) -> BatchMessage:
        """Return the copy of a message in the mailbox of a session, or in that of its agent."""
        event = self._queries.message(reference)
        for mailbox in (mailbox_of(agent, session), agent):
            if read_line(self._queries.rows, event.seq, mailbox) is not None:
                return BatchMessage(seq=event.seq, mailbox=mailbox)
        raise BadRequest(f"#{event.seq} was not sent to {agent}; 'pal receipts {event.seq}' shows to whom")

    async def _outcome_of(self, id_: str, agent: str, session: str) -> TurnResult | None:
        """Return the outcome of a turn that an earlier call of the same request has run, or None."""
        started = next((event for event in self._queries.with_id(id_) if event.id == id_), None)
        if started is None or not isinstance(started.body, AutoTurnStarted):
            return None
        types = (AUTO_TURN_RESULT, AUTO_TURN_ERROR)
        query = Query(types=types, senders=(agent,), after=started.seq)
        async for page in self._queries.follow(query, after=started.seq):
            for event in page:
                body, count = event.body, len(started.body.messages)
                if isinstance(body, AutoTurnResult) and body.turn == started.seq:
                    return TurnResult(turn=started.seq, session=session, text=body.text, messages=count)
                if isinstance(body, AutoTurnError) and body.turn == started.seq:
                    return TurnResult(turn=started.seq, session=session, error=body.error, messages=count)
        return None

    def _agent(self, written: str) -> Agent:
        found = self._broker.directory.find(written)
        if found is None:
            near = self._broker.directory.nearest(written)
            hint = f"did you mean {near[0]}?" if near else "'pal list' shows the agents"
            raise NotFound(f"agent {cut_name(written)}", hint)
        return found

    # The runner

    def runner(self) -> RunnerView | None:
        """Return the runner whose process runs, or None."""
        runner = self._runners.current()
        if runner is None:
            return None
        is_connected = self._turns.has_runner
        return RunnerView(pid=runner.seat.pid, since_ms=runner.since_ms, is_connected=is_connected)

    def mint_ticket(self, caller: Caller, asker: tuple[int, int]) -> str:
        """Let a process become the runner. Only for a person; raises AlreadyRunning."""
        require(caller, Standing.HUMAN, "turn start")
        if (runner := self._runners.current()) is not None:
            raise AlreadyRunning(runner.seat.pid)
        return self._tickets.mint(Ticket(by=caller, asker=asker, harness=RUNNER_TICKET))

    async def register(
        self,
        connection: RunnerLink,
        chain: Sequence[Process],
        *,
        ticket: str,
        secret: str,
        running: Sequence[int],
    ) -> None:
        """Accept a runner on a connection: a new one with its ticket, a known one with its secret."""
        if not chain:
            raise BadRequest(
                "the calling process has ended or runs in another container, so it cannot be the runner"
            )
        async with self._recording:  # Of two new runners, the second must see the first.
            await self._accept(chain, ticket=ticket, secret=secret)
        if self._connection is not None and self._connection is not connection:
            self._connection.end()  # It would take a job that no one runs.
        self._connection = connection
        await self._turns.register(running)

    async def _accept(self, chain: Sequence[Process], *, ticket: str, secret: str) -> None:
        process, runner = chain[0], self._runners.find(secret)
        if runner is not None:
            if (runner.seat.pid, runner.seat.start) != (process.pid, process.start):
                raise NotYou("the runner", "another process")
            return
        if not ticket:
            raise NotYou("the runner", "a process without a ticket of 'pal turn start'")
        # Checked again, because another runner may have started since the ticket was made.
        if (other := self._runners.current()) is not None:
            raise AlreadyRunning(other.seat.pid)
        if (last := self._runners.last) is not None:
            # The end of its process may not be noticed yet. Later it would end the new runner's turns.
            self._watch.remove(last.seat)
            self._drop_runner()
            await self._turns.lose_runner()
        used = self._tickets.take(ticket, chain)
        if used.harness != RUNNER_TICKET:
            # It was only shown at the wrong place, and its holder still needs it.
            self._tickets.give_back(ticket, used)
            raise NotFound("ticket for the runner", "this one is for an agent; run 'pal turn start'")
        seat = Seat(pid=process.pid, start=process.start, boot=self._seats.boot)
        await self._runners.put(seat, secret, self._clock.now_ms())
        # No process below the runner is ever the person, also while the daemon does not know its job.
        self._seats.remember(seat)
        self._watch.add(seat, self._end_runner)

    def disconnect(self, connection: RunnerLink) -> None:
        """Record that a connection has ended. The runner may connect again."""
        if self._connection is connection:
            self._connection = None
            self._turns.disconnect_runner()

    def _end_runner(self) -> None:
        self._drop_runner()
        self._spawn(self._turns.lose_runner())

    def _drop_runner(self) -> None:
        """Forget the connection of a runner that has ended, and the processes of its jobs."""
        if self._connection is not None:
            # Its end may not be noticed yet, and it would take a job that no one runs.
            self._connection.end()
            self._connection = None
        # A copy, because `_leave` removes entries.
        for job, turn in list(self._processes):
            self._leave(job, turn)

    def check_runner(self, connection: RunnerLink) -> None:
        """Refuse a connection that is not the runner's."""
        if self._connection is None or self._connection is not connection:
            raise NotYou("the runner", "another connection")

    async def next_job(self) -> RunnerJob:
        """Wait for the next job of the runner."""
        return await self._turns.next_job(POLL_S)

    async def begin_process(self, runner: Process, pid: int, *, job: int = 0, turn: int = 0) -> None:
        """Let the process of a job, a child of the runner, act as the agent of that job."""
        name, session = self._turns.target_of(job=job, turn=turn)
        # The pid is the runner's claim, so a process that is not below the runner is refused here.
        seat = anchor_for_child(runner, ancestors(pid), self._seats)
        if not job:
            process = TurnProcess(seat=seat, agent=name, session=session, turn=turn)
            # One at a time: a write replaces the whole record, also the process that another one adds.
            async with self._recording:
                # Again: the turn may have ended while another process was recorded, also with its runner.
                self._turns.target_of(turn=turn)
                await self._runners.put_turn(process)  # First: it must act as the agent also after a restart.
        self._begin(seat, TurnSeat(agent=self._agent(name), session=session, is_triage=bool(job)), job, turn)

    def _begin(self, seat: Seat, turn_seat: TurnSeat, job: int, turn: int) -> None:
        self._processes[job, turn] = seat
        self._seats.begin_turn(seat, turn_seat)

    def _leave(self, job: int, turn: int) -> None:
        """End the seat of a job, so that processes that it left running no longer act as the agent."""
        if (seat := self._processes.pop((job, turn), None)) is not None:
            self._seats.end_turn(seat)

    async def triaged(self, job: int, output: str, error: str) -> None:
        """Store the outcome of a triage."""
        # First, because a process that the job left running must not act during the commit.
        self._leave(job, 0)
        await self._turns.triaged(job, output, error)

    async def ended(self, turn: int, output: str, error: str, harness_session: str) -> None:
        """Store the outcome of a turn."""
        # First, for the same reason.
        self._leave(0, turn)
        await self._turns.ended(turn, output, error, harness_session)
