"""Permission requests of agents and the decisions on them. Only the human decides, and only in person."""

import re
from collections.abc import Callable
from typing import Final

from palaver.broker.context import Context, Written
from palaver.broker.messages import check_writer
from palaver.config import typed
from palaver.errors import BadRequest, NotAllowed, NotFound, NotPerson, cut_name
from palaver.protocol.agents import INSTANCE, Agent, Caller, Standing, check_name
from palaver.protocol.envelope import Draft
from palaver.protocol.events import (
    ALLOW,
    ANSWERED,
    ASKED,
    DENY,
    HINTS_KEY,
    IRC_LEVELS,
    LIFE,
    LIMIT_TEXT,
    LIMIT_TOPIC_BYTES,
    PAUSED,
    SETTING,
    TAG_KEY,
    TOPIC_KEY,
    UNPAUSED,
    VERBOSITY_KEY,
    AnswerPermission,
    ClosePermission,
    OpenPermission,
)
from palaver.protocol.message import HUMAN
from palaver.protocol.query import fold_channel
from palaver.protocol.requests import (
    TYPED,
    ChangeSetting,
    Pause,
    SetTopic,
    SetVerbosity,
    TagAgent,
    Typed,
    Unpause,
    secret_text,
)
from palaver.protocol.settings_file import LIMIT_HINTS_BYTES
from palaver.protocol.text import check_text
from palaver.state.agents import read_agent
from palaver.state.rooms import read_irc_level, read_irc_topic, read_room
from palaver.state.rows import Rows


def check_person(caller: Caller) -> None:
    """Refuse every caller but the human, and the human acting as another agent."""
    if not caller.is_person:
        raise NotAllowed("answering a permission request", caller.standing.word, "a person")
    if caller.by is not None:
        raise NotPerson("only a person can answer a permission request, and not with --as")


async def ask(context: Context, caller: Caller, request: OpenPermission, key: bytes | None) -> Written:
    """Write that an agent requests permission, and until when it waits."""
    # In bytes: a character has up to four.
    check_text(request.text, "the requested permission", LIMIT_TEXT * 4)
    payload: dict[str, object] = {
        "permission": request.permission,
        "tool": request.tool,
        "text": request.text,
        "digest": request.digest,
        "until": request.until,
    }
    return await _write(context, ASKED, request.name, payload, key)


async def answer(context: Context, caller: Caller, request: AnswerPermission, key: bytes | None) -> Written:
    """Write a person's decision."""
    check_person(caller)
    payload: dict[str, object] = {
        "agent": request.name,
        "permission": request.permission,
        "decision": ALLOW if request.is_allowed else DENY,
        "digest": request.digest,
    }
    return await _write(context, ANSWERED, caller.name, payload, key)


async def close(context: Context, caller: Caller, request: ClosePermission, key: bytes | None) -> Written:
    """Write that a request was closed without a decision, and what follows."""
    payload: dict[str, object] = {
        "agent": request.name,
        "permission": request.permission,
        "decision": request.decision,
        "reason": request.reason,
    }
    return await _write(context, ANSWERED, caller.name, payload, key)


