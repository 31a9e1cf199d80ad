"""How long things may take in rooms, and how large they may be. Values only."""

from dataclasses import dataclass
from typing import Final

from palaver.config import Settings

_MINUTE_MS: Final = 60_000

PERSONS_WAKE: Final = "human"
ALL_WAKE: Final = "everyone"
"""Whose words to a whole room wake everybody in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every limit of a room."""

    lease_ms: int = 45 * _MINUTE_MS
    """How long a holder may be silent before the stick may be taken over."""
    heartbeat_ms: int = 5 * _MINUTE_MS
    claim_ms: int = 20 * _MINUTE_MS
    """How long a reservation waits for the one it is for."""
    waiter_grace_ms: int = 10_000
    """How long after it last waited somebody still counts as waiting."""
    presence_ms: int = 240 * _MINUTE_MS
    """How long somebody who is gone stays a member."""
    long_poll_ms: int = 110_000
    owner_idle_ms: int = 15 * _MINUTE_MS
    """How long a holder may say that it is idle before the stick may be taken over."""
    room_wakes: str = PERSONS_WAKE
    """Any other word than these two: nobody's."""
    message_bytes: int = 4096
    note_bytes: int = 16 * 1024

    @property
    def gone_grace_ms(self) -> int:
        """How long one who is surely gone still counts as there."""
        return 2 * self.heartbeat_ms

    @property
    def cooldown_ms(self) -> int:
        """How long the one who gave the stick up lets others have it first."""
        return max(6 * self.waiter_grace_ms, _MINUTE_MS)


def policy_from(settings: Settings) -> Policy:
    """Make the policy that the settings ask for."""
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
