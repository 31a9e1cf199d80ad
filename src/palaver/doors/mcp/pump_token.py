"""The state of a pump for the next daemon: the handshake, and the waits of its calls. Pure.

The client keeps it as one object: the handshake's fields, and the waits under a separate key.
"""

from typing import Final

import msgspec

from palaver.doors.tools.wait import Wait

_WAITS: Final = "palaver/waits"


class PumpToken:
    """The state of one pump. Lines are identified by the numbers that the client gave them."""

    def __init__(self, content: bytes | None = None) -> None:
        """Start with the client's state from an earlier daemon. Unreadable content is ignored."""
        found = _read(content or b"")
        self._waits = _read_waits(found.pop(_WAITS, {}))
        self.handshake: dict[str, object] | None = found or None

    def to_bytes(self) -> bytes:
        """Encode the state for the client to keep."""
        waits = {_WAITS: {str(number): wait for number, wait in self._waits.items()}} if self._waits else {}
        return msgspec.json.encode({**(self.handshake or {}), **waits})

    def wait(self, number: int) -> Wait | None:
        """Return the wait of the call on a line; None if it does not wait, or not yet."""
        return self._waits.get(number)

    def begin(self, number: int, wait: Wait) -> None:
        """Record that the call on a line waits."""
        self._waits[number] = wait

    def settle(self, number: int) -> None:
        """Forget a settled line."""
        self._waits.pop(number, None)


def _read(content: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _read_waits(content: object) -> dict[int, Wait]:
    try:
        return msgspec.convert(content, dict[int, Wait], strict=False)
    except msgspec.ValidationError:
        return {}
