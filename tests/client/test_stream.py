"""The stream: order, several readers, endings."""

import asyncio

import pytest

from palaver.client.connection import Stream


async def test_items_leave_in_the_order_they_arrived() -> None:
    stream: Stream[int] = Stream()
    for number in range(3):
        stream.put(number)

    stream.end()

    assert [number async for number in stream] == [0, 1, 2]


async def test_reader_waits_for_a_later_item() -> None:
    stream: Stream[int] = Stream()
    reading = asyncio.ensure_future(anext(stream))

    asyncio.get_running_loop().call_soon(stream.put, 7)

    assert await reading == 7


async def test_each_item_reaches_one_of_several_readers_and_the_end_all() -> None:
    stream: Stream[int] = Stream()

    async def read() -> list[int]:
        return [number async for number in stream]

    readers = [asyncio.ensure_future(read()) for _ in range(3)]
    asyncio.get_running_loop().call_soon(stream.put, 1)
    asyncio.get_running_loop().call_soon(stream.put, 2)
    asyncio.get_running_loop().call_soon(stream.end)

    found = await asyncio.gather(*readers)

    assert sorted(number for numbers in found for number in numbers) == [1, 2]


async def test_error_follows_the_remaining_items_and_reaches_every_reader() -> None:
    stream: Stream[int] = Stream()
    stream.put(1)
    stream.end(ValueError("why"))
    stream.end()

    first = await anext(stream)

    assert first == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            await anext(stream)


async def test_reopened_stream_continues_with_its_items() -> None:
    stream: Stream[int] = Stream()
    stream.put(1)
    stream.end(ValueError("why"))

    stream.reopen()
    stream.put(2)

    assert len(stream) == 2
    assert [await anext(stream), await anext(stream)] == [1, 2]


async def test_cancelled_reader_takes_no_item() -> None:
    stream: Stream[int] = Stream()
    reading = asyncio.ensure_future(anext(stream))
    asyncio.get_running_loop().call_soon(reading.cancel)
    with pytest.raises(asyncio.CancelledError):
        await reading

    stream.put(1)

    assert await anext(stream) == 1
