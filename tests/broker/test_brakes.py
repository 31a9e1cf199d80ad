"""Brakes hold messages that harness agents send too often or in circles; on both engines."""

from dataclasses import replace

import pytest
from tests.fakes import HUMAN, LIMIT_A_MINUTE, LIMIT_HOPS, SCRIPT, Bus

from palaver.broker.context import Sent
from palaver.errors import BadRequest, NotAllowed, RateLimited
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.requests import Leave, Put, Redeliver, Release, Send
from palaver.state.agents import read_unread


async def coder(bus: Bus, name: str) -> Caller:
    """Return an agent under a harness."""
    return replace(await bus.join(name, harness="claude"), harness="claude")


async def held(bus: Bus, asking: Caller, request: Send | Put, key: bytes | None = None) -> RateLimited:
    with pytest.raises(RateLimited) as refusal:
        await bus.broker.submit(asking, request, key=key)
    return refusal.value


async def at_limit(bus: Bus, asking: Caller, to: str) -> None:
    """Send the allowed number of messages per minute."""
    for number in range(LIMIT_A_MINUTE):
        await bus.send(asking, str(number), to)


def message(bus: Bus, refusal: RateLimited) -> Event:
    event = bus.log.event(refusal.message)
    assert event is not None
    return event


async def test_reply_carries_its_chain_and_the_number_of_earlier_replies(bus: Bus) -> None:
    luna, nova = await coder(bus, "luna"), await coder(bus, "nova")
    first = await bus.send(luna, "well?", "@nova")

    second = await bus.send(nova, "well what?", reply_to=str(first.seq))
    third = await bus.send(luna, "that", reply_to=str(second.seq))

    assert "chain" not in first.payload
    assert (second.payload["chain"], second.payload["hops"]) == (first.id, 1)
    assert (third.payload["chain"], third.payload["hops"]) == (first.id, 2)


async def test_replies_of_programs_and_people_carry_no_chain(bus: Bus) -> None:
    luna, cron = await coder(bus, "luna"), await bus.join("cron")
    first = await bus.send(luna, "well?", "@cron", "@human")

    answers = [await bus.send(asking, "so", reply_to=str(first.seq)) for asking in (cron, HUMAN, SCRIPT)]

    assert [answer.payload.keys() & {"chain", "hops"} for answer in answers] == [set()] * 3


async def test_agents_that_reply_to_each_other_in_circles_are_held(bus: Bus) -> None:
    pair = await coder(bus, "luna"), await coder(bus, "nova")
    last = await bus.send(pair[0], "0", "@nova")
    for hop in range(1, LIMIT_HOPS + 1):
        last = await bus.send(pair[hop % 2], str(hop), reply_to=str(last.seq))

    refusal = await held(bus, pair[1], Send(text="too much", reply_to=str(last.seq)))

    stored = message(bus, refusal)
    assert (stored.payload["text"], stored.payload["held"]) == ("too much", refusal.reason)
    assert bus.state(stored, "luna") == "held"
    assert "too much" not in bus.texts("luna")
    assert read_unread(bus.log.rows, "luna") == len(bus.texts("luna"))


async def test_requests_that_answer_each_other_without_naming_a_message_are_held(bus: Bus) -> None:
    pair = await coder(bus, "luna"), await coder(bus, "nova")
    first = last = await bus.send(pair[0], "0", "@nova", intent="request")
    await bus.ack(pair[1], last.seq)
    for hop in range(1, LIMIT_HOPS + 1):
        asking, asked = pair[hop % 2], pair[(hop + 1) % 2]
        answered = last
        last = await bus.send(asking, str(hop), f"@{asked.name}", intent="request")
        assert (last.payload["answers"], last.payload["chain"]) == (answered.seq, first.id)
        await bus.ack(asked, last.seq)

    refusal = await held(bus, pair[1], Send(text="too much", to=("@luna",)))

    assert message(bus, refusal).payload["hops"] == LIMIT_HOPS + 1


async def test_message_of_a_human_restarts_the_hop_count(bus: Bus) -> None:
    luna, nova = await coder(bus, "luna"), await coder(bus, "nova")
    last = await bus.send(luna, "0", "@nova")
    for hop in range(1, LIMIT_HOPS + 1):
        last = await bus.send(nova if hop % 2 else luna, str(hop), reply_to=str(last.seq))
    last = await bus.send(HUMAN, "go on", "@nova", reply_to=str(last.seq))

    answer = await bus.send(nova, "gladly", reply_to=str(last.seq))

    assert answer.payload["hops"] == 1


async def test_sender_over_the_rate_is_held_until_a_minute_has_passed(bus: Bus) -> None:
    luna, _, _ = await coder(bus, "luna"), await bus.join("nova"), await bus.join("kira")
    await at_limit(bus, luna, "@nova")

    refusal = await held(bus, luna, Send(text="again", to=("@nova",)))
    other = await bus.send(luna, "to another", "@kira")
    bus.clock.advance(60)
    later = await bus.send(luna, "later", "@nova")

    assert "a minute" in refusal.reason
    assert "held" not in other.payload | later.payload


async def test_envelope_is_held_like_a_message(bus: Bus) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")
    await at_limit(bus, luna, "@nova")
    envelope = Draft(type="message", id="e1", sender="luna", to=("nova",), payload={"text": "again"})

    refusal = await held(bus, luna, Put(envelope=envelope))

    assert message(bus, refusal).id == "e1"


