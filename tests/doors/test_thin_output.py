"""Standard output with a flow-control window, and skipping after a reconnect."""

import asyncio

import pytest

from palaver.doors.thin import Output
from palaver.protocol.thin import WINDOW_BYTES, FrameReader


class Client:
    """A client that reads frames and confirms them only when the test says so."""

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


async def test_every_write_has_a_token_with_the_write_count() -> None:
    client = Client()

    await client.output.write(b"one")
    await client.output.write(b"two", b"own")
    await client.output.write(b"")

    assert client.writes == [(b"+1", b"one"), (b"own", b"two"), (b"+3", b"")]


async def test_repeat_skips_flushed_writes() -> None:
    client = Client()
    client.output.go_on_from(b"+2")

    for text in (b"one", b"two", b"three"):
        await client.output.write(text)

    assert client.writes == [(b"+3", b"three")]


@pytest.mark.parametrize("token", [None, b"", b"42", b"[1]", b"+", b"+x", b"+9999999999", b"-1"])
async def test_token_of_another_kind_skips_nothing(token: bytes | None) -> None:
    client = Client()
    client.output.go_on_from(token)

    await client.output.write(b"one")

    assert client.writes == [(b"+1", b"one")]


async def test_client_that_does_not_flush_blocks_output_over_the_window() -> None:
    client = Client()
    await client.output.write(b"x" * WINDOW_BYTES)
    held = asyncio.ensure_future(client.output.write(b"y"))
    await asyncio.sleep(0)
    assert len(client.writes) == 1

    client.flush()
    await held

    assert client.writes[-1] == (b"+2", b"y")


async def test_write_over_the_window_goes_out_when_nothing_else_is_pending() -> None:
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


async def test_output_longer_than_a_frame_is_split_with_the_token_on_the_last() -> None:
    client = Client()
    whole = b"x" * (8 * 1024 * 1024) + b"y"
    writing = asyncio.ensure_future(client.output.write(whole))
    await asyncio.sleep(0)
    client.flush()
    await writing

    assert b"".join(data for _, data in client.writes) == whole
    assert [token for token, _ in client.writes] == [b"", b"+1"]


async def test_flush_callbacks_run_once_and_in_order() -> None:
    client = Client()
    reported: list[str] = []
    await client.output.write(b"one", flushed=lambda: reported.append("one"))
    await client.output.write(b"two", flushed=lambda: reported.append("two"))

    client.output.on_flushed(1)
    first = list(reported)
    client.output.on_flushed(2)
    client.output.on_flushed(2)

    assert first == ["one"]
    assert reported == ["one", "two"]


async def test_split_output_is_flushed_with_its_last_piece() -> None:
    client = Client()
    reported: list[str] = []
    whole = b"x" * (8 * 1024 * 1024) + b"y"
    writing = asyncio.ensure_future(client.output.write(whole, flushed=lambda: reported.append("whole")))
    await asyncio.sleep(0)

    client.flush()
    await writing
    before = list(reported)
    client.flush()

    assert before == []
    assert reported == ["whole"]
