"""The rights of guests: a person on IRC, a registered person, and a client without credentials."""

from dataclasses import replace

import msgspec
import pytest
from tests.fakes import HUMAN as PERSON
from tests.fakes import SCRIPT, Bus

from palaver.broker.broker import TABLE
from palaver.broker.context import Joined, Seated, Sent
from palaver.errors import BadRequest, NameTaken, NotAllowed, NotPerson, NotYou, UnknownRecipient, WhoAreYou
from palaver.protocol.agents import GUEST_ROLE, Caller, Standing, caller_for
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import Filter
from palaver.protocol.message import EXTERNAL, HUMAN
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    Acknowledge,
    AddNote,
    Claim,
    Gone,
    Join,
    JoinRoom,
    Leave,
    Put,
    Request,
    Send,
    TagAgent,
)
from palaver.protocol.subscriptions import Subscribe
from palaver.protocol.tasks import CreateTask
from palaver.protocol.turns import SetAutoRun
from palaver.state.rows import deliverable

SHOP = "/srv/shop"
ON_IRC = Caller(name=HUMAN, standing=Standing.GUEST, kind=HUMAN)
ANN = Caller(name="ann", standing=Standing.GUEST, kind=HUMAN)
TALKER = Caller(name="irc/local/bob", standing=Standing.GUEST, kind=EXTERNAL)
READER = replace(TALKER, standing=Standing.OBSERVER)
GUESTS = [ON_IRC, ANN, TALKER, READER]
FOR_GUESTS = {row.verb for row in TABLE.values() if row.is_for_guests}


def sample(kind: type) -> Request:
    """Return a request of a kind with some value in each field that has no default."""
    made: Request = msgspec.convert(_fields(kind), kind)
    return made


def _fields(kind: type) -> dict[str, object]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _value(field.type) for field in info.fields if field.required}


def _value(kind: msgspec.inspect.Type) -> object:
    match kind:
        case msgspec.inspect.StructType(cls=cls):
            return _fields(cls)
        case msgspec.inspect.IntType():
            return 1
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.StrType() | msgspec.inspect.UnionType():
            return "luna"
        case msgspec.inspect.DictType():
            return {}
        case _:
            return []


async def register(bus: Bus, name: str = "ann") -> Caller:
    """Register a person, who is present."""
    await bus.broker.submit(PERSON, Join(name=name, role=GUEST_ROLE, has_link=True))
    bus.present.add(name)
    return caller_for(bus.agent(name))


def reached(event: Event) -> tuple[str, ...]:
    """Return the recipients of a message or an envelope."""
    return tuple(deliverable(event).delivered_to)


def test_only_these_requests_are_for_guests() -> None:
    assert {
        *("send", "relay", "put", "bundle create", "task create", "task update", "task complete"),
        *("room join", "note add", "note resolve", "join", "ack", "irc topic"),
    } == FOR_GUESTS


@pytest.mark.parametrize("guest", GUESTS)
@pytest.mark.parametrize("kind", [kind for kind, row in TABLE.items() if not row.is_for_guests])
async def test_every_other_request_of_a_guest_is_refused(bus: Bus, kind: type, guest: Caller) -> None:
    await bus.join("luna")
    await register(bus)
    last = bus.log.last()

    with pytest.raises(NotAllowed):
        await bus.broker.submit(guest, sample(kind))

    assert bus.log.last() == last


@pytest.mark.parametrize("guest", [ON_IRC, ANN, TALKER])
async def test_guest_writes_messages_envelopes_and_tasks(bus: Bus, guest: Caller) -> None:
    await bus.join("luna")
    await register(bus)

    sent = await bus.broker.submit(guest, Send(text="hi", to=("luna",)))
    await bus.broker.submit(guest, Put(envelope=Draft(type="x.y", id="e1", sender=guest.name, to=("luna",))))
    await bus.broker.submit(guest, CreateTask(title="look", assignee="luna"))

    assert isinstance(sent, Sent)
    assert sent.event is not None
    assert sent.event.payload["sender_kind"] == guest.kind


