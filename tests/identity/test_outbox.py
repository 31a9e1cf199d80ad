"""Lines to one peer, which may be slow, silent or disconnected."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests.limits import LIMIT_S

from palaver.doors.connection import Outbox


class _Writer:
    """A stream whose peer reads only when the test allows it."""

    def __init__(self, *, is_reading: bool = True, is_gone: bool = False) -> None:
        self.writes: list[bytes] = []
        self.reading = asyncio.Event()
        self.waiting = asyncio.Event()
        self._is_gone = is_gone
        if is_reading:
            self.reading.set()

    def write(self, data: bytes, /) -> None:
        self.writes.append(data)

    async def drain(self) -> None:
        if self._is_gone:
            raise ConnectionResetError
        self.waiting.set()
        await self.reading.wait()


async def test_writer_can_wait_until_everything_is_written() -> None:
    outbox, writer = Outbox(), _Writer(is_reading=False)
    draining = asyncio.create_task(outbox.drain(writer))
    was_empty = await outbox.wait_until_empty()
    outbox.offer(b"a\n")
    waiting = asyncio.create_task(outbox.wait_until_empty())
    await writer.waiting.wait()

    is_early = waiting.done()
    writer.reading.set()
    is_open = await asyncio.wait_for(waiting, LIMIT_S)
    outbox.close()
    await draining

    assert (was_empty, is_early, is_open) == (True, False, True)
    assert not await outbox.wait_until_empty()


async def test_waiting_lines_are_sent_in_order_and_in_one_write() -> None:
    outbox, writer = Outbox(), _Writer()
    taken = [outbox.offer(line) for line in (b"a\n", b"b\n", b"c\n")]
    outbox.end()

    await asyncio.wait_for(outbox.drain(writer), LIMIT_S)

    assert taken == [True, True, True]
    assert writer.writes == [b"a\nb\nc\n"]
    assert outbox.is_closed


async def test_lines_offered_during_a_drain_follow() -> None:
    outbox, writer = Outbox(), _Writer()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.drain(writer))
        outbox.offer(b"a\n")
        await writer.waiting.wait()

        outbox.offer(b"b\n")
        outbox.end()

    assert b"".join(writer.writes) == b"a\nb\n"


async def test_peer_that_never_reads_fills_only_its_own_outbox() -> None:
    outbox, writer = Outbox(limit_lines=3), _Writer(is_reading=False)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(outbox.drain(writer))
        outbox.offer(b"1\n")
        await writer.waiting.wait()

        taken = [outbox.offer(b"x\n") for _ in range(4)]
        draining.cancel()

    assert taken == [True, True, False, False]
    assert writer.writes == [b"1\n"]


async def test_bytes_are_limited_as_well_as_lines() -> None:
    outbox = Outbox(limit_bytes=10)

    assert [outbox.offer(b"123456"), outbox.offer(b"12345"), outbox.offer(b"1234")] == [True, False, True]


async def test_single_line_always_fits() -> None:
    outbox = Outbox(limit_bytes=10)

    assert outbox.offer(b"x" * 1000)
    assert not outbox.offer(b"x")


async def test_after_a_refusal_room_is_signalled_when_half_is_free() -> None:
    outbox, writer = Outbox(limit_lines=2), _Writer(is_reading=False)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.drain(writer))
        outbox.offer(b"1\n")
        outbox.offer(b"2\n")
        assert not outbox.offer(b"3\n")
        waiting = tasks.create_task(outbox.wait_for_room())
        await writer.waiting.wait()
        was_waiting = not waiting.done()

        writer.reading.set()
        has_room = await waiting
        outbox.offer(b"3\n")
        outbox.end()

    assert (was_waiting, has_room) == (True, True)
    assert b"".join(writer.writes) == b"1\n2\n3\n"


async def test_less_than_half_free_is_not_enough_room() -> None:
    outbox, writer = Outbox(limit_lines=4), _Writer(is_reading=False)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.drain(writer))
        outbox.offer(b"1\n")
        await writer.waiting.wait()
        for _ in range(4):
            outbox.offer(b"x\n")
        waiting = tasks.create_task(outbox.wait_for_room())
        writer.waiting.clear()

        writer.reading.set()  # one of four is written; three are left
        await writer.waiting.wait()
        had_room_early = waiting.done()
        has_room = await waiting
        outbox.close()

    assert (had_room_early, has_room) == (False, True)


async def test_disconnected_peer_closes_the_outbox_and_releases_waiters() -> None:
    outbox = Outbox(limit_lines=1)
    outbox.offer(b"1\n")
    outbox.offer(b"2\n")
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(outbox.wait_for_room())

        await outbox.drain(_Writer(is_gone=True))

    assert waiting.result() is False
    assert outbox.is_closed
    assert not outbox.offer(b"3\n")


async def test_outbox_closed_during_a_write_stops_writing() -> None:
    outbox, writer = Outbox(), _Writer(is_reading=False)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.drain(writer))
        outbox.offer(b"1\n")
        await writer.waiting.wait()
        outbox.offer(b"2\n")

        outbox.close()
        outbox.close()
        writer.reading.set()

    assert writer.writes == [b"1\n"]
    assert await outbox.wait_for_room() is False


async def test_outbox_closed_before_a_drain_writes_nothing() -> None:
    outbox, writer = Outbox(), _Writer()
    outbox.offer(b"1\n")
    outbox.close()

    await outbox.drain(writer)

    assert writer.writes == []


async def test_ended_outbox_accepts_no_more_lines() -> None:
    outbox = Outbox()
    outbox.end()

    assert not outbox.offer(b"1\n")
    assert await outbox.wait_for_room() is False


@given(
    lines=st.lists(st.binary(min_size=1, max_size=12), max_size=30),
    limit_lines=st.integers(1, 6),
    limit_bytes=st.integers(1, 40),
)
def test_exactly_the_accepted_lines_are_written_in_order(
    lines: list[bytes], limit_lines: int, limit_bytes: int
) -> None:
    async def run() -> tuple[list[bytes], bytes]:
        outbox, writer = Outbox(limit_lines=limit_lines, limit_bytes=limit_bytes), _Writer()
        taken: list[bytes] = []
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(outbox.drain(writer))
            for line in lines:
                if outbox.offer(line):
                    taken.append(line)
                else:
                    await outbox.wait_for_room()
            outbox.end()
        return taken, b"".join(writer.writes)

    taken, written = asyncio.run(run())

    assert written == b"".join(taken)


async def test_last_line_is_written_although_the_outbox_is_full() -> None:
    outbox, writer = Outbox(limit_lines=1), _Writer()
    taken = [outbox.offer(b"a\n"), outbox.offer(b"b\n")]

    outbox.end(b"last\n")
    outbox.end(b"again\n")
    await asyncio.wait_for(outbox.drain(writer), LIMIT_S)

    assert taken == [True, False]
    assert b"".join(writer.writes) == b"a\nlast\n"


async def test_wait_until_low_ends_when_half_of_the_limit_is_free() -> None:
    outbox, writer = Outbox(limit_lines=4), _Writer(is_reading=False)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.drain(writer))
        await outbox.wait_until_low()
        for _ in range(3):
            outbox.offer(b"a\n")
        low = tasks.create_task(outbox.wait_until_low())
        await writer.waiting.wait()
        is_early = low.done()

        writer.reading.set()
        await low
        outbox.end()

    assert not is_early


async def test_wait_until_low_ends_with_the_peer() -> None:
    outbox = Outbox(limit_lines=1)
    outbox.offer(b"a\n")
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        low = tasks.create_task(outbox.wait_until_low())
        await asyncio.sleep(0)
        outbox.close()
        await low
        outbox.offer(b"b\n")

        await outbox.wait_until_low()

    assert outbox.is_closed
