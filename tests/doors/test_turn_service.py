"""Automatic turns as doors see them: configuration, turns of a person, and the runner and its processes."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.fakes import HUMAN, SCRIPT, open_memory
from tests.identity.test_presence import FakeWatch
from tests.limits import LIMIT_S
from tests.reactors.turning import ACCEPT, Turning, turning_bus

from palaver.config import Settings
from palaver.doors.lines_holders import RunnerRequests
from palaver.errors import (
    AlreadyRunning,
    BadRequest,
    BadText,
    DiskFull,
    MessageTooLarge,
    NotAllowed,
    NotFound,
    NotYou,
    ShuttingDown,
    Unavailable,
)
from palaver.identity.accounts import RunnerBook, Ticket, Tickets
from palaver.identity.process import Process, ancestors, boot_id, is_alive
from palaver.identity.seats import SeatIndex
from palaver.protocol.agents import Seat
from palaver.protocol.lines import NextJobOp, RunnerOp, TriagedOp, TurnEndOp, TurnProcessOp
from palaver.protocol.paths import SubscribePath
from palaver.protocol.requests import Pause
from palaver.protocol.turns import StartTurn, TriageJob, TurnJob
from palaver.services.paths import Range
from palaver.services.queries import Queries
from palaver.services.services import Services
from palaver.services.turns import RUNNER_TICKET, TurnService, turn_settings

KEY = b"k" * 16


class Stage:
    """The service on a bus. This process is the runner."""

    def __init__(self, turning: Turning, home: Path) -> None:
        self.turning = turning
        self.bus = turning.bus
        self.home = home
        self.watch = FakeWatch()
        self.seats = SeatIndex(boot_id())
        self.tickets = Tickets(self.bus.clock)
        self.chain = ancestors(os.getpid())
        self.is_gone = False
        self.spawned: list[asyncio.Task[None]] = []
        self.open()

    @property
    def turns(self) -> TurnService:  # as in `Services`
        return self.service

    def open(self) -> None:
        self.service = TurnService(
            broker=self.bus.broker,
            queries=Queries(self.bus.log),
            turns=self.turning.turns,
            seats=self.seats,
            tickets=self.tickets,
            runners=RunnerBook(self.home, lambda seat: is_alive(seat) and not self.is_gone),
            watch=self.watch,
            clock=self.bus.clock,
            spawn=lambda work: self.spawned.append(asyncio.ensure_future(work)),
        )

    def connect(self, chain: list[Process] | None = None) -> RunnerRequests:
        found = self.chain if chain is None else chain
        return RunnerRequests(cast("Services", self), lambda: found)

    def ticket(self) -> str:
        return self.service.mint_ticket(HUMAN, (self.chain[0].pid, self.chain[0].start))

    async def runner(self) -> RunnerRequests:
        """Register this process as the runner."""
        link = self.connect()
        await link.serve(HUMAN, RunnerOp(secret="s", ticket=self.ticket()))
        return link

    async def settled(self) -> None:
        await asyncio.gather(*self.spawned)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with turning_bus(open_memory, tmp_path) as turning:
        turning.turns.disconnect_runner()
        made = Stage(turning, tmp_path)
        yield made
        made.service.close()


def _sleeping() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


child = pytest.fixture(_sleeping, name="child")
other_child = pytest.fixture(_sleeping, name="other_child")


async def job_of(link: RunnerRequests) -> object:
    async with asyncio.timeout(LIMIT_S):
        return await link.serve(HUMAN, NextJobOp())


# Configuration and views


def test_settings_are_the_defaults_of_a_configuration() -> None:
    found = turn_settings(
        Settings(auto_turn_max_batch=0, auto_turn_timeout_s=0, auto_turn_command="my-agent --once 'a b'")
    )

    assert (found.defaults.max_batch_size, found.defaults.execution_timeout_ms) == (1, 1000)
    assert (found.defaults.debounce_ms, found.defaults.triage_timeout_ms) == (3_000, 30_000)
    assert found.command == ("my-agent", "--once", "a b")
    assert found.triage_command == ("claude", "-p", "--model", "{model}")


async def test_configuration_returns_the_resulting_one(stage: Stage) -> None:
    await stage.bus.join("luna")

    on = await stage.service.set_auto_run(HUMAN, "Luna", "", {"debounceMs": 5})
    removed = await stage.service.set_auto_run(HUMAN, "luna", "", None, key=KEY)

    assert (on.enabled, on.debounce_ms, removed.enabled) == (True, 5, False)
    with pytest.raises(NotFound, match="did you mean luna"):
        await stage.service.set_auto_run(HUMAN, "lunaa", "", True)
    with pytest.raises(NotFound, match="pal list"):
        await stage.service.set_auto_run(HUMAN, "someone-else", "", True)


async def test_configuration_of_an_agent_is_not_that_of_its_main_session(stage: Stage) -> None:
    await stage.bus.join("luna")
    off = await stage.service.set_auto_run(HUMAN, "luna", "main", False)

    on = await stage.service.set_auto_run(HUMAN, "luna", "", True)

    assert (off.enabled, on.enabled) == (False, True)


async def test_sessions_say_what_they_wait_for(stage: Stage) -> None:
    turning = stage.turning
    luna = await turning.join(harness="claude")
    await stage.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    await turning.join("nova", False)

    def shown() -> dict[str, tuple[str, str]]:
        return {one.session: (one.state, one.reason) for one in stage.service.sessions()}

    assert shown() == {"main": ("idle", "")}
    await turning.send("one")
    await turning.send("two", "x/y")
    assert shown()["mon"] == ("waiting", "it waits for further messages")
    turning.passes(3)
    assert shown()["main"][0] == "due"
    assert "pal turn start" in shown()["main"][1]
    stage.bus.present.add("luna")
    assert shown()["main"] == (
        "live",
        "luna (session main) is open in a harness, which gets the messages itself",
    )
    stage.bus.present.discard("luna")
    await stage.bus.submit(HUMAN, Pause(name="luna"))
    assert shown()["main"] == ("paused", "luna is paused: 'pal unpause luna' continues")


async def test_sessions_name_the_retry_the_limit_and_a_busy_runner(stage: Stage) -> None:
    turning = stage.turning
    turning.settings = turn_settings(Settings(auto_turn_limit_per_hour=1))
    link = await stage.runner()
    await turning.join(value={**ACCEPT, "maxBatchSize": 1})
    await turning.send("one")

    assert stage.service.sessions()[0].reason == "the runner is busy with other turns"
    job = await job_of(link)
    assert isinstance(job, TurnJob)
    (running,) = stage.service.sessions()
    assert (running.state, running.until_ms, running.reason) == ("running", stage.bus.clock.now_ms(), "")
    await link.serve(HUMAN, TurnEndOp(turn=job.turn, error="exit status 1"))
    assert "auto_turn_limit_per_hour" in stage.service.sessions()[0].reason
    turning.settings = turn_settings(Settings())
    assert stage.service.sessions()[0].reason == "the last turn failed and is tried again"
    assert (stage.service.stats().execution_errors, stage.service.stats().queued_sessions) == (1, 1)
    history = await stage.service.history("luna", "main", Range(limit=1))
    assert [event.type for event in history] == ["auto-turn-error"]
    assert await stage.service.history("luna", "mon", Range(limit=5)) == []


# Turns of a person


async def test_turn_of_a_person_returns_its_outcome_once_for_each_request(stage: Stage) -> None:
    luna = await stage.turning.join()
    await stage.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    link = await stage.runner()
    first, second = await stage.turning.send("one"), await stage.turning.send("two", "x/y")

    async def play(**end: str) -> TurnJob:
        job = await job_of(link)
        assert isinstance(job, TurnJob)
        await link.serve(HUMAN, TurnEndOp(turn=job.turn, **end))  # type: ignore[arg-type]  # its fields
        return job

    references = (str(first.seq), str(second.seq))
    running = asyncio.ensure_future(stage.service.run(HUMAN, "luna", "mon", references, "", key=KEY))
    job = await play(output="well")
    result = await running

    assert (result.turn, result.session, result.text, result.messages) == (job.turn, "mon", "well", 2)
    assert await stage.service.run(HUMAN, "luna", "mon", references, "", key=KEY) == result
    failing = asyncio.ensure_future(stage.service.run(HUMAN, "luna", "", (), "x", key=b"x" * 16))
    await play(error="exit status 1")
    failed = await failing
    assert (failed.error, failed.session) == ("exit status 1", "main")
    assert await stage.service.run(HUMAN, "luna", "", (), "x", key=b"x" * 16) == failed


async def test_turn_of_a_person_that_cannot_run_is_refused(stage: Stage) -> None:
    luna = await stage.turning.join()
    await stage.bus.join("nova")
    message = await stage.turning.send("one", "@nova")
    run = stage.service.run

    with pytest.raises(NotAllowed):
        await run(luna, "luna", "", (), "x")
    with pytest.raises(NotFound, match="session mon of luna"):
        await run(HUMAN, "luna", "mon", (), "x")
    with pytest.raises(BadRequest, match="was not sent to luna"):
        await run(HUMAN, "luna", "", (str(message.seq),), "")
    with pytest.raises(BadRequest, match="no content"):
        await run(HUMAN, "luna", "", (), "")
    with pytest.raises(BadText, match="the text"):
        await run(HUMAN, "luna", "", (), "\x1b[31mred")
    with pytest.raises(MessageTooLarge, match="the text"):
        await run(HUMAN, "luna", "", (), "x" * 100_001)
    with pytest.raises(Unavailable, match="pal turn start"):
        await run(HUMAN, "luna", "", (), "x")


# The runner


async def test_runner_registers_with_a_ticket_and_again_with_its_secret(stage: Stage) -> None:
    assert stage.service.runner() is None
    link = await stage.runner()

    view = stage.service.runner()
    assert view is not None
    assert (view.pid, view.is_connected) == (os.getpid(), True)
    with pytest.raises(AlreadyRunning, match=str(os.getpid())):
        stage.ticket()
    link.close()
    view = stage.service.runner()
    assert view is not None
    assert not view.is_connected
    again = stage.connect()
    await again.serve(HUMAN, RunnerOp(secret="s"))
    view = stage.service.runner()
    assert view is not None
    assert view.is_connected
    with pytest.raises(NotYou):
        await link.serve(HUMAN, NextJobOp())


async def test_other_processes_cannot_be_the_runner(stage: Stage) -> None:
    other = stage.chain[1:]
    with pytest.raises(NotAllowed):
        stage.service.mint_ticket(SCRIPT, (1, 1))
    with pytest.raises(BadRequest, match="has ended or runs in another container"):
        await stage.connect([]).serve(HUMAN, RunnerOp(secret="s"))
    with pytest.raises(NotYou, match="pal turn start"):
        await stage.connect().serve(HUMAN, RunnerOp(secret="s"))
    for_an_agent = stage.tickets.mint(Ticket(by=HUMAN, asker=(stage.chain[0].pid, stage.chain[0].start)))
    with pytest.raises(NotFound, match="this one is for an agent"):
        await stage.connect().serve(HUMAN, RunnerOp(secret="s", ticket=for_an_agent))
    assert stage.tickets.take(for_an_agent, stage.chain).harness != RUNNER_TICKET, "it is still valid"
    await stage.runner()
    with pytest.raises(NotYou, match="another process"):
        await stage.connect(other).serve(HUMAN, RunnerOp(secret="s"))
    with pytest.raises(NotYou, match="another connection"):
        await stage.connect().serve(HUMAN, NextJobOp())


async def test_of_two_runners_that_start_at_the_same_time_one_is_refused(stage: Stage) -> None:
    tickets = [stage.ticket(), stage.ticket()]
    links = [stage.connect(), stage.connect()]

    results = await asyncio.gather(
        *(
            link.serve(HUMAN, RunnerOp(secret=secret, ticket=ticket))
            for link, ticket, secret in zip(links, tickets, ("s", "t"), strict=True)
        ),
        return_exceptions=True,
    )

    assert [type(one) for one in results] == [dict, AlreadyRunning]


async def test_late_end_of_a_dead_runner_does_not_concern_the_next_one(stage: Stage) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    old = await stage.runner()
    await stage.turning.send("one")
    lost = await job_of(old)
    assert isinstance(lost, TurnJob)
    (seat,) = stage.watch.watched
    end_old = stage.watch.watched[seat]
    stage.is_gone = True
    new = stage.connect(stage.chain[1:])
    ticket = stage.service.mint_ticket(HUMAN, (stage.chain[1].pid, stage.chain[1].start))

    await new.serve(HUMAN, RunnerOp(secret="t", ticket=ticket))
    stage.is_gone = False
    if stage.watch.watched.get(seat) is end_old:
        stage.watch.end(seat)
    await stage.settled()

    view = stage.service.runner()
    assert view is not None
    assert (view.pid, view.is_connected) == (stage.chain[1].pid, True)
    stage.turning.passes(1)
    job = await job_of(new)
    assert isinstance(job, TurnJob)
    await new.serve(HUMAN, TurnEndOp(turn=job.turn, output="done"))
    found = await stage.turning.types()
    assert found == ["auto-turn", "auto-turn-error", "auto-turn", "auto-turn-result"]


async def test_triage_of_an_old_connection_begins_again_on_the_new_one(stage: Stage) -> None:
    await stage.turning.join(value={"maxBatchSize": 1})
    old = await stage.runner()
    await stage.turning.send("one")
    lost = await job_of(old)
    assert isinstance(lost, TriageJob)

    new = stage.connect()
    await new.serve(HUMAN, RunnerOp(secret="s"))
    old.close()

    again = await job_of(new)
    assert isinstance(again, TriageJob)
    assert again.job != lost.job


async def test_wait_of_an_old_connection_takes_no_job(stage: Stage) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    old = await stage.runner()
    waiting = asyncio.ensure_future(old.serve(HUMAN, NextJobOp()))
    await asyncio.sleep(0)  # it begins

    new = stage.connect()
    await new.serve(HUMAN, RunnerOp(secret="s"))
    await stage.turning.send("one")

    with pytest.raises(ShuttingDown):
        await waiting
    job = await job_of(new)
    assert isinstance(job, TurnJob)
    old.close()
    await new.serve(HUMAN, TurnEndOp(turn=job.turn, output="done"))
    assert await stage.turning.types() == ["auto-turn", "auto-turn-result"]


async def test_request_for_a_job_ends_with_its_connection(stage: Stage) -> None:
    link = await stage.runner()
    waiting = asyncio.ensure_future(link.serve(HUMAN, NextJobOp()))
    cancelled = asyncio.ensure_future(link.serve(HUMAN, NextJobOp()))
    await asyncio.sleep(0)  # both begin

    cancelled.cancel()
    await asyncio.wait([cancelled])
    link.end()

    assert cancelled.cancelled()
    with pytest.raises(ShuttingDown):
        await waiting
    with pytest.raises(ShuttingDown):
        await link.serve(HUMAN, NextJobOp())


async def test_turn_whose_start_the_runner_never_learned_of_fails(stage: Stage) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    link = await stage.runner()
    begun = asyncio.Event()
    submit = stage.turning.submit

    async def slowly(request: object) -> object:
        begun.set()
        return await submit(request)  # type: ignore[arg-type]  # any request

    stage.turning.turns._submit = slowly
    await stage.turning.send("one")
    waiting = asyncio.ensure_future(link.serve(HUMAN, NextJobOp()))
    async with asyncio.timeout(LIMIT_S):
        await begun.wait()

    link.end()
    with pytest.raises(ShuttingDown):
        await waiting
    again = stage.connect()
    await again.serve(HUMAN, RunnerOp(secret="s"))
    await stage.turning.nothing_is_due()
    stage.turning.passes(1)

    job = await job_of(again)
    assert isinstance(job, TurnJob)
    assert await stage.turning.types() == ["auto-turn", "auto-turn-error", "auto-turn"]


async def test_batch_is_due_again_if_its_start_fails_after_the_runner_has_left(stage: Stage) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    link = await stage.runner()
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slowly(request: object) -> object:
        begun.set()
        await may_end.wait()
        return await stage.turning.submit(request)  # type: ignore[arg-type]  # any request

    stage.turning.turns._submit = slowly
    stage.turning.failures.append((StartTurn, DiskFull("no room")))
    await stage.turning.send("one")
    waiting = asyncio.ensure_future(link.serve(HUMAN, NextJobOp()))
    async with asyncio.timeout(LIMIT_S):
        await begun.wait()
    link.close()
    with pytest.raises(ShuttingDown):
        await waiting
    may_end.set()
    again = stage.connect()
    await again.serve(HUMAN, RunnerOp(secret="s"))

    assert isinstance(await job_of(again), TurnJob)


async def test_process_of_a_job_acts_as_its_agent_until_the_job_ends(
    stage: Stage, child: "subprocess.Popen[bytes]"
) -> None:
    await stage.turning.join(value={"maxBatchSize": 1})
    link = await stage.runner()
    await stage.turning.send("one")
    chain = ancestors(child.pid)
    triage = await job_of(link)
    assert isinstance(triage, TriageJob)

    await link.serve(HUMAN, TurnProcessOp(pid=child.pid, job=triage.job))
    seat = stage.seats.turn_above(chain)
    assert seat is not None
    assert (seat.agent.name, seat.session, seat.is_triage) == ("luna", "main", True)
    await link.serve(HUMAN, TriagedOp(job=triage.job, output="YES"))
    assert stage.seats.turn_above(chain) is None

    job = await job_of(link)
    assert isinstance(job, TurnJob)
    await link.serve(HUMAN, TurnProcessOp(pid=child.pid, turn=job.turn))
    seat = stage.seats.turn_above(chain)
    assert seat is not None
    assert not seat.is_triage
    with pytest.raises(BadRequest, match="process that you started"):
        await link.serve(HUMAN, TurnProcessOp(pid=1, turn=job.turn))
    await link.serve(HUMAN, TurnEndOp(turn=job.turn, output="done"))
    assert stage.seats.turn_above(chain) is None
    with pytest.raises(NotFound):
        await link.serve(HUMAN, TurnProcessOp(pid=child.pid, turn=job.turn))


async def test_turns_end_with_their_runner(stage: Stage, child: "subprocess.Popen[bytes]") -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    link = await stage.runner()
    await stage.turning.send("one")
    job = await job_of(link)
    assert isinstance(job, TurnJob)
    await link.serve(HUMAN, TurnProcessOp(pid=child.pid, turn=job.turn))

    stage.is_gone = True
    stage.watch.end(Seat(pid=stage.chain[0].pid, start=stage.chain[0].start, boot=boot_id()))
    await stage.settled()

    assert stage.service.runner() is None
    assert await stage.turning.types() == ["auto-turn", "auto-turn-error"]
    assert stage.seats.turn_above(ancestors(child.pid)) is None, "its process outlives it and is no agent"


async def test_next_daemon_knows_the_runner_and_its_processes(
    stage: Stage, child: "subprocess.Popen[bytes]"
) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    link = await stage.runner()
    await stage.turning.send("one")
    job = await job_of(link)
    assert isinstance(job, TurnJob)
    await link.serve(HUMAN, TurnProcessOp(pid=child.pid, turn=job.turn))
    stage.turning.restart()
    stage.seats = SeatIndex(boot_id())
    stage.open()

    stage.service.start()

    assert stage.seats.turn_above(ancestors(child.pid)) is not None
    assert stage.spawned == []
    link = stage.connect()
    await link.serve(HUMAN, RunnerOp(secret="s", running=(job.turn,)))
    await link.serve(HUMAN, TurnEndOp(turn=job.turn, output="done"))
    assert await stage.turning.types() == ["auto-turn", "auto-turn-result"]
    stage.open()
    stage.seats = SeatIndex(boot_id())
    stage.service.start()
    assert stage.seats.turn_above(ancestors(child.pid)) is None, "the turn has ended"


async def test_next_daemon_knows_processes_that_began_at_the_same_time(
    stage: Stage, child: "subprocess.Popen[bytes]", other_child: "subprocess.Popen[bytes]"
) -> None:
    children = {"luna": child, "nova": other_child}
    link, begun = await stage.runner(), []
    for name, one in children.items():
        await stage.turning.join(name, {**ACCEPT, "maxBatchSize": 1})
        await stage.turning.send("one", f"@{name}")
        job = await job_of(link)
        assert isinstance(job, TurnJob)
        begun.append(TurnProcessOp(pid=one.pid, turn=job.turn))

    await asyncio.gather(*(link.serve(HUMAN, op) for op in begun))
    stage.seats = SeatIndex(boot_id())
    stage.open()
    stage.service.start()

    seats = {name: stage.seats.turn_above(ancestors(one.pid)) for name, one in children.items()}
    assert {name: seat and seat.agent.name for name, seat in seats.items()} == {
        "luna": "luna",
        "nova": "nova",
    }


async def test_process_of_a_turn_that_ends_before_it_is_recorded_is_refused(
    stage: Stage, child: "subprocess.Popen[bytes]"
) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    link = await stage.runner()
    await stage.turning.send("one")
    job = await job_of(link)
    assert isinstance(job, TurnJob)

    async with stage.service._recording:
        beginning = asyncio.ensure_future(link.serve(HUMAN, TurnProcessOp(pid=child.pid, turn=job.turn)))
        await link.serve(HUMAN, TurnEndOp(turn=job.turn, output="done"))

    with pytest.raises(NotFound, match="has ended"):
        await beginning
    assert stage.seats.turn_above(ancestors(child.pid)) is None


async def test_open_turns_fail_if_the_runner_ended_with_the_daemon(stage: Stage) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    await stage.turning.send("one")
    await stage.turning.turn()

    stage.service.start()
    await stage.settled()

    assert await stage.turning.types() == ["auto-turn", "auto-turn-error"]


@pytest.mark.parametrize("is_gone", [False, True])
async def test_no_process_below_a_runner_is_ever_the_person(stage: Stage, is_gone: bool) -> None:
    await stage.runner()
    assert stage.seats.was_seat(stage.chain)
    stage.seats, stage.is_gone = SeatIndex(boot_id()), is_gone
    stage.open()

    stage.service.start()

    assert stage.seats.was_seat(stage.chain)
    await stage.settled()


async def test_runner_that_leaves_takes_no_more_jobs(stage: Stage) -> None:
    await stage.turning.join(value={**ACCEPT, "maxBatchSize": 1})
    link = await stage.runner()
    waiting = asyncio.ensure_future(link.serve(HUMAN, NextJobOp()))
    await asyncio.sleep(0)

    await link.serve(HUMAN, RunnerOp(secret="s", leaves=True))
    await stage.turning.send("one")

    with pytest.raises(ShuttingDown):
        await waiting
    assert await stage.turning.types() == []
