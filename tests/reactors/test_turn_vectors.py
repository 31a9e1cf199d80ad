"""Automatic turns of an earlier system, case by case; except where the design differs."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes import HUMAN, SCRIPT, open_memory
from tests.reactors.turning import Turning, turning_bus

from palaver.domain.turns import check_auto_run, is_yes, resolve_auto_run
from palaver.errors import BadRequest
from palaver.protocol.paths import MAIN, Content, CreateSession, SubscribePath, mailbox_of
from palaver.protocol.requests import Send
from palaver.protocol.turns import BatchMessage, TriageJob, TurnConfig, session_of_mailbox, turn_targets

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "automatic_turns.json").read_text()
)
BATCHING: dict[str, dict[str, Any]] = {case["title"]: case for case in VECTORS["batching"]}

DIFFERENT: Mapping[str, str] = {
    "an execution error is logged and the queue stays usable": (
        "a failed batch is tried twice more, so each message makes three errors, and it is held then"
    ),
}
"""Batching cases that differ, with the reason. The test of the case shows the difference."""

NOT_SHIPPED = {
    "session_mapper": "path subscriptions choose the session; no mapper of payloads to sessions exists",
}
"""Parts of the vectors that do not exist here, with the reason."""

_ABSENT = ("(absent)", "(no such session)")


@pytest.fixture
async def turning(tmp_path: Path) -> AsyncIterator[Turning]:
    async with turning_bus(open_memory, tmp_path) as made:
        yield made


def test_every_part_of_the_vectors_is_played_or_named() -> None:
    played = {"auto_run_resolution", "triage_answers", "turn_targets", "batching", "triage_rules", "defaults"}

    assert set(VECTORS) == played | set(NOT_SHIPPED)
    assert set(DIFFERENT) <= set(BATCHING)


def test_defaults_are_those_of_the_vectors() -> None:
    config = msgspec.to_builtins(TurnConfig())

    assert {name: config[name] for name in VECTORS["defaults"]} == VECTORS["defaults"]


# The resolution of autoRun


@pytest.mark.parametrize("case", VECTORS["auto_run_resolution"], ids=lambda case: json.dumps(case)[:90])
def test_auto_run_is_resolved_as_in_the_vectors(case: dict[str, Any]) -> None:
    session, agent = (
        None if case[name] in _ABSENT else case[name] for name in ("session_autoRun", "agent_autoRun")
    )
    defaults = msgspec.convert({**VECTORS["defaults"], **case.get("global_defaults", {})}, TurnConfig)

    config = msgspec.to_builtins(resolve_auto_run(session, agent, defaults))

    assert {name: config[name] for name in case["resolved"]} == case["resolved"]


def test_negative_number_is_refused_instead_of_kept() -> None:
    with pytest.raises(BadRequest, match="nothing was changed"):
        check_auto_run({"debounceMs": -1})


# The triage


@pytest.mark.parametrize("case", VECTORS["triage_answers"], ids=lambda case: repr(case["answer"]))
async def test_output_of_the_triage_decides_as_in_the_vectors(case: dict[str, Any], turning: Turning) -> None:
    is_error = case["answer"] == "(throws)"
    await turning.join(value={"maxBatchSize": 1})
    await turning.send("one")
    triage = await turning.triage()

    await turning.turns.triaged(
        triage.job, "" if is_error else case["answer"], "exit status 1" if is_error else ""
    )

    if case["runs_via_cli"]:
        assert await turning.run() == ["one"]
    await turning.nothing_is_due()
    assert is_error or is_yes(case["answer"]) is case["runs_via_cli"]
    assert turning.stats().triage_errors == case.get("triageErrors", 0)
    assert turning.stats().triage_count == 1


@pytest.mark.parametrize("case", VECTORS["triage_rules"], ids=lambda case: json.dumps(case["triageRules"]))
async def test_lists_decide_as_in_the_vectors(case: dict[str, Any], turning: Turning) -> None:
    await turning.join(value={"triageRules": case["triageRules"], "maxBatchSize": len(case["commands"])})
    for command in case["commands"]:
        content = Content(command=command, source=case["source"])
        await turning.bus.submit(SCRIPT, Send(text="", to=("/agent/luna",), content=content))

    has_asked = has_run = False
    if case["asked_model"] or case["executed"]:
        job = await turning.job()
        if isinstance(job, TriageJob):
            has_asked = True
            await turning.turns.triaged(job.job, case["model_answer"], "")
        else:
            has_run = True
            await turning.done(job)  # type: ignore[arg-type]  # the other kind
    await turning.nothing_is_due()

    assert (has_asked, has_run) == (case["asked_model"], case["executed"])


# The sessions that run


@pytest.mark.parametrize("case", VECTORS["turn_targets"], ids=lambda case: case["title"])
def test_sessions_that_run_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    route = case["route_result"]
    # Here an undelivered message has no mailbox.
    is_delivered = route.get("delivered", True)
    sessions = [mailbox_of(one["agentId"], one["sessionId"]) for one in route["deliveredToSessions"]]
    mailboxes = [*sessions, *route["deliveredTo"]] if is_delivered else []

    found = [":".join(session_of_mailbox(one)) for one in turn_targets(mailboxes)]

    assert found == case["executed"]


@pytest.mark.parametrize("case", VECTORS["turn_targets"][:4], ids=lambda case: case["title"])
async def test_sessions_of_the_vectors_run_on_a_bus(case: dict[str, Any], turning: Turning) -> None:
    route = case["route_result"]
    for name in route["deliveredTo"]:
        agent = await turning.join(name, {"accept": ["internal"], "maxBatchSize": 1})
        sessions = [one["sessionId"] for one in route["deliveredToSessions"] if one["agentId"] == name]
        for session in sessions or [""]:
            await turning.bus.submit(agent, SubscribePath(agent=name, session=session, pattern="x/y"))

    await turning.bus.submit(SCRIPT, Send(text="hello", to=("x/y",)))
    jobs = [await turning.turn() for _ in case["executed"]]

    assert {f"{job.agent}:{job.session}" for job in jobs} == set(case["executed"])
    for job in jobs:
        await turning.done(job)
    await turning.nothing_is_due()


# Batches


async def test_burst_inside_the_window_is_one_turn(turning: Turning) -> None:
    case = BATCHING["burst of 15 inside the window"]
    await turning.join(value={"debounceMs": case["debounceMs"]})

    for number in range(*case["batch"]):
        await turning.send(str(number))
    turning.passes(case["debounceMs"] / 1000)
    await turning.turns.triaged((await turning.triage()).job, "YES", "")
    batches = [len(await turning.run())]

    assert batches == case["batch"]
    assert (turning.stats().execution_count, turning.stats().triage_count) == (
        case["executions"],
        case["triages"],
    )
    await turning.nothing_is_due()


async def test_full_batch_runs_at_once(turning: Turning) -> None:
    case = BATCHING["max batch 3 flushes at once despite 10 s window"]
    await turning.join(value={"accept": ["internal"], "debounceMs": 10_000, "maxBatchSize": 3})

    for number in range(3):
        await turning.send(str(number))
    job = await turning.turn()

    assert turning.stats().execution_count == case["executions"]
    assert turning.batch(job) == ["0", "1", "2"]
    await turning.done(job)


async def test_separate_sessions_have_separate_queues(turning: Turning) -> None:
    case = BATCHING["separate sessions have separate queues"]
    luna = await turning.join(value={"accept": ["internal"], "maxBatchSize": 1})
    for session in case["executed"]:
        await turning.bus.submit(luna, SubscribePath(agent="luna", session=session, pattern=f"x/{session}"))
        await turning.send(session, f"x/{session}")

    jobs = [await turning.turn() for _ in case["executed"]]

    assert sorted(job.session for job in jobs) == case["executed"]
    assert sorted(text for job in jobs for text in turning.batch(job)) == case["executed"]
    for job in jobs:
        await turning.done(job)


async def test_error_is_logged_and_the_queue_stays_usable(turning: Turning) -> None:
    case = BATCHING["an execution error is logged and the queue stays usable"]
    expected, tries = case["stats"], 3
    messages = expected["messagesProcessed"]
    await turning.join(value={"maxBatchSize": 1})

    for number in range(messages):
        await turning.send(str(number))
        await turning.turns.triaged((await turning.triage()).job, "YES", "")
        for wait_s in (1, 5, 0):
            await turning.done(await turning.turn(), error="exit status 1")
            turning.passes(wait_s)

    retried = ("executionCount", "executionErrors", "messagesProcessed")
    found = msgspec.to_builtins(turning.stats())
    assert found == expected | {name: expected[name] * tries for name in retried}
    errors = [one for one in await turning.types() if one == "auto-turn-error"]
    assert errors == case["logs"] * tries


async def test_turn_of_a_person_needs_no_configuration_and_no_triage(turning: Turning) -> None:
    case = BATCHING["triggerTurn with no autoRun and no triage"]
    await turning.bus.join("luna", is_here=False)
    await turning.bus.submit(HUMAN, CreateSession(agent="luna", session=MAIN, harness_session="h1"))
    message = await turning.send("one")
    batch = [BatchMessage(seq=message.seq, mailbox="luna")]

    async def play() -> tuple[str, int, str]:
        job = await turning.turn()
        await turning.turns.ended(job.turn, "ok", "", "")
        return job.session, job.timeout_ms, job.harness_session

    running = turning.tasks.create_task(turning.turns.run(("luna", MAIN), batch, "", by="human"))
    session, timeout_ms, harness_session = await play()
    outcome = await running

    result = case["result"]
    assert (not outcome.error, outcome.messages, len(outcome.text)) == (
        result["executed"],
        result["messageCount"],
        result["responseLength"],
    )
    assert turning.stats().triage_count == case["triages"]
    assert (session, timeout_ms) == (case["resume"], case["timeoutMs"])
    assert harness_session == "h1", "the id of the harness is stored with the session"