@pytest.mark.parametrize("by", ["human", "script"])
async def test_people_and_scripts_are_not_counted_whatever_name_they_use(bus: Bus, by: str) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")

    for asking in (HUMAN, SCRIPT, await bus.join("cron"), replace(luna, by=by)):
        await at_limit(bus, asking, "@nova")
        await bus.send(asking, "one more", "@nova")

    assert len(bus.texts("nova")) == 4 * (LIMIT_A_MINUTE + 1)


async def test_dry_run_is_not_counted(bus: Bus) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")
    for _ in range(LIMIT_A_MINUTE + 1):
        await bus.broker.submit(luna, Send(text="x", to=("@nova",), is_dry_run=True))

    event = await bus.send(luna, "x", "@nova")

    assert "held" not in event.payload


async def test_repeated_request_has_the_same_refusal_and_is_stored_once(bus: Bus) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")
    await at_limit(bus, luna, "@nova")
    request = Send(text="again", to=("@nova",))

    first = await held(bus, luna, request, key=b"k" * 16)
    last = bus.log.last()
    bus.clock.advance(120)
    second = await held(bus, luna, request, key=b"k" * 16)

    assert second.details == first.details
    assert bus.log.last() == last


async def test_earlier_message_is_not_held_because_of_later_ones(bus: Bus) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")
    request = Send(text="first", to=("@nova",))
    first = await bus.broker.submit(luna, request, key=b"k" * 16)
    for number in range(LIMIT_A_MINUTE - 1):
        await bus.send(luna, str(number), "@nova")

    again = await bus.broker.submit(luna, request, key=b"k" * 16)

    assert isinstance(again, Sent)
    assert again == first


async def test_human_is_notified_once_a_minute_per_sender(bus: Bus) -> None:
    luna, kira, _ = await coder(bus, "luna"), await coder(bus, "kira"), await bus.join("nova")
    for asking in (luna, kira):
        await at_limit(bus, asking, "@nova")

    refusals = [await held(bus, asking, Send(text="x", to=("@nova",))) for asking in (luna, luna, kira)]

    notices = bus.texts("human")
    assert len(notices) == 2
    assert f"#{refusals[0].message} from luna to nova is held" in notices[0]
    assert f"'pal release {refusals[0].message}'" in notices[0]
    assert f"#{refusals[2].message} from kira" in notices[1]


async def test_next_notice_names_messages_held_since_the_last_one(bus: Bus) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")
    await at_limit(bus, luna, "@nova")
    burst = [await held(bus, luna, Send(text="x", to=("@nova",))) for _ in range(3)]
    bus.clock.advance(60)
    await at_limit(bus, luna, "@nova")

    last = await held(bus, luna, Send(text="x", to=("@nova",)))

    first, second = bus.texts("human")
    assert "more messages from luna" not in first
    assert f"#{last.message} from luna to nova is held" in second
    numbers = f"#{burst[1].message}, #{burst[2].message}"
    assert second.endswith(
        f"2 more messages from luna were held since the last notice: {numbers}; 'pal pending' lists the "
        "held messages"
    )


async def test_person_releases_held_messages(bus: Bus) -> None:
    luna, _, _ = await coder(bus, "luna"), await bus.join("nova"), await bus.join("kira")
    await at_limit(bus, luna, "@nova")
    stored = message(bus, await held(bus, luna, Send(text="please", to=("@nova", "@kira"))))

    written = await bus.submit(HUMAN, Release(message=f"#{stored.seq}"))

    assert written is not None
    assert (written.payload["state"], written.payload["reason"], written.by) == (
        "queued",
        "released by human",
        "human",
    )
    assert bus.texts("nova")[-1] == bus.texts("kira")[-1] == "please"
    assert read_unread(bus.log.rows, "kira") == 1


async def test_only_a_person_can_release(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(NotAllowed, match="release"):
        await bus.submit(luna, Release(message="1"))


async def test_release_without_a_held_message_is_refused(bus: Bus) -> None:
    luna, nova = await coder(bus, "luna"), await bus.join("nova")
    await at_limit(bus, luna, "@nova")
    stored = message(bus, await held(bus, luna, Send(text="please", to=("@nova",))))
    await bus.submit(HUMAN, Release(message=str(stored.seq)))
    await bus.submit(nova, Leave())

    with pytest.raises(BadRequest, match="is not held"):
        await bus.submit(HUMAN, Release(message=str(stored.seq)))


async def test_held_message_is_released_and_not_redelivered_and_vice_versa(bus: Bus) -> None:
    luna, _ = await coder(bus, "luna"), await bus.join("nova")
    carried = await bus.send(luna, "carried", "@nova")
    await bus.report("nova", "submitted", carried.seq)
    for number in range(LIMIT_A_MINUTE - 1):
        await bus.send(luna, str(number), "@nova")
    stopped = await held(bus, luna, Send(text="please", to=("@nova",)))

    with pytest.raises(BadRequest, match="no unconfirmed delivery"):
        await bus.submit(HUMAN, Redeliver(message=str(stopped.message)))
    with pytest.raises(BadRequest, match="is not held"):
        await bus.submit(HUMAN, Release(message=str(carried.seq)))
