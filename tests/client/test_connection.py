"""The SDK with a real daemon: sending, receiving, reading, and many of these at once."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.client.bus import Bus
from tests.client.fake import FakeDaemon, FakePeer
from tests.limits import LIMIT_S

import palaver
from palaver.errors import (
    AmbiguousRecipient,
    BadName,
    BadRequest,
    BadText,
    Disconnected,
    MessageTooLarge,
    NameTaken,
    NotFound,
    NotYou,
    ReservedType,
    UnknownRecipient,
)


async def taken(me: palaver.Connection, count: int) -> list[palaver.Message]:
    """Return the next messages, each acknowledged."""
    found: list[palaver.Message] = []
    async with asyncio.timeout(LIMIT_S), aclosing(me.messages()) as messages:
        async for message in messages:
            await message.ack()
            found.append(message)
            if len(found) == count:
                break
    return found


async def test_message_its_reply_and_their_receipts(idle_bus: Bus) -> None:
    async with idle_bus.connect("luna") as luna, idle_bus.connect("nova") as nova:
        asked = await luna.send("@nova", "can you review this?", intent="request", thread="pr-123")
        (question,) = await taken(nova, 1)
        answered = await question.reply("looks good", intent="ack")
        (answer,) = await taken(luna, 1)

        (line,) = await luna.receipts(asked.seq)
        assert (question.sender, question.intent, question.thread) == ("luna", "request", "pr-123")
        assert (answer.text, answer.reply_to, answer.thread) == ("looks good", str(asked.seq), "pr-123")
        assert (line.name, line.state, line.lane, line.grade) == ("nova", "answered", "sdk", "acked")
        assert line.answer == answered.seq
        assert question.fields["delivered_to"] == ["nova"]


async def test_idle_messages_are_pushed_when_the_agent_becomes_idle(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        await nova.set_status("active")
        await luna.send("@nova", "when you rest", priority="idle")
        await luna.send("@nova", "now")

        (first,) = await taken(nova, 1)
        await nova.set_status("blocked")
        await luna.send("@nova", "when you can")
        await luna.send("@nova", "stop!", priority="interrupt")
        (second,) = await taken(nova, 1)
        await nova.set_status("idle")
        rest = await taken(nova, 2)

        assert [first.text, second.text] == ["now", "stop!"]
        assert [message.text for message in rest] == ["when you can", "when you rest"]


async def test_reply_reaches_only_its_author_and_not_its_base_name(bus: Bus) -> None:
    async with (
        bus.connect("luna") as luna,
        bus.connect("luna", tag="api") as other,
        bus.connect("nova") as nova,
    ):
        await luna.send("@nova", "question")
        (question,) = await taken(nova, 1)

        receipt = await question.reply("answer")

        assert receipt.delivered_to == ("luna",)
        assert other.name == "api-luna"


async def test_concurrent_sends_get_seqs_in_the_order_of_the_calls(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        receipts = await asyncio.gather(*(nova.send("@luna", str(number)) for number in range(1000)))

        seqs = [receipt.seq for receipt in receipts]
        assert seqs == sorted(set(seqs))
        assert [receipt.id for receipt in receipts] == sorted(receipt.id for receipt in receipts)


async def test_refused_send_does_not_affect_the_others_in_flight(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova"):
        recipients = ["@nova", "@nobody", "@nova", ""] * 40

        results = await asyncio.gather(
            *(luna.send(to, str(number)) for number, to in enumerate(recipients)), return_exceptions=True
        )
        messages = await luna.events(types=["message"])

    refused = [type(result) for result in results if isinstance(result, Exception)]
    stored = [result for result in results if isinstance(result, palaver.Receipt)]
    assert refused == [UnknownRecipient, BadRequest] * 40
    assert [event.seq for event in messages] == [receipt.seq for receipt in stored]
    assert [event.payload["text"] for event in messages] == [
        str(number) for number, to in enumerate(recipients) if to == "@nova"
    ]


async def test_two_names_in_one_process_are_separate(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        await asyncio.gather(*(luna.send("@nova", f"l{number}") for number in range(20)))
        await asyncio.gather(*(nova.send("@luna", f"n{number}") for number in range(20)))

        to_luna, to_nova = await asyncio.gather(taken(luna, 20), taken(nova, 20))

        assert {message.sender for message in to_luna} == {"nova"}
        assert [message.text for message in to_nova] == [f"l{number}" for number in range(20)]


async def test_several_tasks_share_the_messages_of_one_connection(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:

        async def read() -> list[str]:
            return [message.text async for message in luna.messages()]

        readers = [asyncio.ensure_future(read()) for _ in range(3)]
        for number in range(9):
            await nova.send("@luna", str(number))
        await luna.events()  # every push was sent before this reply
        await luna.__aexit__(None, None, None)

        found = await asyncio.gather(*readers)

    assert sorted(text for texts in found for text in texts) == [str(number) for number in range(9)]


async def test_same_id_is_one_message(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        first = await nova.send("@luna", "once", id="01JZZZZZZZZZZZZZZZZZZZZZZZ")

        again = await nova.send("@luna", "once", id="01JZZZZZZZZZZZZZZZZZZZZZZZ")

        assert (again.seq, again.is_repeat, first.is_repeat) == (first.seq, True, False)


async def test_refusal_is_raised_as_its_error_class(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("luka"), bus.connect("nova") as nova:
        with pytest.raises(UnknownRecipient) as unknown:
            await nova.send(["@lund", "@luna"], "x")
        with pytest.raises(AmbiguousRecipient) as ambiguous:
            await nova.send("@lu", "x")
        with pytest.raises(MessageTooLarge) as large:
            await nova.send("@luna", "x" * 100_001)
        with pytest.raises(BadText) as bad:
            await nova.send("@luna", "a\x1b[2J")
        with pytest.raises(BadRequest, match="ack"):
            await nova.send("@luna", "x", intent="ack")
        with pytest.raises(NotFound):
            await nova.receipts(10**6)
        with pytest.raises(BadText):
            await nova.send("@luna", "\ud800")
        with pytest.raises(MessageTooLarge):
            await nova.send("@luna", "x" * 11_000_000)

        assert set(unknown.value.unmatched) == {"@lund"}
        assert sorted(ambiguous.value.candidates) == ["luka", "luna"]
        assert (large.value.size_bytes, large.value.limit_bytes) == (100_001, 100_000)
        assert (bad.value.codepoint, bad.value.position) == (0x1B, 1)
        assert await nova.events(types=["message"]) == []


@pytest.mark.parametrize(("name", "error"), [("human", BadName), ("taken", NameTaken)])
async def test_unavailable_name_is_an_error_at_once(bus: Bus, name: str, error: type[Exception]) -> None:
    async with bus.connect("taken"):
        with pytest.raises(error):
            async with bus.connect(name):
                pass


async def test_without_a_name_a_free_one_is_assigned(bus: Bus) -> None:
    async with bus.connect(tag="api") as me, bus.connect() as other:
        assert me.name.startswith("api-")
        assert other.name not in ("", me.name)
        assert me.device == other.device != ""


async def test_custom_envelope_is_stored_and_routed(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        envelope = palaver.Envelope.new("build.finished", "nova", {"ok": True}, to=["luna"])

        receipt = await nova.put(envelope)
        again = await nova.put(envelope)
        (message,) = await taken(luna, 1)

        assert (receipt.delivered_to, receipt.id) == (("luna",), envelope.id)
        assert (again.seq, again.is_repeat) == (receipt.seq, True)
        assert (message.fields["type"], message.fields["payload"]) == ("build.finished", {"ok": True})
        assert message.text == 'build.finished {"ok":true}'


async def test_envelope_with_a_foreign_sender_or_reserved_type_is_refused(bus: Bus) -> None:
    async with bus.connect("nova") as nova:
        with pytest.raises(NotYou):
            await nova.put(palaver.Envelope.new("build.finished", "luna", {}))
        with pytest.raises(ReservedType) as reserved:
            await nova.put(palaver.Envelope.new("delivery", "nova", {}))

        assert reserved.value.type == "delivery"


async def test_agents_see_the_status_of_others(bus: Bus) -> None:
    async with bus.connect("luna", tag="api") as luna, bus.connect("nova") as nova:
        await luna.set_status("active", "running the tests")
        await nova.send("@api-luna", "hello")

        agents = {agent.name: agent for agent in await nova.agents()}

        found = agents["api-luna"]
        assert (found.state, found.detail, found.is_present, found.unread) == (
            "active",
            "running the tests",
            True,
            1,
        )
        assert (found.base, found.tag, found.role, found.harness) == ("luna", "api", "worker", None)


async def test_agent_that_left_is_away_and_keeps_its_messages(bus: Bus) -> None:
    async with bus.connect("nova") as nova:
        async with bus.connect("luna"):
            pass
        receipt = await nova.send("@luna", "for later")
        away = next(agent for agent in await nova.agents() if agent.name == "luna")

        async with bus.connect("luna") as luna:
            (message,) = await taken(luna, 1)

        assert not away.is_present
        assert (message.seq, message.text) == (receipt.seq, "for later")


async def test_events_are_read_by_filter_seq_and_search(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        first = await nova.send("@luna", "alpha", thread="a")
        second = await nova.send("@luna", "beta", thread="b")

        assert [event.seq for event in await nova.events(types=["message"])] == [first.seq, second.seq]
        assert [event.seq for event in await nova.events(threads=["b"])] == [second.seq]
        assert [event.seq for event in await nova.events(senders=["nova"], types=["message"], last=1)] == [
            second.seq
        ]
        assert [event.seq for event in await nova.events(after=first.seq, limit=1)] == [second.seq]
        assert [event.seq for event in await nova.events(search="alpha")] == [first.seq]


async def test_follower_starts_now_and_ends_with_its_connection(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        await nova.send("@luna", "before")
        following = nova.follow(types=["message"])
        first = asyncio.ensure_future(anext(following))
        async with asyncio.timeout(LIMIT_S):
            while not first.done():  # It is not known when the daemon reads the seq to start from.
                await nova.send("@luna", "after")

        assert first.result().payload["text"] == "after"
    async with asyncio.timeout(LIMIT_S):
        assert {event.payload["text"] async for event in following} <= {"after"}


async def test_dry_run_returns_the_recipients_and_stores_nothing(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        receipt = await nova.send("@all", "hello", dry_run=True)

        assert (receipt.delivered_to, receipt.seq) == (("luna",), 0)
        assert await nova.events(types=["message"]) == []


async def test_cancelled_call_affects_no_other(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        calls = [asyncio.ensure_future(nova.send("@luna", str(number))) for number in range(100)]
        asyncio.get_running_loop().call_soon(calls[50].cancel)

        done = await asyncio.gather(*calls, return_exceptions=True)

        assert [number for number, one in enumerate(done) if isinstance(one, BaseException)] == [50]
        assert (await nova.agents())[0].is_present


async def test_cancelled_ack_is_repeated_when_its_message_arrives_again(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())
    peer = await fake.accept()
    await peer.welcome()
    luna = await opening
    messages = luna.messages()
    first = asyncio.ensure_future(anext(messages))
    peer.answer(await peer.next())
    peer.push_message(7)
    acking = asyncio.ensure_future((await first).ack())
    assert (await peer.next())["messages"] == [7]
    acking.cancel()

    peer.close()
    back: FakePeer = await fake.accept()
    await back.welcome()
    assert (await back.next())["op"] == "listen"
    back.push_message(7)
    back.push_message(8)

    assert (await anext(messages)).seq == 8
    ack = await back.next()
    assert (ack["op"], ack["messages"]) == ("ack", [7])
    back.refuse(ack, "disk_full", "there is no room")
    back.close()
    await luna.__aexit__(None, None, None)


async def test_connection_works_only_inside_its_block(bus: Bus) -> None:
    me = bus.connect("luna")

    with pytest.raises(Disconnected, match="async with"):
        await me.send("@nova", "x")


async def test_reading_after_the_end_of_the_block_returns_nothing(bus: Bus) -> None:
    async with bus.connect("luna") as luna:
        await luna.send("@luna", "to myself")

    assert [message async for message in luna.messages()] == []
    assert [event async for event in luna.follow()] == []
    assert [event async for event in luna.follow(after=0)] == []


async def test_failing_block_leaves_the_bus(bus: Bus) -> None:
    async with bus.connect("nova") as nova:
        with pytest.raises(ZeroDivisionError):
            async with bus.connect("luna"):
                raise ZeroDivisionError

        byes = await nova.events(types=["agent.bye"])

        assert [event.sender for event in byes] == ["luna"]


async def test_request_that_expects_a_reply_is_stored_as_such(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("luna"):
        sent = await nova.send("@luna", "which one?", expects_reply=True)
        (event,) = [event for event in await nova.events(types=["message"]) if event.seq == sent.seq]

    assert event.payload["expects_reply"] is True
