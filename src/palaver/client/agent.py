"""An agent on the bus, as other agents see it."""

import msgspec


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The public data of an agent. Times are Unix milliseconds."""

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
