"""Input and results of decisions about the stick: fairness, limits, facts about members, conditions.

Pure: time is a parameter. `stick.py` and `members.py` decide.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Protocol

from palaver.config import Settings
from palaver.errors import UnknownMember
from palaver.protocol.events import Payload, type_of
from palaver.protocol.message import HUMAN
from palaver.state.rooms import Member, Room, StickState

# --------------------
# Choose the next owner: never had the stick, then longest ago, then in circular order. Pure.


def rank(member: Member, after: int, size: int) -> tuple[int, int]:
    """Return the rank of a member; the lowest is next.

    `after` is the ordinal of the releasing owner, -1 for none; `size` is larger than every ordinal.
    """
    return member.last_turn, (member.ordinal - after - 1) % size


def fairest(members: Iterable[Member], *, after: int, size: int) -> Member | None:
    """Return the member that is next."""
    return min(members, key=lambda member: rank(member, after, size), default=None)


def first_in_line(room: Room, members: Iterable[Member], giver: str) -> Member | None:
    """Return the member that is next among some members of a room, counted from the releasing owner."""
    return fairest(members, after=_ordinal(room, giver), size=room.next_ordinal)


def is_before(room: Room, one: Member, other: Member) -> bool:
    """Return whether one member comes before another, counted from the last owner."""
    after, size = _ordinal(room, room.prior_owner), room.next_ordinal
    return rank(one, after, size) < rank(other, after, size)


def _ordinal(room: Room, name: str) -> int:
    member = room.member(name)
    return -1 if member is None else member.ordinal


# --------------------
# Time and size limits of rooms. Values only.

_MINUTE_MS: Final = 60_000

# Values of `Policy.room_wakes`: the senders that wake all members with a message to the room.
PERSONS_WAKE: Final = "human"
ALL_WAKE: Final = "everyone"


@dataclass(slots=True, kw_only=True)
class Policy:
    """All limits of a room. All parts of a daemon share one object: a changed setting changes it in place."""

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


def change_policy(policy: Policy, settings: Settings) -> None:
    """Set the limits of a policy by new settings, for every part that uses it."""
    for name, value in asdict(policy_from(settings)).items():
        setattr(policy, name, value)


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


# --------------------
# Facts about room members that are not in the log: presence, waits and last activity.
#
# `MemberPresence` is the interface of the live source. `RoomFacts` is a snapshot of it, so that a repeated
# decision has the same result. Pure: stores nothing.


class MemberPresence(Protocol):
    """The presence and activity of members. Times are Unix milliseconds, None for never."""

    @property
    def started_ms(self) -> int:
        """When the daemon started; earlier activity is not known."""
        ...

    def is_present(self, name: str) -> bool:
        """Return whether it can be reached: a live process, a link, a wait, or a recent request."""
        ...

    def is_active(self, name: str) -> bool:
        """Return whether its process is alive and its status is active; it then needs no other sign."""
        ...

    def gone_since_ms(self, name: str) -> int | None:
        """Return since when its process has certainly ended; None if it is alive or unknown."""
        ...

    def token_ms(self, name: str) -> int | None:
        """Return when it last used a token; the process of a token user is unknown."""
        ...

    def seen_ms(self, name: str) -> int | None:
        """Return its last activity: a request, or a status other than idle and exited."""
        ...

    def idle_since_ms(self, name: str) -> int | None:
        """Return since when its status is idle."""
        ...

    def beat_ms(self, room: str, name: str) -> int | None:
        """Return when it last renewed its lease with `heartbeat`."""
        ...

    def last_wait_ms(self, room: str, name: str) -> int | None:
        """Return when it last waited for its turn there, or joined."""
        ...

    def is_waiting(self, room: str, name: str) -> bool:
        """Return whether it waits for its turn there now, parked or not."""
        ...

    def is_parked(self, room: str, name: str) -> bool:
        """Return whether its last wait there was parked: it accepts only a reserved stick."""
        ...

    def may_know(self, name: str, seq: int) -> bool:
        """Return whether it may have read a message that is not recorded as read yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The facts about one member at one time; the fields have the meaning of `MemberPresence`."""

    is_present: bool = False
    is_active: bool = False
    gone_since_ms: int | None = None
    token_ms: int | None = None
    seen_ms: int | None = None
    idle_since_ms: int | None = None
    beat_ms: int | None = None
    last_wait_ms: int | None = None
    is_waiting: bool = False
    is_parked: bool = False


_UNSEEN: Final = Sight()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomFacts:
    """A snapshot for one room."""

    now_ms: int
    started_ms: int = 0
    sights: Mapping[str, Sight] = field(default_factory=dict)

    def of(self, name: str) -> Sight:
        """Return the facts about a member; a name outside the snapshot is away."""
        return self.sights.get(name, _UNSEEN)


def take_facts(member_presence: MemberPresence, now_ms: int, room: str, names: Iterable[str]) -> RoomFacts:
    """Take a snapshot of the named members."""
    return RoomFacts(
        now_ms=now_ms,
        started_ms=member_presence.started_ms,
        sights={
            name: Sight(
                is_present=member_presence.is_present(name),
                is_active=member_presence.is_active(name),
                gone_since_ms=member_presence.gone_since_ms(name),
                token_ms=member_presence.token_ms(name),
                seen_ms=member_presence.seen_ms(name),
                idle_since_ms=member_presence.idle_since_ms(name),
                beat_ms=member_presence.beat_ms(room, name),
                last_wait_ms=member_presence.last_wait_ms(room, name),
                is_waiting=member_presence.is_waiting(room, name),
                is_parked=member_presence.is_parked(room, name),
            )
            for name in names
        },
    )


@dataclass(frozen=True, slots=True)
class Unattended:
    """Presence without a live source: members are present or not, and no member waits."""

    presence: Callable[[str], bool]
    started_ms: int = 0

    def is_present(self, name: str) -> bool:
        return self.presence(name)

    def is_active(self, name: str) -> bool:
        return False

    def gone_since_ms(self, name: str) -> int | None:
        return None

    def token_ms(self, name: str) -> int | None:
        return None

    def seen_ms(self, name: str) -> int | None:
        return None

    def idle_since_ms(self, name: str) -> int | None:
        return None

    def beat_ms(self, room: str, name: str) -> int | None:
        return None

    def last_wait_ms(self, room: str, name: str) -> int | None:
        return None

    def is_waiting(self, room: str, name: str) -> bool:
        return False

    def is_parked(self, room: str, name: str) -> bool:
        return False

    def may_know(self, name: str, seq: int) -> bool:
        return False


# --------------------
# Conditions of a room at a time: the end of a lease, exited members, possible takeovers.
#
# Pure. Nothing here changes a room: time alone changes nothing, it only permits actions.


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


_SHOWN: Final = (
    (Cause.OWNER_TIMEOUT, Condition.STALE_OWNER),
    (Cause.OWNER_GONE, Condition.OWNER_GONE),
    (Cause.OWNER_IDLE, Condition.OWNER_IDLE),
)
"""The condition that is shown for each cause, in this order."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why a takeover is possible now, and when that changes by itself; None for not, and for never."""

    cause: Cause | None
    changes_ms: int | None


