"""Path subscriptions, sessions, routed messages and dead letters: rights and limits; on both engines."""

import pytest
from msgspec import structs
from tests.fakes import HUMAN, SCRIPT, Bus, caller

from palaver.broker import paths
from palaver.broker.broker import Broker
from palaver.broker.context import Sent
from palaver.errors import (
    BadRequest,
    BadText,
    IdTaken,
    MessageTooLarge,
    NotAllowed,
    NotFound,
    NotYou,
    UnknownRecipient,
    WhoAreYou,
)
from palaver.ids import UlidSource
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import MessageSent, State
from palaver.protocol.message import EXTERNAL
from palaver.protocol.paths import (
    ClearDeadLetters,
    Content,
    CreateSession,
    RemoveSession,
    SubscribePath,
    UnsubscribePath,
)
from palaver.protocol.query import Query
from palaver.protocol.requests import Acknowledge, Send
from palaver.state.agents import read_entry
from palaver.state.paths import (
    read_agent_session,
    read_agent_sessions,
    read_cleared,
    read_path_subscriptions,
)


def patterns(bus: Bus, mailbox: str) -> list[str]:
    return [one.pattern for one in read_path_subscriptions(bus.log.rows, mailbox)]


async def subscribe(bus: Bus, who: Caller, pattern: str, session: str = "") -> Event | None:
    return await bus.submit(who, SubscribePath(agent=who.name, pattern=pattern, session=session))


async def route(bus: Bus, who: Caller, path: str, **fields: object) -> Event:
    event = await bus.submit(who, Send(text="", to=(path,), content=Content(**fields)))  # type: ignore[arg-type]  # its fields
    assert event is not None
    return event


