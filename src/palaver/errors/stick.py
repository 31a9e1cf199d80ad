"""Errors of the stick of a room. The caller must change something, or wait for its turn."""

from palaver.errors.roots import RequestError


class TurnMismatch(RequestError):
    """The turn that the caller refers to has ended."""

    code = "turn_mismatch"

    def __init__(self, expected_turn_id: int, turn_id: int) -> None:
        super().__init__(expected_turn_id, turn_id)
        self.expected_turn_id = expected_turn_id
        self.turn_id = turn_id

    def __str__(self) -> str:
        return (
            f"the current turn is {self.turn_id}, not {self.expected_turn_id}; run 'pal room state' and try "
            "again"
        )


class StaleLease(RequestError):
    """The lease is not that of the turn, or the stick was released with it."""

    code = "stale_lease"

    def __init__(self, turn_id: int) -> None:
        super().__init__(turn_id)
        self.turn_id = turn_id

    def __str__(self) -> str:
        return f"this lease is not valid for turn {self.turn_id}; claim the stick again to get a new lease"


class NotOwner(RequestError):
    """The caller uses the lease of another member."""

    code = "not_owner"

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner

    def __str__(self) -> str:
        return f"{self.owner} owns the stick; only its owner can do that"


class InvalidHandoff(RequestError):
    """A handoff that lacks a field, or has a field with a wrong value."""

    code = "invalid_handoff"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"the handoff's {self.field} {self.reason}"


class TakeoverNotAvailable(RequestError):
    """The owner, or the member that the stick is reserved for, still has time."""

    code = "takeover_not_available"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the stick cannot be taken over: {self.reason}"


class TakeoverIneligible(RequestError):
    """The stick may be taken over, but not by the caller."""

    code = "takeover_ineligible"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"you cannot take over the stick: {self.reason}"


class RecipientUnreachable(RequestError):
    """The stick should be passed to a member that is not present."""

    code = "recipient_unreachable"

    def __init__(self, agent_id: str) -> None:
        super().__init__(agent_id)
        self.agent_id = agent_id

    def __str__(self) -> str:
        return f"{self.agent_id} is not present; release the stick, or pass it to another member"


class ParkRequiresRelease(RequestError):
    """The owner of the stick wants to step aside without releasing it."""

    code = "park_requires_release"

    def __init__(self, room: str) -> None:
        super().__init__(room)
        self.room = room

    def __str__(self) -> str:
        return f"you own the stick of {self.room}; release or pass it before you park"


class ObserverCannotHoldTurn(RequestError):
    """An observer or a guest can never own the stick."""

    code = "observer_cannot_hold_turn"

    def __init__(self, agent_id: str) -> None:
        super().__init__(agent_id)
        self.agent_id = agent_id

    def __str__(self) -> str:
        return f"{self.agent_id} is an observer here and cannot own the stick; only a worker can"
