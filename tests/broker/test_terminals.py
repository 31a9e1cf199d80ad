"""Pausing, typed lines, raw keys, and agents that holders run; on both engines."""

from typing import Any

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, seat

from palaver.broker.context import SYSTEM_CALLER, Joined
from palaver.errors import (
    BadRequest,
    BadText,
    MessageTooLarge,
    NameTaken,
    NotAllowed,
    NotFound,
    NotPerson,
    WhoAreYou,
)
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.message import is_raw
from palaver.protocol.query import Query
from palaver.protocol.requests import RAW_EXPIRES_MS, Join, Leave, Pause, Redeliver, Send, Typed, Unpause
from palaver.protocol.summary import summary

OPERATOR = Caller(name="boss", standing=Standing.OPERATOR, kind="instance")


async def hold(bus: Bus, name: str = "luna", **fields: object) -> Caller:
    """Join an agent that a holder owns."""
    options: dict[str, Any] = {"holder": "hash", "seat": seat(7), "argv": ("claude",), "cwd": "/w", **fields}
    return await bus.join(name, **options)


async def joined(bus: Bus, asking: Caller, **fields: object) -> Agent:
    outcome = await bus.broker.submit(asking, Join(**fields))  # type: ignore[arg-type]  # fields of a join
    assert isinstance(outcome, Joined)
    return outcome.agent


# Pause


@pytest.mark.parametrize("asking", [HUMAN, OPERATOR])
async def test_agent_is_paused_and_unpaused_once(bus: Bus, asking: Caller) -> None:
    await bus.join("luna")

    paused = await bus.submit(asking, Pause(name="luna"))
    again = await bus.submit(asking, Pause(name="luna"))

    assert paused is not None
    assert (paused.type, paused.sender, paused.payload) == ("agent.paused", asking.name, {"agent": "luna"})
    assert again is None
    assert bus.agent("luna").paused
    unpaused = await bus.submit(asking, Unpause(name="luna"))
    assert unpaused is not None
    assert unpaused.type == "agent.unpaused"
    assert not bus.agent("luna").paused
    assert await bus.submit(asking, Unpause(name="luna")) is None


async def test_worker_cannot_pause_any_agent(bus: Bus) -> None:
    luna = await bus.join("luna")

    for request in (Pause(name="luna"), Unpause(name="luna")):
        with pytest.raises(NotAllowed):
            await bus.submit(luna, request)


async def test_unknown_agent_cannot_be_paused(bus: Bus) -> None:
    with pytest.raises(NotFound):
        await bus.submit(HUMAN, Pause(name="nobody"))


# Typed


async def test_typed_line_is_a_life_event_of_the_agent(bus: Bus) -> None:
    await hold(bus)

    event = await bus.submit(SYSTEM_CALLER, Typed(name="luna", text="make it blue"))

    assert event is not None
    assert (event.type, event.sender, event.by) == ("life", "luna", "human")
    assert event.payload == {"action": "typed", "agent": "luna", "text": "make it blue"}


async def test_only_the_length_of_a_typed_secret_is_stored(bus: Bus) -> None:
    await hold(bus)

    event = await bus.submit(SYSTEM_CALLER, Typed(name="luna", secret=7))
    short = await bus.submit(SYSTEM_CALLER, Typed(name="luna", secret=1))

    assert event is not None
    assert short is not None
    assert event.payload == {
        "action": "typed",
        "agent": "luna",
        "text": "secret, 7 characters",
        "secret": 7,
    }
    assert short.payload["text"] == "secret, 1 character"
    assert summary(event) == "typed (secret, 7 characters)"
    with pytest.raises(BadRequest):
        await bus.submit(SYSTEM_CALLER, Typed(name="luna", text="hunter2", secret=7))


async def test_only_the_bus_records_typed_lines_and_only_as_text(bus: Bus) -> None:
    luna = await hold(bus)

    with pytest.raises(NotAllowed):
        await bus.submit(luna, Typed(name="luna", text="x"))
    with pytest.raises(BadText):
        await bus.submit(SYSTEM_CALLER, Typed(name="luna", text="\x1b"))


# Raw keys


def keys(data: bytes = b"\x1b[A", **fields: object) -> Send:
    return Send(**{"text": "", "recipient": "luna", "raw": data, **fields})  # type: ignore[arg-type]  # its fields


async def test_keys_of_a_person_are_stored_exactly_and_expire_soon(bus: Bus) -> None:
    await hold(bus)

    event = await bus.submit(HUMAN, keys(b"\x1b[A\xff"))

    assert event is not None
    assert is_raw(event)
    assert event.payload["text"] == "\\x1b[A\\xff"
    assert (event.payload["raw"], event.payload["priority"]) == ("G1tB/w==", "interrupt")
    assert event.payload["expires"] == bus.clock.now_ms() + RAW_EXPIRES_MS
    assert event.payload["delivered_to"] == ["luna"]


async def test_only_length_and_hash_of_secret_keys_are_stored(bus: Bus) -> None:
    await hold(bus)

    event = await bus.submit(HUMAN, keys(b"hunter2\r", raw_hash="scrypt$1"))

    assert event is not None
    assert is_raw(event)
    assert (event.payload["text"], event.payload["raw"]) == ("secret, 7 characters", "")
    assert (event.payload["secret"], event.payload["hash"]) == (7, "scrypt$1")


async def test_only_the_human_in_person_sends_keys(bus: Bus) -> None:
    luna = await hold(bus)
    as_another = Caller(name="luna", standing=Standing.HUMAN, kind="human", by="human")

    for asking in (luna, SCRIPT, OPERATOR):
        with pytest.raises(NotAllowed):
            await bus.submit(asking, keys())
    with pytest.raises(NotPerson):
        await bus.submit(as_another, keys())


