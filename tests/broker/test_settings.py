"""Changes of settings, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import Seated
from palaver.errors import (
    BadName,
    BadRequest,
    BadText,
    MessageTooLarge,
    NotAllowed,
    NotFound,
    RoomClosed,
    UnknownMember,
)
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.requests import (
    ChangeSetting,
    CloseRoom,
    Join,
    JoinRoom,
    Leave,
    SetTopic,
    SetVerbosity,
    TagAgent,
)
from palaver.state.rooms import IrcTopic, read_irc_level, read_irc_levels, read_irc_topic


async def test_change_is_stored_with_the_previous_value(bus: Bus) -> None:
    event = await bus.submit(HUMAN, ChangeSetting(key="brake_hops", value="10", old=40))

    assert event is not None
    assert (event.type, event.sender) == ("setting.changed", "human")
    assert event.payload == {"key": "brake_hops", "value": 10, "old": 40}


async def test_only_the_human_changes_a_setting(bus: Bus) -> None:
    operator = await bus.join("boss", role="operator")

    for asking in (operator, SCRIPT):
        with pytest.raises(NotAllowed, match="config set"):
            await bus.submit(asking, ChangeSetting(key="brake_hops", value=0, old=40))


@pytest.mark.parametrize(("key", "value"), [("colour", "red"), ("brake_hops", "many"), ("log_level", "loud")])
async def test_unknown_or_invalid_setting_is_refused(bus: Bus, key: str, value: str) -> None:
    with pytest.raises(BadRequest, match=key):
        await bus.submit(HUMAN, ChangeSetting(key=key, value=value, old=""))


# Settings of one agent


def by_tag(bus: Bus, tag: str) -> list[str]:
    return [agent.name for agent in bus.broker.directory.by_tag(tag)]


async def test_agent_gets_a_tag_once_and_keeps_its_name(bus: Bus) -> None:
    await bus.join("luna")

    event = await bus.submit(HUMAN, TagAgent(name="luna", tag="API"))
    again = await bus.submit(HUMAN, TagAgent(name="luna", tag="api"))

    assert event is not None
    assert event.payload == {"key": "tag", "value": "api", "old": "", "agent": "luna"}
    assert again is None
    assert by_tag(bus, "api") == ["luna"]
    await bus.submit(HUMAN, TagAgent(name="luna", tag=""))
    assert by_tag(bus, "api") == []


async def test_agent_or_its_starter_or_an_operator_sets_a_tag(bus: Bus) -> None:
    luna = await bus.join("luna")
    boss = await bus.join("boss", role="operator")
    nova = await bus.join("nova")
    await bus.broker.submit(luna, Join(name="kira"))

    await bus.submit(luna, TagAgent(name="luna", tag="one"))
    await bus.submit(luna, TagAgent(name="kira", tag="two"))
    await bus.submit(boss, TagAgent(name="nova", tag="three"))

    assert [bus.agent(name).tag for name in ("luna", "kira", "nova")] == ["one", "two", "three"]
    for asking in (nova, SCRIPT):
        with pytest.raises(NotAllowed, match="tag requires an operator, or the caller that started"):
            await bus.submit(asking, TagAgent(name="luna", tag="mine"))


async def test_unknown_agent_or_invalid_tag_is_refused(bus: Bus) -> None:
    await bus.join("luna")

    with pytest.raises(NotFound, match="agent kira"):
        await bus.submit(HUMAN, TagAgent(name="kira", tag="api"))
    with pytest.raises(BadName, match="7up"):
        await bus.submit(HUMAN, TagAgent(name="luna", tag="7up"))


async def test_settings_of_an_agent_survive_its_end(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(HUMAN, TagAgent(name="luna", tag="api"))
    await bus.submit(HUMAN, ChangeSetting(key="hints", value="be brief", old="", agent="luna"))
    await bus.submit(luna, Leave())

    await bus.join("luna")

    again: Agent = bus.agent("luna")
    assert (again.left, again.tag, again.hints) == (False, "api", "be brief")


async def test_hints_of_an_agent_are_stored_once(bus: Bus) -> None:
    await bus.join("luna")
    request = ChangeSetting(key="hints", value="be brief", old="", agent="luna")

    event = await bus.submit(HUMAN, request)

    assert event is not None
    assert event.payload == {"key": "hints", "value": "be brief", "old": "", "agent": "luna"}
    assert await bus.submit(HUMAN, request) is None


async def test_setting_of_an_agent_is_checked(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="belongs to the bus"):
        await bus.submit(HUMAN, ChangeSetting(key="brake_hops", value=1, old=1, agent="luna"))
    with pytest.raises(BadText, match="hints"):
        await bus.submit(HUMAN, ChangeSetting(key="hints", value="\x1b[2J", old="", agent="luna"))
    with pytest.raises(NotFound, match="agent kira"):
        await bus.submit(HUMAN, ChangeSetting(key="hints", value="x", old="", agent="kira"))
    with pytest.raises(NotAllowed, match="config set"):
        await bus.submit(luna, ChangeSetting(key="hints", value="x", old="", agent="luna"))


# The verbosity of IRC channels


@pytest.mark.parametrize(
    ("channel", "level"),
    [("#general", "minimal"), ("#General", "minimal"), ("#agent-luna", "full"), ("#shop", "actions")],
)
async def test_channel_has_a_default_level(bus: Bus, channel: str, level: str) -> None:
    assert read_irc_level(bus.log.rows, channel) == level


async def test_person_or_operator_sets_the_level_of_a_channel(bus: Bus) -> None:
    boss = await bus.join("boss", role="operator")

    first = await bus.submit(HUMAN, SetVerbosity(channel="#General", level="full"))
    again = await bus.submit(boss, SetVerbosity(channel="#general", level="full"))
    await bus.submit(boss, SetVerbosity(channel="#shop", level="debug"))

    assert first is not None
    assert first.payload == {
        "key": "irc_verbosity",
        "value": "full",
        "old": "minimal",
        "channel": "#general",
    }
    assert again is None
    assert read_irc_levels(bus.log.rows) == {"#general": "full", "#shop": "debug"}
    assert read_irc_level(bus.log.rows, "#GENERAL") == "full"


async def test_only_ascii_letters_of_a_channel_ignore_their_case(bus: Bus) -> None:
    await bus.submit(HUMAN, SetVerbosity(channel="#BÄR", level="full"))

    assert read_irc_levels(bus.log.rows) == {"#bÄr": "full"}
    assert read_irc_level(bus.log.rows, "#bÄR") == "full"
    assert read_irc_level(bus.log.rows, "#bär") == "actions"


async def test_worker_or_script_sets_no_level(bus: Bus) -> None:
    for caller in (await bus.join("luna"), SCRIPT):
        with pytest.raises(NotAllowed, match="irc verbosity"):
            await bus.submit(caller, SetVerbosity(channel="#general", level="full"))


@pytest.mark.parametrize(
    ("channel", "level"),
    [("general", "full"), ("#a b", "full"), ("#a,#b", "full"), ("#", "full"), ("#a", "x")],
)
async def test_invalid_channel_or_level_is_refused(bus: Bus, channel: str, level: str) -> None:
    with pytest.raises(BadRequest):
        await bus.submit(HUMAN, SetVerbosity(channel=channel, level=level))


# The topics of IRC channels

GUEST = Caller(name="irc/local/bob", standing=Standing.GUEST, kind="external")


async def test_guest_or_agent_sets_and_removes_a_topic(bus: Bus) -> None:
    luna = await bus.join("luna")

    first = await bus.submit(GUEST, SetTopic(channel="#Dev:Ä", text="one"))
    again = await bus.submit(luna, SetTopic(channel="#dev:Ä", text="one"))

    assert first is not None
    assert first.payload == {"key": "topic", "value": "one", "old": "", "channel": "#dev:Ä"}
    assert again is None
    topic = IrcTopic(text="one", by="irc/local/bob", ts=first.ts)
    assert read_irc_topic(bus.log.rows, "#DEV:Ä") == topic
    assert read_irc_topic(bus.log.rows, "#dev:ä") is None

    removed = await bus.submit(luna, SetTopic(channel="#dev:Ä", text=""))

    assert removed is not None
    assert (removed.payload["value"], removed.payload["old"]) == ("", "one")
    assert read_irc_topic(bus.log.rows, "#dev:Ä") is None
    assert await bus.submit(luna, SetTopic(channel="#dev:Ä", text="")) is None


async def test_observer_sets_no_topic(bus: Bus) -> None:
    observer = await bus.join("vera", role="observer")

    with pytest.raises(NotAllowed, match="irc topic"):
        await bus.submit(observer, SetTopic(channel="#general", text="x"))


async def test_topic_of_a_room_is_for_its_members_and_persons(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    seated = await bus.broker.submit(luna, JoinRoom(workspaces=("/srv/shop",)))
    assert isinstance(seated, Seated)
    channel = f"#{seated.room.id}"

    for caller in (luna, GUEST, HUMAN):
        assert await bus.submit(caller, SetTopic(channel=channel, text=f"by {caller.name}")) is not None
    with pytest.raises(UnknownMember):
        await bus.submit(nova, SetTopic(channel=channel, text="mine"))
    await bus.submit(HUMAN, CloseRoom(room=seated.room.id))
    with pytest.raises(RoomClosed):
        await bus.submit(luna, SetTopic(channel=channel, text="late"))

    kept = read_irc_topic(bus.log.rows, channel)
    assert kept is not None
    assert kept.text == "by human"


@pytest.mark.parametrize(
    ("channel", "text", "error"),
    [
        ("general", "x", BadRequest),
        ("#a b", "x", BadRequest),
        ("#", "x", BadRequest),
        ("#a\x1b", "x", BadText),
        ("#a", "x\x1b", BadText),
        ("#a", "one\ntwo", BadRequest),
        ("#a", "one\ttwo", BadRequest),
        ("#a", "ü" * 196, MessageTooLarge),
    ],
)
async def test_invalid_topic_is_refused(bus: Bus, channel: str, text: str, error: type[Exception]) -> None:
    last = bus.log.last()

    with pytest.raises(error):
        await bus.submit(HUMAN, SetTopic(channel=channel, text=text))

    assert bus.log.last() == last
