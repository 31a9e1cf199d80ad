"""Attacks on the IRC door by clients: rights, forged proofs, control characters, and stalling."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.doors.irc.door_stage import IrcStage, Timers, opened_irc, shown
from tests.fakes import FakeClock

from palaver.doors.irc.connection import Client, IrcLimits
from palaver.doors.irc.irc_wire import TooLong
from palaver.protocol.events import State
from palaver.protocol.query import Query

MULTILINE = ("batch", "draft/multiline", "message-tags")


@pytest.fixture
async def irc(tmp_path: Path) -> AsyncIterator[IrcStage]:
    """An open door with guests, without a limit of lines."""
    async with opened_irc(tmp_path) as stage:
        yield stage


# --------------------
# Rights


@pytest.mark.parametrize("command", ["NOTICE", "PRIVMSG"])
async def test_guest_that_may_only_read_writes_no_batch(irc: IrcStage, command: str) -> None:
    """Promise: with `irc_guests=read` a guest writes nothing, also not in a multiline batch."""
    irc.change(irc_guests="read")
    eve, bob = await irc.guest("eve", *MULTILINE), await irc.guest("bob")
    await eve.ask("JOIN #general")
    await bob.ask("JOIN #general")

    await eve.ask("BATCH +1 draft/multiline #general", f"@batch=1 {command} #general :hello", "BATCH -1")

    assert shown(await bob.ask()) == []


# --------------------
# Names


@pytest.mark.parametrize("nick", ["luna|BOXE", "Luna|x", "iuna|boxe", "nova", "n0va"])
async def test_guest_is_no_other_instance_of_an_agent(irc: IrcStage, nick: str) -> None:
    """Promise: no guest looks like an agent, also not like the same agent on another machine."""
    await irc.agent("luna")
    await irc.agent("api-nova")
    eve = await irc.connect()

    eve.send(f"NICK {nick}", "USER eve 0 * :eve")

    assert (await eve.until("376", "433"))[-1].command == "433"


# --------------------
# Control characters

UNSAFE = "a\x1b]0;t\x07 \x9b31m \x7f \u202e b"


@pytest.mark.parametrize("target", ["#general", "bob"])
async def test_notice_carries_no_terminal_code(irc: IrcStage, target: str) -> None:
    """Promise: no text of a client becomes a terminal code or turns the direction of another's text."""
    eve, bob = await irc.guest("eve", *MULTILINE), await irc.guest("bob")
    await eve.ask("JOIN #general")
    await bob.ask("JOIN #general")

    await eve.ask(f"NOTICE {target} :{UNSAFE}")
    await eve.ask(f"BATCH +1 draft/multiline {target}", f"@batch=1 NOTICE {target} :{UNSAFE}", "BATCH -1")

    texts = [line.params[-1] for line in await bob.ask() if line.command == "NOTICE"]
    assert len(texts) == 2
    assert not set("".join(texts)) & set("\x1b\x07\x9b\x7f\u202e")


async def test_tag_of_a_client_carries_no_terminal_code(irc: IrcStage) -> None:
    """Promise: the same for the tags of clients, which reactions are shown from."""
    eve, bob = await irc.guest("eve", "message-tags"), await irc.guest("bob", "message-tags")
    await eve.ask("JOIN #general")
    await bob.ask("JOIN #general")

    await eve.ask(f"@+draft/react={UNSAFE.replace(' ', '').replace(';', '')} TAGMSG #general")
    await eve.ask(f"@+draft/react={UNSAFE.replace(' ', '').replace(';', '')} PRIVMSG #general :hello")

    found = [line.tags["+draft/react"] for line in await bob.ask() if "+draft/react" in line.tags]
    assert len(found) == 2
    assert not set("".join(found)) & set("\x1b\x07\x9b\x7f\u202e")


# --------------------
# The proof that a message was read


async def test_guessed_pong_proves_nothing(irc: IrcStage) -> None:
    """Promise: a message counts as read only if the client has read the PING after it."""
    luna, bob = await irc.program("luna"), await irc.guest("bob", "echo-message")
    luna.send(*(f"PONG :pal-{number}" for number in range(1, 20)))
    await luna.ask()
    echo = (await bob.ask("PRIVMSG luna :hello"))[-1]
    assert echo.command == "PRIVMSG"
    lines = await luna.until("PING")

    await luna.ask(*(f"PONG :pal-{number}" for number in range(1, 20)))

    (event,) = [one for one in await irc.bus.log.read(Query()) if one.payload.get("text") == "hello"]
    assert irc.bus.state(event, "luna") != State.SEEN
    await luna.ask(f"PONG :{lines[-1].params[-1]}")
    while irc.bus.state(event, "luna") != State.SEEN:
        await luna.ask()


# --------------------
# Stalling


async def test_client_that_closes_one_way_and_never_reads_keeps_no_place(irc: IrcStage) -> None:
    """Promise: a connection of a client that does not read is cut a few seconds after its end."""
    loop = asyncio.get_running_loop()
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        lazy.setblocking(False)
        await loop.sock_connect(lazy, irc.address)
        await loop.sock_sendall(lazy, b"NICK lazy\r\nUSER lazy 0 * :lazy\r\n")
        bob = await irc.guest("bob")
        while ("303", "bob", "lazy") not in shown(await bob.ask("ISON lazy")):
            pass
        (client,) = irc.door._listening.hub.by_nick("lazy")  # type: ignore[union-attr]  # it is open
        while client._transport is None or not client._transport.get_write_buffer_size():
            await loop.sock_sendall(lazy, b"PING " + b"x" * 400 + b"\r\n")
            await bob.ask()

        lazy.shutdown(socket.SHUT_WR)
        while not client.is_ended:
            await bob.ask()
        irc.timers.advance(irc.door._limits.close_s)  # type: ignore[union-attr]  # the stage has set them
        async with asyncio.timeout(30):
            while client in irc.door._listening._sessions:  # type: ignore[union-attr]  # it is open
                await bob.ask()


@pytest.mark.parametrize("line", [" ", ":", "@", "@a=b", ":a"])
async def test_lines_without_a_command_count(tmp_path: Path, line: str) -> None:
    """Promise: after 20 lines the door reads 4 a second, also before a login and whatever the lines are."""
    async with opened_irc(tmp_path, IrcLimits()) as irc:
        eve = await irc.connect()
        irc.timers.advance(0)
        eve.send(*([line] * 30), "PING end")
        reading = asyncio.create_task(eve.next())

        waits = 0
        while not reading.done():
            flood = [moment_s for moment_s in irc.timers.open if moment_s < irc.bus.clock.monotonic_s() + 1]
            if flood:
                waits += 1
                irc.timers.advance(flood[0] - irc.bus.clock.monotonic_s())
            await asyncio.sleep(0)

        assert reading.result().command == "PONG"
        assert waits >= 10


async def test_many_lines_leave_time_for_others() -> None:
    """Promise: a client that sends many lines at once delays only itself."""
    clock = FakeClock()
    client = Client(
        id="x", clock=clock, call_later=Timers(clock).call_later, limits=IrcLimits(), is_local=True
    )
    reader, handled, most = asyncio.StreamReader(), 0, 0
    reader.feed_data(b"x\n" * 20_000)
    reader.feed_eof()

    async def handle(line: bytes | TooLong) -> None:
        nonlocal handled
        handled += 1

    reading = asyncio.create_task(client._read_all(reader, handle))
    while not reading.done():
        before = handled
        await asyncio.sleep(0)
        most = max(most, handled - before)

    assert handled == 20_000
    assert most <= 100
