"""Somebody on the bus, as others see it."""

import msgspec


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """What everybody can know of an agent. Times are Unix milliseconds."""

    name: str
    base: str
    tag: str | None = None
    role: str = "worker"
    harness: str | None = None
    state: str = "idle"
    detail: str | None = None
    since: int = 0
    """When that state began."""
    joined: int = 0
    device: str = ""
    is_present: bool = msgspec.field(name="present", default=False)
    unread: int = 0
