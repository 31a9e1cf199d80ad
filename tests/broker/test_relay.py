"""Lines of another network: external senders, whom they reach, and replies to them; on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import Sent
from palaver.errors import BadRequest, NotAllowed, UnknownRecipient
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.requests import Join, Leave, RelayLine, Request, Send, SetStatus

BOB = Caller(name="irc/net/bob", standing=Standing.EXTERNAL, kind="external", by="human")


async def relay(bus: Bus, text: str, **fields: str) -> Sent:
    sent = await bus.broker.submit(BOB, RelayLine(text=text, nick="Bob", **fields))
    assert isinstance(sent, Sent)
    return sent


@pytest.fixture
async def crew(bus: Bus) -> Bus:
    for name in ("luna", "nova"):
        await bus.join(name)
    bus.broker.directory.serve_network("net")
    return bus


async def test_line_of_a_channel_is_external_and_marked(crew: Bus) -> None:
    sent = await relay(crew, "luna: hello", path="irc/net/#c")

    assert sent.event is not None
    payload = sent.event.payload
    assert (sent.event.sender, sent.event.by) == ("irc/net/bob", "human")
    assert (payload["sender_kind"], payload["display_name"], payload["path"]) == (
        "external",
        "Bob",
        "irc/net/#c",
    )
    assert "dead" not in payload


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("luna: hello", ("luna",)),
        ("LUNA, hello", ("luna",)),
        ("hello @nova and @luna", ("nova", "luna")),
        ("@luna: hello", ("luna",)),
        ("human: hello", ("human",)),
        ("do not let luna drop the table", ()),
        ("lu: hello", ()),
        ("zed: hello @zed", ()),
        ("@all @workers room: @luna* @[pal-events] claude: x", ()),
        ("all: hello", ()),
        ("irc/net/#c: x", ()),
    ],
)
async def test_line_reaches_the_agents_that_it_names_and_no_groups(
    crew: Bus, text: str, reached: tuple[str, ...]
) -> None:
    sent = await relay(crew, text, path="irc/net/#c")

    assert sent.delivered_to == reached
    assert sent.event is not None
    assert sent.event.payload["text"] == text


async def test_private_line_reaches_its_agent_only(crew: Bus) -> None:
    named = await relay(crew, "luna: hello")
    direct = await relay(crew, "nova: tell luna", recipient="luna")

    assert (named.delivered_to, direct.delivered_to) == (("luna",), ("luna",))
    with pytest.raises(BadRequest, match="names no agent"):
        await relay(crew, "hello")
    with pytest.raises(UnknownRecipient):
        await relay(crew, "hello", recipient="zed")


async def test_same_id_is_stored_once(crew: Bus) -> None:
    fields = {"path": "irc/net/#c", "id": "01HX9Z00000000000000000000"}

    first, second = await relay(crew, "luna: hello", **fields), await relay(crew, "luna: hello", **fields)

    assert first.event is not None
    assert second.event is not None
    assert (second.event.seq, second.is_repeat) == (first.event.seq, True)


@pytest.mark.parametrize(
    "request_", [Send(text="x", to=("luna",)), Join(name="bob"), SetStatus(state="idle"), Leave()]
)
async def test_external_sender_can_do_nothing_else(crew: Bus, request_: Request) -> None:
    with pytest.raises(NotAllowed):
        await crew.broker.submit(BOB, request_)


@pytest.mark.parametrize(
    "other", [HUMAN, SCRIPT, Caller(name="luna", standing=Standing.EXTERNAL, kind="external")]
)
async def test_only_a_sender_of_a_network_relays(crew: Bus, other: Caller) -> None:
    with pytest.raises(BadRequest, match="only a bridge"):
        await crew.broker.submit(other, RelayLine(text="luna: x", nick="x"))


async def test_reply_goes_back_to_the_channel_or_to_the_nick(crew: Bus) -> None:
    luna = await crew.join("luna2")
    in_channel, private = await relay(crew, "hello", path="irc/net/#c"), await relay(crew, "luna: hello")
    assert in_channel.event is not None
    assert private.event is not None

    answers = [
        await crew.send(luna, "yes", reply_to=str(event.seq)) for event in (in_channel.event, private.event)
    ]

    assert [answer.to for answer in answers] == [("irc/net/#c",), ("irc/net/bob",)]
    assert not any("dead" in answer.payload for answer in answers)


async def test_network_without_a_bridge_has_dead_letters(crew: Bus) -> None:
    letter = await crew.send(HUMAN, "hello", "irc/other/#c")

    assert letter.payload["dead"] == ["irc/other/#c"]
