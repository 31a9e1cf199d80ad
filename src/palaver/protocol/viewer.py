"""Frames on an agent's socket after `attach`: a type byte, a length of four bytes, the payload. Pure.

Type 0 carries keys to the agent and its output back, type 1 carries JSON controls. The size limit is the same
in both directions. This module does not decide which viewer may type, nor what a control means.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from palaver.errors import BadRequest, MessageTooLarge
from palaver.protocol.text import LIMIT_FRAME_BYTES

DATA: Final = 0
CONTROL: Final = 1

_HEAD: Final = struct.Struct(">BI")
_LINE_ENDS: Final = b"\r\n"

Frame = tuple[int, bytes]
"""A type and its payload. Readers ignore unknown types."""


class ViewerFrameReader:
    """Splits a stream of bytes into frames. An incomplete frame stays in the buffer until the rest arrives.

    The line end of the request before the first frame is skipped, even if it arrives late.
    """

    def __init__(self, first: bytes = b"") -> None:
        """`first` is the data read after the request, or the rest of an earlier reader."""
        self._buffer = bytearray(first)
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield every complete frame, in order.

        Raises MessageTooLarge for a frame over the limit as soon as its head has arrived.
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
        """Return the bytes of the incomplete frame."""
        return bytes(self._buffer)


def frame(kind: int, payload: bytes) -> bytes:
    """Make one frame. Raises MessageTooLarge over the limit, because the other side would refuse it."""
    _check_length(len(payload))
    return _HEAD.pack(kind, len(payload)) + payload


def data_frames(data: bytes) -> bytes:
    """Split any number of bytes into frames within the limit. No bytes make no frame."""
    pieces = (data[place : place + LIMIT_FRAME_BYTES] for place in range(0, len(data), LIMIT_FRAME_BYTES))
    return b"".join(frame(DATA, piece) for piece in pieces)


def control_to_bytes(fields: dict[str, object]) -> bytes:
    """Make the frame of a control. The field `type` names it."""
    return frame(CONTROL, msgspec.json.encode(fields))


def control_from_bytes(payload: bytes) -> dict[str, object]:
    """Parse the payload of a control. Raises BadRequest unless it is an object with a `type`."""
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
