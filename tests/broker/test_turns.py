"""Automatic turns: configuration, start, end, retries, skipping; on both engines."""

from dataclasses import replace

import pytest
from tests.fakes import HUMAN, LIMIT_HOPS, SCRIPT, Bus, caller

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import BadRequest, NotAllowed, NotFound, PalaverError, RateLimited, UnknownRecipient
from palaver.ids import UlidSource
from palaver.log.api import Commit, Order
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    AutoTurnError,
    AutoTurnStarted,
    MessageSent,
    SettingChanged,
    State,
    TurnSkipped,
)
from palaver.protocol.paths import CreateSession, SubscribePath
from palaver.protocol.query import Query
from palaver.protocol.requests import Join, Release, Send
from palaver.protocol.turns import BatchMessage, FailTurn, FinishTurn, SetAutoRun, SkipTurn, StartTurn
from palaver.state.turns import read_auto_run, read_queued, read_turn


async def turn_on(bus: Bus, name: str = "luna", value: object = True, session: str = "") -> Event | None:
    return await bus.submit(HUMAN, SetAutoRun(agent=name, session=session, value=value))


async def start(bus: Bus, *events: Event, mailbox: str = "luna", **fields: object) -> Event | None:
    batch = tuple(BatchMessage(seq=event.seq, mailbox=mailbox) for event in events)
    asked = {"agent": "luna", "session": "main", "batch": batch, **fields}
    return await bus.submit(SYSTEM_CALLER, StartTurn(**asked))  # type: ignore[arg-type]  # its fields


async def started(bus: Bus, *events: Event, **fields: object) -> int:
    event = await start(bus, *events, **fields)  # type: ignore[arg-type]  # fields of a start
    assert event is not None
    return event.seq


async def finish(bus: Bus, turn: int) -> Event | None:
    return await bus.submit(SYSTEM_CALLER, FinishTurn(turn=turn, text="done"))


async def fail(bus: Bus, turn: int, error: str = "exit status 1") -> Event | None:
    return await bus.submit(SYSTEM_CALLER, FailTurn(turn=turn, error=error))


def queue(bus: Bus, session: str = "main") -> list[int]:
    return [seq for seq, _ in read_queued(bus.log.rows, "luna", session)]


async def notices(bus: Bus, name: str) -> list[str]:
    events = await bus.log.read(Query(types=("message",), senders=("[pal-events]",)))
    return [str(event.payload["text"]) for event in events if event.to == (name,)]


# The configuration


async def test_configuration_is_an_event_and_the_same_one_is_not_written_again(bus: Bus) -> None:
    await bus.join("luna")
    await bus.submit(HUMAN, CreateSession(agent="luna", session="mon"))

    first = await turn_on(bus, value={"debounceMs": 5}, session="mon")
    again = await turn_on(bus, value={"debounceMs": 5}, session="mon")
    removed = await turn_on(bus, value=None, session="mon")

    assert first is not None
    assert first.body == SettingChanged(
        key="autoRun", value={"debounceMs": 5}, old=None, agent="luna", session="mon"
    )
    assert again is None
    assert removed is not None
    assert removed.payload["old"] == {"debounceMs": 5}
    assert await turn_on(bus, value=None, session="mon") is None
    assert read_auto_run(bus.log.rows, "luna", "mon") is None


async def test_configuration_that_is_refused_changes_nothing(bus: Bus) -> None:
    await bus.join("luna")
    nova = await bus.join("nova")
    last = bus.log.last()

    for request, error in (
        (SetAutoRun(agent="luna", value={"debounceMs": -1}), BadRequest),
        (SetAutoRun(agent="ghost", value=True), UnknownRecipient),
        (SetAutoRun(agent="luna", session="a/b", value=True), BadRequest),
        (SetAutoRun(agent="luna", session="mon", value=True), NotFound),
    ):
        with pytest.raises(error):
            await bus.submit(HUMAN, request)
    with pytest.raises(NotAllowed):
        await bus.submit(nova, SetAutoRun(agent="luna", value=True))
    assert bus.log.last() == last
    assert await turn_on(bus, session="main") is not None


async def test_agent_cannot_start_or_end_turns(bus: Bus) -> None:
    await bus.join("luna")

    for request in (
        StartTurn(agent="luna", session="main", batch=(), started_by="human"),
        FinishTurn(turn=1),
        FailTurn(turn=1, error="x"),
        SkipTurn(agent="luna", session="main", batch=(), reason="triage"),
    ):
        with pytest.raises(PalaverError):
            await bus.submit(HUMAN, request)


async def test_wildcard_reaches_an_absent_agent_with_turns_after_a_restart(bus: Bus) -> None:
    await bus.join("luna", is_here=False)
    await bus.join("nova", is_here=False)
    await bus.submit(HUMAN, CreateSession(agent="nova", session="mon"))
    await turn_on(bus)
    await turn_on(bus, "nova", session="mon")

    event = await bus.submit(SCRIPT, Send(text="hi", to=("agent/*",)))
    again = Broker(
        bus.log, clock=bus.clock, ids=UlidSource(bus.clock, bytes), is_present=lambda _: False, draw=lambda: 0
    )
    try:
        assert again.directory.by_path("agent/*", is_present=lambda _: False) == {"luna"}
    finally:
        again.close()
    await turn_on(bus, value=None)

    assert event is not None
    assert event.payload["delivered_to"] == ["luna"]
    assert bus.broker.directory.by_path("agent/*", is_present=lambda _: False) == set()


