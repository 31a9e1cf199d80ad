"""One connection: its limits, its input byte by byte, its end, and clients that do not read."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doors.irc.door_stage import MANY_LINES, IrcStage, Timers, commands, opened_irc, shown
from tests.fakes import FakeClock

from palaver.doors.irc.connection import Client, FloodMeter, IrcLimits
from palaver.doors.irc.irc_wire import Line

# --------------------
# Floods


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60))
def test_flood_meter_allows_a_burst_and_then_a_rate(waits_s: list[float]) -> None:
    meter = FloodMeter(at_once=20, a_second=4)
    now_s, read_s = 0.0, []
    for wait_s in waits_s:
        now_s += wait_s
        now_s += meter.take(now_s)
        read_s.append(now_s)

    for first in range(len(read_s)):
        for last in range(first, len(read_s)):
            span_s = read_s[last] - read_s[first]
            assert last - first + 1 <= 20 + span_s * 4 + 1e-6


def test_flood_meter_lets_twenty_lines_pass_at_once() -> None:
    meter = FloodMeter(at_once=20, a_second=4)

    assert [meter.take(5.0) for _ in range(22)] == [0.0] * 20 + [0.25, 0.5]


async def test_fast_lines_wait_and_none_is_lost(tmp_path: Path) -> None:
    async with opened_irc(tmp_path, IrcLimits()) as irc:
        bob = await irc.guest("bob")
        bob.send(*(f"PING {number}" for number in range(60)))

        first = await bob.until_params("PONG", "15")
        while True:
            irc.timers.advance(0.25)
            if (line := await bob.next()).params[-1] == "59":
                break
            first.append(line)

        assert [line.params[-1] for line in first] == [str(number) for number in range(59)]


async def test_multiline_batch_counts_as_one_line(tmp_path: Path) -> None:
    async with opened_irc(tmp_path, IrcLimits()) as irc:
        bob = await irc.guest("bob", "draft/multiline", "batch", "message-tags", "echo-message")
        irc.timers.advance(10)
        await bob.ask("JOIN #a")
        text = [f"@batch=1 PRIVMSG #a :line {number}" for number in range(240)]

        lines = await bob.ask("BATCH +1 draft/multiline #a", *text, "BATCH -1")

        assert [line.params[-1] for line in lines[1:-1]] == [f"line {number}" for number in range(240)]


# --------------------
# Input


async def test_lines_may_come_in_pieces_and_with_any_end(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    for piece in (b"PI", b"NG a\r", b"\nPING b\nPING c\rPI", b"NG d", b"\r\n\r\n \r\n"):
        bob.write(piece)
        await bob.writer.drain()

    lines = await bob.until_params("PONG", "d")

    assert [line.params[-1] for line in lines] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"PRIVMSG #a :\xff\r\n", ("FAIL", "PRIVMSG", "INVALID_UTF8")),
        (b"JOIN #\xc3\r\n", ("FAIL", "JOIN", "INVALID_UTF8")),
        (b"PRIVMSG #a :x\0y\r\n", ("FAIL", "PRIVMSG", "BAD_CHARACTER")),
        (b"PRIVMSG #a :" + b"x" * 500 + b"\r\n", ("417", "bob")),
        (b"@" + b"a" * 8190 + b" PING x\r\n", ("417", "bob")),
        (b"@+a=" + b"a" * 4092 + b" PING x\r\n", ("417", "bob")),
        (b"x" * 100_000 + b"\r\n", ("417", "bob")),
        (b"FOO\r\n", ("421", "bob", "FOO")),
        (b"\x1b[31m\r\n", ("421", "bob")),
        (b"123\r\n", ("421", "bob", "123")),
        (b":bob!b@c JOIN :\r\n", ("403", "bob", "*")),
        (b"JOIN\r\n", ("461", "bob", "JOIN")),
    ],
)
async def test_bad_line_gets_one_reply_and_the_connection_stays(
    irc: IrcStage, data: bytes, reply: tuple[str, ...]
) -> None:
    bob = await irc.guest("bob")
    bob.write(data)

    (line,) = await bob.ask()

    assert (line.command, *line.params)[: len(reply)] == reply
    assert "\x1b" not in "".join(line.params)


@pytest.mark.parametrize("data", [b"\r\n", b"   \r\n", b":x\r\n", b"@a=b\r\n", b"@\r\n", b"@a :b\r\n"])
async def test_line_without_a_command_is_ignored(irc: IrcStage, data: bytes) -> None:
    bob = await irc.guest("bob")
    bob.write(data)

    assert await bob.ask() == []


async def test_tags_up_to_the_limit_are_read(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "message-tags", "echo-message")
    await bob.ask("JOIN #a")

    value = "x" * (4096 - len("@+a= "))
    (line,) = await bob.ask(f"@+a={value} TAGMSG #a")

    assert line.tags["+a"] == value


async def test_tags_that_become_too_long_are_left_out(irc: IrcStage) -> None:
    caps = ("message-tags", "echo-message", "labeled-response", "batch")
    ann, bob = await irc.guest("ann", *caps), await irc.guest("bob", *caps)
    await ann.ask("JOIN #a")
    await bob.ask("JOIN #a")
    value = "\x01" * 4_000  # each of them becomes a visible character of 3 bytes

    lines = await bob.ask(f"@label=x;+a={value} PRIVMSG #a :hello", f"@label=y;+a={value} TAGMSG #a")

    assert [(line.command, line.tags["label"], "+a" in line.tags) for line in lines] == [
        ("PRIVMSG", "x", False),
        ("TAGMSG", "y", False),
    ]
    assert [line.command for line in await ann.ask()][-2:] == ["PRIVMSG", "TAGMSG"]


async def test_line_that_cannot_be_sent_is_replaced_by_an_error(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "message-tags")
    assert irc.door._listening is not None
    (client,) = irc.door._listening.hub.by_nick("bob")

    client.push(Line(command="NOTICE", params=("bob", "x"), tags={"+a": "x" * 9_000}))

    (line,) = await bob.ask()
    assert line.params[:2] == ("*", "INTERNAL_ERROR")


@given(st.binary(max_size=200))
def test_no_bytes_make_the_door_fail(data: bytes) -> None:
    """Bytes that are not registered clients' lines get replies, and nothing is logged as a failure."""
    clock = FakeClock()

    async def run() -> None:
        client = Client(
            id="x", clock=clock, call_later=Timers(clock).call_later, limits=MANY_LINES, is_local=True
        )
        client.numeric("421", data.decode("latin-1"))
        client.fail("X", "Y", data.decode("latin-1"), text=data.decode("latin-1"))
        client.end(data.decode("latin-1"))

    asyncio.run(run())


