"""Errors without a fault of the caller: the request was valid, and cannot be served now."""

from palaver.errors.roots import Trouble, Unavailable


class DiskFull(Trouble):
    """The disk is full. Nothing was stored; stored data is intact."""

    code = "disk_full"


class StorageFailed(Trouble):
    """The log could not be written or read."""

    code = "storage_failed"


class DoorShut(Trouble):
    """A door cannot listen at its address; the bus runs without it."""

    code = "door_shut"


class NewerSchema(Unavailable):
    """The log was written by a newer Palaver."""

    code = "newer_schema"

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found, known)
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the log has schema {self.found}, but this Palaver supports only {self.known}; install a newer "
            "version"
        )


class ShuttingDown(Trouble):
    """The daemon is stopping."""

    code = "shutting_down"


class TooSlow(Trouble):
    """A read ran past its time limit and was cut."""

    code = "too_slow"


class Disconnected(Trouble):
    """The daemon cannot be reached."""

    code = "disconnected"
