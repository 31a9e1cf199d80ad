"""The wait of a call, as the next daemon receives it. Pure."""

import msgspec


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call waits, and since when."""

    until_ms: int
    """The end of the wait, in Unix milliseconds: a restart does not extend it."""
    place: int
    """The last seq when the call was first made. Later events have not been checked."""

    def rest_ms(self, now_ms: int) -> int:
        """Return the remaining milliseconds."""
        return max(0, self.until_ms - now_ms)