def lease_until_ms(room: Room, facts: RoomFacts, policy: Policy) -> int:
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


def gone_at_ms(room: Room, name: str, facts: RoomFacts, policy: Policy) -> int | None:
    """Return the time from which a member counts as exited; None while its process may be alive.

    That is one grace period after the end of its process or its last sign, whichever is later. A token user
    has no known process: it counts as present for one lease after its last request.
    """
    return _silent_until_ms(room, name, facts, policy, policy.gone_grace_ms)


def retires_at_ms(room: Room, name: str, facts: RoomFacts, policy: Policy) -> int | None:
    """Return the time from which an exited member is removed; None while its process may be alive."""
    return _silent_until_ms(room, name, facts, policy, policy.presence_ms)


def _silent_until_ms(room: Room, name: str, facts: RoomFacts, policy: Policy, silence_ms: int) -> int | None:
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


def is_gone(room: Room, name: str, facts: RoomFacts, policy: Policy) -> bool:
    """Return whether a member counts as exited."""
    gone_ms = gone_at_ms(room, name, facts, policy)
    return gone_ms is not None and gone_ms <= facts.now_ms


def has_ended(room: Room, name: str, facts: RoomFacts, policy: Policy) -> bool:
    """Return whether the process of a member has ended; it counts as exited unless it gives a sign."""
    ended_ms = _silent_until_ms(room, name, facts, policy, 0)
    return ended_ms is not None and ended_ms <= facts.now_ms


def reservation_until_ms(room: Room, facts: RoomFacts, policy: Policy) -> int:
    """Return the time at which a reservation ends: at its limit, or when its recipient has exited."""
    gone = gone_at_ms(room, room.reserved_for, facts, policy)
    return room.claim_until_ms if gone is None else min(room.claim_until_ms, gone)


