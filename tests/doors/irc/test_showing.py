"""Events of the bus become lines: texts and notices for people, envelopes for programs."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.doors.irc.stage import ALL_CAPS, Recorded, Stage, opened_stage, token
from tests.fakes import HUMAN, LIMIT_A_MINUTE

from palaver.broker.context import Seated
from palaver.doors.irc.irc_wire import Line, format_line, join_exactly, parse_line
from palaver.doors.irc.showing import (
    CONCAT,
    LIMIT_LINES,
    LIMIT_NOTICE,
    MULTILINE,
    TOO_LONG,
    envelope_message,
    notice_line,
    notice_of,
    tags_of,
    text_message,
)
from palaver.errors import RateLimited
from palaver.identity.accounts import Account
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import BODIES, Grade
from palaver.protocol.paths import SubscribePath
from palaver.protocol.requests import Acknowledge, JoinRoom, Leave, Put, Release, SetStatus

NONE: frozenset[str] = frozenset()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path) as made:
        yield made


def message(text: str, **fields: object) -> Event:
    payload = {"text": text, "scope": "mentions", "delivered_to": ["luna"], "sender_kind": "human", **fields}
    return Event(seq=42, type="message", id="01HX", sender="human", to=("@luna",), ts=0, payload=payload)


def foreign(payload: dict[str, object], **fields: Any) -> Event:
    made: dict[str, Any] = {"seq": 7, "type": "my.type", "id": "e1", "sender": "nova", "payload": payload}
    return Event(**(made | fields))


def as_text(event: Event, caps: frozenset[str] = NONE, target: str = "#general") -> list[Line]:
    made = text_message(event, source="luna!luna@palaver", target=target, caps=caps, tags=tags_of(event))
    return list(made.lines)


def as_envelope(
    event: Event, caps: frozenset[str] = NONE, target: str = "#general"
) -> tuple[list[Line], bool]:
    made = envelope_message(
        event, source="n!n@palaver", target=target, name="luna", caps=caps, tags=tags_of(event)
    )
    return list(made.lines), made.is_batch


# No body can be anything but text

bodies = st.text(max_size=300) | st.text(st.sampled_from("\r\n\0\x01 ab:"), max_size=60)


@given(body=bodies, caps=st.sampled_from([NONE, ALL_CAPS]))
@example(body="a\r\nQUIT :bye", caps=NONE)
@example(body="\x01ACTION waves\x01", caps=NONE)
@example(body="\x01DCC SEND x\x01", caps=ALL_CAPS)
@example(body=":x PRIVMSG #a :b", caps=NONE)
@example(body="", caps=NONE)
def test_no_body_becomes_a_command_or_ctcp(body: str, caps: frozenset[str]) -> None:
    for event in (message(body), foreign({"x": body})):
        lines = [*as_text(event, caps), *as_envelope(event, caps)[0]]
        for line in lines:
            data = format_line(line)
            parsed = parse_line(data)
            assert (parsed.command, parsed.params[0]) == ("PRIVMSG", "#general")
            assert not parsed.params[1].startswith("\x01")
            assert not {"\r", "\n", "\0", "\x01"} & set(parsed.params[1])


@given(body=bodies)
def test_multiline_text_is_whole_for_people(body: str) -> None:
    event = message(body)
    made = text_message(
        event, source="luna!luna@palaver", target="#general", caps=ALL_CAPS, tags=tags_of(event)
    )
    if not made.is_batch:
        assert len(made.lines) == 1
        return

    text = join_exactly([(line.params[1], CONCAT in line.tags) for line in made.lines])

    plain = text_message(event, source="s", target="#g", caps=ALL_CAPS, tags={})
    assert text == join_exactly([(line.params[1], CONCAT in line.tags) for line in plain.lines])


@given(text=st.text(max_size=2000), key=st.text(min_size=1, max_size=5))
def test_envelope_is_equal_after_multiline(text: str, key: str) -> None:
    event = foreign({key: text}, to=("@workers",), ts=5)
    lines, is_batch = as_envelope(event, ALL_CAPS)

    read = Draft.from_json(join_exactly([(line.params[1], CONCAT in line.tags) for line in lines]))

    assert is_batch or len(lines) == 1
    assert (read.type, read.id, read.sender, read.to, read.ts, read.payload) == (
        "my.type",
        "e1",
        "nova",
        ("@workers",),
        5,
        {key: text},
    )


def test_person_without_multiline_gets_at_most_twenty_lines() -> None:
    lines = as_text(message("word " * 5000))

    assert len(lines) == LIMIT_LINES + 1
    assert lines[-1].params[1] == "… pal show 42"
    assert all(len(line.params[1].encode()) <= 400 for line in lines)
    assert {line.params[1].strip("word ") for line in lines[:-1]} == {""}
    assert [line.tags.get("msgid", "") for line in lines][:2] == ["01HX", ""]


def test_program_without_multiline_gets_the_size_of_a_long_envelope() -> None:
    event = foreign({"text": "x" * 1000}, to=tuple(f"agent{number}" for number in range(99)))

    (line,), is_batch = as_envelope(event)

    read = Draft.from_json(line.params[1])
    assert not is_batch
    assert read.id == "e1"
    assert read.payload[TOO_LONG] == len(as_json(event).encode())
    assert len(format_line(line).partition(b" :")[2]) < 512


@pytest.mark.parametrize(("type", "id"), [("t" * 256, "e1"), ("t" * 256, "i" * 600)])
def test_every_long_envelope_has_a_short_form(type: str, id: str) -> None:
    (line,), _ = as_envelope(foreign({"text": "x" * 1000}, type=type, id=id))

    assert TOO_LONG in json.loads(line.params[1])["payload"]


def as_json(event: Event) -> str:
    return join_exactly([(line.params[1], CONCAT in line.tags) for line in as_envelope(event, ALL_CAPS)[0]])


def test_program_gets_only_the_fields_of_the_sender() -> None:
    (line,), _ = as_envelope(message("hi", thread="pr-1", channel="#general", chain="x", hops=1))

    read = json.loads(line.params[1])
    assert read["payload"] == {"text": "hi", "thread": "pr-1", "channel": "#general"}
    assert (read["v"], read["type"], read["from"], read["to"]) == (1, "message", "human", ["@luna"])


def test_channel_is_no_part_of_the_recipients() -> None:
    (line,), _ = as_envelope(foreign({}, to=("irc/local/#dev",)))

    assert json.loads(line.params[1]) == {"v": 1, "type": "my.type", "id": "e1", "from": "nova", "ts": 0}


# Who sees what


async def test_each_person_sees_a_message_where_it_belongs(stage: Stage) -> None:
    luna, _ = await stage.bus.join("luna"), await stage.bus.join("nova")
    watcher = stage.guest("bob", "#agent-luna", "#agent-nova", "#general")
    person = stage.person("#general")

    await stage.send(luna, "to nova", "@nova")
    await stage.send(luna, "for you", "@human")
    await stage.send(luna, "to all", "@all")
    await stage.send(luna, "in it", "@nova", thread="pr-1")

    assert person.said == [("human", "for you"), ("#general", "to all")]
    assert watcher.said == [
        ("#agent-luna", "→ nova: to nova"),
        ("#agent-nova", "to nova"),
        ("#agent-luna", "for you"),
        ("#general", "to all"),
        ("#agent-luna", "to all"),
        ("#agent-nova", "to all"),
        ("#agent-luna", "→ nova: in it"),
        ("#agent-nova", "in it"),
    ]


async def test_thread_and_room_have_their_channels(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    seated = await stage.broker.submit(luna, JoinRoom(workspaces=("/repo/app",)))
    assert isinstance(seated, Seated)
    room = f"#{seated.room.id}"
    client = stage.person("#thread-^p^r+7", room)

    await stage.send(luna, "one", "@human", thread="PR 7")
    await stage.send(luna, "two", room)

    assert client.said == [("#thread-^p^r+7", "one"), (room, "two")]


async def test_program_gets_each_message_once_as_an_envelope(stage: Stage) -> None:
    luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
    program = stage.program(nova, "#general", "#agent-luna")

    event = await stage.send(luna, "to all", "@all")
    await stage.until(lambda: len(program.said) == 1)
    await stage.send(luna, "to the person", "@human")

    assert [target for target, _ in program.said] == ["#general", "#agent-luna"]
    assert [json.loads(text)["payload"]["text"] for _, text in program.said] == ["to all", "to the person"]
    assert json.loads(program.said[0][1])["id"] == event.id
    assert program.told == []


async def test_mail_is_acknowledged_when_the_client_has_read_it(stage: Stage) -> None:
    luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
    first = stage.program(nova, caps=NONE)
    event = await stage.send(luna, "hello", "@nova")
    await stage.until(lambda: bool(first.of("PING")))

    stage.hub.quit(first, "lost")
    assert stage.bus.state(event, "nova") != "seen"
    second = stage.program(nova, caps=NONE)
    await stage.until(lambda: bool(second.of("PING")))
    second.pong()
    await stage.until_stored(lambda: stage.bus.state(event, "nova") == "seen")

    assert [target for target, _ in second.said] == ["nova"]
    assert json.loads(second.said[0][1])["payload"]["text"] == "hello"


async def test_subscribed_program_does_not_get_its_own_message(stage: Stage) -> None:
    nova, luna = await stage.bus.join("nova"), await stage.bus.join("luna")
    await stage.broker.submit(nova, SubscribePath(agent="nova", pattern="irc/local/#dev"))
    program = stage.program(nova, "#dev", caps=NONE)

    await stage.speak(program, "#dev", "mine")
    await stage.until(lambda: len(program.of("PING")) == 1)
    await stage.send(luna, "of another", "irc/local/#dev")
    await stage.until(lambda: len(program.of("PING")) == 2)

    assert [json.loads(text)["payload"]["text"] for _, text in program.said] == ["of another"]


async def test_registered_person_gets_mail_as_text(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    await stage.bus.join("bob", is_here=False)
    bob = Caller(name="bob", standing=Standing.GUEST, kind="human")
    client = stage.add("bob", Account(name="bob", caller=bob, token=token("bob")), "#general")
    event = await stage.send(luna, "hello bob", "@bob")
    await stage.until(lambda: bool(client.of("PING")))

    client.pong()
    await stage.until_stored(lambda: stage.bus.state(event, "bob") == "seen")

    assert client.said == [("bob", "hello bob")]


async def test_message_that_a_brake_holds_is_shown_when_released(stage: Stage) -> None:
    luna = replace(await stage.bus.join("luna"), harness="claude")
    await stage.bus.join("nova")
    await stage.bus.join("mila")
    client = stage.person("#general")
    for number in range(LIMIT_A_MINUTE):
        await stage.send(luna, f"text {number}", "@all")
    with pytest.raises(RateLimited) as held:
        await stage.send(luna, "too many", "@all")
    shown = list(client.said)

    await stage.broker.submit(HUMAN, Release(message=str(held.value.message)))

    assert ("#general", "too many") not in shown
    assert client.said[len(shown) :] == [("#general", "too many")]


async def test_envelope_is_shown_to_people_as_a_text(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    client = stage.person("#general")
    draft = Draft(type="my.deploy", id="e1", sender="nova", payload={"to": "prod"})

    await stage.broker.submit(nova, Put(envelope=draft))

    assert client.said == [("#general", 'my.deploy {"to":"prod"}')]


async def test_clients_that_do_not_see_an_event_cost_nothing(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    others = [stage.guest(f"g{number}", "#elsewhere") for number in range(20)]
    for other in others:
        other.lines.clear()

    await stage.send(luna, "to all", "@all")

    assert [other.lines for other in others] == [[]] * 20


async def test_unreadable_event_stops_no_other(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general")
    broken = client.push
    client.push = lambda line: 1 / 0  # type: ignore[assignment, method-assign]  # a mistake in a client

    await stage.send(luna, "one", "@all")
    client.push = broken  # type: ignore[method-assign]
    await stage.send(luna, "two", "@all")

    assert client.said == [("#general", "two")]
    assert "could not be shown" in caplog.text


# Notices


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("minimal", ["luna is blocked: asks"]),
        ("actions", ["luna › bash: go test ./...", "luna › edit /api/chat.go", "luna is blocked: asks"]),
        (
            "debug",
            [
                "luna › bash: go test ./...",
                "luna › edit /api/chat.go",
                "luna is blocked: asks",
                "luna is idle",
            ],
        ),
    ],
)
async def test_level_of_a_channel_selects_notices(stage: Stage, level: str, expected: list[str]) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general", caps=NONE)
    stage.level = level

    active = {"state": "active"}
    await stage.broker.submit(luna, SetStatus(**active, tool="Bash", command="cd /repo && go test ./..."))
    await stage.broker.submit(luna, SetStatus(**active, tool="Edit", file="/api/chat.go"))
    await stage.broker.submit(luna, SetStatus(state="blocked", detail="asks"))
    await stage.broker.submit(luna, SetStatus(state="idle"))

    assert client.told == expected
    assert {line.source for line in client.of("NOTICE")} == {"pal"}


async def test_joins_leaves_and_deliveries_are_notices(stage: Stage) -> None:
    client = stage.person("#general", "#agent-luna", caps=NONE)

    luna = await stage.bus.join("luna", harness="claude")
    event = await stage.send(HUMAN, "hi", "@luna")
    await stage.broker.submit(luna, Acknowledge(messages=(event.seq,), lane="recv", grade=Grade.ACKED))
    await stage.broker.submit(luna, Leave())

    notices = [(line.params[0], line.params[1]) for line in client.of("NOTICE")]
    assert ("#general", "luna joined (claude)") in notices
    assert ("#agent-luna", f"#{event.seq} for luna: seen (recv acked)") in notices
    assert not any(target == "#general" and "seen" in text for target, text in notices)
    assert ("#general", "luna left: left") in notices


async def test_programs_get_hellos_and_byes_and_no_notices(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    program = stage.program(nova, "#general")
    stage.level = "debug"

    luna = await stage.bus.join("luna")
    await stage.broker.submit(luna, SetStatus(state="active", tool="Bash", command="ls"))

    (hello,) = [json.loads(text) for _, text in program.said]
    assert (hello["type"], hello["from"], hello.get("payload", {})) == ("agent.hello", "luna", {})
    assert program.told == []


@given(text=st.text(max_size=400))
def test_notice_is_one_short_line_and_never_json(text: str) -> None:
    line = notice_line(f"luna › bash: {text}")

    assert len(line) <= LIMIT_NOTICE
    assert not {"\r", "\n", "\0", "\x01", "\x1b"} & set(line)
    assert line.startswith("luna")


def test_notice_has_no_secrets() -> None:
    event = Event(
        seq=1,
        type="status",
        id="s",
        sender="luna",
        payload={
            "state": "active",
            "tool": "Bash",
            "command": "curl -H 'Authorization: Bearer abcdef123456'",
        },
    )

    notice = notice_of(event)

    assert notice is not None
    assert "abcdef123456" not in notice_line(notice.text)


@pytest.mark.parametrize("type", sorted(BODIES))
def test_no_event_of_any_type_fails(type: str) -> None:
    for payload in ({}, {"room": "r", "turn_id": 1, "reason": "x", "note": "n", "text": "t"}):
        event = Event(seq=1, type=type, id="x", sender="luna", payload=dict(payload))
        notice = notice_of(event)
        assert notice is None or notice_line(notice.text)


def recorded_batches(client: Recorded) -> list[Line]:
    return [line for line in client.of("BATCH") if MULTILINE in line.params]


async def test_long_text_is_one_batch(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general")
    text = "三" * 30_000

    event = await stage.send(luna, text, "@human")

    (batch,) = recorded_batches(client)
    assert batch.params[1:] == (MULTILINE, "human")
    assert batch.tags["msgid"] == event.id
    lines = client.of("PRIVMSG")
    assert join_exactly([(line.params[1], CONCAT in line.tags) for line in lines]) == text