# One turn


async def test_message_is_submitted_with_its_turn_and_seen_with_the_result(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.submit(luna, SubscribePath(agent="luna", session="main", pattern="x/y"))
    await turn_on(bus)
    first, second = await bus.send(nova, "one", "@luna"), await bus.send(nova, "two", "x/y")
    batch = (BatchMessage(seq=first.seq, mailbox="luna"), BatchMessage(seq=second.seq, mailbox="luna+main"))

    event = await start(bus, batch=batch, triage="accepted", text="be brief")

    assert event is not None
    assert event.sender == "luna"
    assert event.body == AutoTurnStarted(
        agent="luna",
        session="main",
        messages=(first.seq, second.seq),
        mailboxes=("luna", "luna+main"),
        attempt=1,
        triage="accepted",
        text="be brief",
        chain=first.id,
    )
    assert (bus.state(first, "luna"), bus.state(second, "luna+main")) == (State.SUBMITTED, State.SUBMITTED)
    assert bus.texts("luna") == ["two"], "only the handled copy is left"
    assert await start(bus, first) is None, "one turn at a time"

    result = await finish(bus, event.seq)

    assert result is not None
    assert result.payload == {"agent": "luna", "session": "main", "turn": event.seq, "text": "done"}
    entry = bus.entry(first, "luna")
    assert entry is not None
    assert (entry.state, entry.lane, entry.grade) == (State.SEEN, "turn", "handed")
    assert bus.state(second, "luna+main") == State.SEEN
    assert queue(bus) == []
    assert await finish(bus, event.seq) is None, "a repeat"
    assert await fail(bus, event.seq) is None, "too late"


async def test_turn_has_only_messages_that_still_wait(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await turn_on(bus)
    first, second = await bus.send(nova, "one", "@luna"), await bus.send(nova, "two", "@luna")
    await bus.ack(luna, first.seq)

    event = await start(bus, first, second)
    assert event is not None
    assert list(event.payload["messages"]) == [second.seq]  # type: ignore[call-overload]  # seqs
    await finish(bus, event.seq)

    assert await start(bus, first, second) is None


async def test_turn_of_a_person_runs_also_with_a_text_or_a_read_message(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    message = await bus.send(nova, "one", "@luna")
    await bus.ack(luna, message.seq)

    turn = await started(bus, message, started_by="human", id="01HF7YAT00ABCDEFGHJKMNPQRS")
    await finish(bus, turn)
    assert bus.state(message, "luna") == State.SEEN
    again = await start(bus, message, started_by="human", id="01HF7YAT00ABCDEFGHJKMNPQRS")
    assert again is not None
    assert again.seq == turn, "the same request is the same turn"
    assert read_turn(bus.log.rows, "luna", "main").active == 0
    text_only = await started(bus, started_by="human", text="clean up")
    await finish(bus, text_only)
    unknown = BatchMessage(seq=999_999, mailbox="luna")
    with_unknown = await start(bus, started_by="human", batch=(unknown,))
    assert with_unknown is not None
    assert isinstance(with_unknown.body, AutoTurnStarted)
    assert with_unknown.body.messages == ()
    with pytest.raises(PalaverError):
        await start(bus, started_by="human", text="\x00")


async def test_unknown_turn_has_no_end(bus: Bus) -> None:
    await bus.join("luna")
    message = await bus.send(HUMAN, "x", "@luna")

    for turn in (message.seq, 999_999):
        with pytest.raises(NotFound):
            await finish(bus, turn)
        with pytest.raises(NotFound):
            await fail(bus, turn)


# Errors


async def test_failed_batch_is_tried_twice_more_then_held_until_its_release(bus: Bus) -> None:
    await bus.join("luna")
    nova = await bus.join("nova")
    await turn_on(bus)
    message = await bus.send(nova, "one", "@luna")

    for attempt in (1, 2, 3):
        assert bus.state(message, "luna") == State.QUEUED
        assert queue(bus) == [message.seq]
        turn = await started(bus, message)
        ended = await fail(bus, turn, "exit status 1\nmore")
        assert ended is not None
        assert ended.body == AutoTurnError(
            agent="luna",
            session="main",
            turn=turn,
            error="exit status 1\nmore",
            attempt=attempt,
            held=attempt == 3,
        )
        assert await fail(bus, turn) is None

    entry = bus.entry(message, "luna")
    assert entry is not None
    assert entry.state == State.HELD
    assert entry.reason == f"the automatic turn failed 3 times, last as #{turn}: exit status 1"
    assert queue(bus) == []
    assert bus.texts("luna") == []
    assert len(await notices(bus, "nova")) == 1
    assert f"'pal release {message.seq}'" in (await notices(bus, "nova"))[0]

    await bus.submit(HUMAN, Release(message=str(message.seq)))

    assert queue(bus) == [message.seq]
    event = await start(bus, message)
    assert event is not None
    assert event.payload["attempt"] == 1


async def test_other_batch_after_an_error_starts_with_its_first_try(bus: Bus) -> None:
    await bus.join("luna")
    nova = await bus.join("nova")
    await turn_on(bus)
    first, second = await bus.send(nova, "one", "@luna"), await bus.send(nova, "two", "@luna")

    await fail(bus, await started(bus, first))
    await fail(bus, await started(bus, first))
    await fail(bus, await started(bus, started_by="human", text="no messages"))
    await fail(bus, await started(bus, first, second))
    event = await start(bus, second)

    assert event is not None
    assert event.payload["attempt"] == 2
    attempts = [
        event.payload["attempt"] for event in await bus.log.read(Query(types=("auto-turn",), limit=10))
    ]
    assert attempts == [1, 2, 1, 1, 2]


async def test_message_that_was_answered_in_a_failed_turn_is_not_tried_again(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await turn_on(bus)
    message = await bus.send(nova, "one", "@luna")
    turn = await started(bus, message)

    await bus.send(luna, "done", "@nova", reply_to=str(message.seq))
    await fail(bus, turn)

    assert bus.state(message, "luna") == State.ANSWERED
    assert queue(bus) == []


async def test_held_message_of_a_script_notifies_no_agent(bus: Bus) -> None:
    await bus.join("luna")
    await turn_on(bus)
    message = await bus.send(SCRIPT, "one", "@luna")

    for _ in range(3):
        await fail(bus, await started(bus, message))

    assert bus.state(message, "luna") == State.HELD
    assert await notices(bus, "script") == []


async def test_error_of_the_log_is_raised(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    await bus.join("luna")

    async def refuse(orders: list[Order]) -> list[Commit | Exception]:
        return [Commit(None)] * (len(orders) - 1) + [RateLimited(1, "x")]

    monkeypatch.setattr(bus.log, "commit_all", refuse)

    with pytest.raises(RateLimited):
        await start(bus, started_by="human", text="x")


# Skipped batches


async def test_skipped_batch_stays_in_the_mailbox(bus: Bus) -> None:
    await bus.join("luna")
    await turn_on(bus)
    message = await bus.send(await bus.join("nova"), "one", "@luna")
    batch = (BatchMessage(seq=message.seq, mailbox="luna"),)
    skip = SkipTurn(agent="luna", session="main", batch=batch, reason="triage", output="NO")

    event = await bus.submit(SYSTEM_CALLER, skip)

    assert event is not None
    assert event.body == TurnSkipped(
        agent="luna", session="main", messages=(message.seq,), reason="triage", output="NO"
    )
    assert queue(bus) == []
    assert bus.texts("luna") == ["one"]
    await started(bus, started_by="human", text="x")
    assert await bus.submit(SYSTEM_CALLER, skip) is None


# The hop brake


async def test_two_agents_that_start_each_other_are_stopped_by_the_hop_brake(bus: Bus) -> None:
    agents = {
        name: replace(caller(bus.agent((await bus.join(name)).name)), turn=f"{name}+main")
        for name in ("luna", "nova")
    }
    for name in agents:
        await turn_on(bus, name)
    message = await bus.send(SCRIPT, "begin", "@luna")
    names = ["luna", "nova"]

    hops = []
    for _ in range(LIMIT_HOPS + 2):
        name, other = names
        batch = (BatchMessage(seq=message.seq, mailbox=name),)
        turn = await bus.submit(SYSTEM_CALLER, StartTurn(agent=name, session="main", batch=batch))
        if turn is None:
            break
        message = await _said(bus, agents[name], other)
        assert isinstance(message.body, MessageSent)
        hops.append(message.body.hops)
        await finish(bus, turn.seq)
        names.reverse()

    assert hops == list(range(1, LIMIT_HOPS + 2))
    assert isinstance(message.body, MessageSent)
    assert message.body.held


async def _said(bus: Bus, asking: Caller, to: str) -> Event:
    """Send without --reply-to, and return the stored message, also if it is held."""
    try:
        return await bus.send(asking, "your turn", f"@{to}")
    except RateLimited:
        return (await bus.log.read(Query(types=("message",), senders=(asking.name,), last=1)))[0]


async def test_message_outside_a_turn_is_not_counted(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.join("nova")
    in_turn = replace(luna, turn="luna+main", standing=Standing.WORKER)

    before = await bus.send(in_turn, "no turn runs", "@nova")
    await started(bus, started_by="human", text="x")
    in_text_turn = await bus.send(in_turn, "no chain", "@nova")

    assert "hops" not in before.payload
    assert "hops" not in in_text_turn.payload


async def test_automatic_turn_cannot_join(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="cannot join or start agents"):
        await bus.submit(replace(luna, turn="luna+main"), Join(name="impostor"))