# --------------------
# Registration and idle clients


async def test_client_must_register_in_time(tmp_path: Path) -> None:
    async with opened_irc(tmp_path) as irc:
        bob = await irc.connect()
        await bob.ask("NICK bob")

        irc.timers.advance(15)
        lines = await bob.rest()

        assert shown(lines) == [("ERROR", "Closing link: you did not register within 15 seconds")]


async def test_idle_client_is_pinged_and_dead_one_ends(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #a")
    await bob.ask("JOIN #a")
    await ann.ask()

    irc.timers.advance(15)
    irc.timers.advance(120)
    asked = await ann.until("PING")
    await ann.ask("PONG pal")
    irc.timers.advance(120)
    irc.timers.advance(1)
    lines = await bob.rest()

    assert asked[-1].params == ("pal",)
    assert commands(lines) == ["PING", "ERROR"]
    assert (await ann.until("QUIT"))[-1].params[0].startswith("ping timeout")


async def test_client_that_sends_is_not_pinged(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    irc.timers.advance(15)

    for _ in range(10):
        irc.timers.advance(60)
        assert await bob.ask() == []


async def test_pong_proves_what_was_read(irc: IrcStage) -> None:
    clock = FakeClock()
    client = Client(
        id="x", clock=clock, call_later=Timers(clock).call_later, limits=MANY_LINES, is_local=True
    )
    read: list[str] = []
    sent: list[Line] = []
    client.push = sent.append  # type: ignore[method-assign, assignment]
    client.ping(lambda: read.append("one"))
    client.ping(lambda: read.append("two"))
    one, two = (line.params[0] for line in sent)

    for token in (two, "pal-9", two, one):
        client.ponged(token)

    assert read == ["two", "one"]


# --------------------
# Its end


async def test_ended_token_ends_its_connections_at_once(irc: IrcStage) -> None:
    luna, bob = await irc.program("luna"), await irc.guest("bob")
    (token,) = [one for one in irc.tokens.all() if one.name == "luna"]

    await irc.tokens.revoke({token.id})
    lines = await luna.rest()

    assert lines[-1].command == "ERROR"
    assert "your token has ended" in lines[-1].params[0]
    assert await bob.ask() == []


async def test_token_ends_at_its_time(irc: IrcStage) -> None:
    await irc.agent("luna")
    expires_ms = irc.clock.now_ms() + 100_000_000
    secret, _ = await irc.tokens.create("luna", standing="worker", by="human", expires_ms=expires_ms)
    luna = await irc.connect()
    await luna.log_in("luna", secret)

    # The client answers every ping on the way.
    while irc.clock.now_ms() < expires_ms - 60_000:
        irc.timers.advance(60)
        await luna.ask()
    irc.timers.advance(60)

    assert "your token has ended" in (await luna.rest())[-1].params[0]


async def test_guests_end_when_the_setting_changes(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    irc.change(irc_guests="off")

    assert "guests" in (await bob.rest())[-1].params[0]


async def test_guest_ends_when_an_agent_gets_its_name(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    await irc.token("bob")

    assert (await bob.rest())[-1].command == "ERROR"


async def test_client_that_does_not_read_gets_an_error(tmp_path: Path) -> None:
    limits = IrcLimits(lines_at_once=100_000, waiting_bytes=200_000)
    async with opened_irc(tmp_path, limits) as irc:
        deaf, bob = await irc.guest("deaf"), await irc.guest("bob", "echo-message")
        await deaf.ask("JOIN #a")
        await bob.ask("JOIN #a")
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport of a socket reads
        sent = 0
        seen: list[Line] = []
        while not any(line.command == "QUIT" for line in seen):
            sent += 20
            seen = await bob.ask(*[f"NOTICE #a :{sent} {'x' * 400}"] * 20)
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]

        lines = await deaf.rest()

        assert lines[-1].command == "ERROR"
        assert "CHATHISTORY" in lines[-1].params[0]
        assert irc.metrics.doors == ["irc"]
        received = [line.params[1] for line in lines if line.command == "NOTICE"]
        assert received == sorted(received, key=lambda text: int(text.split()[0]))


async def test_client_that_never_reads_is_cut(tmp_path: Path) -> None:
    limits = IrcLimits(lines_at_once=100_000, waiting_bytes=200_000)
    async with opened_irc(tmp_path, limits) as irc:
        deaf, bob = await irc.guest("deaf"), await irc.guest("bob")
        await deaf.ask("JOIN #a")
        await bob.ask("JOIN #a")
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not any(line.command == "QUIT" for line in await bob.ask(*[f"NOTICE #a :{'x' * 400}"] * 20)):
            pass

        irc.timers.advance(5)
        lines = await bob.ask("LUSERS")

        assert lines[-1].params[-1] == "I have 1 clients and 0 servers"


async def test_commands_of_a_client_that_does_not_read_wait(tmp_path: Path) -> None:
    limits = IrcLimits(lines_at_once=1_000_000, waiting_bytes=100_000)
    async with opened_irc(tmp_path, limits) as irc:
        bob = await irc.guest("bob")
        bob.writer.transport.pause_reading()  # type: ignore[attr-defined]
        bob.send(*["LUSERS"] * 20_000)
        ann = await irc.guest("ann")
        await ann.ask("TIME")
        bob.writer.transport.resume_reading()  # type: ignore[attr-defined]

        lines = await bob.ask()

        assert commands(lines).count("255") == 20_000
