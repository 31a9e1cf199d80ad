"""The lifeline against a daemon that says what the test wants: order, repeats, refusals, endings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.client.fake import FakeDaemon, FakePeer
from tests.limits import LIMIT_S

import palaver
from palaver.client.lifeline import Lifeline
from palaver.client.wire import Line
from palaver.errors import BadText, Disconnected, DiskFull, MessageTooLarge, NameTaken, PalaverError
from palaver.model.lines.program_ops import JoinOp, ListOp, SendOp

JOIN = JoinOp(name="luna", secret="s3cret")


class Heard:
    """What a lifeline says by itself."""

    def __init__(self) -> None:
        self.pushes: list[Line] = []
        self.reasons: list[PalaverError] = []
        self.is_broken = asyncio.Event()

    def on_broken(self, error: PalaverError) -> None:
        self.reasons.append(error)
        self.is_broken.set()


@asynccontextmanager
async def joined(fake: FakeDaemon, home: Path, heard: Heard) -> AsyncIterator[tuple[Lifeline, FakePeer]]:
    lifeline = Lifeline(str(home), JOIN, heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(lifeline.open())
    peer = await fake.accept()
    await peer.welcome()
    await opening
    yield lifeline, peer
    await lifeline.close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


async def test_a_refused_join_raises_what_it_is_and_leaves_nothing_open(fake: FakeDaemon, home: Path) -> None:
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


async def test_a_join_that_is_cancelled_leaves_nothing_open(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())
    peer = await fake.accept()
    await peer.next()

    opening.cancel()

    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await peer.at_end() == b""


async def test_a_daemon_lost_while_joining_is_tried_again_with_the_same_secret(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    lifeline = Lifeline(str(home), JOIN, heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(lifeline.open())
    first = await fake.accept()
    asked = await first.next()
    first.close()

    second = await fake.accept()
    again = await second.welcome()
    await opening

    assert asked["secret"] == again["secret"] == "s3cret"
    assert lifeline.joined.name == "luna"
    second.close()
    await lifeline.close()


async def test_a_daemon_that_is_always_lost_while_joining_is_given_up(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())

    for _ in range(5):
        (await fake.accept()).close()

    with pytest.raises(Disconnected, match="the daemon has gone"):
        await opening


async def test_a_connection_that_fails_right_behind_its_welcome_is_not_used(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    lifeline = Lifeline(str(home), JOIN, heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(lifeline.open())
    peer = await fake.accept()
    asked = await peer.next()
    peer.say_raw(b'{"req":%d,"ok":{"name":"luna","device":"BOXE"}}\n!\n' % asked["req"])

    second = await fake.accept()
    await second.welcome()
    await opening

    answer = lifeline.ask(ListOp())
    second.answer(await second.next())
    await answer
    second.close()
    await lifeline.close()


async def test_what_was_not_answered_is_asked_again_in_order_behind_the_join(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        answers = [lifeline.ask(SendOp(text=str(number), to=("nova",))) for number in range(4)]
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


async def test_calls_made_while_the_daemon_is_away_leave_behind_those_that_wait(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        answers = [lifeline.ask(SendOp(text="1"))]
        await peer.next()
        peer.close()
        back = await fake.accept()
        answers.append(lifeline.ask(SendOp(text="2")))  # the join is not answered yet

        await back.welcome()
        answers.append(lifeline.ask(SendOp(text="3")))
        lines = [await back.next() for _ in range(3)]

        assert [line["text"] for line in lines] == ["1", "2", "3"]
        for line in lines:
            back.answer(line)
        await asyncio.gather(*answers)
        back.close()


async def test_a_cancelled_call_is_not_asked_again_and_its_answer_is_for_nobody(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        cancelled, late = lifeline.ask(SendOp(text="cancelled")), lifeline.ask(SendOp(text="late"))
        first = await peer.next()
        cancelled.cancel()
        late.cancel()
        peer.answer(first, seq=1)
        peer.close()

        back = await fake.accept()
        await back.welcome()
        kept = lifeline.ask(SendOp(text="kept"))
        line = await back.next()
        back.answer(line, seq=2)
        await kept

        assert line["text"] == "kept"
        back.close()


async def test_what_a_daemon_on_its_way_out_refuses_is_asked_of_the_next(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        answer = lifeline.ask(ListOp())
        peer.refuse(await peer.next(), "shutting_down", "the daemon is on its way out")
        peer.close()

        back = await fake.accept()
        await back.welcome()
        back.answer(await back.next(), agents=[])

        assert bytes(await answer) == b'{"agents": []}'
        back.close()


async def test_listening_begins_anew_with_every_connection(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        lifeline.is_listening = True
        peer.close()

        back = await fake.accept()
        await back.welcome()

        assert (await back.next())["op"] == "listen"
        back.close()


async def test_a_full_name_that_was_given_is_asked_for_again(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    lifeline = Lifeline(str(home), JoinOp(tag="api", secret="x"), heard.pushes.append, heard.on_broken)
    opening = asyncio.ensure_future(lifeline.open())
    peer = await fake.accept()
    first = await peer.welcome("api-roto")
    await opening
    peer.close()

    again = await (await fake.accept()).welcome("api-roto")

    assert (first.get("name"), first["tag"]) == (None, "api")
    assert (again["name"], again.get("tag")) == ("api-roto", None)
    await lifeline.close()


async def test_who_cannot_have_the_name_back_is_told_why_and_may_try_again(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        waiting = lifeline.ask(ListOp())
        await peer.next()
        peer.close()
        thief = await fake.accept()
        thief.refuse(await thief.next(), "name_taken", "it is taken", name="luna", reason="it is in use now")

        with pytest.raises(NameTaken):
            await waiting
        again = lifeline.ask(ListOp())
        back = await fake.accept()
        await back.welcome()
        back.answer(await back.next(), agents=[])
        await again

        assert [type(reason) for reason in heard.reasons] == [NameTaken]
        back.close()


async def test_a_refusal_is_raised_as_its_class(fake: FakeDaemon, home: Path, heard: Heard) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        answer = lifeline.ask(ListOp())
        peer.refuse(await peer.next(), "disk_full", "there is no room")

        with pytest.raises(DiskFull, match="there is no room"):
            await answer
        peer.close()


async def test_a_daemon_that_does_not_read_makes_calls_wait_and_loses_none(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    text = "x" * 90_000
    async with joined(fake, home, heard) as (lifeline, peer):
        answers = [lifeline.ask(SendOp(text=text, id=str(number))) for number in range(300)]  # 27 MB

        lines = [await peer.next() for _ in range(300)]
        for line in lines:
            peer.answer(line)

        await asyncio.gather(*answers)
        assert [line["id"] for line in lines] == [str(number) for number in range(300)]
        peer.close()


async def test_what_cannot_be_sent_is_raised_at_once_and_harms_nothing(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        with pytest.raises(MessageTooLarge):
            lifeline.ask(SendOp(text="x" * 11_000_000))
        with pytest.raises(BadText):
            lifeline.ask(SendOp(text="\ud800"))

        answer = lifeline.ask(ListOp())
        peer.answer(await peer.next())

        await answer
        peer.close()


async def test_something_else_that_listens_there_is_said_to_be_so(fake: FakeDaemon, home: Path) -> None:
    opening = asyncio.ensure_future(palaver.connect("luna", home=home).__aenter__())

    for _ in range(5):
        peer = await fake.accept()
        peer.say_raw(b"220 mail.example.org ESMTP\n")

    with pytest.raises(Disconnected, match="does not speak"):
        await opening


async def test_closing_says_goodbye_and_tells_those_who_still_wait(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        waiting = lifeline.ask(ListOp())
        closing = asyncio.ensure_future(lifeline.close())
        asked = [await peer.next(), await peer.next()]

        peer.answer(asked[1])
        await closing

        assert [line["op"] for line in asked] == ["list", "leave"]
        with pytest.raises(Disconnected, match="closed"):
            await waiting
        with pytest.raises(Disconnected, match="async with"):
            lifeline.ask(ListOp())


async def test_closing_while_it_comes_back_ends_the_attempt(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        waiting = lifeline.ask(ListOp())
        peer.close()
        back = await fake.accept()
        await back.next()

        await lifeline.close()

        assert await back.at_end() == b""
        with pytest.raises(Disconnected, match="closed"):
            await waiting
        assert not heard.reasons


async def test_a_close_that_is_cancelled_still_closes(fake: FakeDaemon, home: Path, heard: Heard) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        closing = asyncio.ensure_future(lifeline.close())
        assert (await peer.next())["op"] == "leave"

        closing.cancel()

        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await peer.at_end() == b""


async def test_a_daemon_lost_in_the_middle_of_a_goodbye_holds_nobody_up(
    fake: FakeDaemon, home: Path, heard: Heard
) -> None:
    async with joined(fake, home, heard) as (lifeline, peer):
        closing = asyncio.ensure_future(lifeline.close())
        await peer.next()

        peer.close()

        async with asyncio.timeout(LIMIT_S - 1):
            await closing
