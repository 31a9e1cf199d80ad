"""The stream: order, several readers, endings."""

import asyncio

import pytest

from palaver.client.stream import Stream


async def test_things_come_out_in_the_order_in_which_they_went_in() -> None:
    stream: Stream[int] = Stream()
    for number in range(3):
        stream.put(number)

    stream.end()

    assert [number async for number in stream] == [0, 1, 2]


async def test_a_reader_waits_for_what_is_yet_to_come() -> None:
    stream: Stream[int] = Stream()
    reading = asyncio.ensure_future(anext(stream))

    asyncio.get_running_loop().call_soon(stream.put, 7)

    assert await reading == 7


async def test_each_thing_goes_to_one_of_several_readers_and_the_end_to_all() -> None:
    stream: Stream[int] = Stream()

    async def read() -> list[int]:
        return [number async for number in stream]

    readers = [asyncio.ensure_future(read()) for _ in range(3)]
    asyncio.get_running_loop().call_soon(stream.put, 1)
    asyncio.get_running_loop().call_soon(stream.put, 2)
    asyncio.get_running_loop().call_soon(stream.end)

    found = await asyncio.gather(*readers)

    assert sorted(number for numbers in found for number in numbers) == [1, 2]


async def test_an_error_comes_behind_what_is_left_and_to_everybody() -> None:
    stream: Stream[int] = Stream()
    stream.put(1)
    stream.end(ValueError("why"))
    stream.end()

    first = await anext(stream)

    assert first == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            await anext(stream)


async def test_a_stream_that_is_opened_again_goes_on_with_what_was_left() -> None:
    stream: Stream[int] = Stream()
    stream.put(1)
    stream.end(ValueError("why"))

    stream.reopen()
    stream.put(2)

    assert len(stream) == 2
    assert [await anext(stream), await anext(stream)] == [1, 2]


async def test_a_reader_that_is_cancelled_takes_nothing_with_it() -> None:
    stream: Stream[int] = Stream()
    reading = asyncio.ensure_future(anext(stream))
    asyncio.get_running_loop().call_soon(reading.cancel)
    with pytest.raises(asyncio.CancelledError):
        await reading

    stream.put(1)

    assert await anext(stream) == 1
