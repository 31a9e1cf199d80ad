"""HTTP responses and events, read from pieces of any size, and the client on a real connection."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.limits import LIMIT_S

from palaver.harness.opencode.wire import Lost, NotSent
from palaver.holder.opencode import EventReader, HttpClient, HttpExchange, basic_auth

BODIES = st.binary(max_size=200)
CUTS = st.lists(st.integers(min_value=1, max_value=17), min_size=1, max_size=30)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    pieces, offset, number = [], 0, 0
    while offset < len(data):
        size = cuts[number % len(cuts)]
        pieces.append(data[offset : offset + size])
        offset, number = offset + size, number + 1
    return pieces


def _asked() -> HttpExchange:
    return HttpExchange("GET", "/x", "127.0.0.1:80", {})


def _read(data: bytes, cuts: list[int]) -> tuple[HttpExchange, bytes]:
    reader = _asked()
    return reader, b"".join(reader.feed(piece) for piece in _pieces(data, cuts))


@given(BODIES, CUTS)
def test_body_with_a_length_is_read_from_any_pieces(body: bytes, cuts: list[int]) -> None:
    reader, found = _read(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), cuts)

    assert found == body
    assert reader.is_done
    assert reader.head is not None
    assert reader.head.is_ok


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), CUTS)
def test_chunked_body_is_read_from_any_pieces(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    data += b"".join(b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"

    reader, found = _read(data, cuts)

    assert found == b"".join(chunks)
    assert reader.is_done


def test_body_without_a_length_extends_to_the_end() -> None:
    reader, found = _read(b"HTTP/1.1 200 OK\r\n\r\nall of it", [5])

    assert found == b"all of it"
    assert not reader.is_done

    assert reader.feed(b"") == b""
    assert reader.is_done


def test_response_without_a_body_is_complete_at_once() -> None:
    reader, found = _read(b"HTTP/1.1 204 No Content\r\n\r\n", [100])

    assert reader.is_done
    assert found == b""


def test_informational_response_is_skipped() -> None:
    reader, found = _read(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", [7]
    )

    assert found == b"no"
    assert reader.head is not None
    assert reader.head.status == 404
    assert not reader.head.is_ok


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: lots\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
def test_unreadable_response_is_refused(data: bytes) -> None:
    with pytest.raises(Lost):
        _asked().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
)
def test_truncated_response_is_refused(data: bytes) -> None:
    reader, _ = _read(data, [100])

    with pytest.raises(Lost):
        reader.feed(b"")


@given(st.binary(max_size=300), CUTS)
def test_garbage_raises_only_lost(data: bytes, cuts: list[int]) -> None:
    try:
        _read(data, cuts)
    except Lost:
        return


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), min_size=1), max_size=5), CUTS
)
def test_events_are_read_from_any_pieces(texts: list[str], cuts: list[int]) -> None:
    data = "".join(f": a comment\nid: 1\ndata: {text}\n\n" for text in texts).encode()
    reader = EventReader()

    found = [event for piece in _pieces(data, cuts) for event in reader.feed(piece)]

    assert found == [text.encode() for text in texts]


def test_event_of_several_lines_is_one_event() -> None:
    assert list(EventReader().feed(b"data: one\r\ndata:two\r\n\r\n\n")) == [b"one\ntwo"]


@pytest.mark.parametrize("whole", [True, False])
def test_oversized_event_is_skipped_and_the_next_is_read(whole: bool) -> None:
    reader = EventReader(limit_bytes=20)
    long = b"data: " + b"x" * 100 + b"\n\n"
    pieces = [long] if whole else [long[:50], long[50:]]

    found = [event for piece in [*pieces, b"data: short\n\n"] for event in reader.feed(piece)]

    assert found == [b"short"]


def test_request_contains_its_length_and_closes_the_connection() -> None:
    headers = {"Authorization": basic_auth("a", "b")}

    written = HttpExchange("POST", "/x", "127.0.0.1:80", headers, b"{}").request

    head, _, body = written.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /x HTTP/1.1"
    assert {"Host: 127.0.0.1:80", "Connection: close", "Content-Length: 2"} <= set(lines)
    assert "Authorization: Basic YTpi" in lines
    assert json.loads(body) == {}
    assert b"Content-Length" not in _asked().request


# --------------------
# The client on a real connection.

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: 1\n\n\r\n"


@asynccontextmanager
async def _server(reply: bytes, end: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[HttpClient]:
    """Serve the same reply to every request, then end the connection as the test says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)
        writer.write(reply)
        await writer.drain()
        end(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield HttpClient(server.sockets[0].getsockname()[1], "user", "secret")
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def _events(client: HttpClient, first_s: float = LIMIT_S) -> list[bytes]:
    return [event async for event in client.follow("/event", first_s=first_s, silence_s=LIMIT_S)]


def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection so that the other end receives an error instead of the end of the data."""
    plain = writer.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()


async def test_response_is_returned_complete() -> None:
    async with _server(HEAD + b"2\r\nok\r\n0\r\n\r\n", _close) as client:
        head, body = await client.ask("GET", "/x")

    assert (head.status, body) == (200, b"ok")


@pytest.mark.parametrize("end", [_close, _reset])
async def test_response_that_breaks_off_is_lost(end: Callable[[asyncio.StreamWriter], None]) -> None:
    async with _server(HEAD, end) as client:
        with pytest.raises(Lost):
            await client.ask("GET", "/x")


@pytest.mark.parametrize("end", [_close, _reset])
async def test_stream_that_breaks_off_is_lost(end: Callable[[asyncio.StreamWriter], None]) -> None:
    async with _server(HEAD + EVENT[:4], end) as client:
        with pytest.raises(Lost):
            await _events(client)


async def test_events_before_the_end_of_a_stream_are_yielded() -> None:
    async with _server(HEAD + EVENT + EVENT + b"0\r\n\r\n", _close) as client:
        found = await _events(client)

    assert found == [b"1", b"1"]


async def test_stream_is_lost_when_it_is_silent_or_refused() -> None:
    async with _server(HEAD, lambda writer: None) as client:
        with pytest.raises(Lost, match="silent"):
            await _events(client, first_s=0.01)

    async with _server(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", _close) as client:
        with pytest.raises(Lost, match="it responded with 401"):
            await _events(client)


async def test_request_to_a_closed_port_is_not_sent() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

        with pytest.raises(NotSent):
            await HttpClient(bound.getsockname()[1], "user", "secret").ask("GET", "/x")
