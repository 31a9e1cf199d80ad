"""Readers of one agent's mail, on both engines."""

import asyncio

import pytest
from tests.fakes import Bus, texts_of
from tests.limits import LIMIT_S

from palaver.protocol.envelope import Event


async def test_mail_comes_in_the_order_of_priority_and_seq(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    for word in ("idle", "idle-first", "normal", "interrupt"):
        for number in (1, 2):
            await bus.send(luna, f"{word} {number}", "@nova", priority=word)
    reader = bus.delivery.take("nova")

    taken = [texts_of(reader.poll(3)) for _ in range(4)]

    assert taken == [
        ["interrupt 1", "interrupt 2", "normal 1"],
        ["normal 2", "idle-first 2", "idle-first 1"],
        ["idle 1", "idle 2"],
        [],
    ]


@pytest.mark.parametrize("count", [8, 60], ids=["few", "many"])
async def test_small_and_large_mailboxes_are_read_in_the_same_order(bus: Bus, count: int) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    priorities = ("idle", "normal", "interrupt", "idle-first")
    for number in range(count):
        await bus.send(luna, str(number), "@nova", priority=priorities[number % 4])
    reader = bus.delivery.take("nova")

    taken = texts_of(reader.poll(count))

    in_order = [list(range(first, count, 4)) for first in (2, 1, 3, 0)]
    in_order[2].reverse()  # the newest comes first
    assert taken == [str(number) for line in in_order for number in line]


async def test_message_in_the_hand_of_one_reader_is_not_given_to_another(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    for text in "abc":
        await bus.send(luna, text, "@nova")
    first, second = bus.delivery.take("nova"), bus.delivery.take("nova")

    taken = texts_of(first.poll(2)), texts_of(second.poll(9)), texts_of(first.poll(9))

    assert taken == (["a", "b"], ["c"], [])


async def test_unacknowledged_mail_is_open_again_when_its_reader_ends(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first = await bus.send(luna, "a", "@nova")
    await bus.send(luna, "b", "@nova")
    old, waiting = bus.delivery.take("nova"), bus.delivery.take("nova")
    old.poll(9)
    await bus.ack(nova, first.seq)
    old.settled([first.seq])
    task = asyncio.ensure_future(waiting.wait(9))
    await asyncio.sleep(0)

    old.close()
    old.close()

    async with asyncio.timeout(LIMIT_S):
        assert texts_of(await task) == ["b"]
    assert old.poll(9) == []
    assert await old.wait(9) == []


async def test_settled_mail_without_a_record_is_open_again(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    reader = bus.delivery.take("nova")
    reader.poll(9)

    reader.settled([event.seq, 99])

    assert texts_of(reader.poll(9)) == ["a"]


async def test_waiting_reader_is_woken_by_new_mail_and_by_its_end(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    reader = bus.delivery.take("nova")

    task = asyncio.ensure_future(reader.wait(9))
    await asyncio.sleep(0)
    await bus.send(luna, "a", "@nova")
    async with asyncio.timeout(LIMIT_S):
        first = await task
    task = asyncio.ensure_future(reader.wait(9))
    await asyncio.sleep(0)
    reader.close()
    async with asyncio.timeout(LIMIT_S):
        last = await task

    assert (texts_of(first), last) == (["a"], [])


async def test_filter_leaves_other_mail_to_other_readers(bus: Bus) -> None:
    luna, kira, _ = await bus.join("luna"), await bus.join("kira"), await bus.join("nova")
    await bus.send(luna, "from luna", "@nova")
    await bus.send(kira, "from kira", "@nova")
    picky = bus.delivery.take("nova", passes=lambda event: event.sender == "kira")

    assert texts_of(picky.poll(9)) == ["from kira"]
    assert bus.texts("nova") == ["from luna"]


@pytest.mark.parametrize("count", [20, 80], ids=["few", "many"])
async def test_filter_checks_each_message_once(bus: Bus, count: int) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    looked_at: list[int] = []

    def passes(event: Event) -> bool:
        looked_at.append(event.seq)
        return False

    reader = bus.delivery.take("nova", passes=passes)
    for priority in ("normal", "idle-first") * (count // 2):
        await bus.send(luna, "x", "@nova", priority=priority)
        assert reader.poll(9) == []

    assert len(looked_at) == len(set(looked_at)) == count


async def test_long_backlog_is_read_page_by_page_and_each_message_once(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await asyncio.gather(*(bus.send(luna, str(number), "@nova") for number in range(450)))
    reader = bus.delivery.take("nova")

    taken: list[str] = []
    while events := reader.poll(70):
        taken += texts_of(events)

    assert sorted(map(int, taken)) == list(range(450))


async def test_filter_finds_its_message_after_a_long_backlog(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await asyncio.gather(*(bus.send(luna, str(number), "@nova") for number in range(250)))
    await bus.send(luna, "the last", "@nova")

    reader = bus.delivery.take("nova", passes=lambda event: event.payload["text"] == "the last")

    assert texts_of(reader.poll(9)) == ["the last"]


async def test_mail_queued_again_is_seen_by_a_reader_that_had_passed_it(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    await bus.report("nova", "submitted", event.seq)
    reader = bus.delivery.take("nova")
    before = reader.poll(9)

    await bus.report("nova", "queued", event.seq)

    assert before == []
    assert texts_of(reader.poll(9)) == ["a"]


@pytest.mark.parametrize("state", ["held", "submitted"])
async def test_held_or_submitted_mail_is_not_taken(bus: Bus, state: str) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")

    await bus.report("nova", state, event.seq)

    assert bus.texts("nova") == []


async def test_expired_mail_is_not_taken(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await bus.send(luna, "a", "@nova", expires_in_ms=1000)
    bus.clock.advance(1)

    assert bus.texts("nova") == []


async def test_mail_acknowledged_elsewhere_leaves_every_hand(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first, second = await bus.send(luna, "a", "@nova"), await bus.send(luna, "b", "@nova")
    reader = bus.delivery.take("nova")
    reader.poll(9)

    await bus.ack(nova, first.seq)
    await bus.send(nova, "yes", reply_to=str(second.seq))
    reader.settled([first.seq])

    assert (bus.state(first, "nova"), bus.state(second, "nova")) == ("seen", "answered")
    await bus.ack(nova, second.seq)
    reader.close()
    assert bus.texts("nova") == []


async def test_answered_mail_without_an_acknowledgement_is_open_again(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    asked = await bus.send(luna, "a", "@nova")
    reader = bus.delivery.take("nova")
    reader.poll(9)

    await bus.send(nova, "yes", reply_to=str(asked.seq))
    reader.close()

    assert bus.texts("nova") == ["a"]
    assert bus.state(asked, "nova") == "answered"


async def test_lane_does_not_carry_mail_that_was_already_answered(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    asked = await bus.send(luna, "a", "@nova")
    await bus.send(nova, "yes", reply_to=str(asked.seq))
    lane = bus.open_lane("nova")

    await bus.send(luna, "b", "@nova")

    assert await lane.next_texts() == ["b"]


async def test_reader_with_a_window_gets_more_only_as_it_settles(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    sent = [await bus.send(luna, text, "@nova") for text in "abcde"]
    reader = bus.delivery.take("nova", window=2)

    first = texts_of(reader.poll(9))
    held_back = reader.poll(9)
    await bus.ack(nova, sent[0].seq)
    reader.settled([sent[0].seq])
    async with asyncio.timeout(LIMIT_S):
        second = texts_of(await reader.wait(9))

    assert (first, held_back, second) == (["a", "b"], [], ["c"])


async def test_reader_says_whether_it_has_all_open_messages(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await bus.send(luna, "one", "@nova")
    await bus.send(luna, "two", "@nova")
    reader = bus.delivery.take("nova")

    reader.poll(1)
    has_all_after_one = reader.has_all
    reader.close()
    other = bus.delivery.take("nova")
    other.poll(2)

    assert (has_all_after_one, other.has_all) == (False, True)
    other.close()
