"""Messages in rooms: their recipients, which agents they wake, and refusals."""

import asyncio
from typing import Any

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, FakeClock

from palaver.broker.broker import Broker
from palaver.broker.context import Context, Sent
from palaver.broker.messages import resolve_room_message
from palaver.domain.stick import ALL_WAKE, Policy
from palaver.errors import (
    AmbiguousRecipient,
    BadRequest,
    BadText,
    InvalidBody,
    MessageTooLarge,
    NotAllowed,
    RoomClosed,
    RoomNotFound,
    UnknownMember,
    UnknownRecipient,
)
from palaver.ids import UlidSource
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft
from palaver.protocol.requests import Claim, CloseRoom, JoinRoom, Send

GUEST = Caller(name="guest", standing=Standing.GUEST, kind="human")


async def seat(bus: Bus, *names: str, path: str = "/src/work") -> list[Caller]:
    """Let agents join the bus, and the room at a path."""
    found = []
    for name in names:
        known = bus.broker.directory.get(name)
        asking = (
            await bus.join(name)
            if known is None
            else Caller(name=name, standing=Standing.WORKER, kind="instance")
        )
        await bus.broker.submit(asking, JoinRoom(workspaces=(path,)))
        found.append(asking)
    return found


def context_of(bus: Bus) -> Context:
    return Context(
        log=bus.log,
        directory=bus.broker.directory,
        clock=bus.clock,
        ids=UlidSource(bus.clock, bytes),
        is_present=bus.present.__contains__,
        draw=lambda: 0,
    )


async def say(bus: Bus, asking: Caller, text: str, *to: str, **fields: Any) -> dict[str, Any]:
    """Send a message and return the payload of its event."""
    event = await bus.send(asking, text, *to, **fields)
    return {**event.payload, "to": event.to}


async def test_message_to_the_room_goes_to_all_other_members_and_wakes_none(bus: Bus) -> None:
    luna, *_ = await seat(bus, "luna", "nova", "rosa")
    await bus.join("mona")

    sent = await say(bus, luna, "hello", "#work")

    room = sent["room"]
    assert room.startswith("work-")
    assert sent["to"] == (f"#{room}",)
    assert sent["delivered_to"] == ["nova", "rosa"]
    assert (sent["scope"], sent["delivery_hint"], sent["wakes"]) == ("broadcast", "normal", [])


async def test_room_alone_is_the_only_room_of_the_caller_or_the_named_one(bus: Bus) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    mona = await bus.join("mona")

    assert (await say(bus, luna, "here", "room"))["delivered_to"] == ["nova"]
    with pytest.raises(BadRequest, match="you are in no room"):
        await say(bus, mona, "where", "room")
    await seat(bus, "luna", path="/src/other")
    with pytest.raises(BadRequest, match="you are in several rooms"):
        await say(bus, luna, "where", "room")
    assert (await say(bus, luna, "there", "room", room="work"))["delivered_to"] == ["nova"]


async def test_message_belongs_to_one_room(bus: Bus) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    await seat(bus, "luna", path="/src/other")

    with pytest.raises(BadRequest, match="to one room only"):
        await say(bus, luna, "both", "#work", "#other")
    with pytest.raises(BadRequest, match="to one room only"):
        await say(bus, luna, "both", "#work", room="other")
    sent = await say(bus, luna, "one", "#work", "room", room="work")

    assert sent["to"] == (f"#{sent['room']}",)


async def test_message_to_members_wakes_them(bus: Bus) -> None:
    luna, *_ = await seat(bus, "luna", "nova", "rosa")

    sent = await say(bus, luna, "you", "@nova", "nova", "human", room="work")

    assert sent["to"] == ("nova", "human")
    assert sent["delivered_to"] == sent["mentions"] == ["nova", "human"]
    assert "wakes" not in sent


async def crew(bus: Bus) -> Caller:
    """A room with luna and agents with tags and roles, one of them offline; api-mona is outside."""
    [luna] = await seat(bus, "luna")
    others: dict[str, dict[str, Any]] = {
        "nova": {"tag": "api"},
        "rosa": {"tag": "api", "role": "orchestrator"},
        "ruby": {"tag": "claude-repo", "role": "operator"},
        "vera": {},
    }
    for name, fields in others.items():
        asking = await bus.join(name, **fields)
        await bus.broker.submit(asking, JoinRoom(workspaces=("/src/work",)))
    await bus.join("mona", tag="api")
    bus.present.discard("api-nova")
    return luna