async def _write(
    context: Context, type_: str, sender: str, payload: dict[str, object], key: bytes | None
) -> Written:
    draft = Draft(
        type=type_, sender=sender, payload=payload, id=context.ids.next(), ts=context.clock.now_ms()
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


# --------------------
# Record changes of settings. The door writes the file of the bus; settings of an agent are only in the log.


async def change_setting(
    context: Context, caller: Caller, request: ChangeSetting, key: bytes | None
) -> Written:
    """Write that a setting has another value: of the bus, or the hints of one agent."""
    if request.agent:
        if request.key != HINTS_KEY:
            raise BadRequest(f"the setting {request.key!r} belongs to the bus, not to one agent")
        agent, text = _known(context, request.agent), str(request.value)
        check_text(text, "the setting 'hints'", LIMIT_HINTS_BYTES)
        return await _change_of_agent(context, caller, agent.name, HINTS_KEY, text, key)
    draft = Draft(
        type=SETTING,
        sender=caller.name,
        payload={"key": request.key, "value": typed(request.key, request.value), "old": request.old},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


def _known(context: Context, name: str) -> Agent:
    agent = context.directory.get(name)
    if agent is None:
        raise NotFound(f"agent {name}", "'pal list' shows the agents")
    return agent


async def tag_agent(context: Context, caller: Caller, request: TagAgent, key: bytes | None) -> Written:
    """Write that an agent has another tag; nothing if it has that tag already.

    For the agent itself, the caller that started it, an operator or a person.
    """
    agent, tag = _known(context, request.name), request.tag.lower()
    # A tag is an address: an agent must not put others into a group, or take them out of one.
    is_its_own = caller.kind == INSTANCE and caller.name in (agent.name, agent.by)
    if caller.standing < Standing.OPERATOR and not is_its_own:
        raise NotAllowed("tag", caller.standing.word, "an operator, or the caller that started the agent")
    check_name(agent.base, tag)
    return await _change_of_agent(context, caller, agent.name, TAG_KEY, tag, key)


async def _change_of_agent(
    context: Context, caller: Caller, name: str, setting: str, value: str, key: bytes | None
) -> Written:
    """Write a setting of an agent; nothing if it has that value already."""
    id_, ts = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        # The old value is read inside the commit, so that two equal changes at the same time write one event.
        known = read_agent(rows, name)
        old = None if known is None else known.hints if setting == HINTS_KEY else known.tag
        if old is None or old == value:
            return None
        payload: dict[str, object] = {"key": setting, "value": value, "old": old, "agent": name}
        return Draft(type=SETTING, sender=caller.name, payload=payload, id=id_, ts=ts, by=caller.by)

    return Written(event=(await context.log.commit(f"agent/{name}", decide, request_key=key)).event)


_LIMIT_CHANNEL_BYTES: Final = 512
"""Longer than CHANNELLEN: the channel of a thread has the name of the thread."""
# On IRC, a blank ends a name and a comma separates two of them.
_CHANNEL: Final = re.compile(r"#[^\s,]+")
_LINE_PARTS: Final = re.compile("[\t\r\n\u2028\u2029]")
"""A topic is one line without tabs."""


def _check_channel(channel: str) -> None:
    check_text(channel, "the name of the channel", _LIMIT_CHANNEL_BYTES)
    if not _CHANNEL.fullmatch(channel):
        raise BadRequest(f"{cut_name(channel)!r} is not a channel: write it with #, such as '#general'")


async def set_verbosity(
    context: Context, caller: Caller, request: SetVerbosity, key: bytes | None
) -> Written:
    """Write how much the notices of an IRC channel show; nothing if they show that already."""
    if request.level not in IRC_LEVELS:
        raise BadRequest(f"no such level: {cut_name(request.level)!r}; use {', '.join(IRC_LEVELS)}")
    _check_channel(request.channel)
    channel = fold_channel(request.channel)
    return await _set_for_channel(
        context,
        caller,
        VERBOSITY_KEY,
        request.level,
        channel,
        lambda rows: read_irc_level(rows, channel),
        key,
    )


async def set_topic(context: Context, caller: Caller, request: SetTopic, key: bytes | None) -> Written:
    """Write the topic of an IRC channel; nothing if it has that topic already.

    For each caller that may write in the channel. In the channel of a room these are its members and persons.
    """
    _check_channel(request.channel)
    check_text(request.text, "the topic", LIMIT_TOPIC_BYTES)
    if _LINE_PARTS.search(request.text):
        raise BadRequest("a topic is one line: remove its tabs and line ends")
    channel = fold_channel(request.channel)

    # Inside the commit, so that the topic of a room that is closed meanwhile does not change.
    def read(rows: Rows) -> str:
        if (room := read_room(rows, channel[1:])) is not None:
            check_writer(room, caller)
        known = read_irc_topic(rows, channel)
        return "" if known is None else known.text

    return await _set_for_channel(context, caller, TOPIC_KEY, request.text, channel, read, key)


async def _set_for_channel(
    context: Context,
    caller: Caller,
    name: str,
    value: str,
    channel: str,
    read: Callable[[Rows], str],
    key: bytes | None,
) -> Written:
    """Write a setting of an IRC channel; nothing if it has that value. `read` returns the old value."""
    id_, ts = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        old = read(rows)
        if old == value:
            return None
        payload: dict[str, object] = {"key": name, "value": value, "old": old, "channel": channel}
        return Draft(type=SETTING, sender=caller.name, payload=payload, id=id_, ts=ts, by=caller.by)

    return Written(event=(await context.log.commit(f"irc/{channel}", decide, request_key=key)).event)


# --------------------
# Pause an agent, and record input at its terminal. Types nothing itself: its holder does.


async def pause(context: Context, caller: Caller, request: Pause, key: bytes | None) -> Written:
    """Write that an agent gets interrupts only; nothing if it is paused already."""
    return await _set_paused(context, caller, request.name, key, is_paused=True)


async def unpause(context: Context, caller: Caller, request: Unpause, key: bytes | None) -> Written:
    """Write that an agent gets its messages again; nothing if it is not paused."""
    return await _set_paused(context, caller, request.name, key, is_paused=False)


async def _set_paused(
    context: Context, caller: Caller, name: str, key: bytes | None, *, is_paused: bool
) -> Written:
    agent = _known(context, name)
    draft = Draft(
        type=PAUSED if is_paused else UNPAUSED,
        sender=caller.name,
        payload={"agent": agent.name},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )

    def decide(rows: Rows) -> Draft | None:
        known = read_agent(rows, agent.name)
        return draft if known is not None and known.paused != is_paused else None

    return Written(event=(await context.log.commit(f"agent/{agent.name}", decide, request_key=key)).event)


async def record_typed(context: Context, caller: Caller, request: Typed, key: bytes | None) -> Written:
    """Write what a person typed at an agent's terminal. The door has checked that its holder reports it.

    Of a secret, only the number of its characters is stored.
    """
    if request.text and request.secret:
        raise BadRequest("report either the typed text, or the number of characters of a secret")
    check_text(request.text, "the typed text")
    payload: dict[str, object] = {"action": TYPED, "agent": request.name, "text": request.text}
    if request.secret:
        payload |= {"text": secret_text(request.secret), "secret": request.secret}
    draft = Draft(
        type=LIFE,
        sender=request.name,
        payload=payload,
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=HUMAN,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)