async def test_keys_go_to_one_agent_that_is_now_in_a_terminal(bus: Bus) -> None:
    luna = await hold(bus)
    await bus.join("nova")

    with pytest.raises(BadRequest, match="one terminal"):
        await bus.submit(HUMAN, keys(recipient="", to=("@luna", "@nova")))
    for name in ("nova", "human"):
        with pytest.raises(BadRequest, match="not run in a terminal"):
            await bus.submit(HUMAN, keys(recipient=name))
    bus.present.discard("luna")
    with pytest.raises(BadRequest, match="not run in a terminal"):
        await bus.submit(HUMAN, keys())
    bus.present.add("luna")
    await bus.submit(luna, Leave())
    with pytest.raises(BadRequest, match="not run in a terminal"):
        await bus.submit(HUMAN, keys())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"text": "and this"}, BadRequest),
        ({"priority": "idle"}, BadRequest),
        ({"data": b"x" * 20_000}, MessageTooLarge),
    ],
)
async def test_keys_are_sent_alone_and_at_once_and_are_limited(
    bus: Bus, fields: dict[str, object], error: type[Exception]
) -> None:
    await hold(bus)

    with pytest.raises(error):
        await bus.submit(HUMAN, keys(**fields))  # type: ignore[arg-type]  # some of its fields


async def test_chosen_expiry_of_keys_is_used(bus: Bus) -> None:
    await hold(bus)

    event = await bus.submit(HUMAN, keys(expires_in_ms=500, priority="interrupt"))

    assert event is not None
    assert event.payload["expires"] == bus.clock.now_ms() + 500


async def test_keys_are_not_redelivered(bus: Bus) -> None:
    await hold(bus)
    event = await bus.submit(HUMAN, keys())
    assert event is not None

    with pytest.raises(BadRequest, match="raw keys"):
        await bus.submit(HUMAN, Redeliver(message=str(event.seq)))


async def test_person_writes_without_a_head_into_a_terminal(bus: Bus) -> None:
    luna = await hold(bus)
    await bus.join("nova")

    event = await bus.submit(HUMAN, Send(text="blue", recipient="luna", is_bare=True, priority="idle"))

    assert event is not None
    assert (event.payload["bare"], event.payload["priority"]) == (True, "idle")
    with pytest.raises(NotAllowed):
        await bus.submit(luna, Send(text="blue", recipient="luna", is_bare=True))
    with pytest.raises(BadRequest):
        await bus.submit(HUMAN, Send(text="blue", recipient="nova", is_bare=True))


async def test_only_a_sender_with_mail_can_expect_a_reply(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    event = await bus.send(luna, "which?", "@nova", expects_reply=True)

    assert event.payload["expects_reply"] is True
    with pytest.raises(WhoAreYou):
        await bus.send(SCRIPT, "which?", "@nova", expects_reply=True)


async def test_full_name_selects_one_agent_even_if_others_share_its_base(bus: Bus) -> None:
    await bus.join("luna")
    await bus.join("luna", tag="api")

    event = await bus.submit(HUMAN, Send(text="x", recipient="luna"))

    assert event is not None
    assert event.payload["delivered_to"] == ["luna"]


# Programs that holders run


async def test_command_of_a_holder_is_stored_with_the_hello(bus: Bus) -> None:
    await hold(bus)

    (hello,) = await bus.log.read(Query(types=("agent.hello",)))
    agent = bus.agent("luna")
    assert (agent.holder, agent.argv, agent.cwd) == ("hash", ("claude",), "/w")
    fields = hello.payload["agent"]
    assert isinstance(fields, dict)
    assert fields["argv"] == ["claude"]


async def test_holder_that_resumes_its_agent_writes_nothing(bus: Bus) -> None:
    luna = await hold(bus)
    seq = bus.log.last()

    again = await joined(bus, luna, name="luna", seat=seat(7), holder="hash")

    assert again == bus.agent("luna")
    assert bus.log.last() == seq


@pytest.mark.parametrize(
    "fields", [{"seat": seat(7)}, {"holder": "other", "seat": seat(7)}, {"session": "s"}]
)
async def test_other_callers_cannot_take_a_held_agent(bus: Bus, fields: dict[str, object]) -> None:
    await hold(bus, session="s")

    with pytest.raises(NameTaken):
        await joined(bus, SCRIPT, name="luna", takes_over=True, **fields)


async def test_process_that_left_and_joins_again_is_still_held(bus: Bus) -> None:
    luna = await hold(bus)
    await bus.submit(luna, Leave())

    back = await joined(bus, luna, name="luna", seat=seat(7))

    assert (back.holder, back.left, back.argv) == ("hash", False, ("claude",))


async def test_session_resumed_without_its_holder_is_not_held_any_more(bus: Bus) -> None:
    luna = await hold(bus, session="s", harness="claude")
    await bus.submit(luna, Leave())

    back = await joined(bus, SCRIPT, name="luna", seat=seat(8), session="s", harness="claude")

    assert (back.holder, back.left, back.argv) == ("", False, ("claude",))


async def test_operator_resumes_an_ended_agent_and_a_worker_cannot(bus: Bus) -> None:
    luna = await hold(bus)
    await bus.submit(luna, Leave())
    bus.present.discard("luna")

    with pytest.raises(NameTaken):
        await joined(bus, await bus.join("nova"), name="luna", seat=seat(8), holder="new", is_resumed=True)
    with pytest.raises(NameTaken):
        await joined(bus, OPERATOR, name="luna", seat=seat(8), holder="new")
    back = await joined(bus, OPERATOR, name="luna", seat=seat(8), holder="new", is_resumed=True)

    assert (back.name, back.holder, back.by) == ("luna", "new", "boss")
