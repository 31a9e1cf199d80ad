"""Standard output under a window, and what a repeat leaves out."""

import asyncio

import pytest

from palaver.doors.argv.output import Output
from palaver.doors.argv.wire import WINDOW_BYTES, FrameReader


class Client:
    """Takes frames, and says only when it is told to that they are flushed."""

    def __init__(self) -> None:
        self.output = Output(self._take)
        self.writes: list[tuple[bytes, bytes]] = []
        self._reader = FrameReader()

    def _take(self, data: bytes) -> None:
        for kind, payload in self._reader.feed(data):
            assert kind == b"O"
            size = int.from_bytes(payload[4:6], "big")
            self.writes.append((payload[6 : 6 + size], payload[6 + size :]))
            assert int.from_bytes(payload[:4], "big") == len(self.writes)

    def flush(self) -> None:
        self.output.on_flushed(len(self.writes))


async def test_every_write_has_a_token_that_says_how_many_there_were() -> None:
    client = Client()

    await client.output.write(b"one")
    await client.output.write(b"two", b"own")
    await client.output.write(b"")

    assert client.writes == [(b"+1", b"one"), (b"own", b"two"), (b"+3", b"")]


async def test_a_repeat_leaves_out_what_was_flushed() -> None:
    client = Client()
    client.output.go_on_from(b"+2")

    for text in (b"one", b"two", b"three"):
        await client.output.write(text)

    assert client.writes == [(b"+3", b"three")]


@pytest.mark.parametrize("token", [None, b"", b"42", b"[1]", b"+", b"+x", b"+9999999999", b"-1"])
async def test_a_token_of_another_kind_leaves_nothing_out(token: bytes | None) -> None:
    client = Client()
    client.output.go_on_from(token)

    await client.output.write(b"one")

    assert client.writes == [(b"+1", b"one")]


async def test_a_client_that_flushes_nothing_holds_up_what_is_over_the_window() -> None:
    client = Client()
    await client.output.write(b"x" * WINDOW_BYTES)
    held = asyncio.ensure_future(client.output.write(b"y"))
    await asyncio.sleep(0)
    assert len(client.writes) == 1

    client.flush()
    await held

    assert client.writes[-1] == (b"+2", b"y")


async def test_a_write_over_the_window_goes_out_when_nothing_else_is_on_its_way() -> None:
    client = Client()

    await client.output.write(b"x" * (WINDOW_BYTES + 1))

    assert len(client.writes) == 1


async def test_flushed_waits_for_the_last_frame() -> None:
    client = Client()
    await client.output.write(b"one")
    await client.output.write(b"two")
    waiting = asyncio.ensure_future(client.output.flushed())
    client.output.on_flushed(1)
    await asyncio.sleep(0)
    assert not waiting.done()

    client.output.on_flushed(2)

    await waiting
    await client.output.flushed()


async def test_what_is_longer_than_a_frame_goes_out_in_pieces_with_the_token_on_the_last() -> None:
    client = Client()
    whole = b"x" * (8 * 1024 * 1024) + b"y"
    writing = asyncio.ensure_future(client.output.write(whole))
    await asyncio.sleep(0)
    client.flush()
    await writing

    assert b"".join(data for _, data in client.writes) == whole
    assert [token for token, _ in client.writes] == [b"", b"+1"]


async def test_whoever_wrote_is_told_when_it_is_flushed_in_order_and_once() -> None:
    client = Client()
    told: list[str] = []
    await client.output.write(b"one", flushed=lambda: told.append("one"))
    await client.output.write(b"two", flushed=lambda: told.append("two"))

    client.output.on_flushed(1)
    first = list(told)
    client.output.on_flushed(2)
    client.output.on_flushed(2)

    assert first == ["one"]
    assert told == ["one", "two"]


async def test_of_what_goes_out_in_pieces_only_the_last_counts_as_flushed() -> None:
    client = Client()
    told: list[str] = []
    whole = b"x" * (8 * 1024 * 1024) + b"y"
    writing = asyncio.ensure_future(client.output.write(whole, flushed=lambda: told.append("whole")))
    await asyncio.sleep(0)

    client.flush()
    await writing
    before = list(told)
    client.flush()

    assert before == []
    assert told == ["whole"]
