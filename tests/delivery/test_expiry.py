"""Expired mail, on both engines."""

import asyncio

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.delivery.ledger import Expiring, expiring
from palaver.errors import DiskFull


async def test_expiring_mail_is_listed_soonest_first_without_mail_in_hand(bus: Bus) -> None:
    await bus.join("nova")
    now = bus.clock.now_ms()
    late = await bus.send(HUMAN, "late", "@nova", expires_in_ms=2000)
    soon = await bus.send(HUMAN, "soon", "@nova", expires_in_ms=1000)
    in_hand = await bus.send(HUMAN, "in hand", "@nova", expires_in_ms=10)

    found = list(expiring(bus.log.rows, is_in_hand=lambda agent, seq: seq == in_hand.seq))

    assert found == [Expiring(now + 1000, soon.seq, "nova"), Expiring(now + 2000, late.seq, "nova")]


async def test_next_deadline_ignores_mail_in_hand(bus: Bus) -> None:
    await bus.join("nova")
    now = bus.clock.now_ms()
    before = bus.delivery.next_deadline_ms()
    await bus.send(HUMAN, "a", "@nova", expires_in_ms=1000)
    await bus.send(HUMAN, "b", "@nova", expires_in_ms=5000)
    reader = bus.delivery.take("nova")
    reader.poll(1)
    asked = bus.deadlines

    in_hand = bus.delivery.next_deadline_ms()
    reader.close()

    assert (before, in_hand, bus.delivery.next_deadline_ms()) == (None, now + 5000, now + 1000)
    assert bus.deadlines == asked + 1


async def test_mail_in_hand_expires_only_after_it_was_returned(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova", expires_in_ms=1000)
    reader = bus.delivery.take("nova")
    reader.poll(9)
    bus.clock.advance(2)

    await bus.delivery.expire()
    in_hand = bus.state(event, "nova")
    reader.close()
    await bus.delivery.expire()

    assert (in_hand, bus.state(event, "nova")) == ("queued", "expired")
    assert bus.delivery.next_deadline_ms() is None


async def test_nothing_expires_on_a_full_disk_and_everything_does_later(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova", expires_in_ms=1000)
    bus.clock.advance(2)
    bus.failure = DiskFull("no room")

    with pytest.raises(DiskFull):  # raised as it is: the timer waits for space and does not end
        await bus.delivery.catch_up()
    bus.failure = None
    await bus.delivery.catch_up()

    assert bus.state(event, "nova") == "expired"


async def test_only_queued_and_held_mail_expires(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    names = ("queued", "held", "submitted", "seen")
    events = {name: await bus.send(luna, name, "@nova", expires_in_ms=1000) for name in names}
    for name in ("held", "submitted"):
        await bus.report("nova", name, events[name].seq)
    await bus.ack(nova, events["seen"].seq)
    bus.clock.advance(1)

    await bus.delivery.expire()

    states = {name: bus.state(event, "nova") for name, event in events.items()}
    assert states == {"queued": "expired", "held": "expired", "submitted": "submitted", "seen": "seen"}


async def test_refused_mail_expires_when_queued_again(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova", expires_in_ms=1000)
    await bus.report("nova", "submitted", event.seq)
    on_its_way = bus.delivery.next_deadline_ms()
    await bus.report("nova", "queued", event.seq)
    bus.clock.advance(1)

    await bus.delivery.expire()

    assert on_its_way is None
    assert bus.state(event, "nova") == "expired"


async def test_thousand_messages_expire_in_few_reports(bus: Bus) -> None:
    await bus.join("nova")
    sends = [bus.send(SCRIPT, "x", "@nova", expires_in_ms=1000) for _ in range(1100)]
    events = await asyncio.gather(*sends)
    later = await bus.send(SCRIPT, "later", "@nova", expires_in_ms=5000)
    bus.clock.advance(1)
    bus.asked.clear()

    await bus.delivery.expire()

    assert {bus.state(event, "nova") for event in events} == {"expired"}
    assert bus.state(later, "nova") == "queued"
    assert len(bus.asked) == 3


async def test_senders_get_one_summary_per_broadcast_and_scripts_get_none(bus: Bus) -> None:
    luna = await bus.join("luna")
    for name in ("nova", "kira", "mila"):
        await bus.join(name)
    to_all = await bus.send(luna, "all", "@all", expires_in_ms=1000)
    to_two = await bus.send(HUMAN, "two", "@nova", "@kira", expires_in_ms=1000)
    await bus.send(SCRIPT, "script", "@nova", expires_in_ms=1000)
    bus.clock.advance(1)

    await bus.delivery.expire()

    assert bus.texts("luna") == [
        f"#{to_all.seq} expired before kira (+2) saw it ('pal receipts {to_all.seq}' shows all recipients)"
    ]
    assert bus.texts("human") == [f"#{to_two.seq} expired before kira (+1) saw it"]
    assert bus.texts("script") == []


async def test_message_seen_at_the_last_moment_is_not_reported_as_expired(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova", expires_in_ms=1000)
    bus.clock.advance(1)

    await asyncio.gather(bus.ack(nova, event.seq), bus.delivery.expire())

    assert bus.state(event, "nova") == "seen"
    assert bus.texts("luna") == []
