"""The thin client's wire: frames, and the fields of a request. Pure: bytes in, bytes out.

In both directions a frame is one byte of type, four of length (big-endian) and the payload. The meaning of a
frame is decided elsewhere.
"""

from palaver import __version__

GREETING = b"PAL1"
FRAME_LIMIT_BYTES = 10 * 1024 * 1024
PIECE_BYTES = 65536
"""The largest piece of input in one frame."""

_HEAD_BYTES = 5


class MalformedFrameError(Exception):
    """The daemon uses another wire, or sends invalid data."""

    def __str__(self) -> str:
        return f"the daemon sent something that this client ({__version__}) does not understand"


def frame(kind: bytes, payload: bytes | bytearray | memoryview = b"") -> bytes:
    """Write one frame. A field of a request has the same form, with its tag as the type."""
    return b"".join((kind, len(payload).to_bytes(4, "big"), payload))


def request(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Write the first bytes of a client: the greeting and its request."""
    return GREETING + frame(b"R", b"".join(frame(tag, value) for tag, value in fields))


def parse_output(payload: bytes) -> tuple[bytes, bytes, memoryview]:
    """Read an output frame: its number in wire form, its token (may be empty), the data to write."""
    start = 6 + int.from_bytes(payload[4:6], "big")
    if len(payload) < max(6, start):
        raise MalformedFrameError
    return payload[:4], payload[6:start], memoryview(payload)[start:]


def parse_limit(payload: bytes) -> tuple[int | None, bytes]:
    """Read a payload that begins with a limit: the number of bytes to send (None: all), and the rest.

    One byte more than the limit is sent, so that the daemon sees that it was too much.
    """
    if len(payload) < 4:
        raise MalformedFrameError
    limit_bytes = int.from_bytes(payload[:4], "big")
    return (limit_bytes + 1 if limit_bytes else None), payload[4:]


class FrameReader:
    """Splits a stream into frames. An incomplete frame stays inside and is never returned."""

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received data."""
        self._received += data

    def take(self) -> tuple[bytes, bytes] | None:
        """Return the type and payload of the next whole frame; None if there is no whole frame yet."""
        received = self._received
        if len(received) < _HEAD_BYTES:
            return None
        end = _HEAD_BYTES + int.from_bytes(received[1:_HEAD_BYTES], "big")
        if end > _HEAD_BYTES + FRAME_LIMIT_BYTES:
            raise MalformedFrameError
        if len(received) < end:
            return None
        kind, payload = bytes(received[:1]), bytes(received[_HEAD_BYTES:end])
        del received[:end]
        return kind, payload
