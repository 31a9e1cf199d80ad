"""The queue of automatic turns: what is due and when, with a fake clock, on both engines."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import HUMAN, LIMIT_HOPS, SCRIPT, OpenLog, open_memory, open_sqlite
from tests.limits import LIMIT_S
from tests.reactors.turning import ACCEPT, Turning, turning_bus

from palaver.broker import paths
from palaver.errors import BadRequest, BadText, DiskFull, NotFound, RateLimited, ShuttingDown, Unavailable
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import AutoTurnError, AutoTurnStarted, State
from palaver.protocol.paths import Content, CreateSession, RemoveSession, SubscribePath
from palaver.protocol.query import Query
from palaver.protocol.requests import Leave, Notify, Pause, Put, Release, Request, Send, TagAgent, Unpause
from palaver.protocol.turns import BatchMessage, FailTurn, NoJob, SkipTurn, StartTurn, TriageJob, TurnStats
from palaver.reactors.turns import NO_RUNNER_S, Step, TurnOutcome
from palaver.state.paths import read_agent_session
from palaver.state.turns import read_queued


@pytest.fixture
async def turning(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Turning]:
    async with turning_bus(open_log, tmp_path) as made:
        yield made


# Debounce and batches


async def test_debounce_starts_again_with_each_message(turning: Turning) -> None:
    await turning.join()
    await turning.send("one")
    turning.passes(2)
    await turning.send("two")
    turning.passes(2.9)
    await turning.nothing_is_due()

    turning.passes(0.1)

    assert await turning.run() == ["one", "two"]


async def test_steady_traffic_starts_a_turn_after_30_seconds(turning: Turning) -> None:
    await turning.join()
    for number in range(15):
        await turning.send(str(number))
        await turning.nothing_is_due()
        turning.passes(2)

    assert await turning.run() == [str(number) for number in range(15)]


async def test_full_batch_runs_at_once_and_the_rest_in_batches(turning: Turning) -> None:
    await turning.join(value={**ACCEPT, "debounceMs": 10_000, "maxBatchSize": 3})

    for number in range(7):
        await turning.send(str(number))

    assert await turning.run() == ["0", "1", "2"]
    assert await turning.run() == ["3", "4", "5"]
    await turning.nothing_is_due()
    turning.passes(10)
    assert await turning.run() == ["6"]


async def test_seven_that_wait_for_a_turn_run_as_three_three_and_one(turning: Turning) -> None:
    await turning.join(value={**ACCEPT, "maxBatchSize": 3})
    await turning.send("first")
    turning.passes(3)
    job = await turning.turn()
    for number in range(7):
        await turning.send(str(number))
    turning.passes(3)
    await turning.nothing_is_due()
    assert turning.stats().pending_reruns == 1

    await turning.done(job)

    assert [await turning.run() for _ in range(3)] == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    await turning.nothing_is_due()


async def test_huge_batch_size_is_limited_to_one_injection(turning: Turning) -> None:
    await turning.join(value={**ACCEPT, "maxBatchSize": 1_000_000})
    for number in range(52):
        await turning.send(str(number))

    assert turning.turns.plan("luna", "main").waiting == 50
    assert len(await turning.run()) == 50


async def test_due_session_with_new_messages_keeps_its_position(turning: Turning) -> None:
    await turning.join(value={**ACCEPT, "maxBatchSize": 1})
    await turning.join("nova", {**ACCEPT, "maxBatchSize": 1})
    for text, to in (("one", "@luna"), ("two", "@nova"), ("three", "@luna")):
        turning.turns._is_due.clear()
        await turning.send(text, to)
        await turning.runner_is_due()

    ran = [await turning.run() for _ in range(3)]

    assert ran == [["one"], ["two"], ["three"]]


async def test_sessions_of_an_agent_run_at_the_same_time(turning: Turning) -> None:
    luna = await turning.join()
    for session in ("s", "t"):
        await turning.bus.submit(luna, SubscribePath(agent="luna", session=session, pattern=f"x/{session}"))
        await turning.send(session, f"x/{session}")
    turning.passes(3)

    jobs = [await turning.turn(), await turning.turn()]

    assert {job.session for job in jobs} == {"s", "t"}
    assert turning.stats().active_turns == 2
    for job in jobs:
        await turning.done(job)


# Which messages start a turn


async def test_own_message_of_an_agent_starts_nothing(turning: Turning) -> None:
    luna = await turning.join()

    await turning.send("note to myself", sender=replace(luna, turn=""))
    turning.passes(60)

    await turning.nothing_is_due()
    assert turning.bus.texts("luna") == ["note to myself"]


async def test_handled_copy_does_not_start_main(turning: Turning) -> None:
    luna = await turning.join()
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))

    await turning.send("handled", "x/y")
    turning.passes(3)

    job = await turning.turn()
    assert job.session == "mon"
    await turning.done(job)
    await turning.nothing_is_due()


async def test_message_that_was_read_meanwhile_is_not_run(turning: Turning) -> None:
    luna = await turning.join()
    message = await turning.send("one")
    await turning.bus.ack(luna, message.seq)

    turning.passes(3)

    await turning.nothing_is_due()


async def test_message_runs_when_its_reader_ends_without_an_acknowledgement(turning: Turning) -> None:
    await turning.join()
    await turning.send("one")
    reader = turning.bus.delivery.take("luna")
    assert len(reader.poll(10)) == 1
    turning.passes(3)
    await turning.nothing_is_due()

    reader.close()

    assert await turning.run() == ["one"]


async def test_envelope_of_a_foreign_type_starts_no_turn(turning: Turning) -> None:
    await turning.join()
    nova = await turning.bus.join("nova")

    await turning.bus.submit(nova, Put(envelope=Draft(type="x", id="e1", sender="nova", to=("luna",))))
    await turning.send("a message")
    turning.passes(3)

    assert await turning.run() == ["a message"]
    assert turning.bus.state(await _newest(turning, "x"), "luna") == State.QUEUED


async def _newest(turning: Turning, type_: str) -> Event:
    return (await turning.bus.log.read(Query(types=(type_,), last=1)))[0]


async def test_prompts_say_where_a_message_came_from(turning: Turning) -> None:
    luna = await turning.join()
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="ci/*"))

    content = Content(command="failed", payload=[1], source="ci", external_id="d-1")
    await turning.bus.submit(SCRIPT, Send(text="", to=("ci/build",), content=content))
    turning.passes(3)

    triage = await turning.triage()
    assert "[ci] script → ci/build failed [1]" in triage.prompt
    await turning.turns.triaged(triage.job, "yes", "")
    job = await turning.turn()
    assert "path ci/build, source ci, external id d-1" in job.prompt
    await turning.done(job)


async def test_session_that_is_off_runs_nothing_until_it_is_on(turning: Turning) -> None:
    luna = await turning.join()
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    await turning.send("one", "x/y")
    await turning.set("luna", False, "mon")
    turning.passes(3)
    await turning.nothing_is_due()
    assert turning.turns.plan("luna", "mon").step is Step.OFF

    await turning.set("luna", None, "mon")

    assert await turning.run() == ["one"]


async def test_messages_of_a_removed_configuration_run_when_there_is_one_again(turning: Turning) -> None:
    luna = await turning.join()
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    await turning.send("one", "x/y")
    await turning.set("luna", None)
    turning.restart()
    turning.passes(3)
    await turning.nothing_is_due()

    await turning.set("luna", ACCEPT)

    assert await turning.run() == ["one"]


async def test_removed_session_has_no_turn(turning: Turning) -> None:
    luna = await turning.join()
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    await turning.send("one", "x/y")

    await turning.bus.submit(luna, RemoveSession(agent="luna", session="mon"))
    turning.passes(3)

    await turning.nothing_is_due()


async def test_result_of_a_turn_does_not_restore_a_removed_session(turning: Turning) -> None:
    luna = await turning.join()
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    await turning.send("one", "x/y")
    turning.passes(3)
    job = await turning.turn()

    await turning.bus.submit(luna, RemoveSession(agent="luna", session="mon"))
    await turning.done(job, harness_session="h1")

    assert read_agent_session(turning.bus.log.rows, "luna", "mon") is None
    assert await turning.types() == ["auto-turn", "auto-turn-result"]


# Live, paused


async def test_session_that_is_open_in_a_harness_runs_when_its_agent_leaves(turning: Turning) -> None:
    luna = await turning.join(harness="claude")
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    turning.bus.present.add("luna")
    await turning.send("to main")
    await turning.send("to mon", "x/y")
    turning.passes(60)

    assert await turning.run() == ["to mon"], "the other session is not open"
    await turning.nothing_is_due()
    assert turning.turns.plan("luna", "main").step is Step.LIVE

    turning.bus.present.discard("luna")
    await turning.bus.submit(luna, Leave())

    assert await turning.run() == ["to main"]


async def test_session_that_is_opened_while_its_turn_is_due_does_not_run(turning: Turning) -> None:
    luna = await turning.join(harness="claude")
    await turning.send("one")
    turning.passes(3)
    await turning.runner_is_due()
    turning.bus.present.add("luna")
    await turning.nothing_is_due()

    turning.bus.present.discard("luna")
    await turning.bus.submit(luna, Leave())

    assert await turning.run() == ["one"]


async def test_other_settings_of_an_agent_start_nothing(turning: Turning) -> None:
    await turning.join()

    await turning.bus.submit(HUMAN, TagAgent(name="luna", tag="api"))

    await turning.nothing_is_due()


async def test_paused_agent_runs_nothing_until_it_continues(turning: Turning) -> None:
    await turning.join()
    await turning.bus.submit(HUMAN, Pause(name="luna"))
    await turning.send("one")
    turning.passes(3)
    await turning.nothing_is_due()
    assert turning.turns.plan("luna", "main").step is Step.PAUSED

    await turning.bus.submit(HUMAN, Unpause(name="luna"))

    assert await turning.run() == ["one"]


# Errors


async def test_failed_batch_is_tried_twice_more_then_held_until_its_release(turning: Turning) -> None:
    nova = await turning.bus.join("nova")
    await turning.join()
    message = await turning.send("one", sender=nova)
    turning.passes(3)

    for wait_s in (1, 5, 0):
        job = await turning.turn()
        await turning.send(f"later {wait_s}")
        await turning.done(job, error="exit status 1")
        if wait_s:
            await turning.nothing_is_due()
            turning.passes(wait_s)

    assert turning.bus.state(message, "luna") == State.HELD
    (notice,) = await turning.notices("nova")
    assert f"#{message.seq} is held for luna" in notice
    assert "exit status 1" in notice
    assert await turning.types() == ["auto-turn", "auto-turn-error"] * 3

    await turning.bus.submit(HUMAN, Release(message=str(message.seq)))
    turning.passes(30)

    assert await turning.run() == ["one", "later 1", "later 5", "later 0"]
    assert turning.stats() == TurnStats(execution_count=6, execution_errors=3, messages_processed=9)


async def test_retry_has_exactly_the_failed_batch(turning: Turning) -> None:
    await turning.join()
    await turning.send("one")
    turning.passes(3)
    job = await turning.turn()
    await turning.send("two")
    await turning.done(job, error="x")
    turning.passes(1)

    assert await turning.run() == ["one"]
    turning.passes(3)
    assert await turning.run() == ["two"]


async def test_end_of_the_runner_is_an_error_and_a_late_result_changes_nothing(turning: Turning) -> None:
    await turning.join()
    message = await turning.send("one")
    turning.passes(3)
    job = await turning.turn()

    await turning.turns.lose_runner()
    seq = turning.bus.log.last()
    await turning.done(job, harness_session="h1")
    await turning.done(job, error="too late")

    assert turning.bus.log.last() == seq
    assert await turning.types() == ["auto-turn", "auto-turn-error"]
    assert turning.bus.state(message, "luna") == State.QUEUED
    assert not turning.turns.has_runner
    await turning.turns.register(())
    turning.passes(1)
    assert await turning.run() == ["one"]


async def test_runner_that_comes_back_keeps_the_turns_that_it_runs(turning: Turning) -> None:
    await turning.join()
    await turning.join("nova")
    await turning.send("one")
    await turning.send("two", "@nova")
    turning.passes(3)
    jobs = {job.agent: job for job in (await turning.turn(), await turning.turn())}

    turning.turns.disconnect_runner()
    await turning.turns.register((jobs["luna"].turn,))
    await turning.done(jobs["luna"])

    assert await turning.types("luna") == ["auto-turn", "auto-turn-result"]
    assert await turning.types("nova") == ["auto-turn", "auto-turn-error"]
    with pytest.raises(NotFound):
        turning.turns.target_of(turn=jobs["nova"].turn)


async def test_unknown_turns_and_triages_are_refused(turning: Turning) -> None:
    with pytest.raises(NotFound):
        await turning.turns.ended(999, "x", "", "")
    with pytest.raises(NotFound):
        turning.turns.target_of(turn=999)
    with pytest.raises(NotFound):
        turning.turns.target_of(job=999)


async def test_full_disk_delays_a_turn(turning: Turning) -> None:
    await turning.join()
    await turning.send("one")
    turning.passes(3)
    turning.failures.append((StartTurn, DiskFull("no room")))
    with pytest.raises(DiskFull):
        await turning.turn()

    turning.passes(1)

    assert await turning.run() == ["one"]


async def test_refused_turn_of_a_session_does_not_stop_the_others(turning: Turning) -> None:
    await turning.join()
    await turning.join("nova")
    await turning.send("one")
    await turning.send("two", "@nova")
    turning.failures.append((StartTurn, BadRequest("no")))
    turning.passes(3)

    job = await turning.turn()

    assert turning.failures == [], "the first one was refused"
    await turning.done(job)
    refused, text = ("nova", "two") if job.agent == "luna" else ("luna", "one")
    await turning.nothing_is_due(rejected=refused)
    turning.passes(60)
    assert await turning.run() == [text], "the refused one is tried again"


# The limit


async def test_session_runs_at_most_20_turns_an_hour(turning: Turning) -> None:
    await turning.join(value={**ACCEPT, "maxBatchSize": 1})
    for number in range(21):
        turning.passes(1)
        await turning.send(str(number))

    ran = [await turning.run() for _ in range(20)]

    assert ran == [[str(number)] for number in range(20)]
    await turning.nothing_is_due()
    plan = turning.turns.plan("luna", "main")
    assert (plan.step, plan.is_limited) == (Step.WAITING, True)
    turning.passes(3599)
    await turning.nothing_is_due()
    turning.passes(1)
    assert await turning.run() == ["20"]


async def test_changed_limit_applies_to_a_session_that_waits(turning: Turning) -> None:
    turning.settings = replace(turning.settings, limit_an_hour=1)
    await turning.join(value={**ACCEPT, "maxBatchSize": 1})
    await turning.send("one")
    await turning.run()
    await turning.send("two")
    await turning.nothing_is_due()

    turning.settings = replace(turning.settings, limit_an_hour=0)
    turning.turns.settings_changed()

    assert await turning.run() == ["two"]


# The triage


async def test_rejected_batch_is_skipped_without_a_runner(turning: Turning) -> None:
    turning.turns.disconnect_runner()
    await turning.join(value={"reject": ["internal", "message"]})
    message = await turning.send("one")

    turning.passes(3)

    await turning.nothing_is_due()
    assert await turning.types() == ["turn.skipped"]
    assert turning.bus.texts("luna") == ["one"]
    assert turning.bus.state(message, "luna") == State.QUEUED
    assert turning.stats() == TurnStats(execution_count=1, messages_processed=1), "the probe"


async def test_triage_with_no_skips_the_batch_for_good(turning: Turning) -> None:
    await turning.join(value={"triageModel": "opus", "triageTimeoutMs": 5})
    message = await turning.send("one")
    turning.passes(3)
    triage = await turning.triage()
    assert triage.command == ("claude", "-p", "--model", "opus")
    assert (triage.agent, triage.session, triage.timeout_ms) == ("luna", "main", 5)
    assert turning.turns.target_of(job=triage.job) == ("luna", "main")
    assert turning.turns.plan("luna", "main").step is Step.TRIAGE
    await turning.send("two")

    await turning.turns.triaged(triage.job, "NO\nYES", "")

    assert await turning.types() == ["turn.skipped"]
    assert turning.bus.state(message, "luna") == State.QUEUED
    turning.restart()
    await turning.turns.register(())
    turning.passes(60)
    again = await turning.triage()
    assert "Messages: 1\n" in again.prompt
    await turning.turns.triaged(again.job, "no", "")
    await turning.nothing_is_due()
    assert turning.bus.texts("luna") == ["one", "two"]
    stats = turning.stats()
    assert (stats.triage_count, stats.triage_rejected, stats.execution_count) == (2, 2, 1)


async def test_accepted_batch_runs_after_its_triage(turning: Turning) -> None:
    await turning.join(value=True)
    await turning.send("one")
    turning.passes(3)
    triage = await turning.triage()
    await turning.send("two")

    await turning.turns.triaged(triage.job, " yes, it should", "")
    await turning.turns.triaged(triage.job, "NO", "")

    assert await turning.run() == ["one"]
    stats = turning.stats()
    assert (stats.triage_count, stats.triage_accepted, stats.messages_processed) == (1, 1, 1)


async def test_turn_runs_after_an_error_of_the_triage(turning: Turning) -> None:
    await turning.join(value=True)
    await turning.send("one")
    turning.passes(3)
    triage = await turning.triage()

    await turning.turns.triaged(triage.job, "", "timeout")

    assert await turning.run() == ["one"]
    stats = turning.stats()
    assert (stats.triage_count, stats.triage_errors, stats.triage_accepted) == (1, 1, 0)


async def test_retry_of_an_accepted_batch_has_no_second_triage(turning: Turning) -> None:
    await turning.join(value=True)
    await turning.send("one")
    turning.passes(3)
    await turning.turns.triaged((await turning.triage()).job, "YES", "")
    await turning.done(await turning.turn(), error="x")

    turning.passes(1)

    assert await turning.run() == ["one"]
    assert turning.stats().triage_count == 1


async def test_message_that_was_read_during_its_triage_is_not_run(turning: Turning) -> None:
    luna = await turning.join(value=True)
    message = await turning.send("one")
    turning.passes(3)
    triage = await turning.triage()
    await turning.bus.ack(luna, message.seq)

    await turning.turns.triaged(triage.job, "YES", "")

    await turning.nothing_is_due()


async def test_accepted_message_that_a_reader_has_in_hand_is_not_run(turning: Turning) -> None:
    luna = await turning.join(value={"maxBatchSize": 1})
    first = await turning.send("one")
    triage = await turning.triage()
    reader = turning.bus.delivery.take("luna")
    reader.poll(10)
    second = await turning.send("two")
    await turning.turns.triaged(triage.job, "YES", "")
    await turning.bus.ack(luna, first.seq)
    reader.close()

    again = await turning.triage()

    assert "Messages: 1\n" in again.prompt
    await turning.turns.triaged(again.job, "YES", "")
    assert await turning.run() == ["two"]
    assert turning.bus.state(first, "luna") == State.SEEN
    assert turning.bus.state(second, "luna") == State.SEEN


async def test_triage_begins_again_after_the_loss_of_the_runner(turning: Turning) -> None:
    await turning.join(value=True)
    await turning.send("one")
    turning.passes(3)
    first = await turning.triage()

    turning.turns.disconnect_runner()
    await turning.turns.register(())
    second = await turning.triage()
    await turning.turns.triaged(first.job, "NO", "")
    await turning.turns.triaged(second.job, "YES", "")

    assert await turning.run() == ["one"]


async def test_triage_begins_again_when_its_outcome_cannot_be_stored(turning: Turning) -> None:
    await turning.join(value=True)
    await turning.send("one")
    turning.passes(3)
    triage = await turning.triage()
    turning.failures.append((SkipTurn, DiskFull("no room")))

    with pytest.raises(DiskFull):
        await turning.turns.triaged(triage.job, "NO", "")

    again = await turning.triage()
    assert again.job != triage.job
    await turning.turns.triaged(again.job, "NO", "")
    await turning.nothing_is_due()


async def test_rejected_batch_is_skipped_later_if_the_disk_is_full(turning: Turning) -> None:
    await turning.join(value={"reject": ["internal", "message"]})
    await turning.send("one")
    turning.failures += [(SkipTurn, DiskFull("no room"))]
    turning.passes(3)
    await turning.nothing_is_due(rejected="luna")
    assert await turning.types() == []

    turning.passes(1)
    await turning.nothing_is_due()

    assert await turning.types() == ["turn.skipped"]


async def test_batch_that_is_rejected_while_it_is_due_is_skipped(turning: Turning) -> None:
    await turning.join(value={"maxBatchSize": 1})
    await turning.join("nova", value={"reject": ["internal", "message"], "maxBatchSize": 1})
    await turning.send("one")
    await turning.runner_is_due()
    # The skip of another batch delays the next look.
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slowly(request: Request) -> object:
        if isinstance(request, SkipTurn):
            begun.set()
            await may_end.wait()
        return await turning.submit(request)

    turning.turns._submit = slowly
    await turning.send("two", "@nova")
    async with asyncio.timeout(LIMIT_S):
        await begun.wait()
    await turning.set("luna", {"reject": ["internal", "message"], "maxBatchSize": 1})

    assert await turning.turns.next_job(0) == NoJob()

    may_end.set()
    await turning.nothing_is_due()
    assert await turning.types() == ["turn.skipped"]


async def test_refused_skip_is_repeated_after_a_minute(turning: Turning) -> None:
    await turning.join(value={"reject": ["internal", "message"]})
    await turning.send("one")
    turning.failures += [(SkipTurn, BadRequest("no"))]
    turning.passes(3)
    await turning.nothing_is_due(rejected="luna")
    turning.passes(10)
    await turning.nothing_is_due(rejected="luna")

    assert await turning.types() == []
    turning.passes(50)
    await turning.nothing_is_due()
    assert await turning.types() == ["turn.skipped"]


# Restarts


async def test_queue_and_open_turns_survive_a_restart_of_the_reactor(turning: Turning) -> None:
    await turning.join()
    await turning.join("nova")
    await turning.send("one")
    turning.passes(3)
    open_turn = await turning.turn()
    await turning.send("two")
    await turning.send("three", "@nova")

    turning.restart()
    await turning.turns.register((open_turn.turn,))
    turning.passes(3)

    assert await turning.run() == ["three"]
    await turning.done(open_turn)
    assert await turning.run() == ["two"]


async def test_queue_and_open_turns_survive_a_restart_with_the_file(tmp_path: Path) -> None:
    async with turning_bus(open_sqlite, tmp_path) as turning:
        nova = await turning.bus.join("nova")
        await turning.join()
        for _ in range(3):
            held = await turning.send("held", sender=nova)
            turning.passes(30)
        for wait_s in (1, 5, 0):
            await turning.done(await turning.turn(), error="x")
            turning.passes(wait_s)
        open_ = await turning.send("open")
        turning.passes(30)
        job = await turning.turn()
        queued = await turning.send("queued")
        notices = await turning.notices("nova")

    async with turning_bus(open_sqlite, tmp_path, later_s=3600) as turning:
        states = [turning.bus.state(event, "luna") for event in (held, open_, queued)]
        assert states == [State.HELD, State.QUEUED, State.QUEUED], "no runner knows the open turn"
        turning.passes(1)

        assert await turning.run() == ["open"]
        assert await turning.run() == ["queued"]
        events = await turning.bus.log.read(Query(types=("auto-turn-error",), last=1))
        assert isinstance(events[0].body, AutoTurnError)
        assert events[0].body.turn == job.turn
        assert await turning.notices("nova") == notices, "the notice is not repeated"


async def test_notice_that_was_not_written_follows_after_a_restart(
    turning: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova = await turning.bus.join("nova")
    await turning.join()
    await turning.send("one", sender=nova)
    await turning.bus.send(HUMAN, "held for another reason", "@luna")
    braked = await turning.bus.send(nova, "kept", "@luna")
    await turning.bus.report("luna", "held", braked.seq, reason="usage limit reached")
    turning.passes(3)
    for wait_s in (1, 5):
        await turning.done(await turning.turn(), error="x")
        turning.passes(wait_s)
    job = await turning.turn()

    async def stop(*_: object) -> None:
        raise ShuttingDown("the daemon ends here")

    with monkeypatch.context() as patched:
        patched.setattr(paths, "notify", stop)
        with pytest.raises(ShuttingDown):
            await turning.done(job, error="x")
    assert await turning.notices("nova") == []
    turning.restart()

    (notice,) = await turning.notified("nova", 1)
    assert "the automatic turn failed 3 times" in notice
    turning.restart()
    await turning.nothing_is_due()
    assert await turning.notices("nova") == [notice]


async def test_rebuilt_rows_are_the_same(turning: Turning) -> None:
    await turning.join(value=True)
    for number in range(3):
        await turning.send(str(number))
    turning.passes(3)
    await turning.turns.triaged((await turning.triage()).job, "YES", "")
    await turning.done(await turning.turn(), error="x")
    turning.passes(1)
    job = await turning.turn()
    await turning.send("more")
    rows = turning.bus.log.rows
    tables = ("auto_run", "turn_queue", "turn_held", "turn_session", "turn_count")
    before = {table: rows.scan(table, "") for table in tables}

    await turning.bus.log.rebuild()

    assert {table: turning.bus.log.rows.scan(table, "") for table in tables} == before
    await turning.done(job)


# The runner


async def test_job_of_a_turn_has_what_the_runner_needs(turning: Turning) -> None:
    await turning.join(
        harness="claude",
        session="h0",
        cwd="/work",
        argv=("pal", "run", "claude", "--verbose"),
        seat=None,
    )
    turning.settings = replace(turning.settings, command=("my-agent", "--once"))
    await turning.send("one")
    turning.passes(3)

    job = await turning.turn()

    assert (job.agent, job.session, job.harness, job.cwd) == ("luna", "main", "claude", "/work")
    assert (job.command, job.timeout_ms) == (("my-agent", "--once"), 300_000)
    assert job.harness_session == "h0"
    assert "one" in job.prompt
    await turning.done(job, harness_session="h1")
    session = read_agent_session(turning.bus.log.rows, "luna", "main")
    assert session is not None
    assert session.harness_session == "h1"
    await turning.send("two")
    turning.passes(3)
    job = await turning.turn()
    assert job.harness_session == "h1"
    await turning.done(job)


async def test_new_session_of_an_agent_has_no_harness_session_to_resume(turning: Turning) -> None:
    luna = await turning.join(harness="claude", session="h0")
    await turning.bus.submit(luna, SubscribePath(agent="luna", session="mon", pattern="x/y"))
    await turning.send("one", "x/y")
    turning.passes(3)

    job = await turning.turn()

    assert (job.harness_session, job.arguments) == ("", ())
    await turning.done(job)


async def test_request_for_a_job_ends_without_one(turning: Turning) -> None:
    assert await turning.turns.next_job(0) == NoJob()


async def test_senders_are_notified_once_that_no_runner_is_running(turning: Turning) -> None:
    nova = await turning.bus.join("nova")
    await turning.join()
    await turning.turns.lose_runner()
    await turning.send("one", sender=nova)
    await turning.send("from a script", sender=SCRIPT)
    turning.passes(3)
    await turning.runner_is_awaited()

    turning.passes(NO_RUNNER_S)
    await turning.notified("nova", 1)
    await turning.send("two", sender=nova)
    turning.passes(3)
    await turning.runner_is_awaited()
    turning.passes(NO_RUNNER_S)

    first, second = await turning.notified("nova", 2)
    assert "no runner is running" in first
    assert first != second
    await turning.turns.register(())
    assert await turning.run() == ["one", "from a script", "two"]


async def test_failed_notice_of_a_missing_runner_is_retried_by_time(turning: Turning) -> None:
    nova = await turning.bus.join("nova")
    await turning.join()
    await turning.turns.lose_runner()
    await turning.send("one", sender=nova)
    turning.passes(3)
    await turning.runner_is_awaited()
    turning.failures.append((Notify, DiskFull("no room")))
    turning.passes(NO_RUNNER_S)
    await turning.runner_is_awaited()

    turning.passes(NO_RUNNER_S)

    (notice,) = await turning.notified("nova", 1)
    assert "no runner is running" in notice


async def test_runner_that_comes_in_time_needs_no_notice(turning: Turning) -> None:
    nova = await turning.bus.join("nova")
    await turning.join()
    await turning.turns.lose_runner()
    await turning.send("one", sender=nova)
    turning.passes(3)
    await turning.runner_is_awaited()

    await turning.turns.register(())
    turning.passes(NO_RUNNER_S)

    assert await turning.run() == ["one"]
    assert await turning.notices("nova") == []


async def test_close_twice_or_before_the_start_is_harmless(turning: Turning) -> None:
    turning.turns.close()
    turning.turns.close()
    turning.start()


# Turns that a person asks for


async def _asked(turning: Turning, *seqs: int, text: str = "", id_: str = "") -> "asyncio.Task[TurnOutcome]":
    batch = [BatchMessage(seq=seq, mailbox="luna") for seq in seqs]

    async def run() -> TurnOutcome:
        async with asyncio.timeout(LIMIT_S):
            return await turning.turns.run(("luna", "main"), batch, text, by="human", id_=id_)

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)  # it begins
    return task


async def test_turn_of_a_person_runs_without_a_triage_after_the_running_one(turning: Turning) -> None:
    await turning.join(value=True)
    message = await turning.send("one")
    turning.passes(3)
    await turning.turns.triaged((await turning.triage()).job, "YES", "")
    running = await turning.turn()
    task = await _asked(turning, message.seq, text="look at this")
    await turning.nothing_is_due()

    await turning.done(running)
    job = await turning.turn()
    await turning.turns.ended(job.turn, "well", "", "")

    assert await task == TurnOutcome(turn=job.turn, text="well", messages=1)
    assert "look at this" in job.prompt
    assert turning.stats().triage_count == 1
    event = turning.bus.log.event(job.turn)
    assert event is not None
    assert isinstance(event.body, AutoTurnStarted)
    assert (event.body.started_by, event.body.text) == ("human", "look at this")


async def test_turns_of_a_person_need_no_configuration_and_run_one_by_one(turning: Turning) -> None:
    await turning.bus.join("luna")
    first, second = await _asked(turning, text="one"), await _asked(turning, text="two")

    one = await turning.turn()
    await turning.turns.ended(one.turn, "", "exit status 1", "")
    two = await turning.turn()
    await turning.done(two)

    assert await first == TurnOutcome(turn=one.turn, error="exit status 1")
    assert await second == TurnOutcome(turn=two.turn, text="done")


async def test_turn_of_a_person_in_an_open_session_is_refused(turning: Turning) -> None:
    await turning.join(harness="claude")
    turning.bus.present.add("luna")

    with pytest.raises(BadRequest, match="is open in claude"):
        await turning.turns.run(("luna", "main"), [], "x", by="human")


async def test_person_that_gives_up_waiting_starts_no_turn(turning: Turning) -> None:
    await turning.join()
    running = await _asked(turning, text="one")
    job = await turning.turn()
    task = await _asked(turning, text="two")

    task.cancel()
    await asyncio.wait([task])
    running.cancel()
    await asyncio.wait([running])
    await turning.done(job)

    await turning.nothing_is_due()


async def test_repeated_request_of_a_person_runs_no_second_turn(turning: Turning) -> None:
    await turning.join()
    id_ = "01HF7YAT00ABCDEFGHJKMNPQRS"
    first, again = await _asked(turning, text="one", id_=id_), await _asked(turning, text="one", id_=id_)
    await turning.done(await turning.turn())
    await first

    await turning.nothing_is_due()

    with pytest.raises(BadRequest, match="the turn has ended already"):
        await again
    assert await turning.types() == ["auto-turn", "auto-turn-result"]


async def test_person_does_not_wait_for_a_turn_that_could_not_start(turning: Turning) -> None:
    await turning.join()
    turning.failures.append((StartTurn, DiskFull("no room")))
    task = await _asked(turning, text="one")

    with pytest.raises(DiskFull):
        await turning.turn()

    with pytest.raises(Unavailable, match="try again"):
        await task


async def test_turns_of_persons_end_with_the_runner(turning: Turning) -> None:
    await turning.join()
    running = await _asked(turning, text="one")
    job = await turning.turn()
    queued = await _asked(turning, text="two")

    await turning.turns.lose_runner()

    assert (await running).turn == job.turn
    with pytest.raises(Unavailable, match="the runner has ended"):
        await queued
    await turning.turns.register(())
    await turning.nothing_is_due()
    assert await turning.types() == ["auto-turn", "auto-turn-error"]


async def test_refused_turn_of_a_person_fails_alone(turning: Turning) -> None:
    await turning.join()
    refused, other = await _asked(turning, text="\x1b[31mred"), await _asked(turning, text="two")

    job = await turning.turn()
    await turning.done(job)

    with pytest.raises(BadText, match="the text"):
        await refused
    assert await other == TurnOutcome(turn=job.turn, text="done")


# Agents that start each other


async def test_two_agents_that_answer_each_other_are_stopped_by_the_hop_brake(turning: Turning) -> None:
    callers: dict[str, Caller] = {"luna": await turning.join(), "nova": await turning.join("nova")}
    others = {"luna": "@nova", "nova": "@luna"}
    await turning.send("begin", sender=SCRIPT)

    for _ in range(LIMIT_HOPS):
        turning.passes(60)
        job = await turning.turn()
        await turning.send("your turn", others[job.agent], sender=callers[job.agent])
        await turning.done(job)
    turning.passes(60)
    job = await turning.turn()
    with pytest.raises(RateLimited):
        await turning.send("your turn", others[job.agent], sender=callers[job.agent])
    await turning.done(job)

    turning.passes(60)
    await turning.nothing_is_due()


async def test_config_of_a_session_is_that_of_its_agent_or_its_own(turning: Turning) -> None:
    luna = await turning.join(value={"debounceMs": 5})
    await turning.bus.submit(luna, CreateSession(agent="luna", session="mon"))
    assert turning.turns.config("luna", "mon").debounce_ms == 5

    await turning.set("luna", True, "mon")

    assert turning.turns.config("luna", "mon").debounce_ms == 3_000
    assert list(read_queued(turning.bus.log.rows, "luna", "mon")) == []


async def test_failure_of_the_log_while_a_turn_fails_is_raised(turning: Turning) -> None:
    await turning.join()
    await turning.send("one")
    turning.passes(3)
    job = await turning.turn()
    turning.failures.append((FailTurn, DiskFull("no room")))

    with pytest.raises(DiskFull):
        await turning.done(job, error="x")

    await turning.done(job, error="x")
    assert await turning.types() == ["auto-turn", "auto-turn-error"]


async def test_triage_of_many_sessions_is_answered_in_any_order(tmp_path: Path) -> None:
    async with turning_bus(open_memory, tmp_path) as turning:
        await turning.join(value=True)
        await turning.join("nova", value=True)
        await turning.send("one")
        await turning.send("two", "@nova")
        turning.passes(3)
        jobs = {job.agent: job for job in (await turning.triage(), await turning.triage())}
        assert all(isinstance(job, TriageJob) for job in jobs.values())

        await turning.turns.triaged(jobs["nova"].job, "YES", "")
        await turning.turns.triaged(jobs["luna"].job, "NO", "")

        assert await turning.run() == ["two"]
        await turning.nothing_is_due()


async def test_harness_session_that_looks_like_an_option_is_not_used(turning: Turning) -> None:
    await turning.join()
    await turning.send("one")
    turning.passes(3)

    await turning.done(await turning.turn(), harness_session="--yolo")
    await turning.send("two")
    turning.passes(3)

    job = await turning.turn()
    assert job.harness_session == ""
    await turning.done(job)
