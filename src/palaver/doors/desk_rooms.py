"""Room tools for rooms and members: join, leave, remove, close, list and show."""

from typing import Final

from palaver.broker.outcome import Seated
from palaver.doors.desk_parts import Answer, Tools
from palaver.doors.desk_views import room_line, room_view
from palaver.errors import BadRequest, NotAPlace
from palaver.log.fold_rooms import (
    find_room,
    read_all_rooms,
    read_open_rooms,
    read_room,
    read_room_at,
    read_rooms_of,
)
from palaver.model.agent import Caller, Standing
from palaver.model.room import CloseRoom, JoinRoom, KickMember, LeaveRoom
from palaver.rooms.room import Room

_PERSONS: Final = frozenset({Standing.HUMAN, Standing.GUEST})


class RoomTools(Tools):
    """The tools for rooms and their members."""

    async def join_path(
        self,
        caller: Caller,
        *,
        context_path: str,
        force_new: bool = False,
        home: str = "",
        key: bytes | None = None,
    ) -> Answer:
        """Join the deepest open room that contains a path, or create the room it belongs to.

        With `force_new` it joins or creates only a room at exactly this folder. It refuses the caller's own
        `home`. Returns `room_id agent_id canonical_path members policy room_state cursor_event_seq`, and
        `warning` if the joined room is above the workspace root or the new room is inside another one.
        """
        self.attendance.saw(caller.name)
        place = await self.places.find(context_path, is_exact=force_new, home=home)
        request = JoinRoom(places=place.chain, inside=place.inside, is_new=force_new)
        seated = await self.submit(caller, request, key)
        assert isinstance(seated, Seated)
        room = self._now(seated.room)
        answer: Answer = {
            **room_view(room, self.facts(room), self.policy, self.find),
            "agent_id": caller.name,
            "is_new": seated.is_new,
            "cursor_event_seq": self.waits.cursor(caller, room),
        }
        if seated.ancestor_of:
            answer["warning"] = (
                f"Joined ancestor room {room.path} above this workspace root {seated.ancestor_of}"
            )
        elif seated.nested_in:
            outer = find_room(self.log.rows, seated.nested_in)
            answer["warning"] = f"Created nested room inside {outer.path} ({outer.id})"
        return answer

    async def list_rooms(
        self, caller: Caller, *, context_path: str | None = None, include_closed: bool = False
    ) -> Answer:
        """Return `rooms`: all of them, or those at and above a path, deepest first."""
        self.attendance.saw(caller.name)
        if context_path is None:
            walk = read_all_rooms if include_closed else read_open_rooms
            rooms = list(walk(self.log.rows))
        else:
            rooms = [room for room in await self._around(context_path) if include_closed or room.is_open]
        return {"rooms": [room_line(room, self.facts(room), self.policy, caller.name) for room in rooms]}

    async def leave_room(self, caller: Caller, *, room_id: str, key: bytes | None = None) -> Answer:
        """Leave a room. `status` is `left`, with `remaining_members` and `room_state`."""
        room = find_room(self.log.rows, room_id)
        await self.submit(caller, LeaveRoom(room=room.id), key)
        return self.outcome("left", room.id)

    async def kick_member(
        self,
        caller: Caller,
        *,
        room_id: str,
        target_agent_id: str,
        force: bool = False,
        reason: str = "",
        key: bytes | None = None,
    ) -> Answer:
        """Remove a member. `status` is `kicked`, with `target_was_owner` and `room_state`."""
        before = find_room(self.log.rows, room_id)
        request = KickMember(room=before.id, target=target_agent_id, is_forced=force, reason=reason)
        event = await self.written(caller, request, key)
        target = event.to[0]
        return {
            **self.outcome("kicked", before.id),
            "target_agent_id": target,
            "target_was_owner": before.owner == target,
        }

    async def close_room(
        self, caller: Caller, *, room_id: str, reason: str = "", key: bytes | None = None
    ) -> Answer:
        """Close a room. `status` is `closed`. Its history stays readable."""
        room = find_room(self.log.rows, room_id)
        await self.submit(caller, CloseRoom(room=room.id, reason=reason), key)
        return self.outcome("closed", room.id)

    async def room_here(self, caller: Caller, path: str) -> str | None:
        """Return the open room that a path selects; None if there is no such room.

        The deepest room at or above the path of which the caller is a member comes first, then the deepest
        room.
        """
        rooms = await self._open_around(path)
        own = [room.id for room in rooms if room.member(caller.name) is not None]
        return next(iter([*own, *(room.id for room in rooms)]), None)

    async def own_room_here(self, caller: Caller, path: str) -> str | None:
        """Return the deepest open room at or above a path of which the caller is a member, or None."""
        rooms = await self._open_around(path)
        return next((room.id for room in rooms if room.member(caller.name) is not None), None)

    async def room_meant(self, caller: Caller, path: str) -> str | None:
        """Return the room for a caller that names none and is not a member of one at or above a path.

        A person may read any room and write in it, so for a person the room at the path comes first. For any
        caller the only room it is a member of comes next; several raise BadRequest with their ids. For agents
        the room at the path comes last.
        """
        here = await self.room_here(caller, path)
        if here is not None and caller.standing in _PERSONS:
            return here
        own = [room.id for room in read_rooms_of(self.log.rows, caller.name)]
        if len(own) > 1:
            raise BadRequest(
                f"say which room: you are in {', '.join(own)}, and in none here; --room names one"
            )
        return next(iter(own), here)

    async def get_room_state(self, caller: Caller, *, room_id: str) -> Answer:
        """Return the current state of a room: members, stick, conditions, policy.

        `cursor_event_seq` is the same as in `join_path`: never after a message that the caller has not read.
        """
        self.attendance.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        view = room_view(room, self.facts(room), self.policy, self.find)
        return {**view, "agent_id": caller.name, "cursor_event_seq": self.waits.cursor(caller, room)}

    def _now(self, room: Room) -> Room:
        return read_room(self.log.rows, room.id) or room

    async def _open_around(self, path: str) -> list[Room]:
        try:
            return [room for room in await self._around(path) if room.is_open]
        except NotAPlace:
            return []

    async def _around(self, path: str) -> list[Room]:
        """Return the newest room at a path and at each folder above it, deepest first."""
        place = await self.places.find(path)
        return [room for one in place.around if (room := read_room_at(self.log.rows, one)) is not None]
