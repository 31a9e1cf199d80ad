"""The stick of a room: its states, its lease, and every decision about it. Pure."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from palaver.config import Settings
from palaver.errors import (
    BadRequest,
    BadText,
    CannotKickSelf,
    InvalidHandoff,
    NotAllowed,
    NotOwner,
    ParkRequiresRelease,
    RecipientUnreachable,
    RoomClosed,
    StaleLease,
    TakeoverIneligible,
    TakeoverNotAvailable,
    TargetActive,
    TurnMismatch,
    UnknownMember,
    UnknownTarget,
)
from palaver.ids import derived_id
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.events import (
    MEMBER_LEFT,
    Closed,
    Granted,
    Kicked,
    MemberLeft,
    Passed,
    Payload,
    Released,
    ReservationExpired,
    TakenOver,
    type_of,
)
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import KICKED
from palaver.protocol.text import check_text
from palaver.state.rooms import Member, Room, StickState, find_member

# --------------------
# Choose the next owner: never had the stick, then longest ago, then in circular order. Pure.


def rank(member: Member, after: int, size: int) -> tuple[int, int]:
    """Return the rank of a member; the lowest is next.

    `after` is the ordinal of the releasing owner, -1 for none; `size` is larger than every ordinal. No two
    members have the same rank, so the order never depends on the order of a list.
    """
    # `last_turn` is 0 for a member that never had the stick, so it comes first. Of equal members, the one
    # right after the releasing owner is first, and that owner itself would be last.
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
    # The releasing owner may have left the room. With -1 the circle begins at the first ordinal.
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

    # The defaults are those of the settings; a test compares them.
    lease_ms: int = 45 * _MINUTE_MS
    """How long an owner may be silent before the stick may be taken over."""
    heartbeat_ms: int = 5 * _MINUTE_MS
    """How often an owner should renew its lease. It is advice for owners, and the unit of the grace period
    below."""
    claim_ms: int = 20 * _MINUTE_MS
    """How long a reservation waits for its recipient."""
    waiter_grace_ms: int = 10_000
    """How long a member still counts as waiting after its last wait."""
    presence_ms: int = 240 * _MINUTE_MS
    """How long an exited member stays a member."""
    long_poll_ms: int = 110_000
    """How long one call of a tool may wait at most; harnesses cancel calls that take long."""
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
    """Set the limits of a policy by new settings, for every part that uses it.

    The object stays the same, because all parts have a reference to it.
    """
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


# Events of takeovers contain these words, so they cannot change.
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
    # The stored end counts too: after the setting was lowered, an owner keeps the time that its claim was
    # given.
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
    # The grace period is subtracted because `gone_at_ms` adds it again: together that is one lease.
    token = 0 if sight.token_ms is None else sight.token_ms + policy.lease_ms - policy.gone_grace_ms
    silent = max(sight.gone_since_ms, sight.seen_ms or 0, sight.beat_ms or 0, claimed, token)
    # At most `silence_ms`: a restart must not lengthen a limit that is shorter than the grace of waiters.
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
    # The first cause that applies is the most serious one: `_takeover_times` has them in this order.
    cause = next((cause for cause, time_ms in times.items() if time_ms <= facts.now_ms), None)
    # Only future times: a wait sleeps until then, and a time that has passed would end every sleep at once.
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
    # The order decides which cause is reported if several apply: see `outlook`.
    gone_ms = gone_at_ms(room, room.owner, facts, policy)
    if gone_ms is not None:
        times[Cause.OWNER_GONE] = gone_ms
    times[Cause.OWNER_TIMEOUT] = lease_until_ms(room, facts, policy)
    owner = facts.of(room.owner)
    if owner.idle_since_ms is not None:
        # An owner that was idle before its turn has its full time from the claim on.
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
        # A new member counts as waiting for a moment: it has had no time to ask for the stick.
        joined = max(sight.last_wait_ms or 0, member.joined_ms)
        return sight.is_waiting or self.facts.now_ms - joined <= self.policy.waiter_grace_ms


def member_of(room: Room, name: str) -> Member:
    """Return a member by its full name; raises `UnknownMember`."""
    member = room.member(name)
    if member is None:
        raise UnknownMember(name, room.id)
    return member


# --------------------
# Decide about each request for the stick, and about leaving, removing members and closing a room. Pure.
#
# Each function takes a snapshot and returns a `Move` to write, or a `NoChange` or None if there is nothing to
# write. A refused request raises an error. The broker calls a function again inside the commit, where another
# event of the room may have come first; so a function must not keep or change anything.

# Clients of the room tools compare these words, so they cannot change.
YOUR_TURN: Final = "your_turn"
NOT_YET: Final = "not_yet"
TAKEOVER_AVAILABLE: Final = "takeover_available"
CLOSED: Final = "closed"

# Events of claims contain the first three as their reason, so they cannot change.
OPEN_CLAIM: Final = "open_claim"
SEQUENCE: Final = "sequence"
DIRECT_PASS: Final = "direct_pass"  # noqa: S105 - a reason
ALREADY_OWNER: Final = "already_owner"


def claim(now: RoomSnapshot, name: str, lease: str, *, is_parked: bool, allows_solo: bool) -> Move | NoChange:
    """Decide about a member that asks for its turn.

    `lease` is the token of the new turn if the stick is granted. The caller draws it, because this module is
    pure.
    """
    room = now.room
    if not room.is_open:
        return NoChange(status=CLOSED)
    me = member_of(room, name)
    if room.state == StickState.OWNED:
        return _ask_holder(now, name, is_parked=is_parked)
    # Before the check for parked members below: a reserved stick is the only one that they accept.
    if room.reserved_for == name:
        return _grant(now, name, lease, DIRECT_PASS if room.is_direct else SEQUENCE)
    if room.state == StickState.RESERVED:
        return NoChange(
            status=NOT_YET, look_again_ms=now.left_ms(reservation_until_ms(room, now.facts, now.policy))
        )
    # From here on the stick is free, and a parked member takes only a reserved one.
    if is_parked:
        return _parked(room)
    if not allows_solo and not any(now.facts.of(one).is_present for one in room.names if one != name):
        return NoChange(
            status=NOT_YET,
            reason="solo_claim_disabled",
            hint="No other member is present; the stick is free.",
        )
    return _wait_for_others(now, me) or _grant(now, name, lease, SEQUENCE if room.pending else OPEN_CLAIM)


def _ask_holder(now: RoomSnapshot, name: str, *, is_parked: bool) -> NoChange:
    """Return the result while the stick is owned: by the caller, or by a member it may be taken from."""
    room = now.room
    if room.owner == name:
        left = lease_until_ms(room, now.facts, now.policy) - now.facts.now_ms
        if left <= 0:
            hint = "Your lease has expired; a heartbeat renews it until another member takes over."
            return NoChange(status=NOT_YET, reason="lease_expired", hint=hint)
        # A member parks to step aside. With the stick it would keep all others waiting.
        if is_parked:
            raise ParkRequiresRelease(room.id)
        return NoChange(status=YOUR_TURN, reason=ALREADY_OWNER, look_again_ms=left)
    found = outlook(room, now.facts, now.policy)
    again = now.left_ms(found.changes_ms)
    if found.cause is None or _why_ineligible(now, name):
        return NoChange(status=NOT_YET, look_again_ms=again)
    return NoChange(status=TAKEOVER_AVAILABLE, reason=found.cause.value, look_again_ms=again)


def _parked(room: Room) -> NoChange:
    if room.pending is None:
        return NoChange(status=NOT_YET)
    hint = f"There is a pending handoff by {room.pending.by}; claim without parking to take the stick."
    return NoChange(status=NOT_YET, reason="auto_claim_disabled", hint=hint)


def _wait_for_others(now: RoomSnapshot, me: Member) -> NoChange | None:
    """Return a deferral for the last owner and for members that are not the fairest; None if none applies."""
    room, policy = now.room, now.policy
    cooled = room.idle_since_ms + policy.cooldown_ms
    # In both checks the member that let its reservation expire does not count: otherwise
    # all would wait for it a second time.
    is_cooling = me.name == room.prior_owner and now.facts.now_ms < cooled
    if is_cooling and any(now.others(me.name, room.lapsed)):
        hint = "You owned the stick last; other members can take it first."
        return _deferred(now, "prior_owner_cooldown", cooled, hint)
    grace = room.idle_since_ms + policy.waiter_grace_ms
    if now.facts.now_ms < grace:
        ahead = (
            one for one in now.others(me.name, room.lapsed, room.prior_owner) if is_before(room, one, me)
        )
        if (first := next(ahead, None)) is not None:
            return _deferred(now, "others_first", grace, f"{first.name} is before you in line.")
    return None


def _deferred(now: RoomSnapshot, reason: str, until_ms: int, hint: str) -> NoChange:
    return NoChange(status=NOT_YET, reason=reason, look_again_ms=now.left_ms(until_ms), hint=hint)


def _grant(now: RoomSnapshot, name: str, lease: str, reason: str) -> Move:
    room = now.room
    granted = Granted(
        room=room.id,
        # The fold refuses any other number, so two events can never start the same turn.
        turn_id=room.turn + 1,
        lease_id=lease,
        reason=reason,
        sender=room.prior_owner or None,
        until=now.facts.now_ms + now.policy.lease_ms,
    )
    return Move(payload=granted, to=(name,))


def check_holder(room: Room, name: str, turn: int, lease: str) -> None:
    """Refuse a caller that does not own the stick by this turn and lease. An expired lease is valid."""
    if not room.is_open:
        raise RoomClosed(room.id)
    member_of(room, name)
    # The turn is checked before the lease: a caller of an earlier turn must learn that its turn is over.
    check_turn(room, turn)
    if room.state != StickState.OWNED or lease != room.lease:
        raise StaleLease(turn)
    if name != room.owner:
        raise NotOwner(room.owner)


def check_turn(room: Room, turn: int) -> None:
    """Refuse a caller that refers to another turn."""
    if turn != room.turn:
        raise TurnMismatch(turn, room.turn)


def release(now: RoomSnapshot, name: str, turn: int, lease: str, handoff: dict[str, object]) -> Move:
    """Decide about an owner that releases the stick for the next member."""
    check_holder(now.room, name, turn, lease)
    return _free(now, Released(room=now.room.id, turn_id=turn, handoff=handoff), giver=name)


def pass_on(
    now: RoomSnapshot,
    name: str,
    turn: int,
    lease: str,
    to: str,
    handoff: dict[str, object],
    *,
    is_override: bool,
) -> Move:
    """Decide about an owner that passes the stick to a named member."""
    room = now.room
    check_holder(room, name, turn, lease)
    member = find_member(room, to, lambda one: now.facts.of(one).is_present, asking=name)
    if member.name == name:
        raise BadRequest("you already own the stick; release it, or pass it to another member")
    # Without this check the reservation would keep the others waiting until its time limit.
    if not is_override and not now.facts.of(member.name).is_present:
        raise RecipientUnreachable(member.name)
    passed = Passed(
        room=room.id,
        turn_id=turn,
        handoff=handoff,
        reserved_for=member.name,
        until=now.facts.now_ms + now.policy.claim_ms,
    )
    return Move(payload=passed, to=(member.name,))


def take_over(now: RoomSnapshot, name: str, turn: int, lease: str, reason: str, *, is_override: bool) -> Move:
    """Decide about a member that takes the stick from another."""
    room = now.room
    if not room.is_open:
        raise RoomClosed(room.id)
    member_of(room, name)
    check_turn(room, turn)
    # A reserved stick can be taken over too: then its recipient loses it.
    loser = room.owner or room.reserved_for
    if not loser:
        raise TakeoverNotAvailable("it is free; 'pal stick claim' takes it")
    if loser == name:
        raise TakeoverIneligible(
            "it is yours; 'pal stick heartbeat' renews your lease, 'pal stick claim' takes a reserved stick"
        )
    cause = Cause.OPERATOR_OVERRIDE if is_override else _cause(now, name)
    taken = TakenOver(
        room=room.id,
        turn_id=room.turn + 1,
        lease_id=lease,
        cause=cause.value,
        until=now.facts.now_ms + now.policy.lease_ms,
        reason=reason,
    )
    return Move(payload=taken, to=(loser,))


def _cause(now: RoomSnapshot, name: str) -> Cause:
    cause = outlook(now.room, now.facts, now.policy).cause
    if cause is None:
        word = "owns it" if now.room.owner else "has it reserved"
        raise TakeoverNotAvailable(
            f"{now.room.owner or now.room.reserved_for} {word} and still has time; 'pal stick wait' waits "
            "for it"
        )
    if reason := _why_ineligible(now, name):
        raise TakeoverIneligible(reason)
    return cause


def _why_ineligible(now: RoomSnapshot, name: str) -> str:
    """Return why a member cannot take over although others can; empty if it can."""
    room = now.room
    if name != room.prior_owner or not any(now.others(name, room.owner, room.reserved_for)):
        return ""
    return "you owned it last, and other members can take it; 'pal stick wait' waits for your turn"


def hand_on(now: RoomSnapshot, turn: int, reason: str) -> Move | None:
    """Decide about an exited owner of this turn: the stick is released without a handoff.

    None if that is no longer true. A timer asks for it, and the owner may have returned or passed on the
    stick since the timer was set.
    """
    room = now.room
    is_over = room.state == StickState.OWNED and room.turn == turn
    if not is_over or not is_gone(room, room.owner, now.facts, now.policy):
        return None
    # The bus writes this event, so the payload must name the owner: the fold compares it with that of the
    # room.
    freed = Released(room=room.id, turn_id=turn, reason=reason, sender=room.owner)
    return _free(now, freed, giver=room.owner)


def expire(now: RoomSnapshot, turn: int) -> Move | None:
    """Decide about an unclaimed reservation: it goes to the next waiter or ends. The handoff stays.

    None if the reservation still has time or is another one, as in `hand_on`.
    """
    room = now.room
    is_reserved = room.state == StickState.RESERVED and room.turn == turn
    if not is_reserved or reservation_until_ms(room, now.facts, now.policy) > now.facts.now_ms:
        return None
    late = room.reserved_for
    freed = ReservationExpired(room=room.id, turn_id=turn, sender=room.prior_owner or None)
    # The order is counted from the last owner, because the late recipient never had this turn.
    return _free(now, freed, giver=room.prior_owner, late=late)


def _free(now: RoomSnapshot, freed: Released | ReservationExpired, *, giver: str, late: str = "") -> Move:
    """Reserve the stick for the fairest waiter, or free it if no member waits."""
    # Not for the late recipient again: the stick could go back and forth without an owner.
    following = now.next_waiter(giver, late)
    if following is not None:
        until = now.facts.now_ms + now.policy.claim_ms
        freed = replace(freed, reserved_for=following.name, until=until)
    to = late or freed.reserved_for
    return Move(payload=freed, to=(to,) if to else ())


# --------------------
# Handoffs: notes from one owner of the stick to the next. They are only checked here. Pure.
#
# `status` and `next_action` are required; `artifacts`, `open_questions` and `do_not` must be lists if
# present. Unknown keys are kept.

LIMIT_HANDOFF_BYTES: Final = 32 * 1024

NEEDED: Final = ("status", "next_action")
LISTS: Final = ("artifacts", "open_questions", "do_not")

_WHOLE: Final = "content"
_LIMIT_SHOWN: Final = 40


def checked_handoff(handoff: Mapping[str, object]) -> dict[str, object]:
    """Return a handoff as it is stored; raises `InvalidHandoff` with the name of the invalid field."""
    made = _as_json(handoff)
    for needed in NEEDED:
        _check_words(needed, made.get(needed))
    for listed in LISTS:
        if listed in made:
            _check_list(listed, made[listed])
    for key, value in made.items():
        # Not under its own name: the error would repeat the refused character.
        _check_characters(_WHOLE, key)
        _check_characters(key, value)
    return made


def _as_json(handoff: Mapping[str, object]) -> dict[str, object]:
    """Return the handoff as it will be read from the log."""
    # The decoded value is checked, because encoding changes some: an infinite number becomes null.
    try:
        text = msgspec.json.encode(handoff)
        made = msgspec.json.decode(text, type=dict[str, object])
    # RecursionError comes from a handoff that contains itself. The caller must get a refusal in every case.
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidHandoff(_WHOLE, f"cannot be stored as JSON: {error}") from error
    if len(text) > LIMIT_HANDOFF_BYTES:
        raise InvalidHandoff(
            _WHOLE,
            f"has {len(text)} bytes; the limit is {LIMIT_HANDOFF_BYTES}. Name files instead of their content",
        )
    return made


def _check_words(field: str, value: object) -> None:
    if value is None:
        raise InvalidHandoff(field, "is missing; write one sentence")
    if not isinstance(value, str) or not value.strip():
        raise InvalidHandoff(field, "must be a sentence, not " + _shown(value))


def _check_list(field: str, value: object) -> None:
    fits = _is_artifact if field == "artifacts" else _is_words
    if not isinstance(value, list):
        raise InvalidHandoff(field, "must be a list, not " + _shown(value))
    for number, one in enumerate(value, 1):
        if not fits(one):
            wanted = "a text or {path, lines?, note?}" if field == "artifacts" else "a text"
            raise InvalidHandoff(field, f"must have {wanted} as item {number}, not {_shown(one)}")


def _is_words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_artifact(value: object) -> bool:
    if not isinstance(value, dict):
        return _is_words(value)
    return (
        _is_words(value.get("path"))
        and _is_lines(value.get("lines"))
        and isinstance(value.get("note", ""), str)
    )


def _is_lines(value: object) -> bool:
    """Return whether the value is missing, a number, a range as a text, or a list of those."""
    parts = value if isinstance(value, list) else [value]
    # A bool is an int in Python, but not the number of a line.
    return value is None or all(isinstance(part, (int, str)) and not isinstance(part, bool) for part in parts)


def _check_characters(field: str, value: object) -> None:
    for text in _texts(value):
        try:
            # Only for its characters: the size of the whole is checked already.
            check_text(text, field, LIMIT_HANDOFF_BYTES)
        except BadText as error:
            reason = f"contains the character U+{error.codepoint:04X}, which is not allowed"
            raise InvalidHandoff(field, reason) from error


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a value at any depth, including keys."""
    # A list instead of recursion, because the depth is the caller's.
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            rest += one