def outlook(room: Room, facts: RoomFacts, policy: Policy) -> Outlook:
    """Return whether the stick may be taken over, and when that can change without an event."""
    if room.state == StickState.OWNED:
        times = _takeover_times(room, facts, policy)
    elif room.state == StickState.RESERVED:
        times = {Cause.CLAIM_TIMEOUT: reservation_until_ms(room, facts, policy)}
    else:
        times = {}
    cause = next((cause for cause, time_ms in times.items() if time_ms <= facts.now_ms), None)
    later = [time_ms for time_ms in times.values() if time_ms > facts.now_ms]
    return Outlook(cause, min(later, default=None))


def conditions(room: Room, facts: RoomFacts, policy: Policy) -> tuple[Condition, ...]:
    """Return the conditions to show with a room.

    An exited member is shown from the end of its process. The bus acts only after the grace period, and until
    then the condition explains why the stick does not move.
    """
    found: list[Condition] = []
    if room.state == StickState.OWNED:
        times = _takeover_times(room, facts, policy)
        over = {cause for cause, time_ms in times.items() if time_ms <= facts.now_ms}
        if has_ended(room, room.owner, facts, policy):
            over.add(Cause.OWNER_GONE)
        found += [condition for cause, condition in _SHOWN if cause in over]
    if room.state == StickState.RESERVED and has_ended(room, room.reserved_for, facts, policy):
        found.append(Condition.RECIPIENT_GONE)
    if room.is_open and not any(facts.of(name).is_present for name in room.names):
        found.append(Condition.DORMANT)
    return tuple(found)


def _takeover_times(room: Room, facts: RoomFacts, policy: Policy) -> dict[Cause, int]:
    """Return the times from which the owner may lose the stick, the most serious cause first."""
    times: dict[Cause, int] = {}
    gone_ms = gone_at_ms(room, room.owner, facts, policy)
    if gone_ms is not None:
        times[Cause.OWNER_GONE] = gone_ms
    times[Cause.OWNER_TIMEOUT] = lease_until_ms(room, facts, policy)
    owner = facts.of(room.owner)
    if owner.idle_since_ms is not None:
        signs = (owner.idle_since_ms, room.claimed_ms, owner.seen_ms or 0, owner.beat_ms or 0)
        times[Cause.OWNER_IDLE] = max(signs) + policy.owner_idle_ms
    return times


# --------------------
# The input and output of decisions about a room: a `RoomSnapshot` in, and a `Move` or a `NoChange` out.
#
# Pure. Nothing is decided here.


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An event to write: its payload and the other party."""

    payload: Payload
    to: tuple[str, ...] = ()
    id: str = ""
    """The id that the event must have, so that a repeat is the same event. Empty for a new id."""

    @property
    def type(self) -> str:
        """The type of the event."""
        return type_of(self.payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoChange:
    """A result without an event to write. The fields have the meaning of `Turn`."""

    status: str
    reason: str = ""
    look_again_ms: int | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomSnapshot:
    """A room with the facts about its members and the limits, at one time."""

    room: Room
    facts: RoomFacts
    policy: Policy

    def others(self, *names: str) -> Iterator[Member]:
        """Yield the present members, except these, that would take a free stick.

        A person counts only while waiting: a person in the room does not delay others.
        """
        for member in self.room.members:
            sight = self.facts.of(member.name)
            is_willing = sight.is_waiting or member.name != HUMAN
            if member.name not in names and sight.is_present and not sight.is_parked and is_willing:
                yield member

    def next_waiter(self, giver: str, *names: str) -> Member | None:
        """Return the fairest member, except these, that waits or waited recently."""
        waiters = [member for member in self.others(giver, *names) if self._has_waited(member)]
        return first_in_line(self.room, waiters, giver)

    def left_ms(self, until_ms: int | None) -> int | None:
        """Return the remaining time until then, at least 0; None for None."""
        return None if until_ms is None else max(0, until_ms - self.facts.now_ms)

    def _has_waited(self, member: Member) -> bool:
        sight = self.facts.of(member.name)
        joined = max(sight.last_wait_ms or 0, member.joined_ms)
        return sight.is_waiting or self.facts.now_ms - joined <= self.policy.waiter_grace_ms


def member_of(room: Room, name: str) -> Member:
    """Return a member by its full name; raises `UnknownMember`."""
    member = room.member(name)
    if member is None:
        raise UnknownMember(name, room.id)
    return member
