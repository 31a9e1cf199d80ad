"""Time and size limits of rooms. Values only."""

from dataclasses import dataclass
from typing import Final

from palaver.config import Settings

_MINUTE_MS: Final = 60_000

PERSONS_WAKE: Final = "human"
ALL_WAKE: Final = "everyone"
"""Values of `Policy.room_wakes`: the senders that wake all members with a message to the room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All limits of a room."""

    lease_ms: int = 45 * _MINUTE_MS
    """How long an owner may be silent before the stick may be taken over."""
    heartbeat_ms: int = 5 * _MINUTE_MS
    claim_ms: int = 20 * _MINUTE_MS
    """How long a reservation waits for its recipient."""
    waiter_grace_ms: int = 10_000
    """How long a member still counts as waiting after its last wait."""
    presence_ms: int = 240 * _MINUTE_MS
    """How long an exited member stays a member."""
    long_poll_ms: int = 110_000
    owner_idle_ms: int = 15 * _MINUTE_MS
    """How long an owner may be idle before the stick may be taken over."""
    room_wakes: str = PERSONS_WAKE
    """Any value other than `PERSONS_WAKE` and `ALL_WAKE` wakes no member."""
    message_bytes: int = 4096
    note_bytes: int = 16 * 1024

    @property
    def gone_grace_ms(self) -> int:
        """How long a member whose process has ended still counts as present."""
        return 2 * self.heartbeat_ms

    @property
    def cooldown_ms(self) -> int:
        """How long the last owner lets others take the stick first."""
        return max(6 * self.waiter_grace_ms, _MINUTE_MS)


def policy_from(settings: Settings) -> Policy:
    """Make a policy from the settings."""
    return Policy(
        lease_ms=settings.room_lease_s * 1000,
        heartbeat_ms=settings.room_heartbeat_s * 1000,
        claim_ms=settings.room_claim_s * 1000,
        waiter_grace_ms=settings.room_waiter_grace_s * 1000,
        presence_ms=settings.room_presence_s * 1000,
        owner_idle_ms=settings.room_owner_idle_s * 1000,
        message_bytes=settings.room_message_bytes,
        room_wakes=settings.room_wakes,
    )