async def test_message_reaches_subscribers_sessions_first_with_one_event(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await subscribe(bus, luna, "slack/**", "mon")
    await subscribe(bus, nova, "/slack//team/")

    event = await route(bus, HUMAN, "slack/team", command="new", payload=[1], source="slack", external_id="e")

    assert event.payload == {
        "text": "",
        "scope": "path",
        "mentions": [],
        "sender_kind": "human",
        "delivered_to": ["luna+mon", "luna", "nova"],
        "path": "slack/team",
        "command": "new",
        "payload": [1],
        "source": "slack",
        "external_id": "e",
        "handled": {"luna": ["mon"]},
    }


@pytest.mark.parametrize(("given", "kept"), [(None, {}), (False, {}), (0, {}), ("", {}), ([], []), (5, 5)])
async def test_payload_that_is_false_becomes_an_object(bus: Bus, given: object, kept: object) -> None:
    await bus.join("luna")

    event = await route(bus, HUMAN, "agent/luna", command="", payload=given, source="")

    assert event.payload["payload"] == kept
    assert type(event.payload["payload"]) is type(kept)
    assert (event.payload["command"], event.payload["source"]) == ("message", "internal")


async def test_message_without_a_subscriber_is_a_dead_letter_until_clearing(bus: Bus) -> None:
    luna = await bus.join("luna")
    query = Query(types=("message",), is_dead=True)

    event = await route(bus, luna, "agent/ghost")

    assert event.payload["dead"] == ["agent/ghost"]
    assert [one.seq for one in await bus.log.read(query)] == [event.seq]
    await bus.send(luna, "hello", "@luna")
    assert [one.seq for one in await bus.log.read(query)] == [event.seq]

    cleared = await bus.submit(luna, ClearDeadLetters())

    assert cleared is not None
    assert read_cleared(bus.log.rows) == cleared.payload["up_to"]
    after = read_cleared(bus.log.rows)
    assert await bus.log.read(structs.replace(query, after=after)) == []


async def test_repeated_id_is_the_same_message_only_with_the_same_content(bus: Bus) -> None:
    await bus.join("luna")
    request = Send(text="", to=("agent/luna",), content=Content(command="a"), id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    first = await bus.submit(HUMAN, request)

    assert await bus.submit(HUMAN, request) == first
    other = Send(text="", to=request.to, content=Content(command="b"), id=request.id)
    with pytest.raises(IdTaken):
        await bus.submit(HUMAN, other)


async def test_subscription_is_stored_once_and_its_end_too(bus: Bus) -> None:
    luna = await bus.join("luna")

    assert await subscribe(bus, luna, "a/b") is not None
    assert await subscribe(bus, luna, "/a//b/") is None
    assert patterns(bus, "luna") == ["a/b"]
    for is_there in (True, False):
        event = await bus.submit(luna, UnsubscribePath(agent="luna", pattern="a/b"))
        assert (event is not None) == is_there
    assert (await route(bus, HUMAN, "a/b")).payload["dead"] == ["a/b"]


async def test_own_path_needs_no_subscription_and_cannot_be_removed(bus: Bus) -> None:
    luna = await bus.join("luna")

    assert await subscribe(bus, luna, "/agent/Luna/") is None
    with pytest.raises(BadRequest, match=r"^Cannot unsubscribe from auto-subscription$"):
        await bus.submit(luna, UnsubscribePath(agent="luna", pattern="agent/luna"))
    assert await subscribe(bus, luna, "agent/luna", "mon") is not None


async def test_caller_subscribes_only_its_own_agent(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.join("nova")

    for request in (
        SubscribePath(agent="nova", pattern="x"),
        UnsubscribePath(agent="nova", pattern="x"),
        CreateSession(agent="nova", session="s"),
        RemoveSession(agent="nova", session="s"),
    ):
        with pytest.raises(NotYou):
            await bus.submit(luna, request)
    with pytest.raises(NotYou):
        await bus.submit(HUMAN, SubscribePath(agent="nova", pattern="x"))
    with pytest.raises(WhoAreYou):
        await bus.submit(SCRIPT, SubscribePath(agent="script", pattern="x"))
    with pytest.raises(UnknownRecipient):
        await bus.submit(HUMAN, CreateSession(agent="ghost", session="s"))


@pytest.mark.parametrize("pattern", ["agent/nova", "agent/*", "agent/**", "**", "*/nova", "**/x", "*/*"])
async def test_pattern_that_reaches_another_agent_needs_an_operator(bus: Bus, pattern: str) -> None:
    luna, boss = await bus.join("luna"), await bus.join("boss", role="operator")

    with pytest.raises(NotAllowed):
        await subscribe(bus, luna, pattern)
    with pytest.raises(NotAllowed):
        await subscribe(bus, luna, pattern, "mon")
    assert await subscribe(bus, boss, pattern) is not None


@pytest.mark.parametrize("pattern", ["agent", "*", "agent/luna/**", "*/luna", "slack/*/agent/nova"])
async def test_pattern_that_reaches_no_other_agent_is_free(bus: Bus, pattern: str) -> None:
    assert await subscribe(bus, await bus.join("luna"), pattern) is not None


async def test_person_has_subscriptions_of_its_own(bus: Bus) -> None:
    await subscribe(bus, HUMAN, "news/**")

    assert (await route(bus, await bus.join("luna"), "news/1")).payload["delivered_to"] == ["human"]


async def test_person_has_no_automatic_subscription(bus: Bus) -> None:
    await subscribe(bus, HUMAN, "agent/human")

    assert (await route(bus, await bus.join("luna"), "agent/human")).payload["delivered_to"] == ["human"]
    assert await bus.submit(HUMAN, UnsubscribePath(agent="human", pattern="agent/human")) is not None


async def test_agent_under_a_harness_confirms_a_path_that_reaches_many(bus: Bus) -> None:
    luna = caller(bus.agent((await bus.join("luna", harness="claude")).name), harness="claude")
    for number in range(6):
        await bus.join(f"nova{number}")

    with pytest.raises(BadRequest, match="6 agents; to confirm, add --yes"):
        await route(bus, luna, "agent/**")
    confirmed = Send(text="", to=("agent/**",), content=Content(), is_confirmed=True)
    assert await bus.submit(luna, confirmed) is not None


async def test_agent_has_a_limit_of_subscriptions_with_its_sessions(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "LIMIT_SUBSCRIPTIONS", 2)
    luna = await bus.join("luna")
    await subscribe(bus, luna, "a")
    await subscribe(bus, luna, "b", "mon")

    with pytest.raises(BadRequest, match="at most 2 path subscriptions"):
        await subscribe(bus, luna, "c")
    assert await subscribe(bus, luna, "a") is None
    await bus.submit(luna, RemoveSession(agent="luna", session="mon"))
    assert await subscribe(bus, luna, "c") is not None


async def test_agent_has_a_limit_of_sessions(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "LIMIT_SESSIONS", 2)
    monkeypatch.setattr("palaver.state.paths.LIMIT_SESSIONS", 2)
    luna = await bus.join("luna")
    for session in ("s6", "s7"):
        await bus.submit(luna, CreateSession(agent="luna", session=session))

    with pytest.raises(BadRequest, match="at most 2 sessions besides main"):
        await bus.submit(luna, CreateSession(agent="luna", session="more"))
    with pytest.raises(BadRequest, match="'pal session rm luna SESSION'"):
        await subscribe(bus, luna, "a", "more")
    assert await bus.submit(luna, CreateSession(agent="luna", session="main", title="Main")) is not None
    assert await bus.submit(luna, CreateSession(agent="luna", session="s7", title="Seven")) is not None
    assert await subscribe(bus, luna, "a", "s7") is not None
    assert [one.id for one in read_agent_sessions(bus.log.rows, "luna")] == ["main", "s6", "s7"]

    await bus.submit(luna, RemoveSession(agent="luna", session="s7"))
    assert await subscribe(bus, luna, "a", "more") is not None


async def test_change_of_an_existing_session_creates_none(bus: Bus) -> None:
    luna = await bus.join("luna")
    change = CreateSession(agent="luna", session="mon", harness_session="h1", only_existing=True)

    assert await bus.submit(luna, change) is None

    assert read_agent_session(bus.log.rows, "luna", "mon") is None
    await bus.submit(luna, CreateSession(agent="luna", session="mon"))
    assert await bus.submit(luna, change) is not None


async def test_session_is_created_changed_and_removed_with_its_subscriptions(bus: Bus) -> None:
    luna, boss = await bus.join("luna"), await bus.join("boss", role="operator")
    create = CreateSession(agent="luna", session="mon", title="Monitor", harness_session="h1")

    assert await bus.submit(luna, create) is not None
    assert await bus.submit(luna, create) is None
    assert await bus.submit(boss, CreateSession(agent="luna", session="mon", title="New")) is not None
    await subscribe(bus, luna, "slack/**", "mon")

    found = read_agent_session(bus.log.rows, "luna", "mon")
    assert found is not None
    assert (found.title, found.harness_session, found.is_default) == ("New", "h1", False)
    assert [one.id for one in read_agent_sessions(bus.log.rows, "luna")] == ["main", "mon"]

    message = await route(bus, HUMAN, "slack/x")
    await bus.submit(luna, RemoveSession(agent="luna", session="mon"))

    assert read_agent_session(bus.log.rows, "luna", "mon") is None
    entry = read_entry(bus.log.rows, message.seq, "luna+mon")
    assert entry is not None
    assert (entry.state, entry.reason) == (State.DEAD, "the session was removed")
    assert (await route(bus, HUMAN, "slack/x")).payload["dead"] == ["slack/x"]
    with pytest.raises(NotFound):
        await bus.submit(luna, RemoveSession(agent="luna", session="mon"))


async def test_default_session_cannot_be_removed_but_named(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="default session"):
        await bus.submit(luna, RemoveSession(agent="luna", session="main"))
    assert await bus.submit(luna, CreateSession(agent="luna", session="main")) is None
    assert await bus.submit(luna, CreateSession(agent="luna", session="main", title="Home")) is not None


@pytest.mark.parametrize("session", ["", "a/b", "a+b", "x" * 65, " a", "ä"])
async def test_bad_session_id_is_refused(bus: Bus, session: str) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="session id"):
        await bus.submit(luna, CreateSession(agent="luna", session=session))
    if session:
        with pytest.raises(BadRequest, match="session id"):
            await subscribe(bus, luna, "x", session)


async def test_bad_content_is_refused_and_nothing_is_stored(bus: Bus) -> None:
    await bus.join("luna")
    last = bus.log.last()

    with pytest.raises(BadText):
        await route(bus, HUMAN, "agent/luna", command="\x00")
    with pytest.raises(MessageTooLarge):
        await route(bus, HUMAN, "agent/luna", source="s" * 2000)
    with pytest.raises(MessageTooLarge):
        await route(bus, HUMAN, "agent/luna", payload="p" * 100_001)
    with pytest.raises(BadRequest):
        await route(bus, HUMAN, "agent/luna", payload=object())
    assert bus.log.last() == last


async def test_larger_payload_needs_a_larger_limit(bus: Bus) -> None:
    content = Content(payload="x" * 200_000, limit_bytes=200_014)

    smaller = structs.replace(content, limit_bytes=200_013)

    sent = await bus.broker.submit(SCRIPT, Send(text="", to=("/a/b",), content=content))
    with pytest.raises(MessageTooLarge):
        await bus.broker.submit(SCRIPT, Send(text="", to=("/a/b",), content=smaller))

    assert isinstance(sent, Sent)
    assert sent.event is not None
    assert sent.event.payload["payload"] == content.payload


async def test_reply_to_a_sender_without_a_mailbox_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")
    webhook = Caller(name="webhook/github", standing=Standing.GUEST, kind=EXTERNAL)
    sent = await bus.broker.submit(webhook, Send(text="", to=("/agent/luna",), content=Content()))
    assert isinstance(sent, Sent)
    assert sent.event is not None

    with pytest.raises(BadRequest, match="webhook/github has no mailbox for a reply"):
        await bus.send(luna, "thanks", reply_to=sent.event.id)


async def test_index_is_built_from_the_state_at_the_start(bus: Bus) -> None:
    luna = await bus.join("luna")
    await subscribe(bus, luna, "slack/**", "mon")
    await subscribe(bus, luna, "email/**")

    again = Broker(
        bus.log, clock=bus.clock, ids=UlidSource(bus.clock, bytes), is_present=lambda _: False, draw=lambda: 0
    )
    try:
        sent = await again.submit(HUMAN, Send(text="hi", to=("slack/x", "email/y"), is_dry_run=True))
    finally:
        again.close()

    assert isinstance(sent, Sent)
    assert sent.delivered_to == ("luna+mon", "luna")


async def test_harness_session_that_looks_like_an_option_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="cannot be the id of a harness session"):
        await bus.submit(luna, CreateSession(agent="luna", session="main", harness_session="--yolo"))


async def test_path_of_the_irc_door_without_a_subscriber_is_no_dead_letter(bus: Bus) -> None:
    event = await bus.send(HUMAN, "hello", "irc/local/#general", channel="#general")

    message = body_as(event, MessageSent)
    assert (message.dead, message.delivered_to, message.path) == ((), (), "irc/local/#general")
    assert await bus.log.read(Query(types=("delivery",))) == []


async def test_reply_is_in_the_channel_of_the_message_that_it_answers(bus: Bus) -> None:
    luna = await bus.join("luna")
    asked = await bus.send(HUMAN, "well?", "@luna", intent="request", channel="#general")
    reader = bus.delivery.take("luna")
    reader.poll(9)
    await bus.submit(luna, Acknowledge(messages=(asked.seq,), lane="recv", grade="acked"))

    implied = await bus.send(luna, "yes", "@human")
    reply = await bus.send(luna, "yes again", reply_to=str(asked.seq))
    other = await bus.send(luna, "news", "@human")

    found = [body_as(event, MessageSent) for event in (implied, reply, other)]
    assert [message.channel for message in found] == ["#general", "#general", None]
    assert found[0].answers == asked.seq
    reader.close()