def _shown(value: object) -> str:
    # Escaped: the error names a value that may contain the very character that is refused.
    text = ascii(value)
    return text if len(text) <= _LIMIT_SHOWN else f"{text[:_LIMIT_SHOWN]}…"


# --------------------
# Leaving, removing members, and closing a room.


def leave(room: Room, name: str, reason: str) -> Move:
    """Decide about a member that leaves."""
    _check_open(room)
    member_of(room, name)
    return Move(payload=MemberLeft(room=room.id, reason=reason))


def retire(room: Room, name: str, reason: str) -> Move | None:
    """Decide about a member that the bus removes; None if it is not a member."""
    if not room.is_open or room.member(name) is None:
        return None
    # The bus is the sender of this event. Without `member` the fold would remove the sender.
    return Move(payload=MemberLeft(room=room.id, reason=reason, member=name))


def tell_kick(room: Room, name: str, kick: str) -> Move | None:
    """Decide about the notice of a kick; None if the room is closed."""
    if not room.is_open:
        return None
    # The id follows from the kick, so that a repeat after a restart writes nothing.
    left = MemberLeft(room=room.id, reason=KICKED, member=name, kick=kick)
    return Move(payload=left, id=derived_id(kick, MEMBER_LEFT, name))


def kick(now: RoomSnapshot, caller: Caller, target: str, reason: str, *, is_forced: bool) -> Move:
    """Decide about a member that another agent removes.

    Any member can remove an exited member. Only an operator can remove a present one, and it need not be a
    member.
    """
    room = now.room
    _check_open(room)
    found = _target(now, caller, target)
    if not is_gone(room, found, now.facts, now.policy):
        if not is_forced:
            raise TargetActive(found, _gone_in_s(now, found))
        if not _is_operator(caller):
            raise NotAllowed("room kick --force", caller.standing.word, Standing.OPERATOR.word)
    return Move(payload=Kicked(room=room.id, reason=reason), to=(found,))


def _gone_in_s(now: RoomSnapshot, name: str) -> int | None:
    """Return in how many seconds a member counts as exited; None while its process may be alive."""
    gone_ms = gone_at_ms(now.room, name, now.facts, now.policy)
    return None if gone_ms is None else ceil((gone_ms - now.facts.now_ms) / 1000)


def _target(now: RoomSnapshot, caller: Caller, target: str) -> str:
    room = now.room
    try:
        found = find_member(room, target, lambda name: now.facts.of(name).is_present, asking=caller.name).name
    except UnknownMember:
        # Not refused yet: a caller outside the room must learn that first.
        found = ""
    if found == caller.name:
        raise CannotKickSelf(room.id)
    if room.member(caller.name) is None and not _is_operator(caller):
        raise UnknownMember(caller.name, room.id)
    if not found:
        raise UnknownTarget(target, room.id)
    return found


def close(room: Room, reason: str) -> Move:
    """Decide about closing a room."""
    _check_open(room)
    return Move(payload=Closed(room=room.id, reason=reason))


def _check_open(room: Room) -> None:
    if not room.is_open:
        raise RoomClosed(room.id)


def _is_operator(caller: Caller) -> bool:
    return caller.standing >= Standing.OPERATOR
