"""Frames on an agent's socket after `attach`: a type byte, a length of four bytes, the payload. Pure.

Type 0 carries keys to the agent and its output back, type 1 JSON controls. The limit is the same both ways.
Whose keys count, and what a control means, is for others to know.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from palaver.errors import BadRequest, MessageTooLarge
from palaver.model.text import LIMIT_FRAME_BYTES

DATA: Final = 0
CONTROL: Final = 1

_HEAD: Final = struct.Struct(">BI")
_LINE_ENDS: Final = b"\r\n"

Frame = tuple[int, bytes]
"""A type and its payload. A reader passes over types that it does not know."""


class FrameReader:
    """Cuts a stream of bytes into frames. Half a frame waits for its other half.

    The line end of the request before the first frame is passed over, whenever it comes.
    """

    def __init__(self, first: bytes = b"") -> None:
        """`first` is what was read behind the request, or what an earlier reader had left."""
        self._buffer = bytearray(first)
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes in and give every frame that is whole.

        Raises MessageTooLarge for one over the limit as soon as its head is there, whatever is behind it.
        """
        self._buffer += data
        if not self._is_begun:
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(_LINE_ENDS))]
            self._is_begun = bool(self._buffer)
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            _check_length(length)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield kind, payload

    def rest(self) -> bytes:
        """Give what was begun and is not whole yet."""
        return bytes(self._buffer)


def frame(kind: int, payload: bytes) -> bytes:
    """Make one frame; raises MessageTooLarge over the limit, which the other side would not read."""
    _check_length(len(payload))
    return _HEAD.pack(kind, len(payload)) + payload


def data_frames(data: bytes) -> bytes:
    """Make frames of any number of bytes, each within the limit; none of no bytes."""
    pieces = (data[place : place + LIMIT_FRAME_BYTES] for place in range(0, len(data), LIMIT_FRAME_BYTES))
    return b"".join(frame(DATA, piece) for piece in pieces)


def control_to_bytes(fields: dict[str, object]) -> bytes:
    """Make the frame of a control; `type` says which."""
    return frame(CONTROL, msgspec.json.encode(fields))


def control_from_bytes(payload: bytes) -> dict[str, object]:
    """Read the payload of a control; raises BadRequest for what is no object with a `type`."""
    try:
        fields = msgspec.json.decode(payload, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the control cannot be read: {error}") from error
    if not isinstance(fields.get("type"), str):
        raise BadRequest("a control needs a `type`")
    return fields


def _check_length(length: int) -> None:
    if length > LIMIT_FRAME_BYTES:
        raise MessageTooLarge("the frame", length, LIMIT_FRAME_BYTES)