async def test_guest_that_may_only_read_cannot_write(bus: Bus) -> None:
    await bus.join("luna")

    with pytest.raises(NotAllowed, match="send"):
        await bus.broker.submit(READER, Send(text="hi", to=("luna",)))
    assert [
        str(outcome)
        for outcome in await bus.broker.submit_sends([(READER, Send(text="hi", to=("luna",)))])
        if isinstance(outcome, NotAllowed)
    ]


@pytest.mark.parametrize("guest", [ON_IRC, ANN, TALKER])
async def test_guest_cannot_type_into_a_terminal(bus: Bus, guest: Caller) -> None:
    await bus.join("luna")

    for request in (Send(text="", to=("luna",), raw=b"y"), Send(text="y", to=("luna",), is_bare=True)):
        with pytest.raises(NotAllowed, match="a person"):
            await bus.broker.submit(guest, request)


@pytest.mark.parametrize("guest", [ON_IRC, ANN, TALKER])
async def test_guest_cannot_join_or_create_agents(bus: Bus, guest: Caller) -> None:
    for role in ("observer", GUEST_ROLE, "worker"):
        with pytest.raises(NotPerson, match="a guest cannot"):
            await bus.broker.submit(guest, Join(name="zed", role=role, has_link=True))


async def test_person_on_irc_cannot_mark_messages_to_the_human_as_read(bus: Bus) -> None:
    luna = await bus.join("luna")
    event = await bus.send(luna, "hi", "@human")

    with pytest.raises(NotPerson, match="pal inbox"):
        await bus.broker.submit(ON_IRC, Acknowledge(messages=(event.seq,), lane="irc", grade="read"))


async def test_registered_person_marks_own_messages_as_read(bus: Bus) -> None:
    luna = await bus.join("luna")
    ann = await register(bus)
    event = await bus.send(luna, "hi", "ann")

    seen = await bus.submit(ann, Acknowledge(messages=(event.seq,), lane="irc", grade="acked"))

    assert seen is not None


# --------------------
# Rooms


async def test_guest_never_becomes_a_member_of_a_room(bus: Bus) -> None:
    luna = await bus.join("luna")
    await register(bus)
    seated = await bus.broker.submit(luna, JoinRoom(workspaces=(SHOP,)))
    assert isinstance(seated, Seated)

    for guest in (ON_IRC, ANN):
        looked = await bus.broker.submit(guest, JoinRoom(workspaces=(SHOP,)))
        assert isinstance(looked, Seated)
        assert looked.event is None
        await bus.broker.submit(guest, AddNote(room=seated.room.id, text="mind the step"))
        await bus.broker.submit(guest, Send(text="hi", room=seated.room.id))

    joined = await bus.log.read(Query(types=("member_joined",)))
    assert [event.sender for event in joined] == ["luna"]


async def test_person_on_irc_cannot_use_the_stick_of_the_person(bus: Bus) -> None:
    seated = await bus.broker.submit(PERSON, JoinRoom(workspaces=(SHOP,)))
    assert isinstance(seated, Seated)

    with pytest.raises(NotAllowed, match="stick claim"):
        await bus.broker.submit(ON_IRC, Claim(room=seated.room.id))


# --------------------
# Registered persons: reached only by name, and their names belong to them.


@pytest.mark.parametrize("token", ["@all", "@team-", "@team-*", "agent/*", "agent/**", "/**"])
async def test_registered_person_is_in_no_group(bus: Bus, token: str) -> None:
    luna = await bus.join("luna")
    await bus.join("nova", tag="team")
    await register(bus, "team-ann")

    event = await bus.send(luna, "hi", token, is_confirmed=True)

    assert "team-ann" not in reached(event)


