"""The delivery of a message, through every door."""

import pytest
from tests.flows.behaviours import behaviour
from tests.flows.door import Door, Refused, Seat

from palaver.state.reasons import WAIT_CODES


async def states(sender: Seat, message: int) -> list[tuple[str, str]]:
    return [(step.name, step.state) for step in await sender.receipts(str(message))]


@behaviour("receipt-rises")
async def test_receipt_rises_with_its_evidence(door: Door) -> None:
    luna, nova, kira = await door.join("luna"), await door.join("nova"), await door.join("kira")

    sent = await luna.send(["@nova", "@kira"], "hello")
    before = await states(luna, sent.seq)
    await nova.take()
    after = await luna.receipts(str(sent.seq))

    assert before == [("nova", "queued"), ("kira", "queued")]
    assert [(step.name, step.state) for step in after] == [("nova", "seen"), ("kira", "queued")]
    assert (after[0].lane, after[0].grade) in (("recv", "flushed"), ("sdk", "acked"))
    assert len(await kira.take()) == 1


@behaviour("receipt-reason")
async def test_receipt_says_why_it_waits(door: Door) -> None:
    luna, nova, _ = await door.join("luna"), await door.join("nova"), await door.join("kira")
    sent = await luna.send(["@nova", "@kira"], "hello")
    await nova.take()

    seen, waiting = await luna.receipts(str(sent.seq))

    assert seen.wait == ""
    code, _, sentences = waiting.wait.partition(": ")
    assert code in WAIT_CODES
    assert all("kira" in sentence for sentence in sentences.split("; "))


@behaviour("take-once")
async def test_taken_message_is_not_returned_again(door: Door) -> None:
    luna, nova = await door.join("luna"), await door.join("nova")
    for number in range(3):
        await luna.send(["@nova"], str(number))

    first, second = await nova.take(), await nova.take()
    await luna.send(["@nova"], "3")

    assert [letter.text for letter in first] == ["0", "1", "2"]
    assert second == []
    assert [letter.text for letter in await nova.take()] == ["3"]


@behaviour("peek-changes-nothing")
async def test_peeking_leaves_messages_unread(door: Door) -> None:
    luna, nova = await door.join("luna"), await door.join("nova")
    sent = await luna.send(["@nova"], "hello")

    looked = [letter.seq for letter in await nova.look()] + [letter.seq for letter in await nova.look()]

    assert looked == [sent.seq, sent.seq]
    assert await states(luna, sent.seq) == [("nova", "queued")]
    assert [letter.seq for letter in await nova.take()] == [sent.seq]


@behaviour("store-and-forward")
async def test_messages_wait_for_an_agent_that_is_away(door: Door) -> None:
    luna, nova = await door.join("luna"), await door.join("nova")
    await nova.leave()

    sent = await luna.send(["@nova"], "for later")
    missed = await luna.send(["@all"], "to those present")
    waiting = await states(luna, sent.seq)

    nova = await door.come_back("nova")

    assert (sent.delivered_to, missed.delivered_to, waiting) == (("nova",), (), [("nova", "queued")])
    assert [letter.text for letter in await nova.take()] == ["for later"]


@behaviour("priority-order")
async def test_messages_are_taken_by_priority_and_then_in_order(door: Door) -> None:
    luna, nova = await door.join("luna"), await door.join("nova")
    await nova.leave()
    order = ["idle", "normal", "idle-first", "interrupt", "normal", "idle-first", "interrupt", "idle"]

    for number, priority in enumerate(order):
        await luna.send(["@nova"], f"{priority} {number}", priority=priority)
    nova = await door.come_back("nova")

    assert [letter.text for letter in await nova.take()] == [
        "interrupt 3",
        "interrupt 6",
        "normal 1",
        "normal 4",
        "idle-first 5",
        "idle-first 2",
        "idle 0",
        "idle 7",
    ]


@behaviour("expires")
async def test_expired_message_is_not_delivered_and_its_sender_is_notified(door: Door) -> None:
    luna, nova = await door.join("luna"), await door.join("nova")
    await nova.leave()

    sent = await luna.send(["@nova"], "now or never", expires_ms=1)
    (notice,) = await luna.wait()
    nova = await door.come_back("nova")
    await luna.send(["@nova"], "later")

    assert f"#{sent.seq} expired" in notice.text
    assert (notice.sender, notice.fields["sender_kind"]) == ("[pal-events]", "system")
    assert await states(luna, sent.seq) == [("nova", "expired")]
    assert [letter.text for letter in await nova.take()] == ["later"]


@behaviour("message-reference")
async def test_message_is_found_by_each_of_its_references(door: Door) -> None:
    luna, nova = await door.join("luna"), await door.join("nova")
    sent = await luna.send(["@nova"], "hello")
    (letter,) = await nova.take()

    for reference in (str(sent.seq), f"#{sent.seq}", sent.id, sent.id.lower(), sent.id[-8:]):
        assert await states(luna, sent.seq) == [
            (step.name, step.state) for step in await luna.receipts(reference)
        ]

    with pytest.raises(Refused) as missing:
        await luna.receipts("999999")
    with pytest.raises(Refused) as elsewhere:
        await luna.receipts(f"{sent.seq}:ZZZZ")
    assert (missing.value.code, elsewhere.value.code) == ("not_found", "not_found")
    assert letter.fields["id"] == sent.id


@behaviour("name-taken")
async def test_name_in_use_is_refused(door: Door) -> None:
    await door.join("luna")

    with pytest.raises(Refused) as refused:
        await door.join("luna")

    assert (refused.value.code, refused.value.details["name"]) == ("name_taken", "luna")


@behaviour("leave")
async def test_agent_that_left_is_in_no_group_but_reachable_by_name(door: Door) -> None:
    luna, nova, kira = await door.join("luna"), await door.join("api-nova"), await door.join("api-kira")
    await nova.leave()

    broadcast = await luna.send(["@all"], "everybody")
    group = await luna.send(["@api-"], "the group")
    name = await luna.send(["@api-nova"], "you")

    assert broadcast.delivered_to == group.delivered_to == ("api-kira",)
    assert name.delivered_to == ("api-nova",)
    assert len(await kira.take()) == 2
    nova = await door.come_back("api-nova")
    assert [letter.text for letter in await nova.take()] == ["you"]


@behaviour("observer")
async def test_observer_reads_and_cannot_write(door: Door) -> None:
    luna, watcher = await door.join("luna"), await door.join("watcher", role="observer")
    sent = await luna.send(["@observers"], "look at this")

    with pytest.raises(Refused) as refused:
        await watcher.send(["@luna"], "I say")

    assert refused.value.code == "not_allowed"
    assert [letter.text for letter in await watcher.take()] == ["look at this"]
    assert await states(watcher, sent.seq) == [("watcher", "seen")]
    assert await luna.take() == []