@pytest.mark.parametrize(
    ("tokens", "names"),
    [
        (["@api-"], ["api-nova", "api-rosa"]),
        (["api-"], ["api-nova", "api-rosa"]),
        (["@workers"], ["api-nova", "vera"]),
        (["@operator", "@API-rosa"], ["claude-repo-ruby", "api-rosa"]),
        (["@claude-*"], ["claude-repo-ruby"]),
        (["@ve"], ["vera"]),
        (["nov"], ["api-nova"]),
        (["vera", "@workers", "@human"], ["vera", "api-nova", "human"]),
    ],
)
async def test_groups_and_prefixes_select_only_members_of_the_room(
    bus: Bus, tokens: list[str], names: list[str]
) -> None:
    luna = await crew(bus)

    sent = await say(bus, luna, "you", *tokens, room="work")

    assert list(sent["to"]) == sent["delivered_to"] == sent["mentions"] == names
    assert "wakes" not in sent


async def test_all_in_a_room_selects_every_other_member(bus: Bus) -> None:
    luna = await crew(bus)

    sent = await say(bus, luna, "you", "@all", "vera", room="work")

    names = ["api-nova", "api-rosa", "claude-repo-ruby", "vera"]
    assert (list(sent["to"]), sent["delivered_to"], sent["scope"]) == (names, names, "broadcast")


async def test_group_without_members_in_the_room_is_stored_and_reported(bus: Bus) -> None:
    luna = await crew(bus)

    sent: Any = await bus.broker.submit(
        luna, Send(text="anybody?", to=("@observers", "vera", "@x-*"), room="work")
    )

    assert sent.empty_groups == ("@observers", "@x-*")
    assert sent.delivered_to == ("vera",)
    assert sent.event.to == ("@observers", "vera", "@x-*")


@pytest.mark.parametrize("token", ["@web-", "mona", "@mo", "api-mona", "lu", "agent/vera"])
async def test_recipient_outside_the_room_is_refused_with_the_given_token(bus: Bus, token: str) -> None:
    luna = await crew(bus)
    last = bus.log.last()

    with pytest.raises(UnknownMember) as refused:
        await say(bus, luna, "you", "vera", token, room="work")

    assert refused.value.agent_id == token
    assert bus.log.last() == last


async def test_ambiguous_prefix_is_refused_with_its_candidates(bus: Bus) -> None:
    luna = await crew(bus)

    with pytest.raises(AmbiguousRecipient) as refused:
        await say(bus, luna, "you", "@r", room="work")

    assert refused.value.candidates == ["rosa", "ruby"]


async def test_recipients_named_next_to_the_room_or_in_the_text_are_woken(bus: Bus) -> None:
    luna, *_ = await seat(bus, "luna", "nova", "rosa")
    await bus.join("mona")

    sent = await say(bus, luna, "@rosa look", "#work", "@mona", has_mentions=True)

    assert sent["to"] == (f"#{sent['room']}", "@mona", "@rosa")
    assert sent["delivered_to"] == ["nova", "rosa", "mona"]
    assert sent["wakes"] == ["mona", "rosa"]


async def test_message_sent_while_the_room_closes_is_refused(bus: Bus) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    room = str((await say(bus, luna, "first", "#work"))["room"])
    sent = resolve_room_message(context_of(bus), luna, Send(text="late", room=room), [])
    assert sent is not None
    draft = Draft(type="message", sender="luna", payload={}, id="X", ts=1)
    await bus.submit(HUMAN, CloseRoom(room=room))

    with pytest.raises(RoomClosed):
        await bus.log.commit(sent.key, sent.unless_closed(draft))


async def test_one_of_several_sends_is_refused_while_its_room_closes(bus: Bus) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    room = str((await say(bus, luna, "first", "#work"))["room"])
    requests = [
        (luna, Send(text="late", room=room)),
        (luna, Send(text="not in the room", to=("@nova",))),
    ]

    _, (late, other) = await asyncio.gather(
        bus.submit(HUMAN, CloseRoom(room=room)), bus.broker.submit_sends(requests)
    )

    assert isinstance(late, RoomClosed)
    assert isinstance(other, Sent)


async def test_mention_of_an_unknown_name_is_refused(bus: Bus) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    last = bus.log.last()

    with pytest.raises(UnknownRecipient):
        await say(bus, luna, "@ghost look", "#work", has_mentions=True)

    assert bus.log.last() == last


async def test_message_of_a_person_wakes_all_members(bus: Bus) -> None:
    await seat(bus, "luna", "nova")

    by_human = await say(bus, HUMAN, "scope down", "#work")
    by_guest = await say(bus, GUEST, "me too", "#work")

    assert "wakes" not in by_human
    assert by_human["delivered_to"] == by_guest["delivered_to"] == ["luna", "nova"]
    assert "wakes" not in by_guest


