"""Conditions of a room at a time: the end of a lease, exited members, possible takeovers.

Pure. Nothing here changes a room: time alone changes nothing, it only permits actions.
"""

import enum
from dataclasses import dataclass

from palaver.rooms.attendance import Facts
from palaver.rooms.policy import Policy
from palaver.rooms.room import Room, StickState


class Condition(enum.StrEnum):
    """A condition shown with a room, in addition to its state."""

    STALE_OWNER = "stale_owner"
    OWNER_GONE = "owner_gone"
    OWNER_IDLE = "owner_idle"
    RECIPIENT_GONE = "recipient_gone"
    DORMANT = "dormant"


class Cause(enum.StrEnum):
    """Why the stick may be taken over."""

    OWNER_GONE = "owner_gone"
    OWNER_TIMEOUT = "owner_timeout"
    OWNER_IDLE = "owner_idle"
    CLAIM_TIMEOUT = "claim_timeout"
    OPERATOR_OVERRIDE = "operator_override"


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why a takeover is possible now, and when that changes by itself; None for not, and for never."""

    cause: Cause | None
    changes_ms: int | None


def lease_until_ms(room: Room, facts: Facts, policy: Policy) -> int:
    """Return the time at which the lease of the owner ends.

    The lease restarts with each sign of the owner: a heartbeat, and any activity while its process is alive
    or with a token. An active owner always has a full lease. It also restarts when the daemon starts, because
    no sign can reach a stopped daemon.
    """
    owner = facts.of(room.owner)
    signs = [
        facts.started_ms,
        owner.beat_ms,
        owner.token_ms,
        owner.seen_ms if owner.is_present else None,
        facts.now_ms if owner.is_active else None,
    ]
    return max(room.lease_until_ms, *(sign + policy.lease_ms for sign in signs if sign is not None))


def gone_at_ms(room: Room, name: str, facts: Facts, policy: Policy) -> int | None:
    """Return the time from which a member counts as exited; None while its process may be alive.

    That is one grace period after the end of its process or its last sign, whichever is later. A token user
    has no known process: it counts as present for one lease after its last request.
    """
    return _behind_silence_ms(room, name, facts, policy, policy.gone_grace_ms)


def retires_at_ms(room: Room, name: str, facts: Facts, policy: Policy) -> int | None:
    """Return the time from which an exited member is removed; None while its process may be alive."""
    return _behind_silence_ms(room, name, facts, policy, policy.presence_ms)


def _behind_silence_ms(room: Room, name: str, facts: Facts, policy: Policy, silence_ms: int) -> int | None:
    """Return the time at which a member has been exited and silent for `silence_ms`.

    A start of the daemon is not a sign of the member, but a member that waited when the last daemon ended has
    a short time to return.
    """
    sight = facts.of(name)
    if sight.gone_since_ms is None:
        return None
    claimed = room.claimed_ms if name == room.owner else 0
    token = 0 if sight.token_ms is None else sight.token_ms + policy.lease_ms - policy.gone_grace_ms
    silent = max(sight.gone_since_ms, sight.seen_ms or 0, sight.beat_ms or 0, claimed, token)
    return max(silent + silence_ms, facts.started_ms + min(policy.waiter_grace_ms, silence_ms))


def is_gone(room: Room, name: str, facts: Facts, policy: Policy) -> bool:
    """Return whether a member counts as exited."""
    moment = gone_at_ms(room, name, facts, policy)
    return moment is not None and moment <= facts.now_ms


def has_ended(room: Room, name: str, facts: Facts, policy: Policy) -> bool:
    """Return whether the process of a member has ended; it counts as exited unless it gives a sign."""
    moment = _behind_silence_ms(room, name, facts, policy, 0)
    return moment is not None and moment <= facts.now_ms


def reservation_until_ms(room: Room, facts: Facts, policy: Policy) -> int:
    """Return the time at which a reservation ends: at its limit, or when its recipient has exited."""
    gone = gone_at_ms(room, room.reserved_for, facts, policy)
    return room.claim_until_ms if gone is None else min(room.claim_until_ms, gone)


def outlook(room: Room, facts: Facts, policy: Policy) -> Outlook:
    """Return whether the stick may be taken over, and when that can change without an event."""
    if room.state == StickState.OWNED:
        moments = _owner_moments(room, facts, policy)
    elif room.state == StickState.RESERVED:
        moments = {Cause.CLAIM_TIMEOUT: reservation_until_ms(room, facts, policy)}
    else:
        moments = {}
    cause = next((cause for cause, moment in moments.items() if moment <= facts.now_ms), None)
    later = [moment for moment in moments.values() if moment > facts.now_ms]
    return Outlook(cause, min(later, default=None))


def conditions(room: Room, facts: Facts, policy: Policy) -> tuple[Condition, ...]:
    """Return the conditions to show with a room.

    An exited member is shown from the end of its process. The bus acts only after the grace period, and until
    then the condition explains why the stick does not move.
    """
    found: list[Condition] = []
    if room.state == StickState.OWNED:
        over = {
            cause for cause, moment in _owner_moments(room, facts, policy).items() if moment <= facts.now_ms
        }
        if has_ended(room, room.owner, facts, policy):
            over.add(Cause.OWNER_GONE)
        found += [condition for cause, condition in _SHOWN if cause in over]
    if room.state == StickState.RESERVED and has_ended(room, room.reserved_for, facts, policy):
        found.append(Condition.RECIPIENT_GONE)
    if room.is_open and not any(facts.of(name).is_present for name in room.names):
        found.append(Condition.DORMANT)
    return tuple(found)


_SHOWN = (
    (Cause.OWNER_TIMEOUT, Condition.STALE_OWNER),
    (Cause.OWNER_GONE, Condition.OWNER_GONE),
    (Cause.OWNER_IDLE, Condition.OWNER_IDLE),
)


def _owner_moments(room: Room, facts: Facts, policy: Policy) -> dict[Cause, int]:
    """Return the times from which the owner may lose the stick, the most serious cause first."""
    moments: dict[Cause, int] = {}
    gone = gone_at_ms(room, room.owner, facts, policy)
    if gone is not None:
        moments[Cause.OWNER_GONE] = gone
    moments[Cause.OWNER_TIMEOUT] = lease_until_ms(room, facts, policy)
    owner = facts.of(room.owner)
    if owner.idle_since_ms is not None:
        signs = (owner.idle_since_ms, room.claimed_ms, owner.seen_ms or 0, owner.beat_ms or 0)
        moments[Cause.OWNER_IDLE] = max(signs) + policy.owner_idle_ms
    return moments
