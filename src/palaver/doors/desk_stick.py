"""Room tools for the stick: wait for it, keep it, release it, pass it, take it over."""

from collections.abc import Mapping
from typing import Final

from palaver.broker.outcome import Turn
from palaver.doors.desk_parts import LIMIT_WAIT_MS, Answer, Tools
from palaver.doors.desk_views import turn_view
from palaver.errors import BadRequest
from palaver.log.fold_rooms import find_room
from palaver.model.agent import Caller
from palaver.model.envelope import Event
from palaver.model.room import Claim, PassStick, ReleaseStick, TakeOver
from palaver.rooms.conditions import lease_until_ms
from palaver.rooms.events import SELF, event_filter, passes
from palaver.rooms.room import Room
from palaver.rooms.stick import check_holder

_PAGE: Final = 100
_CLAIM: Final = "claim"
_PARKED: Final = "parked"


class StickTools(Tools):
    """The tools for the stick."""

    async def wait_for_turn(
        self,
        caller: Caller,
        *,
        room_id: str,
        max_wait_ms: int | None = None,
        mode: str = "claim",
        allow_solo_claim: bool = True,
        events: bool = False,
        after_event_seq: int | None = None,
        limit_ms: int | None = LIMIT_WAIT_MS,
        key: bytes | None = None,
    ) -> Answer:
        """Wait until the caller gets the stick, a takeover is possible, or the room is closed.

        `status` is `your_turn` (with `turn_id lease_id handoff from_agent_id reason`), `not_yet`,
        `takeover_available` or `closed`. With `events` or `after_event_seq` the result also contains the
        room's events for the caller after that seq. If `limit_ms` is None, `max_wait_ms` has no upper limit,
        and None there waits indefinitely.
        """
        if mode not in (_CLAIM, _PARKED):
            raise BadRequest(f"the modes are {_CLAIM} and {_PARKED}, not {mode!r}")
        room = find_room(self.log.rows, room_id)
        request = Claim(room=room.id, is_parked=mode == _PARKED, allows_solo=allow_solo_claim)
        wait_ms = self.wait_ms(max_wait_ms, limit_ms)
        turn = await self.waits.turn(caller, room, request, wait_ms, key)
        answer = turn_view(turn, self.facts(turn.room), self.policy)
        if events or after_event_seq is not None:
            answer |= await self._events_with_turn(caller, turn, after_event_seq)
        return answer

    async def heartbeat(
        self, caller: Caller, *, room_id: str, lease_id: str, expected_turn_id: int
    ) -> Answer:
        """Record that the owner is at work; `status` is `ok`, with `lease_expires_at`. Stores no event."""
        room = find_room(self.log.rows, room_id)
        check_holder(room, caller.name, expected_turn_id, lease_id)
        self.attendance.beat(room.id, caller.name)
        return {
            "status": "ok",
            "room_id": room.id,
            "turn_id": room.turn,
            "lease_expires_at": lease_until_ms(room, self.facts(room), self.policy),
            "heartbeat_interval_ms": self.policy.heartbeat_ms,
        }

    async def release_stick(
        self,
        caller: Caller,
        *,
        room_id: str,
        lease_id: str,
        expected_turn_id: int,
        handoff: Mapping[str, object],
        key: bytes | None = None,
    ) -> Answer:
        """Release the stick. `status` is `released`; `reserved_for` is the next waiting member or null."""
        request = ReleaseStick(room=room_id, turn=expected_turn_id, lease=lease_id, handoff=dict(handoff))
        return self._given("released", await self.written(caller, request, key))

    async def pass_stick(
        self,
        caller: Caller,
        *,
        room_id: str,
        lease_id: str,
        expected_turn_id: int,
        to_agent_id: str,
        handoff: Mapping[str, object],
        operator_override: bool = False,
        key: bytes | None = None,
    ) -> Answer:
        """Pass the stick to a member. `status` is `passed`; `reserved_for` is that member."""
        request = PassStick(
            room=room_id,
            turn=expected_turn_id,
            lease=lease_id,
            to=to_agent_id,
            handoff=dict(handoff),
            is_override=operator_override,
        )
        return self._given("passed", await self.written(caller, request, key))

    async def takeover_stick(
        self,
        caller: Caller,
        *,
        room_id: str,
        expected_turn_id: int,
        reason: str,
        operator_override: bool = False,
        key: bytes | None = None,
    ) -> Answer:
        """Take over the stick if that is allowed. Returns the fields of `your_turn`, and `revoked`."""
        request = TakeOver(room=room_id, turn=expected_turn_id, reason=reason, is_override=operator_override)
        turn = await self.submit(caller, request, key)
        assert isinstance(turn, Turn)
        return turn_view(turn, self.facts(turn.room), self.policy)

    def _given(self, status: str, event: Event) -> Answer:
        """Return the result of a release or pass: the member it is reserved for, and whether it is parked."""
        room, whom = str(event.payload["room"]), event.payload.get("reserved_for")
        return {
            "status": status,
            "room_id": room,
            "turn_id": event.payload["turn_id"],
            "reserved_for": whom or None,
            "claim_expires_at": event.payload.get("until"),
            "routed_to_parked": isinstance(whom, str) and self.attendance.is_parked(room, whom),
            "event_seq": event.seq,
        }

    async def _events_with_turn(self, caller: Caller, turn: Turn, after: int | None) -> Answer:
        """Return the events for the caller after a seq, without its own and without claims of ended turns."""
        if after is None:
            after = self.waits.cursor(caller, turn.room)
        wanted = event_filter(caller=caller.name, target=SELF)
        found = await self.waits.stored(
            turn.room,
            lambda event: (
                passes(wanted, event) and event.sender != caller.name and not _is_old_claim(event, turn.room)
            ),
            after,
            _PAGE,
        )
        return self.page_of(caller, turn.room, found, after)


def _is_old_claim(event: Event, room: Room) -> bool:
    return event.type == "claim" and event.payload.get("turn_id") != room.turn
