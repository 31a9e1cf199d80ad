"""Foreign envelopes, on both engines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import HUMAN, SCRIPT, Bus, open_sqlite, opened_bus, texts_of

from palaver.broker.context import Seated, Sent
from palaver.domain.routing import Directory, resolve_exactly
from palaver.errors import (
    BadRequest,
    BadText,
    IdTaken,
    MessageTooLarge,
    NotYou,
    ReservedType,
    UnknownRecipient,
    WhoAreYou,
)
from palaver.ids import is_ulid
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.envelope import Draft, Event, body_as, matches_recipient
from palaver.protocol.events import MessageSent
from palaver.protocol.paths import SubscribePath
from palaver.protocol.requests import JoinRoom, Leave, Put


async def put(bus: Bus, asking: Caller, type: str, *to: str, id: str = "e1", **payload: object) -> Sent:
    envelope = Draft(type=type, id=id, sender=asking.name, to=to, payload=payload, ts=1)
    outcome = await bus.broker.submit(asking, Put(envelope=envelope))
    assert isinstance(outcome, Sent)
    return outcome


async def test_envelope_keeps_its_id_and_payload_and_is_delivered(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    outcome = await put(bus, luna, "build.done", "@workers", id="foreign-1", ok=True, delivered_to=["kira"])

    event = outcome.event
    assert event is not None
    assert (event.type, event.id, event.to, event.delivered_to) == (
        "build.done",
        "foreign-1",
        ("@workers",),
        ("nova",),
    )
    assert event.payload == {"ok": True, "delivered_to": ["kira"]}
    reader = bus.delivery.take("nova")
    assert texts_of(reader.poll(9)) == ["build.done"]
    reader.close()
    assert bus.texts("kira") == []


async def test_same_envelope_again_is_one_event(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    first, second = await put(bus, luna, "x", "nova"), await put(bus, luna, "x", "nova")

    assert (first.event, second.is_repeat) == (second.event, True)
    assert second.delivered_to == ("nova",)


async def test_envelope_without_recipients_goes_to_all_present_agents(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    outcome = await put(bus, luna, "x")

    assert (outcome.to, outcome.delivered_to, outcome.empty_groups) == ((), ("nova",), ())


async def test_empty_group_is_reported_and_an_unknown_name_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")

    outcome = await put(bus, luna, "x", "@observers", "human")
    with pytest.raises(UnknownRecipient) as caught:
        await put(bus, luna, "x", "@luna", "Luna", "lun", "[pal-events]", id="e2")

    assert (outcome.empty_groups, outcome.delivered_to) == (("@observers",), ("human",))
    assert list(caught.value.unmatched) == ["@luna", "Luna", "lun", "[pal-events]"]
    assert caught.value.unmatched["lun"] == ["luna"]


@pytest.mark.parametrize("type_", ["delivery", "status", "session.closed", "claim", "agent.paused"])
async def test_reserved_type_is_refused(bus: Bus, type_: str) -> None:
    luna = await bus.join("luna")

    with pytest.raises(ReservedType):
        await put(bus, luna, type_)


async def test_envelope_in_another_name_is_refused(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    forged = Draft(type="x", id="e1", sender="nova")

    with pytest.raises(NotYou):
        await bus.submit(luna, Put(envelope=forged))


async def test_message_envelope_is_a_send_with_its_own_id(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    first = await put(bus, luna, "message", "nova", id="m-1", text="hello", thread="t", priority="interrupt")
    again = await put(bus, luna, "message", "nova", id="m-1", text="hello", thread="t", priority="interrupt")

    assert first.event is not None
    assert (first.event.id, first.event.payload["thread"]) == ("m-1", "t")
    assert again.is_repeat
    assert bus.texts("nova") == ["hello"]


@pytest.mark.parametrize("text", [None, 7])
async def test_message_envelope_without_a_text_is_refused(bus: Bus, text: object) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match=r"payload\.text"):
        await put(bus, luna, "message", text=text)


async def test_id_of_another_type_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")
    await put(bus, luna, "build.done", id="b-1")

    with pytest.raises(IdTaken):
        await put(bus, luna, "message", id="b-1", text="hello")


async def test_repeat_of_a_message_with_lost_content_is_the_same_message(tmp_path: Path) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        luna, text = await bus.join("luna"), "x" * 90_000
        first = await put(bus, luna, "message", "human", id="b-1", text=text)
        for blob in (tmp_path / "blobs").iterdir():
            blob.unlink()

        again = await put(bus, luna, "message", "human", id="b-1", text=text)

        assert first.event is not None
        assert again.event is not None
        assert again.event.seq == first.event.seq


async def test_bye_with_the_id_of_another_event_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")
    await put(bus, luna, "build.done", id="b-1")

    with pytest.raises(IdTaken):
        await put(bus, luna, "agent.bye", id="b-1", reason="done")


async def test_bye_envelope_ends_only_the_sender(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")

    outcome = await put(bus, luna, "agent.bye", agent="nova", reason="done")

    assert outcome.event is not None
    assert outcome.event.id == "e1"
    assert (bus.agent("luna").left, bus.agent("luna").detail) == (True, "done")
    assert not bus.agent(nova.name).left


async def test_second_bye_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, Leave())

    with pytest.raises(WhoAreYou, match="already left"):
        await put(bus, luna, "agent.bye")


@pytest.mark.parametrize("type_", ["agent.hello", "agent.bye"])
async def test_only_an_agent_sends_hello_and_bye(bus: Bus, type_: str) -> None:
    for asking in (HUMAN, SCRIPT):
        with pytest.raises(WhoAreYou):
            await put(bus, asking, type_)


async def test_hello_is_not_mail_and_contains_no_control_characters(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    await put(bus, luna, "agent.hello", runtime="py", version="3")
    with pytest.raises(BadText):
        await put(bus, luna, "agent.hello", id="e2", runtime="\x07")

    assert (bus.agent("luna").runtime, bus.agent("luna").version) == ("py", "3")
    assert bus.texts("nova") == []


PEOPLE = [
    Agent(name="luna", base="luna"),
    Agent(name="claude-1", base="1", tag="claude", role="operator"),
    Agent(name="claude-x", base="x", tag="claude"),
    Agent(name="eye", base="eye", role="observer"),
]
tokens = st.sampled_from(
    ["@all", "@workers", "@operators", "@observers", "@claude-*", "@-*", "luna", "claude-1", "eye"]
)


@given(st.lists(tokens, max_size=4))
def test_envelope_reaches_the_recipients_that_the_wire_rules_select(to: list[str]) -> None:
    envelope = Draft(type="x", id="e1", sender="human", to=tuple(to))

    found = resolve_exactly(to, Directory(PEOPLE), sender="human", is_present=lambda name: True)

    meant = {agent.name for agent in PEOPLE if matches_recipient(envelope, agent.name, agent.role)}
    assert set(found.recipients) == meant


@pytest.mark.parametrize("type_", ["\x1b[31m", "x" * 257])
async def test_type_must_be_readable_text(bus: Bus, type_: str) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    with pytest.raises((BadText, MessageTooLarge)):
        await put(bus, luna, type_, "nova")


async def test_message_sent_is_an_alias_of_message(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    outcome = await put(bus, luna, "message_sent", "nova", text="hello")

    assert outcome.event is not None
    assert outcome.event.type == "message"
    assert bus.texts("nova") == ["hello"]


async def test_hello_has_no_recipients(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    first = await put(bus, luna, "agent.hello", "nova", runtime="x")
    again = await put(bus, luna, "agent.hello", "nova", runtime="x")

    assert (first.delivered_to, again.delivered_to) == ((), ())


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("x.y", {"a": 1}),
        ("message", {"text": "hello"}),
        ("task.create", {"title": "t", "own": 1}),
        ("agent.hello", {"runtime": "py"}),
        ("agent.bye", {}),
    ],
)
async def test_time_of_the_sender_is_stored_with_the_time_of_the_log(
    bus: Bus, type_: str, payload: dict[str, object]
) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    to = () if type_ == "agent.bye" else ("nova",)

    sent = Draft(type=type_, id="e1", sender="luna", to=to, ts=1, payload=payload)

    outcome = await bus.broker.submit(luna, Put(envelope=sent))

    assert isinstance(outcome, Sent)
    event = outcome.event
    assert event is not None
    assert (event.sent_ts, event.ts) == (1, bus.clock.now_ms())
    assert event.envelope == sent


async def test_envelope_without_a_time_keeps_none(bus: Bus) -> None:
    luna = await bus.join("luna")

    outcome = await bus.broker.submit(luna, Put(envelope=Draft(type="x", id="e1", sender="luna")))

    assert isinstance(outcome, Sent)
    assert outcome.event is not None
    assert (outcome.event.sent_ts, outcome.event.envelope.ts) == (0, 0)


async def test_task_envelope_with_other_recipients_is_another_envelope(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    first = await put(bus, luna, "task.create", "nova", title="t")
    again = await put(bus, luna, "task.create", "nova", title="t")
    with pytest.raises(IdTaken):
        await put(bus, luna, "task.create", "kira", title="t")

    assert again.is_repeat
    assert again.event == first.event


async def test_message_envelope_reaches_exactly_its_recipients(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    named = await put(bus, luna, "message", "nova", id="m-1", text="ask @kira")
    assert named.event is not None
    replied = str(named.event.seq)
    general = await put(bus, luna, "message", id="m-2", text="all", reply_to=replied, thread="t")
    for token in ("@nova", "#attic", "agent/nova", "@*"):
        with pytest.raises(UnknownRecipient):
            await put(bus, luna, "message", token, id="m-3", text="hello")

    assert named.delivered_to == ("nova",)
    assert general.delivered_to == ("nova", "kira")


@pytest.mark.parametrize("id_", ["\x1b[31m", "x" * 257])
async def test_id_must_be_readable_text(bus: Bus, id_: str) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    with pytest.raises((BadText, MessageTooLarge)):
        await put(bus, luna, "x", "nova", id=id_)


async def test_envelope_of_a_command_gets_an_id(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    outcome = await put(bus, luna, "x", "nova", id="")

    assert outcome.event is not None
    assert is_ulid(outcome.event.id)


# --------------------
# Envelopes without `to` that were written in a channel of the IRC door


async def put_at(bus: Bus, asking: Caller, at: str, type: str = "my.type", **fields: object) -> Event:
    envelope = Draft(type=type, id="e1", sender=asking.name, payload=dict(fields))
    outcome = await bus.broker.submit(asking, Put(envelope=envelope, at=at, channel="#c"))
    assert isinstance(outcome, Sent)
    assert outcome.event is not None
    return outcome.event


async def test_address_of_a_channel_replaces_missing_recipients(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    mila = await bus.join("mila")
    await bus.submit(nova, SubscribePath(agent="nova", pattern="irc/local/#dev"))
    room = await bus.broker.submit(mila, JoinRoom(workspaces=("/repo/app",)))
    assert isinstance(room, Seated)

    path = await put_at(bus, luna, "irc/local/#dev")
    name = await put_at(bus, mila, "nova", "task.create", title="t")
    in_room = await put_at(bus, nova, f"#{room.room.id}")

    assert (path.to, path.delivered_to) == (("irc/local/#dev",), ("nova",))
    assert (name.to, name.delivered_to) == (("nova",), ("nova",))
    assert (in_room.to, in_room.delivered_to) == ((f"#{room.room.id}",), ("mila",))


async def test_recipients_of_an_envelope_come_before_its_channel(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    envelope = Draft(type="my.type", id="e1", sender="luna", to=("nova",))

    outcome = await bus.broker.submit(luna, Put(envelope=envelope, at="irc/local/#dev"))

    assert isinstance(outcome, Sent)
    assert outcome.delivered_to == ("nova",)


async def test_message_envelope_in_a_channel_has_that_channel(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    event = await put_at(bus, luna, "irc/local/#c", "message", text="hi")

    message = body_as(event, MessageSent)
    assert (message.channel, message.path, message.delivered_to) == ("#c", "irc/local/#c", ())
