"""Errors of rooms, their notes and their listeners. The caller must change something."""

from collections.abc import Sequence

from palaver.errors.roots import RequestError, Sentence


class RoomNotFound(RequestError):
    """No room has this name."""

    code = "room_not_found"

    def __init__(self, room: str, nearest: Sequence[str] = ()) -> None:
        super().__init__(room, nearest)
        self.room = room
        self.nearest = list(nearest)

    def __str__(self) -> str:
        near = f" (did you mean {', '.join(self.nearest)}?)" if self.nearest else ""
        return (
            f"no such room: {self.room}{near}; 'pal room list' shows the rooms, "
            "'pal room join' creates one here"
        )


class RoomClosed(RequestError):
    """The room is closed. Its history stays readable."""

    code = "room_closed"

    def __init__(self, room: str) -> None:
        super().__init__(room)
        self.room = room

    def __str__(self) -> str:
        return (
            f"the room {self.room} is closed; you can read its history, and 'pal room join' creates a new "
            "room"
        )


class NotAPlace(RequestError):
    """No room can be at this path."""

    code = "not_a_place"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"no room can be at {self.path}: {self.reason}"


class UnknownMember(RequestError):
    """The agent is not a member of the room."""

    code = "unknown_member"

    def __init__(self, agent_id: str, room: str) -> None:
        super().__init__(agent_id, room)
        self.agent_id = agent_id
        self.room = room

    def __str__(self) -> str:
        return (
            f"{self.agent_id} is not a member of {self.room}; 'pal room join' joins the room, "
            "'pal room state' shows its members"
        )


class UnknownTarget(RequestError):
    """The member to remove is not in the room."""

    code = "unknown_target"

    def __init__(self, agent_id: str, room: str) -> None:
        super().__init__(agent_id, room)
        self.agent_id = agent_id
        self.room = room

    def __str__(self) -> str:
        return (
            f"{self.agent_id} is not a member of {self.room}, so it cannot be removed; 'pal room state' "
            "shows the members"
        )


class CannotKickSelf(RequestError):
    """A member cannot kick itself; it leaves instead."""

    code = "cannot_kick_self"

    def __init__(self, room: str) -> None:
        super().__init__(room)
        self.room = room

    def __str__(self) -> str:
        return f"you cannot remove yourself; to leave {self.room}, run 'pal room leave'"


class TargetActive(RequestError):
    """The member to remove is present."""

    code = "target_active"

    def __init__(self, agent_id: str, gone_in_s: int | None = None) -> None:
        super().__init__(agent_id, gone_in_s)
        self.agent_id = agent_id
        self.gone_in_s = gone_in_s

    def __str__(self) -> str:
        if self.gone_in_s is None:
            return f"{self.agent_id} is present; only an operator can remove it, with --force"
        return (
            f"{self.agent_id} was present recently: any member can remove it in {self.gone_in_s} "
            "seconds, an operator now with --force"
        )


class AgentIdRequired(Sentence):
    """The request is about the caller, and the caller has no name."""

    code = "agent_id_required"

    def __init__(
        self, sentence: str = "'self' needs a caller with a name; join first with 'pal join'"
    ) -> None:
        super().__init__(sentence)


class InvalidEventTypeFilter(Sentence):
    """A filter for types that names no type."""

    code = "invalid_event_type_filter"

    def __init__(
        self, sentence: str = "the event type filter is empty; name at least one type, or leave it out"
    ) -> None:
        super().__init__(sentence)


class InvalidBody(Sentence):
    """A message or note without text."""

    code = "invalid_body"


class BodyTooLarge(RequestError):
    """A note over its limit. Never truncated."""

    code = "body_too_large"

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return f"the note has {self.size_bytes} bytes; the limit is {self.limit_bytes}. Nothing was stored"


class InvalidCursor(RequestError):
    """A list should continue after a note that does not exist."""

    code = "invalid_cursor"

    def __init__(self, after_note_id: str) -> None:
        super().__init__(after_note_id)
        self.after_note_id = after_note_id

    def __str__(self) -> str:
        return (
            f"no such note in this room: {self.after_note_id}; use the id of a listed note, or start from "
            "the beginning"
        )


class DuplicateListener(RequestError):
    """Another process already reads under this name."""

    code = "duplicate_listener"

    def __init__(self, consumer: str, listener: str = "", pid: int = 0) -> None:
        """`listener` is the reading agent, and `pid` its process; 0 if that is unknown."""
        super().__init__(consumer, listener, pid)
        self.consumer = consumer
        self.listener = listener
        self.pid = pid

    def __str__(self) -> str:
        process = f"process {self.pid}" if self.pid else "another process"
        by = f" of {self.listener}" if self.listener else ""
        return (
            f"the consumer {self.consumer!r}{by} is already in use by {process}: "
            "stop it first, or choose another name with --consumer"
        )