async def test_broadcast_and_envelope_to_all_leave_out_a_registered_person(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.join("nova")
    await register(bus)

    for request in (
        Send(text="hi", is_exact=True, is_confirmed=True),
        Put(envelope=Draft(type="x.y", id="e1", sender="luna")),
    ):
        event = await bus.submit(luna, request)
        assert event is not None
        assert reached(event) == ("nova",)


@pytest.mark.parametrize("token", ["ann", "@ann", "Ann", "agent/ann"])
async def test_registered_person_is_reached_by_name(bus: Bus, token: str) -> None:
    luna = await bus.join("luna")
    await register(bus)

    event = await bus.send(luna, "hi", token)

    assert reached(event) == ("ann",)


async def test_tag_puts_no_registered_person_into_a_group(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.join("nova", tag="team")
    await register(bus)

    await bus.submit(PERSON, TagAgent(name="ann", tag="team"))

    assert reached(await bus.send(luna, "hi", "@team-")) == ("team-nova",)


async def test_path_subscription_still_reaches_a_registered_person(bus: Bus) -> None:
    await register(bus)
    bus.broker.directory.subscribe("ann", "news/*")

    assert bus.broker.directory.by_path("news/today") == {"ann"}


async def test_person_who_becomes_an_agent_is_in_groups_again(bus: Bus) -> None:
    luna = await bus.join("luna")
    await register(bus)
    bus.present.discard("ann")
    await bus.join("ann")

    event = await bus.send(luna, "hi", "agent/*")

    assert "ann" in reached(event)


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_no_agent_takes_the_name_of_a_registered_person(bus: Bus, is_resumed: bool) -> None:
    boss = await bus.join("boss", role="operator")
    await register(bus)
    bus.present.discard("ann")

    for caller in (boss, SCRIPT):
        with pytest.raises(NameTaken, match="a person"):
            await bus.broker.submit(caller, Join(name="ann", takes_over=True, is_resumed=is_resumed))


async def test_script_cannot_subscribe_for_a_registered_person(bus: Bus) -> None:
    await register(bus)
    wanted = Filter(types=("message",))

    with pytest.raises(NotPerson):
        await bus.broker.submit(SCRIPT, Subscribe(owner="ann", filter=wanted))


async def test_registered_person_has_no_automatic_turns(bus: Bus) -> None:
    await register(bus)

    with pytest.raises(BadRequest, match="ann is a person"):
        await bus.broker.submit(PERSON, SetAutoRun(agent="ann", value=True))


async def test_registered_person_does_not_leave_by_request(bus: Bus) -> None:
    ann = await register(bus)

    with pytest.raises(NotAllowed):
        await bus.broker.submit(ann, Leave())
    with pytest.raises(WhoAreYou):
        await bus.broker.submit(ann, Put(envelope=Draft(type="agent.bye", id="e1", sender="ann")))


# --------------------
# Joins with a token


async def test_join_with_a_token_is_for_the_agent_itself(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.join("nova")

    with pytest.raises(NotYou):
        await bus.broker.submit(luna, Join(name="nova", has_link=True, has_token=True))


async def test_join_with_a_token_changes_nothing_for_a_present_agent(bus: Bus) -> None:
    luna = await bus.join("luna")
    last = bus.log.last()

    joined = await bus.broker.submit(luna, Join(name="luna", has_link=True, has_token=True))

    assert isinstance(joined, Joined)
    assert (joined.is_new, bus.log.last()) == (False, last)


async def test_lost_connection_is_not_reported_if_there_is_a_new_one(bus: Bus) -> None:
    await bus.join("luna", has_link=True)

    skipped = await bus.submit(_SYSTEM, Gone(name="luna", reason="its connection was lost"))

    assert skipped is None
    assert not bus.agent("luna").left


_SYSTEM = Caller(name="[pal-events]", standing=Standing.HUMAN, kind="system")


async def test_unknown_name_is_still_refused(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(UnknownRecipient):
        await bus.send(luna, "hi", "ann")


async def test_only_a_person_registers_a_person(bus: Bus) -> None:
    for asking in (await bus.join("luna"), SCRIPT):
        with pytest.raises(NotPerson, match="only a person can register a person"):
            await bus.broker.submit(asking, Join(name="eve", role=GUEST_ROLE, has_link=True))

    assert bus.broker.directory.get("eve") is None
