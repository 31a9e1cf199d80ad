"""A call that waits, as it is known beyond the daemon in which it began. Pure."""

import msgspec


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How a call waits."""

    until_ms: int
    """Until this moment, in Unix milliseconds: a restart does not make it longer."""
    place: int
    """The end of the log when it was made: what came behind it has not been looked at."""

    def rest_ms(self, now_ms: int) -> int:
        """Give how long it may still wait."""
        return max(0, self.until_ms - now_ms)
