"""References to messages, on both engines."""

import pytest
from tests.fakes import HUMAN, Bus

from palaver.broker.messages import find_event, find_message
from palaver.errors import BadRequest, NotFound
from palaver.protocol.envelope import Draft
from palaver.protocol.requests import Put


async def test_message_is_found_by_seq_and_device_and_id_and_end_of_the_id(bus: Bus) -> None:
    await bus.join("nova")
    event = await bus.send(HUMAN, "a", "@nova")

    names = (
        f"{event.seq}",
        f"#{event.seq}",
        f"{event.seq}:{bus.log.device}",
        f"#{event.seq}:{bus.log.device.lower()}",
        event.id,
        event.id.lower(),
    )

    assert [find_message(bus.log, name) for name in names] == [event] * len(names)


async def test_end_of_an_id_must_be_unique(bus: Bus) -> None:
    await bus.join("nova")
    first = await bus.send(HUMAN, "a", "@nova", id="01HF7YAT00ABCDEFGHJKMNPQRS")
    second = await bus.send(HUMAN, "b", "@nova", id="01HF7YAT00ABCDEFGHJKMXPQRS")

    with pytest.raises(BadRequest, match="is ambiguous") as caught:
        find_event(bus.log, "PQRS")

    assert f"#{first.seq}" in str(caught.value)
    assert find_event(bus.log, "XPQRS") == second


@pytest.mark.parametrize("name", ["99", "#99", "1:XXXX", "ABCD", "01HF7YAT00ABCDEFGHJKMNPQRS"])
async def test_unknown_reference_is_not_found(bus: Bus, name: str) -> None:
    await bus.join("nova")

    with pytest.raises(NotFound):
        find_event(bus.log, name)


@pytest.mark.parametrize("name", ["", "#", "abc", "4 2", "x" * 27, "-1"])
async def test_invalid_reference_is_refused(bus: Bus, name: str) -> None:
    with pytest.raises(BadRequest):
        find_event(bus.log, name)


async def test_too_short_reference_is_refused_with_the_minimum_length(bus: Bus) -> None:
    await bus.join("nova")
    event = await bus.send(HUMAN, "a", "@nova", id="01HF7YAT00ABCDEFGHJKMNPQRS")

    with pytest.raises(BadRequest, match="at least the last 4 characters"):
        find_event(bus.log, "QRS")

    assert find_event(bus.log, "PQRS") == event


async def test_envelope_with_recipients_is_a_message_and_a_hello_is_not(bus: Bus) -> None:
    await bus.join("nova")
    envelope = Draft(type="x", id="e", sender="human", to=("nova",))
    event = await bus.submit(HUMAN, Put(envelope=envelope))
    assert event is not None

    assert find_message(bus.log, str(event.seq)) == event
    with pytest.raises(NotFound, match=r"agent\.hello"):
        find_message(bus.log, "1")
