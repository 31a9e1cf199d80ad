"""What a pump keeps for the daemon after this one: the handshake, and how its calls wait. Pure.

It is handed over as one object, that of the handshake itself, with the waits beside its own fields.
"""

from typing import Final

import msgspec

from palaver.doors.tools.wait import Wait

_WAITS: Final = "palaver/waits"


class PumpToken:
    """Belongs to one pump. Lines are meant by the numbers that the client has given them."""

    def __init__(self, content: bytes | None = None) -> None:
        """Begin with what the client brings from an earlier daemon; what is not ours is nothing."""
        found = _read(content or b"")
        self._waits = _read_waits(found.pop(_WAITS, {}))
        self.handshake: dict[str, object] | None = found or None

    def to_bytes(self) -> bytes:
        """Write it for the client to keep."""
        waits = {_WAITS: {str(number): wait for number, wait in self._waits.items()}} if self._waits else {}
        return msgspec.json.encode({**(self.handshake or {}), **waits})

    def wait(self, number: int) -> Wait | None:
        """Give how the call of a line waits; None for one that does not, or not yet."""
        return self._waits.get(number)

    def begin(self, number: int, wait: Wait) -> None:
        """The call of a line waits."""
        self._waits[number] = wait

    def settle(self, number: int) -> None:
        """A line is settled, and comes no more."""
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
