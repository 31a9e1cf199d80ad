"""The connection with a fake daemon: order, repeats, refusals, endings."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.client.fake import FakeDaemon, FakePeer
from tests.limits import LIMIT_S

import palaver
from palaver.client.connection import RequestConnection
from palaver.client.wire import ReplyLine
from palaver.errors import BadText, Disconnected, DiskFull, MessageTooLarge, NameTaken, PalaverError
from palaver.protocol.lines import JoinOp, ListOp, SendOp

JOIN = JoinOp(name="luna", secret="s3cret")


class Heard:
    """Collects the callbacks of a connection."""

    def __init__(self) -> None:
        self.pushes: list[ReplyLine] = []
        self.reasons: list[PalaverError] = []
        self.is_broken = asyncio.Event()

    def on_broken(self, error: PalaverError) -> None:
        self.reasons.append(error)
        self.is_broken.set()


@asynccontextmanager
async def joined(
    fake: FakeDaemon, home: Path, heard: Heard
) -> AsyncIterator[tuple[RequestConnection, FakePeer]]:
    connection = RequestConnection(str(home), JOIN, heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(connection.open())
    peer = await fake.accept()
    await peer.welcome()
    await opening
    yield connection, peer
    await connection.close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


async def test_refused_join_raises_its_error_and_closes_the_connection(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())
    peer = await fake.accept()
    asked = await peer.next()

    peer.refuse(
        asked,
        "name_taken",
        "the name luna is taken: it is in use now",
        name="luna",
        reason="it is in use now",
    )

    with pytest.raises(NameTaken) as raised:
        await opening
    assert (raised.value.name, raised.value.reason) == ("luna", "it is in use now")
    assert await peer.at_end() == b""


async def test_cancelled_join_closes_the_connection(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())
    peer = await fake.accept()
    await peer.next()

    opening.cancel()

    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await peer.at_end() == b""


async def test_join_on_a_lost_connection_is_retried_with_the_same_secret(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    connection = RequestConnection(str(home), JOIN, heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(connection.open())
    first = await fake.accept()
    asked = await first.next()
    first.close()

    second = await fake.accept()
    again = await second.welcome()
    await opening

    assert asked["secret"] == again["secret"] == "s3cret"
    assert connection.joined.name == "luna"
    second.close()
    await connection.close()


async def test_join_is_given_up_when_the_daemon_is_lost_every_time(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())

    for _ in range(5):
        (await fake.accept()).close()

    with pytest.raises(Disconnected, match="the connection to the daemon was lost"):
        await opening


async def test_connection_that_fails_right_after_the_join_is_not_used(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    connection = RequestConnection(str(home), JOIN, heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(connection.open())
    peer = await fake.accept()
    asked = await peer.next()
    peer.say_raw(b'{"req":%d,"ok":{"name":"luna","device":"BOXE"}}\n!\n' % asked["req"])

    second = await fake.accept()
    await second.welcome()
    await opening

    answer = connection.ask(ListOp())
    second.answer(await second.next())
    await answer
    second.close()
    await connection.close()


async def test_unanswered_requests_are_repeated_in_order_after_the_join(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        answers = [connection.ask(SendOp(text=str(number), to=("nova",))) for number in range(4)]
        asked = [await peer.next() for _ in range(4)]
        peer.answer(asked[1], seq=2)
        await answers[1]
        peer.close()

        back = await fake.accept()
        await back.welcome()
        repeated = [await back.next() for _ in range(3)]
        for line in repeated:
            back.answer(line, seq=9)
        await asyncio.gather(*answers)

        assert [line["text"] for line in repeated] == ["0", "2", "3"]
        assert repeated == [asked[0], asked[2], asked[3]]
        back.close()


async def test_calls_without_a_daemon_follow_the_waiting_ones(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        answers = [connection.ask(SendOp(text="1"))]
        await peer.next()
        peer.close()
        back = await fake.accept()
        answers.append(connection.ask(SendOp(text="2")))  # the join is not answered yet

        await back.welcome()
        answers.append(connection.ask(SendOp(text="3")))
        lines = [await back.next() for _ in range(3)]

        assert [line["text"] for line in lines] == ["1", "2", "3"]
        for line in lines:
            back.answer(line)
        await asyncio.gather(*answers)
        back.close()


async def test_cancelled_call_is_not_repeated_and_its_result_is_dropped(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        cancelled, late = connection.ask(SendOp(text="cancelled")), connection.ask(SendOp(text="late"))
        first = await peer.next()
        cancelled.cancel()
        late.cancel()
        peer.answer(first, seq=1)
        peer.close()

        back = await fake.accept()
        await back.welcome()
        kept = connection.ask(SendOp(text="kept"))
        line = await back.next()
        back.answer(line, seq=2)
        await kept

        assert line["text"] == "kept"
        back.close()


async def test_request_refused_by_a_stopping_daemon_goes_to_the_next_one(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        answer = connection.ask(ListOp())
        peer.refuse(await peer.next(), "shutting_down", "the daemon is on its way out")
        peer.close()

        back = await fake.accept()
        await back.welcome()
        back.answer(await back.next(), agents=[])

        assert bytes(await answer) == b'{"agents": []}'
        back.close()


async def test_listening_restarts_with_every_connection(fake: FakeDaemon, home: Path, heard: Heard) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        connection.is_listening = True
        peer.close()

        back = await fake.accept()
        await back.welcome()

        assert (await back.next())["op"] == "listen"
        back.close()


async def test_assigned_full_name_is_requested_again(fake: FakeDaemon, home: Path, heard: Heard) -> None:
    connection = RequestConnection(
        str(home), JoinOp(tag="api", secret="x"), heard.pushes.append, heard.on_broken
    )
    opening = asyncio.ensure_future(connection.open())
    peer = await fake.accept()
    first = await peer.welcome("api-roto")
    await opening
    peer.close()

    again = await (await fake.accept()).welcome("api-roto")

    assert (first.get("name"), first["tag"]) == (None, "api")
    assert (again["name"], again.get("tag")) == ("api-roto", None)
    await connection.close()


async def test_lost_name_is_reported_and_may_be_requested_again(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        waiting = connection.ask(ListOp())
        await peer.next()
        peer.close()
        thief = await fake.accept()
        thief.refuse(await thief.next(), "name_taken", "it is taken", name="luna", reason="it is in use now")

        with pytest.raises(NameTaken):
            await waiting
        again = connection.ask(ListOp())
        back = await fake.accept()
        await back.welcome()
        back.answer(await back.next(), agents=[])
        await again

        assert [type(reason) for reason in heard.reasons] == [NameTaken]
        back.close()


async def test_return_that_fails_in_the_system_ends_the_waiting_calls(
    fake: FakeDaemon, home: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("palaver.client.wire._PAUSES_S", ())
    async with joined(fake, home, heard) as (connection, peer):
        waiting = connection.ask(ListOp())
        await peer.next()
        await fake.close()
        monkeypatch.setattr(os, "pipe", no_pipe)  # The next daemon cannot be started.
        peer.close()

        with pytest.raises(Disconnected, match="the daemon did not start: Too many open files"):
            async with asyncio.timeout(LIMIT_S):
                await waiting


async def test_refusal_is_raised_as_its_class(fake: FakeDaemon, home: Path, heard: Heard) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        answer = connection.ask(ListOp())
        peer.refuse(await peer.next(), "disk_full", "there is no room")

        with pytest.raises(DiskFull, match="there is no room"):
            await answer
        peer.close()


async def test_daemon_that_does_not_read_delays_calls_and_loses_none(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    text = "x" * 90_000
    async with joined(fake, home, heard) as (connection, peer):
        answers = [connection.ask(SendOp(text=text, id=str(number))) for number in range(300)]  # 27 MB

        lines = [await peer.next() for _ in range(300)]
        for line in lines:
            peer.answer(line)

        await asyncio.gather(*answers)
        assert [line["id"] for line in lines] == [str(number) for number in range(300)]
        peer.close()


async def test_unsendable_request_is_raised_at_once_and_harms_nothing(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        with pytest.raises(MessageTooLarge):
            connection.ask(SendOp(text="x" * 11_000_000))
        with pytest.raises(BadText):
            connection.ask(SendOp(text="\ud800"))

        answer = connection.ask(ListOp())
        peer.answer(await peer.next())

        await answer
        peer.close()


async def test_foreign_listener_is_reported(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())

    for _ in range(5):
        peer = await fake.accept()
        peer.say_raw(b"220 mail.example.org ESMTP\n")

    with pytest.raises(Disconnected, match="not a Palaver daemon"):
        await opening


async def test_closing_sends_leave_and_fails_waiting_calls(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        waiting = connection.ask(ListOp())
        closing = asyncio.ensure_future(connection.close())
        asked = [await peer.next(), await peer.next()]

        peer.answer(asked[1])
        await closing

        assert [line["op"] for line in asked] == ["list", "leave"]
        with pytest.raises(Disconnected, match="closed"):
            await waiting
        with pytest.raises(Disconnected, match="async with"):
            connection.ask(ListOp())


async def test_closing_during_a_reconnect_ends_the_attempt(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        waiting = connection.ask(ListOp())
        peer.close()
        back = await fake.accept()
        await back.next()

        await connection.close()

        assert await back.at_end() == b""
        with pytest.raises(Disconnected, match="closed"):
            await waiting
        assert not heard.reasons


async def test_cancelled_close_still_closes(fake: FakeDaemon, home: Path, heard: Heard) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        closing = asyncio.ensure_future(connection.close())
        assert (await peer.next())["op"] == "leave"

        closing.cancel()

        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await peer.at_end() == b""


async def test_daemon_lost_during_leave_does_not_block_the_close(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (connection, peer):
        closing = asyncio.ensure_future(connection.close())
        await peer.next()

        peer.close()

        async with asyncio.timeout(LIMIT_S - 1):
            await closing
