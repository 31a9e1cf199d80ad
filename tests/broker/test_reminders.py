"""Reminders: each is written once, at most three times, and then the sender is notified."""

import pytest
from tests.fakes import Bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import NotAllowed
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.requests import FireReminder, Leave, SetStatus


async def fire_reminder(bus: Bus, request: Event) -> Event | None:
    return await bus.submit(SYSTEM_CALLER, FireReminder(agent="nova", request=request.seq))


async def goes_idle(bus: Bus, nova: Caller, *seqs: int) -> None:
    await bus.ack(nova, *seqs)
    await bus.submit(nova, SetStatus(state="idle"))


async def test_reminder_names_the_sender_and_the_request_and_is_written_once(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "which?", "@nova", expects_reply=True)
    await goes_idle(bus, nova, request.seq)

    reminder = await fire_reminder(bus, request)

    assert reminder is not None
    assert reminder.payload["text"] == (
        f"@nova luna waits for your answer to #{request.seq} (reminder 1 of 3): "
        f"pal send @luna --reply-to {request.seq} -- TEXT"
    )
    assert reminder.payload["nag"] == {"agent": "nova", "request": request.seq, "count": 1}
    assert (reminder.to, reminder.payload["priority"]) == (("nova",), "idle")
    assert await fire_reminder(bus, request) is None


async def test_sender_is_notified_after_three_reminders(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "which?", "@nova", expects_reply=True)
    seqs, texts = [request.seq], []
    for _ in range(4):
        await goes_idle(bus, nova, *seqs)
        notice = await fire_reminder(bus, request)
        assert notice is not None
        seqs.append(notice.seq)
        texts.append((notice.to[0], notice.payload.get("priority")))

    await goes_idle(bus, nova, *seqs)

    assert texts == [("nova", "idle")] * 3 + [("luna", None)]
    assert await fire_reminder(bus, request) is None


async def test_active_recipient_is_not_reminded_until_it_is_idle(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "which?", "@nova", expects_reply=True)
    await goes_idle(bus, nova, request.seq)
    await bus.submit(nova, SetStatus(state="active"))

    at_work = await fire_reminder(bus, request)
    await bus.submit(nova, SetStatus(state="idle"))

    assert at_work is None
    assert await fire_reminder(bus, request) is not None


async def test_sender_is_notified_when_the_recipient_stops(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "which?", "@nova", expects_reply=True)
    await bus.submit(nova, Leave())

    notice = await fire_reminder(bus, request)

    assert notice is not None
    assert notice.payload["text"] == f"@luna nova has stopped without answering #{request.seq}"
    assert await fire_reminder(bus, request) is None


async def test_answered_or_not_due_request_writes_no_reminder(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "which?", "@nova", expects_reply=True)
    too_early = await fire_reminder(bus, request)
    await goes_idle(bus, nova, request.seq)
    await bus.send(nova, "this", "@luna", reply_to=str(request.seq))

    assert too_early is None
    assert await fire_reminder(bus, request) is None


async def test_only_the_bus_reminds(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(NotAllowed):
        await bus.submit(luna, FireReminder(agent="nova", request=1))
