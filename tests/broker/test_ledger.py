"""State changes in the ledger, on both engines."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, open_sqlite, opened_bus

from palaver.errors import BadRequest, NotAllowed, NotPerson, WhoAreYou
from palaver.log.records import LIMIT_ROW_BYTES
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft
from palaver.protocol.events import DeliveryReport
from palaver.protocol.requests import Acknowledge, Put, Redeliver, Release, ReportDelivery
from palaver.state.agents import read_tips, read_unread, read_unsure


async def test_ack_is_written_once_and_names_only_the_messages_it_changes(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first, second = await bus.send(luna, "a", "@nova"), await bus.send(luna, "b", "@nova")
    await bus.ack(nova, first.seq)

    written = await bus.ack(nova, first.seq, second.seq, second.seq)
    nothing = await bus.ack(nova, first.seq, second.seq)

    assert written is not None
    assert (written.sender, written.by) == ("nova", None)
    assert written.payload == {
        "agent": "nova",
        "messages": [second.seq],
        "state": "seen",
        "lane": "sdk",
        "grade": "acked",
    }
    assert nothing is None
    assert read_unread(bus.log.rows, "nova") == 0


async def test_ack_carries_the_tips_that_were_shown(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")

    for tips in (("request",), ("thread",)):
        await bus.submit(nova, Acknowledge(messages=(event.seq,), lane="recv", grade="flushed", tips=tips))

    assert read_tips(bus.log.rows, "nova") == {"request"}, "what moved nothing was shown by nobody"


async def test_ack_of_messages_to_others_writes_nothing(bus: Bus) -> None:
    luna, nova, kira = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    event = await bus.send(luna, "a", "@nova")

    written = [await bus.ack(asking, event.seq, 999, -1, 0) for asking in (luna, kira, HUMAN)]

    assert written == [None, None, None]
    assert bus.state(event, "nova") == "queued"
    assert bus.texts(nova.name) == ["a"]


async def test_manual_ack_of_messages_to_others_is_refused(bus: Bus) -> None:
    luna, nova, kira = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    own, other, third = [await bus.send(luna, "a", f"@{name}") for name in ("kira", "nova", "nova")]
    seqs = (own.seq, other.seq, third.seq)

    for messages, words in ((seqs[:2], f"#{other.seq} was"), (seqs, f"#{other.seq}, #{third.seq} were")):
        with pytest.raises(BadRequest, match=f"{words} not sent to kira"):
            await bus.submit(
                kira, Acknowledge(messages=messages, lane="ack", grade="acked", must_be_own=True)
            )

    assert bus.state(own, "kira") == "queued"
    assert bus.texts(nova.name) == ["a", "a"]


async def test_manual_ack_can_be_repeated(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    by_hand = Acknowledge(messages=(event.seq,), lane="ack", grade="acked", must_be_own=True)

    written = [await bus.submit(nova, by_hand) for _ in range(2)]

    assert [one is not None for one in written] == [True, False]


@pytest.mark.parametrize("request_type", [Redeliver, Release])
async def test_message_with_lost_content_is_not_queued_again(
    tmp_path: Path, request_type: type[Redeliver | Release]
) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        await bus.join("nova")
        sent = await bus.send(HUMAN, "x" * (LIMIT_ROW_BYTES + 1), "@nova")
        shutil.rmtree(tmp_path / "blobs")

        with pytest.raises(BadRequest, match=f"the content of #{sent.seq} is lost: restore [0-9a-f]+ in"):
            await bus.submit(HUMAN, request_type(message=str(sent.seq)))


async def test_script_has_no_mail_to_acknowledge(bus: Bus) -> None:
    with pytest.raises(WhoAreYou):
        await bus.ack(SCRIPT, 1)


async def test_unknown_grade_of_evidence_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="the grade of evidence must be"):
        await bus.submit(luna, Acknowledge(messages=(1,), lane="sdk", grade="sure"))


async def test_event_records_the_caller_that_acts_for_another(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    child = Caller(name="nova", standing=Standing.WORKER, kind="instance", by="script")

    written = await bus.ack(child, event.seq)

    assert written is not None
    assert written.by == "script"


async def test_only_the_bus_reports_deliveries(bus: Bus) -> None:
    report = ReportDelivery(report=DeliveryReport(agent="nova", messages=(1,), state="seen"))

    with pytest.raises(NotAllowed):
        await bus.submit(HUMAN, report)


async def test_report_of_the_bus_has_no_by_field(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")

    written = await bus.report("nova", "submitted", event.seq, lane="hook")

    assert written is not None
    assert written.by is None
    assert bus.state(event, "nova") == "submitted"


async def test_person_queues_an_unconfirmed_message_again(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    event = await bus.send(luna, "a", "@nova", "@kira", priority="interrupt")
    await bus.report("nova", "submitted", event.seq, lane="hook")
    await bus.report("nova", "submitted", event.seq, unconfirmed=True)
    before = read_unsure(bus.log.rows, "nova")

    written = await bus.submit(HUMAN, Redeliver(message=str(event.seq)))

    assert written is not None
    assert before == [event.seq]
    assert read_unsure(bus.log.rows, "nova") == []
    assert (written.payload["agent"], written.by) == ("nova", "human")
    assert bus.state(event, "nova") == "queued"
    assert bus.texts("nova") == ["a"]


async def test_redelivery_keeps_the_priority(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    normal = await bus.send(luna, "normal", "@nova")
    urgent = await bus.send(luna, "urgent", "@nova", priority="interrupt")
    for event in (normal, urgent):
        await bus.report("nova", "submitted", event.seq)
        await bus.report("nova", "submitted", event.seq, unconfirmed=True)
        await bus.submit(HUMAN, Redeliver(message=str(event.seq)))

    assert bus.texts("nova") == ["urgent", "normal"]


async def test_foreign_envelope_is_redelivered_whatever_its_priority_field(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    envelope = Draft(type="x", id="e", sender="luna", to=("nova",), payload={"priority": "high"})
    event = await bus.submit(luna, Put(envelope=envelope))
    assert event is not None
    await bus.report("nova", "submitted", event.seq)
    await bus.report("nova", "submitted", event.seq, unconfirmed=True)

    await bus.submit(HUMAN, Redeliver(message=str(event.seq)))

    assert bus.texts("nova") == ["x"]


async def test_redelivery_of_a_confirmed_message_is_refused(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    await bus.ack(nova, event.seq)

    with pytest.raises(BadRequest, match="unconfirmed"):
        await bus.submit(HUMAN, Redeliver(message=str(event.seq)))


async def test_only_a_person_redelivers(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(NotAllowed):
        await bus.submit(luna, Redeliver(message="1"))


async def test_repeated_redelivery_has_the_same_result_and_sends_nothing_twice(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    await bus.report("nova", "submitted", event.seq)
    request = Redeliver(message=str(event.seq))

    first = await bus.submit(HUMAN, request, key=b"k" * 16)
    await bus.ack(nova, event.seq)
    second = await bus.submit(HUMAN, request, key=b"k" * 16)

    assert first == second
    assert bus.state(event, "nova") == "seen"


async def test_orphan_cannot_acknowledge_messages(bus: Bus) -> None:
    luna = await bus.join("luna")
    sent = await bus.send(HUMAN, "x", "@luna")

    with pytest.raises(NotPerson, match="may not read the messages of luna"):
        await bus.ack(replace(luna, is_orphan=True), sent.seq)
