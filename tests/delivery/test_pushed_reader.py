"""Pushed readers: mail that the agent's status lets pass is sent, the rest waits and is not lost."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import HUMAN, Bus, OpenLog, open_memory, open_sqlite, opened_bus, texts_of
from tests.limits import LIMIT_S

from palaver.delivery.lanes import can_pass
from palaver.delivery.mailbox import QueueReader
from palaver.delivery.reactor import READ_S
from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.message import PRIORITY_WORDS, parse_priority
from palaver.protocol.requests import Pause, SetStatus, Unpause


async def send_all(bus: Bus) -> None:
    for word in PRIORITY_WORDS:
        await bus.send(HUMAN, word, "@nova", priority=word)


async def test_paused_agent_is_pushed_only_interrupts(bus: Bus) -> None:
    await bus.join("nova")
    await bus.submit(HUMAN, Pause(name="nova"))
    reader = bus.delivery.take("nova", is_pushed=True)

    await send_all(bus)

    assert texts_of(reader.poll(9)) == ["interrupt"]
    assert reader.poll(9) == []


async def test_message_is_in_hand_until_its_reader_confirms_it(bus: Bus) -> None:
    nova = await bus.join("nova")
    seq = (await bus.send(HUMAN, "hello", "@nova")).seq
    assert not bus.delivery.is_in_hand("nova", seq)

    bus.delivery.take("nova").poll(9)
    assert bus.delivery.is_in_hand("nova", seq)
    await bus.ack(nova, seq)

    assert not bus.delivery.is_in_hand("nova", seq)


@pytest.mark.parametrize(
    ("state", "pushed"),
    [("blocked", ["interrupt"]), ("active", ["interrupt", "normal"]), ("starting", ["interrupt", "normal"])],
)
async def test_reported_status_holds_back_the_priorities_it_does_not_let_pass(
    bus: Bus, state: str, pushed: list[str]
) -> None:
    nova = await bus.join("nova")
    await bus.submit(nova, SetStatus(state=state))
    reader = bus.delivery.take("nova", is_pushed=True)

    await send_all(bus)

    assert texts_of(reader.poll(9)) == pushed


async def test_agent_without_a_reported_status_is_pushed_everything(bus: Bus) -> None:
    await bus.join("nova")
    reader = bus.delivery.take("nova", is_pushed=True)

    await send_all(bus)

    assert texts_of(reader.poll(9)) == list(PRIORITY_WORDS)


async def test_person_is_pushed_everything(bus: Bus) -> None:
    nova = await bus.join("nova")
    reader = bus.delivery.take("human", is_pushed=True)

    await bus.send(nova, "hello", "@human", priority="idle")

    assert texts_of(reader.poll(9)) == ["hello"]


async def test_fetching_reader_gets_mail_that_is_held_back_from_a_pushed_one(bus: Bus) -> None:
    await bus.join("nova")
    await bus.submit(HUMAN, Pause(name="nova"))
    pushed = bus.delivery.take("nova", is_pushed=True)

    await send_all(bus)

    assert texts_of(pushed.poll(9)) == ["interrupt"]
    assert bus.texts("nova") == ["normal", "idle-first", "idle"]


async def test_end_of_a_pause_takes_effect_at_once(bus: Bus) -> None:
    await bus.join("nova")
    await bus.submit(HUMAN, Pause(name="nova"))
    reader = bus.delivery.take("nova", is_pushed=True)
    await bus.send(HUMAN, "hello", "@nova")
    waiting = asyncio.ensure_future(reader.wait(9))
    await asyncio.sleep(0)
    was_waiting = not waiting.done()

    await bus.submit(HUMAN, Unpause(name="nova"))

    async with asyncio.timeout(LIMIT_S):
        assert texts_of(await waiting) == ["hello"]
    assert was_waiting


@pytest.mark.parametrize("state", ["idle", "exited"])
async def test_status_change_takes_effect_at_once(bus: Bus, state: str) -> None:
    nova = await bus.join("nova")
    await bus.submit(nova, SetStatus(state="active"))
    reader = bus.delivery.take("nova", is_pushed=True)
    await bus.send(HUMAN, "later", "@nova", priority="idle")
    waiting = asyncio.ensure_future(reader.wait(9))
    await asyncio.sleep(0)
    was_waiting = not waiting.done()

    await bus.submit(nova, SetStatus(state=state))

    async with asyncio.timeout(LIMIT_S):
        assert texts_of(await waiting) == ["later"]
    assert was_waiting


async def test_status_change_does_not_read_the_backlog_again(bus: Bus) -> None:
    nova = await bus.join("nova")
    looked_at: list[int] = []

    def passes(event: Event) -> bool:
        looked_at.append(event.seq)
        return False

    reader = bus.delivery.take("nova", passes=passes, is_pushed=True)
    await asyncio.gather(*(send_all(bus) for _ in range(10)))

    for state in ("active", "blocked", "idle", "active", "idle"):
        await bus.submit(nova, SetStatus(state=state))
        reader.poll(9)

    assert len(looked_at) == len(set(looked_at)) == 40


steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(PRIORITY_WORDS)),
    st.tuples(st.just("state"), st.sampled_from(["idle", "active", "blocked", "starting"])),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("poll"), st.integers(1, 3)),
)


@pytest.mark.parametrize("engine", [open_memory, open_sqlite])
@given(sequence=st.lists(steps, max_size=25))
def test_only_allowed_mail_is_pushed_and_finally_all_of_it(
    engine: OpenLog, sequence: list[tuple[str, object]]
) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with opened_bus(engine, Path(directory)) as bus:
                await _play(bus, await bus.join("nova"), sequence)

    asyncio.run(play())


async def _play(bus: Bus, nova: Caller, sequence: list[tuple[str, object]]) -> None:
    reader = bus.delivery.take("nova", is_pushed=True)
    sent: list[int] = []
    pushed: list[int] = []
    state, is_paused = "idle", False
    for step, value in sequence:
        if step == "send":
            sent.append((await bus.send(HUMAN, str(value), "@nova", priority=value)).seq)
        elif step == "state":
            state = str(value)
            await bus.submit(nova, SetStatus(state=state))
        elif step == "pause":
            is_paused = bool(value)
            await bus.submit(HUMAN, Pause(name="nova") if is_paused else Unpause(name="nova"))
        else:
            assert isinstance(value, int)
            for event in reader.poll(value):
                priority = parse_priority(str(event.payload["text"]))
                idle = state not in ("active", "starting")
                assert can_pass(priority, idle=idle, blocked=state == "blocked", paused=is_paused)
                pushed.append(event.seq)
    await bus.submit(nova, SetStatus(state="idle"))
    await bus.submit(HUMAN, Unpause(name="nova"))
    pushed += [event.seq for event in reader.poll(100)]
    assert sorted(pushed) == sent


async def next_notice(bus: Bus, name: str) -> str:
    """Wait for the next message to a name; return its text."""
    reader = bus.delivery.take(name)
    async with asyncio.timeout(LIMIT_S):
        (event,) = await reader.wait(1)
    reader.close()
    return texts_of([event])[0]


async def follow(reader: QueueReader) -> None:
    """Take messages until the reader is closed."""
    while await reader.wait(9):
        pass


async def test_reader_that_waits_again_reports_a_request_that_it_has_read(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "?", "@nova", intent="request")
    await bus.ack(nova, request.seq)

    reader = bus.delivery.take("nova")
    waiting = asyncio.create_task(reader.wait(9))

    assert await next_notice(bus, "luna") == f"@luna nova is now idle (request #{request.seq})"
    reader.close()
    assert await waiting == []


async def test_pushed_reader_has_time_for_its_answer(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first = await bus.send(luna, "?", "@nova", intent="request")
    await bus.ack(nova, first.seq)
    reader = bus.delivery.take("nova", is_pushed=True)
    waiting = asyncio.create_task(follow(reader))
    await asyncio.sleep(0)

    assert bus.delivery.next_wait_s() == READ_S
    bus.clock.advance(READ_S / 2)
    second = await bus.send(luna, "?", "@nova", "@human", intent="request")
    await bus.ack(nova, second.seq)
    await bus.delivery.catch_up()
    assert bus.texts("luna") == []
    bus.clock.advance(READ_S / 2)
    await bus.delivery.catch_up()
    assert bus.texts("luna") == [f"@luna nova is now idle (request #{first.seq})"]
    bus.clock.advance(READ_S)
    await bus.delivery.catch_up()

    assert bus.texts("luna")[1:] == [f"@luna nova is now idle (request #{second.seq})"]
    assert bus.delivery.next_wait_s() is None
    reader.close()
    await waiting


async def test_pushed_reader_that_has_ended_is_not_idle(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "?", "@nova", intent="request")
    await bus.ack(nova, request.seq)
    reader = bus.delivery.take("nova", is_pushed=True)
    waiting = asyncio.create_task(reader.wait(9))
    await asyncio.sleep(0)
    reader.close()
    await waiting

    bus.clock.advance(READ_S)
    await bus.delivery.catch_up()

    assert bus.texts("luna") == []


async def test_failed_report_of_a_waiting_reader_is_made_by_the_next_wait(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "?", "@nova", intent="request")
    await bus.ack(nova, request.seq)
    bus.failure = DiskFull("full")
    reader = bus.delivery.take("nova")
    waiting = asyncio.create_task(reader.wait(9))
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()
    bus.failure = None

    reader.wake()

    assert await next_notice(bus, "luna") == f"@luna nova is now idle (request #{request.seq})"
    reader.close()
    await waiting
