"""Lines of clients become messages and envelopes of the bus, or are refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.irc.stage import ALL_CAPS, Stage, opened_stage
from tests.fakes import HUMAN

from palaver.broker.context import Seated
from palaver.doors.irc.irc_wire import split_exactly
from palaver.doors.irc.showing import CONCAT
from palaver.doors.irc.speaking import multiline, notice, tagmsg
from palaver.protocol.agents import Standing
from palaver.protocol.envelope import body_as
from palaver.protocol.events import MessageSent
from palaver.protocol.paths import SubscribePath
from palaver.protocol.requests import JoinRoom


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path) as made:
        yield made


def envelope(**fields: Any) -> str:
    made = {"v": 1, "type": "my.deploy", "id": "e1", "from": "nova", "payload": {"to": "prod"}}
    return json.dumps({name: value for name, value in (made | fields).items() if value is not None})


async def only_message(stage: Stage) -> MessageSent:
    (event,) = await stage.messages()
    return body_as(event, MessageSent)


async def test_line_with_a_name_goes_whole_to_that_agent(stage: Stage) -> None:
    await stage.bus.join("luna")
    await stage.bus.join("nova")
    client = stage.person("#general")

    await stage.speak(client, "#general", "luna: run the tests, @nova watches")

    message = await only_message(stage)
    assert message.text == "luna: run the tests, @nova watches"
    assert set(message.delivered_to) == {"luna", "nova"}
    assert (message.channel, message.scope) == ("#general", "mentions")


@pytest.mark.parametrize("text", ["do not let luna drop the table", "[op] luna stop", "ask luna."])
async def test_line_without_a_name_is_kept_and_wakes_no_agent(stage: Stage, text: str) -> None:
    await stage.bus.join("luna")
    client = stage.person("#general")
    other = stage.guest("bob", "#general")

    await stage.speak(client, "#general", text)

    message = await only_message(stage)
    assert (message.text, message.path, message.delivered_to) == (text, "irc/local/#general", ())
    assert message.dead == ()
    assert other.said == [("#general", text)]


async def test_unknown_name_is_a_notice_with_the_nearest_names(stage: Stage) -> None:
    await stage.bus.join("luna")
    client = stage.person("#general")

    await stage.speak(client, "#general", "lunna: hello")
    await stage.speak(client, "#general", "hello @lunaa")

    assert ["did you mean luna?" in text for text in client.told] == [True, True]
    assert await stage.messages() == []


async def test_all_is_a_broadcast(stage: Stage) -> None:
    await stage.bus.join("luna")
    client = stage.person("#general")

    await stage.speak(client, "#general", "@all stop working")

    message = await only_message(stage)
    assert (message.scope, message.delivered_to) == ("broadcast", ("luna",))


async def test_guest_that_may_only_read_cannot_write(stage: Stage) -> None:
    client = stage.guest("bob", "#general", standing=Standing.OBSERVER)

    await stage.speak(client, "#general", "hello")

    assert client.codes == ["404"]
    assert await stage.messages() == []


async def test_line_in_the_channel_of_an_agent_goes_to_that_agent(stage: Stage) -> None:
    await stage.bus.join("luna")
    client = stage.person("#agent-luna")

    await stage.speak(client, "#agent-luna", "look at @nobody's work")

    message = await only_message(stage)
    assert (message.delivered_to, message.channel) == (("luna",), "#agent-luna")


async def test_line_in_a_room_is_a_room_message(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    seated = await stage.broker.submit(luna, JoinRoom(workspaces=("/repo/app",)))
    assert isinstance(seated, Seated)
    room = f"#{seated.room.id}"
    client = stage.person(room)

    await stage.speak(client, room, "hello all")
    await stage.speak(client, room, "luna: hello")

    first, second = [body_as(event, MessageSent) for event in await stage.messages()]
    assert (first.room, first.delivered_to, first.scope) == (room[1:], ("luna",), "broadcast")
    assert (second.room, second.delivered_to, second.scope) == (room[1:], ("luna",), "mentions")


async def test_line_in_a_thread_is_in_it_for_the_agents_it_names(stage: Stage) -> None:
    await stage.bus.join("luna")
    client = stage.person("#thread-pr-7")

    await stage.speak(client, "#thread-pr-7", "luna: review")
    await stage.speak(client, "#thread-pr-7", "no names here")

    first, second = [body_as(event, MessageSent) for event in await stage.messages()]
    assert (first.thread, first.delivered_to) == ("pr-7", ("luna",))
    assert (second.thread, second.delivered_to) == ("pr-7", ())


async def test_agents_subscribe_to_other_channels(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    await stage.broker.submit(luna, SubscribePath(agent="luna", pattern="irc/local/#dev"))
    client = stage.person("#Dev")

    await stage.speak(client, "#dev", "deploy is done")

    message = await only_message(stage)
    assert (message.path, message.delivered_to) == ("irc/local/#dev", ("luna",))


async def test_private_message_goes_to_that_agent_or_guest(stage: Stage) -> None:
    await stage.bus.join("luna")
    bob = stage.guest("Bob")
    client = stage.person()

    await stage.speak(client, "luna", "hi @nobody")
    await stage.speak(client, "bob", "hello bob")
    await stage.speak(client, "nobody", "hello")

    direct, to_guest = [body_as(event, MessageSent) for event in await stage.messages()]
    assert (direct.delivered_to, direct.channel) == (("luna",), None)
    assert (to_guest.path, to_guest.dead) == ("irc/local/bob", ())
    assert bob.said == [("Bob", "hello bob")]
    assert client.codes == ["401"]


async def test_channel_must_be_joined_to_write_in_it(stage: Stage) -> None:
    client = stage.person()

    await stage.speak(client, "#general", "hello")
    await stage.speak(client, "#", "hello")

    assert client.codes == ["404", "403"]
    assert await stage.messages() == []


async def test_formatting_is_removed_and_action_is_a_text(stage: Stage) -> None:
    client = stage.person("#general")

    await stage.speak(client, "#general", "\x02bold\x0f \x0304,05red\x03 \x1ditalic")
    await stage.speak(client, "#general", "\x01ACTION waves\x01")
    await stage.speak(client, "#general", "\x01VERSION\x01")
    await stage.speak(client, "#general", "\x02\x0f")

    texts = [body_as(event, MessageSent).text for event in await stage.messages()]
    assert texts == ["bold red italic", "* human waves"]
    assert client.codes == ["412"]


async def test_sender_gets_an_echo_only_if_it_asked_for_it(stage: Stage) -> None:
    await stage.bus.join("luna")
    client = stage.person("#general")
    quiet = stage.guest("bob", "#general", caps=ALL_CAPS - {"echo-message"})

    await stage.speak(client, "#general", "one")
    await stage.speak(quiet, "#general", "two")

    assert client.said == [("#general", "one"), ("#general", "two")]
    assert quiet.said == [("#general", "one")]
    stored = await stage.messages()
    assert [line.tags["msgid"] for line in client.of("PRIVMSG")] == [event.id for event in stored]
    assert client.of("PRIVMSG")[0].tags["account"] == "human"
    assert "account" not in client.of("PRIVMSG")[1].tags


async def test_text_that_the_bus_refuses_is_reported(stage: Stage) -> None:
    client = stage.person("#general")

    await stage.speak(client, "#general", "a\x1b[31m")
    pieces = split_exactly("x" * 100_001, 400)
    await multiline(stage.hub, client, "#general", pieces, tags={})

    assert client.failed == [
        ("PRIVMSG", "BAD_TEXT", "#general"),
        ("PRIVMSG", "MESSAGE_TOO_LARGE", "#general"),
    ]
    assert await stage.messages() == []


async def test_multiline_text_is_one_message(stage: Stage) -> None:
    client = stage.person("#general")
    text = "first line\nsecond " + "é" * 2000

    await multiline(stage.hub, client, "#general", split_exactly(text, 300), tags={})

    assert (await only_message(stage)).text == text


async def test_reply_tag_answers_the_sender_of_the_message(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general")
    asked = await stage.send(luna, "which one?", "@human")

    await stage.speak(client, "#general", "the first", **{"+draft/reply": asked.id})

    answer = (await stage.messages())[-1]
    message = body_as(answer, MessageSent)
    assert (message.reply_to, message.delivered_to) == (str(asked.seq), ("luna",))


async def test_reply_is_shown_in_the_channel_of_its_question(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general")
    await stage.speak(client, "#general", "luna: status?")
    asked = (await stage.messages())[0]

    await stage.send(luna, "all done", reply_to=str(asked.seq))

    assert client.said[-1] == ("#general", "all done")


# Programs


async def test_envelope_of_a_program_is_stored(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    await stage.bus.join("luna")
    client = stage.program(nova, "#general", caps=frozenset())

    await stage.speak(client, "#general", envelope())

    (event,) = [one for one in stage.log.tail(0, 100) or () if one.type == "my.deploy"]
    assert (event.id, event.sender, event.to, event.delivered_to) == ("e1", "nova", (), ("luna",))
    assert event.payload == {"to": "prod"}
    assert client.lines == []


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("{", "BAD_ENVELOPE"),
        ('{"v":1}', "BAD_ENVELOPE"),
        (envelope(payload=[]), "BAD_ENVELOPE"),
        (envelope(**{"from": "luna"}), "NOT_YOU"),
        (envelope(**{"from": "NOVA"}), "NOT_YOU"),
        (envelope(type="delivery"), "RESERVED_TYPE"),
        (envelope(to=["nobody"]), "UNKNOWN_RECIPIENT"),
    ],
)
async def test_wrong_envelope_is_refused_and_nothing_stored(stage: Stage, written: str, code: str) -> None:
    nova = await stage.bus.join("nova")
    client = stage.program(nova, "#general")
    last = stage.log.last()

    await stage.speak(client, "#general", written)

    assert client.failed == [("PRIVMSG", code, "#general")]
    assert stage.log.last() == last


async def test_same_id_with_another_payload_is_refused(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    client = stage.program(nova, "#general", caps=frozenset())

    await stage.speak(client, "#general", envelope())
    await stage.speak(client, "#general", envelope())
    await stage.speak(client, "#general", envelope(payload={"to": "test"}))

    assert client.failed == [("PRIVMSG", "ID_TAKEN", "#general")]


async def test_channel_decides_for_an_envelope_without_recipients(stage: Stage) -> None:
    nova, luna = await stage.bus.join("nova"), await stage.bus.join("luna")
    await stage.bus.join("mila")
    await stage.broker.submit(luna, SubscribePath(agent="luna", pattern="irc/local/#dev"))
    client = stage.program(nova, "#agent-mila", "#dev", caps=frozenset())

    await stage.speak(client, "#agent-mila", envelope(id="e1"))
    await stage.speak(client, "#dev", envelope(id="e2"))
    await stage.speak(client, "luna", envelope(id="e3"))
    await stage.speak(client, "#dev", envelope(id="e4", to=["mila"]))

    stored = [one for one in stage.log.tail(0, 100) or () if one.type == "my.deploy"]
    assert [one.delivered_to for one in stored] == [("mila",), ("luna",), ("luna",), ("mila",)]
    assert client.failed == []


async def test_program_may_write_a_plain_text(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    await stage.bus.join("luna")
    client = stage.program(nova, "#general")

    await stage.speak(client, "#general", "luna: hello")

    assert (await only_message(stage)).delivered_to == ("luna",)


async def test_line_of_a_person_that_begins_with_a_brace_is_a_text(stage: Stage) -> None:
    client = stage.person("#general")

    await stage.speak(client, "#general", envelope(**{"from": "human"}))

    assert (await only_message(stage)).text.startswith('{"v": 1')


# Lines that are only shown


async def test_notice_is_shown_to_people_and_creates_no_event(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    client = stage.person("#general", caps=frozenset())
    other = stage.guest("bob", "#general")
    program = stage.program(nova, "#general")
    last = stage.log.last()

    notice(stage.hub, client, "#general", envelope(), tags={})
    notice(stage.hub, client, "#general", "\x01VERSION x\x01", tags={})
    notice(stage.hub, client, "#elsewhere", "hello", tags={})

    assert other.told == [envelope()]
    assert (program.told, client.told) == ([], [])
    assert stage.log.last() == last


async def test_tags_are_shown_to_clients_that_read_tags(stage: Stage) -> None:
    client = stage.person("#general")
    reading = stage.guest("bob", "#general")
    plain = stage.guest("eve", "#general", caps=frozenset())

    tagmsg(stage.hub, client, "#general", tags={"+typing": "active", "plain": "x"})
    tagmsg(stage.hub, client, "#elsewhere", tags={"+typing": "active"})

    (line,) = reading.of("TAGMSG")
    assert (line.tags["+typing"], "plain" in line.tags) == ("active", False)
    assert plain.of("TAGMSG") == []
    assert [line.tags["msgid"]] == [one.tags["msgid"] for one in client.of("TAGMSG")]


async def test_message_to_oneself_is_an_echo_and_a_message(stage: Stage) -> None:
    client = stage.guest("Bob")

    await stage.speak(client, "bob", "note to myself")
    notice(stage.hub, client, "bob", "and a notice", tags={})

    assert client.said == [("Bob", "note to myself")] * 2
    assert client.told == ["and a notice"] * 2


async def test_multiline_text_is_shown_as_its_sender_has_cut_it(stage: Stage) -> None:
    client = stage.person("#general")
    reading = stage.guest("bob", "#general")
    plain = stage.guest("eve", "#general", caps=frozenset({"message-tags"}))
    pieces = [("", False), ("#how is ", False), ("everyone?", True)]

    await multiline(stage.hub, client, "#general", pieces, tags={"+x": "y"})

    assert (await only_message(stage)).text == "\n#how is everyone?"
    assert [line.params[1] for line in reading.of("PRIVMSG")] == ["", "#how is ", "everyone?"]
    assert [CONCAT in line.tags for line in reading.of("PRIVMSG")] == [False, False, True]
    assert [line.params[1] for line in plain.of("PRIVMSG")] == ["#how is ", "everyone?"]
    assert [line.tags.get("msgid") is None for line in plain.of("PRIVMSG")] == [False, True]
    assert {line.tags["+x"] for line in plain.of("PRIVMSG")} == {"y"}


async def test_person_at_a_terminal_reaches_a_guest_by_its_path(stage: Stage) -> None:
    bob = stage.guest("bob")

    event = await stage.send(HUMAN, "hi", "irc/local/bob")

    assert body_as(event, MessageSent).dead == ()
    assert bob.said == [("bob", "hi")]
