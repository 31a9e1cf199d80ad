"""OpenCode's server as its plugin reaches it."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.opencode.wire import EVENTS, HEALTH, Lost, NotSent, OpenCodeEvent
from palaver.holder.opencode import Relay, parse_plugin_line, session_in


class Plugin:
    """The plugin's end: records requests and sends replies."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.relay = Relay(lambda line: self.lines.append(json.loads(line)))

    def say(self, **fields: object) -> None:
        parsed = parse_plugin_line(json.dumps(fields).encode())
        assert parsed is not None
        self.relay.hear(parsed)


async def test_request_goes_to_the_plugin_and_its_reply_returns() -> None:
    plugin = Plugin()
    asking = asyncio.ensure_future(plugin.relay.ask("POST", "/session", b'{"agent":"plan"}'))
    await asyncio.sleep(0)

    plugin.say(answer=1, status=200, body={"id": "ses_1"})
    head, body = await asking

    assert plugin.lines == [{"ask": 1, "method": "POST", "path": "/session", "body": {"agent": "plan"}}]
    assert head.is_ok
    assert json.loads(body) == {"id": "ses_1"}


async def test_relay_is_healthy_while_its_pipe_is_open() -> None:
    plugin = Plugin()

    head, _ = await plugin.relay.ask("GET", HEALTH)

    assert head.is_ok
    assert plugin.lines == []


async def test_every_follower_gets_a_greeting_and_then_all_events() -> None:
    plugin = Plugin()
    first = plugin.relay.follow(EVENTS, first_s=1, silence_s=1)
    second = plugin.relay.follow(EVENTS, first_s=1, silence_s=1)
    greetings = [await anext(first), await anext(second)]

    plugin.say(event={"type": "session.idle", "properties": {"sessionID": "a"}})

    assert all(b"server.connected" in greeting for greeting in greetings)
    assert b"session.idle" in await anext(first)
    assert b"session.idle" in await anext(second)


async def test_requests_on_a_closed_relay_fail() -> None:
    plugin = Plugin()
    follower = plugin.relay.follow(EVENTS, first_s=1, silence_s=1)
    await anext(follower)
    asking = asyncio.ensure_future(plugin.relay.ask("GET", "/session"))
    await asyncio.sleep(0)

    plugin.relay.close()

    with pytest.raises(Lost):
        await asking
    with pytest.raises(Lost):
        await anext(follower)
    with pytest.raises(NotSent):
        await plugin.relay.ask("GET", "/session")


async def test_missing_reply_times_out() -> None:
    plugin = Plugin()

    with pytest.raises(Lost):
        await plugin.relay.ask("GET", "/session", limit_s=0.01)
    plugin.say(answer=1, status=200)  # too late, without a pending request


async def test_session_receives_its_instructions() -> None:
    plugin = Plugin()

    plugin.relay.tell("ses_1", "You are nova")

    assert plugin.lines == [{"session": "ses_1", "told": "You are nova"}]


@given(st.binary(max_size=60))
def test_invalid_line_is_ignored(line: bytes) -> None:
    parse_plugin_line(line)


def test_session_counts_as_used_when_a_new_message_arrives() -> None:
    info = {"role": "user", "id": "msg_1"}

    assert session_in(OpenCodeEvent("message.updated", {"sessionID": "a", "info": info})) == "a"
    assert (
        session_in(OpenCodeEvent("message.updated", {"sessionID": "a", "info": {**info, "summary": {}}}))
        == ""
    )
    assert (
        session_in(OpenCodeEvent("message.updated", {"sessionID": "a", "info": {"role": "assistant"}})) == ""
    )
    assert session_in(OpenCodeEvent("session.status", {"sessionID": "a"})) == ""