@pytest.mark.parametrize(("words", "is_awake"), [(ALL_WAKE, True), ("nobody", False)])
async def test_policy_decides_which_senders_wake_a_room(bus: Bus, words: str, is_awake: bool) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    clock = FakeClock()
    broker = Broker(
        bus.log,
        clock=clock,
        ids=UlidSource(clock, lambda size: bytes([7] * size)),
        is_present=lambda name: True,
        draw=lambda: 0,
        policy=Policy(room_wakes=words),
    )

    for asking in (luna, HUMAN):
        sent: Any = await broker.submit(asking, Send(text="hello", to=("#work",)))
        assert ("wakes" not in sent.event.payload) is is_awake
    broker.close()


async def test_interrupt_to_the_room_wakes_only_the_owner_of_the_stick(bus: Bus) -> None:
    luna, nova, _ = await seat(bus, "luna", "nova", "rosa")
    before = await say(bus, luna, "now", "#work", delivery_hint="interrupt")
    await bus.broker.submit(nova, Claim(room="work"))

    sent = await say(bus, luna, "now", "#work", delivery_hint="interrupt")
    by_holder = await say(bus, nova, "now", "#work", priority="interrupt")

    assert before["wakes"] == []
    assert (sent["priority"], sent["delivery_hint"], sent["wakes"]) == ("interrupt", "interrupt", ["nova"])
    assert (by_holder["delivery_hint"], by_holder["wakes"]) == ("interrupt", [])


async def test_interrupt_to_a_member_wakes_only_that_member(bus: Bus) -> None:
    luna, nova, _ = await seat(bus, "luna", "nova", "rosa")
    await bus.broker.submit(nova, Claim(room="work"))

    sent = await say(bus, luna, "now", "rosa", room="work", delivery_hint="interrupt")

    assert sent["delivered_to"] == ["rosa"]
    assert "wakes" not in sent


async def test_message_to_oneself_is_delivered_and_wakes_no_agent(bus: Bus) -> None:
    [luna] = await seat(bus, "luna")

    sent = await say(bus, luna, "remember", "luna", room="work")

    assert sent["delivered_to"] == ["luna"]
    assert sent["wakes"] == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"text": ""}, InvalidBody),
        ({"text": "x" * 4097}, MessageTooLarge),
        ({"text": "a\x1bb"}, BadText),
        ({"text": "x", "delivery_hint": "loud"}, BadRequest),
        ({"text": "x", "to": ("#nowhere",)}, RoomNotFound),
        ({"text": "x", "room": "nowhere"}, RoomNotFound),
        ({"text": "x", "to": ("ghost",)}, UnknownMember),
        ({"text": "x", "to": ("a b",)}, BadRequest),
        ({"text": "", "to": ("a b",)}, InvalidBody),
        ({"text": "x" * 4097, "to": ("",), "delivery_hint": "loud"}, MessageTooLarge),
    ],
)
async def test_invalid_room_message_is_refused_and_nothing_is_written(
    bus: Bus, fields: dict[str, Any], error: type[Exception]
) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    last = bus.log.last()
    given = {"to": (), **fields}
    room = {} if given["to"] == ("#nowhere",) else {"room": "work"}

    with pytest.raises(error):
        await bus.submit(luna, Send(**{**room, **given}))

    assert bus.log.last() == last


async def test_outsiders_cannot_write_and_a_closed_room_accepts_nothing(bus: Bus) -> None:
    luna, _ = await seat(bus, "luna", "nova")
    mona = await bus.join("mona")
    mira = await bus.join("mira", role="observer")

    for asking in (mona, SCRIPT):
        with pytest.raises(UnknownMember):
            await say(bus, asking, "hi", "#work")
    with pytest.raises(NotAllowed):
        await say(bus, mira, "hi", "#work")
    room = (await say(bus, luna, "last words", "#work"))["room"]
    await bus.broker.submit(HUMAN, CloseRoom(room="work"))
    with pytest.raises(RoomClosed):
        await say(bus, luna, "hi", room=room)


async def test_threads_and_intents_and_replies_work_in_rooms(bus: Bus) -> None:
    luna, nova = await seat(bus, "luna", "nova")
    asked = await bus.send(luna, "which one?", room="work", intent="request", thread="naming")

    answered = await say(bus, nova, "the second", room="work", reply_to=str(asked.seq))

    assert (answered["thread"], answered["reply_to"]) == ("naming", str(asked.seq))
    assert answered["delivered_to"] == ["luna"]
    assert bus.state(asked, "nova") == "answered"
