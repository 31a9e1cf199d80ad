"""Room tools for messages, events and notes. Recipients do not limit readers: a reader of a room sees all."""

from collections.abc import Sequence

from palaver.broker.outcome import Sent
from palaver.doors.desk_parts import LIMIT_EVENTS, LIMIT_WAIT_MS, Answer, Tools
from palaver.doors.desk_views import note_view
from palaver.errors import BadRequest, UnknownMember
from palaver.log.fold_rooms import find_note, find_room, read_notes
from palaver.model.agent import Caller
from palaver.model.message import EXTERNAL
from palaver.model.request import Send
from palaver.model.room import AddNote, ResolveNote
from palaver.rooms.events import ANY, SELF, event_filter
from palaver.rooms.names import find_member
from palaver.rooms.room import Room


class TalkTools(Tools):
    """The tools for messages, events and notes."""

    async def send_message(
        self,
        caller: Caller,
        *,
        room_id: str,
        body: str,
        to_agent_id: str | Sequence[str] | None = None,
        delivery_hint: str = "normal",
        key: bytes | None = None,
    ) -> Answer:
        """Send to members or the whole room. Returns `event_seq event_id created_at delivered_to`."""
        if not room_id:
            raise BadRequest("room_id is empty: say in which room; nothing was sent")
        to = () if to_agent_id is None else (to_agent_id,) if isinstance(to_agent_id, str) else to_agent_id
        if to_agent_id is not None and not to:
            raise BadRequest("to_agent_id is empty: leave it out to write to the whole room")
        request = Send(text=body, room=room_id, to=tuple(to), delivery_hint=delivery_hint)
        sent = await self.submit(caller, request, key)
        assert isinstance(sent, Sent)
        assert sent.event is not None  # not a dry run
        return {
            "event_seq": sent.event.seq,
            "event_id": sent.event.id,
            "created_at": sent.event.ts,
            "delivered_to": list(sent.delivered_to),
        }

    async def wait_for_events(
        self,
        caller: Caller,
        *,
        room_id: str,
        after_event_seq: int | None = None,
        event_type: str | Sequence[str] | None = None,
        target_agent_id: str = "self",
        from_agent_id: str | None = None,
        max_wait_ms: int | None = None,
        since_event_seq: int | None = None,
        limit: int = 100,
        limit_ms: int | None = LIMIT_WAIT_MS,
    ) -> Answer:
        """Return the events after a seq, or wait for the first one: `events cursor_event_seq`.

        Waiting changes neither the room nor the order of the waiting members. Without `after_event_seq` the
        result starts at the oldest message of the room that the caller has not read, or else with the next
        event. A given `after_event_seq` marks the caller's messages up to it as read, as far as any earlier
        call has shown them.

        `since_event_seq` is for a call that is repeated because the daemon restarted: the last seq at its
        first start. Events stored since then count as new.
        """
        self.attendance.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        for name, word in (("target_agent_id", target_agent_id), ("from_agent_id", from_agent_id)):
            if word == "":
                raise BadRequest(f"{name} is empty: name an agent, or leave it out")
        wanted = event_filter(
            caller=None if caller.kind == EXTERNAL else caller.name,
            target=target_agent_id if target_agent_id in (SELF, ANY) else self._named(room, target_agent_id),
            event_type=event_type,
            sender=None if from_agent_id is None else self._named(room, from_agent_id),
        )
        if after_event_seq is None:
            after = self.waits.cursor(caller, room)
            after = after if since_event_seq is None else min(after, since_event_seq)
        else:
            after = after_event_seq
            await self.waits.acknowledge(caller, room, after)
        wait_ms = self.wait_ms(max_wait_ms, limit_ms)
        found = await self.waits.events(room, wanted, after, _page(limit), wait_ms)
        return self.page_of(caller, room, found, after)

    async def get_room_events(
        self, caller: Caller, *, room_id: str, after_event_seq: int = 0, limit: int = 100
    ) -> Answer:
        """Return all events of a room after a seq, including archived ones: `events cursor_event_seq`."""
        self.attendance.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        found = await self.waits.stored(room, lambda event: True, after_event_seq, _page(limit))
        return self.page_of(caller, room, found, after_event_seq)

    async def add_note(
        self,
        caller: Caller,
        *,
        room_id: str,
        body: str,
        turn_id: int | None = None,
        key: bytes | None = None,
    ) -> Answer:
        """Store a note and return it."""
        event = await self.written(caller, AddNote(room=room_id, text=body, turn=turn_id), key)
        return self._note(str(event.payload["room"]), str(event.payload["note"]))

    async def list_notes(
        self,
        caller: Caller,
        *,
        room_id: str,
        after_note_id: str | None = None,
        include_resolved: bool = False,
        limit: int = 50,
    ) -> Answer:
        """Return `notes`, oldest first."""
        self.attendance.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        after = "" if after_note_id is None else after_note_id
        notes = read_notes(
            self.log.rows, room.id, after=after, include_resolved=include_resolved, limit=limit
        )
        return {"room_id": room.id, "notes": [note_view(note) for note in notes]}

    async def resolve_note(
        self, caller: Caller, *, room_id: str, note_id: str, key: bytes | None = None
    ) -> Answer:
        """Mark a note as resolved and return it."""
        room = find_room(self.log.rows, room_id)
        await self.submit(caller, ResolveNote(room=room.id, note=note_id), key)
        return self._note(room.id, note_id)

    def _named(self, room: Room, word: str) -> str:
        """Return the name of the member that `word` selects; `word` itself if it may be a former member."""
        try:
            return find_member(room, word, self.attendance.is_present).name
        except UnknownMember:
            return word

    def _note(self, room: str, id: str) -> Answer:
        return note_view(find_note(self.log.rows, room, id))


def _page(limit: int) -> int:
    return max(1, min(limit, LIMIT_EVENTS))
