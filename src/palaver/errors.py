"""The tree of all errors.

    PalaverError
    ├── OtherError                  any other code, from a daemon of another version
    ├── RequestError                the caller must change something
    │   ├── BadRequest              bad_request
    │   ├── UsageError              usage
    │   ├── UnknownRecipient        unknown_recipient
    │   ├── AmbiguousRecipient      ambiguous_recipient
    │   ├── MessageTooLarge         message_too_large
    │   ├── BadText                 bad_text
    │   ├── BadName                 bad_name
    │   ├── NameTaken               name_taken
    │   ├── IdTaken                 id_taken
    │   ├── AlreadyJoined           already_joined
    │   ├── AlreadyRunning          already_running
    │   ├── WhoAreYou               who_are_you
    │   ├── NotYou                  not_you
    │   ├── NotAllowed              not_allowed
    │   ├── NotPerson               not_allowed
    │   ├── ReservedType            reserved_type
    │   ├── NotFound                not_found
    │   ├── RateLimited             rate_limited
    │   ├── BadQuery                bad_query
    │   ├── RoomNotFound            room_not_found
    │   ├── RoomClosed              room_closed
    │   ├── NotAPlace               not_a_place
    │   ├── UnknownMember           unknown_member
    │   ├── UnknownTarget           unknown_target
    │   ├── CannotKickSelf          cannot_kick_self
    │   ├── TargetActive            target_active
    │   ├── TurnMismatch            turn_mismatch
    │   ├── StaleLease              stale_lease
    │   ├── NotOwner                not_owner
    │   ├── InvalidHandoff          invalid_handoff
    │   ├── TakeoverNotAvailable    takeover_not_available
    │   ├── TakeoverIneligible      takeover_ineligible
    │   ├── RecipientUnreachable    recipient_unreachable
    │   ├── ParkRequiresRelease     park_requires_release
    │   ├── ObserverCannotHoldTurn  observer_cannot_hold_turn
    │   ├── AgentIdRequired         agent_id_required
    │   ├── InvalidEventTypeFilter  invalid_event_type_filter
    │   ├── InvalidBody             invalid_body
    │   ├── BodyTooLarge            body_too_large
    │   ├── InvalidCursor           invalid_cursor
    │   ├── DuplicateListener       duplicate_listener
    │   └── DuplicateWait           duplicate_listener
    └── Unavailable                 try again, or fix the machine
        ├── DiskFull                disk_full
        ├── StorageFailed           storage_failed
        ├── DoorShut                door_shut
        ├── NewerSchema             newer_schema
        ├── ShuttingDown            shutting_down
        ├── TooSlow                 too_slow
        └── Disconnected            disconnected

The code is for machines and never changes; the fields are for programs; the sentence is for people. On a
wire an error is its code and details, and `error_from_wire` rebuilds the same error from them.

A sentence names commands in quotes, such as 'pal list'. The doors for tools translate these
(`doors/tools.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

# --------------------
# The root of the error tree, its two branches, and base classes for the leaves. Never raised themselves.


class PalaverError(Exception):
    """The root: each door catches it in exactly one place.

    Each field has the name of the parameter that sets it, because `error_from_wire` calls the class with the
    fields.
    """

    code: str = "error"

    @property
    def details(self) -> Mapping[str, object]:
        """The fields of this error, as they are sent on a wire.

        Attributes with an underscore are private: a sentence is sent next to the details.
        """
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class OtherError(PalaverError):
    """An error that this version has no class for. It keeps the received code, sentence and details."""

    def __init__(self, code: str, sentence: str, details: Mapping[str, object]) -> None:
        super().__init__(code, sentence, details)
        self.code = code
        self._sentence = sentence
        self._details = dict(details)

    @property
    def details(self) -> Mapping[str, object]:
        return self._details

    def __str__(self) -> str:
        return self._sentence


class RequestError(PalaverError):
    """The caller must change something."""

    code = "bad_request"


class Unavailable(PalaverError):
    """The request was valid; it cannot be served now."""

    code = "unavailable"


class Sentence(RequestError):
    """A request error that consists of one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


class Trouble(Unavailable):
    """An unavailability that consists of one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


LIMIT_NAME: Final = 80
"""Characters of a name or room id that an error repeats: a caller may have sent a whole text instead."""


def cut_name(name: str) -> str:
    """Return a name for an error, cut to `LIMIT_NAME` characters."""
    return name if len(name) <= LIMIT_NAME else f"{name[: LIMIT_NAME - 1]}…"


# --------------------
# Errors that a caller must fix, in any request. Those of rooms are in the next part.


class BadRequest(Sentence):
    """The request cannot be read, or its parts do not fit together."""

    code = "bad_request"


class UsageError(Sentence):
    """The command line cannot be read."""

    code = "usage"


class UnknownRecipient(RequestError):
    """No agent matches one or more of the addresses. Nothing was sent."""

    code = "unknown_recipient"

    def __init__(self, unmatched: Mapping[str, Sequence[str]], unchecked: int = 0) -> None:
        """Take each unmatched address as it was written, with its nearest names, if any.

        `unchecked`: the number of further addresses, which were not looked up.
        """
        super().__init__(unmatched, unchecked)
        self.unchecked = unchecked
        self.unmatched = {cut_name(address): list(near) for address, near in unmatched.items()}

    @property
    def details(self) -> Mapping[str, object]:
        # Only if it says something: this number is rare, and the others are what programs read.
        return super().details if self.unchecked else {"unmatched": self.unmatched}

    def __str__(self) -> str:
        parts = []
        for address, near in self.unmatched.items():
            hint = f" (did you mean {', '.join(near)}?)" if near else ""
            parts.append(f"{address}{hint}")
        more = f" ({self.unchecked} more not checked)" if self.unchecked else ""
        return f"no such agent: {'; '.join(parts)}{more}; nothing was sent. 'pal list' shows the agents"


class AmbiguousRecipient(RequestError):
    """A prefix that several names begin with."""

    code = "ambiguous_recipient"

    def __init__(self, address: str, candidates: Sequence[str]) -> None:
        super().__init__(address, candidates)
        self.address = cut_name(address)
        self.candidates = list(candidates)

    def __str__(self) -> str:
        return (
            f"{self.address} is ambiguous: it matches {', '.join(self.candidates)}; write a longer name. "
            "Nothing was sent"
        )


class MessageTooLarge(RequestError):
    """A body, note or name over its limit. Never truncated."""

    code = "message_too_large"

    def __init__(self, what: str, size_bytes: int | None, limit_bytes: int) -> None:
        """`size_bytes` is None if it was not read to its end."""
        super().__init__(what, size_bytes, limit_bytes)
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        if self.size_bytes is None:
            return f"{self.what} is larger than the limit of {self.limit_bytes} bytes; nothing was stored"
        return f"{self.what} has {self.size_bytes} bytes; the limit is {self.limit_bytes}. Nothing was stored"


class BadText(RequestError):
    """A character that is not allowed in a text, name or thread."""

    code = "bad_text"

    def __init__(self, what: str, codepoint: int, position: int) -> None:
        super().__init__(what, codepoint, position)
        self.what = what
        self.codepoint = codepoint
        self.position = position

    def __str__(self) -> str:
        return (
            f"{self.what} contains the character U+{self.codepoint:04X} at position {self.position}, "
            "which is not allowed; nothing was stored"
        )


class BadName(RequestError):
    """A name, tag or role that is not allowed."""

    code = "bad_name"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = cut_name(name)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot be used: {self.reason}"


class NameTaken(RequestError):
    """The name belongs to another agent, present or former."""

    code = "name_taken"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = cut_name(name)
        self.reason = reason

    def __str__(self) -> str:
        return f"the name {self.name} is taken: {self.reason}"


class IdTaken(RequestError):
    """The sender has stored something else under this id."""

    code = "id_taken"

    def __init__(self, id: str, seq: int) -> None:
        super().__init__(id, seq)
        self.id = id
        self.seq = seq

    def __str__(self) -> str:
        return (
            f"the id {self.id} is taken: you used it for #{self.seq}, a different event; nothing was stored. "
            "Leave out the id, or use a new one"
        )


class AlreadyJoined(RequestError):
    """The process already has an agent."""

    code = "already_joined"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"this process is already {self.name}; to give up the name, run 'pal leave'"


class AlreadyRunning(RequestError):
    """This home already has a runner of automatic turns."""

    code = "already_running"

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid

    def __str__(self) -> str:
        return f"a runner is already running (pid {self.pid}); a person can end it with 'pal turn stop'"


class WhoAreYou(Sentence):
    """The request needs a name, and the caller has no name or several."""

    code = "who_are_you"


class NotYou(RequestError):
    """A sender that is not the caller's own name."""

    code = "not_you"

    def __init__(self, claimed: str, actual: str) -> None:
        super().__init__(claimed, actual)
        self.claimed = cut_name(claimed)
        self.actual = actual

    def __str__(self) -> str:
        return f"you are {self.actual} and cannot act as {self.claimed}; use your own name"


class NotAllowed(RequestError):
    """The caller's standing is too low for the request."""

    code = "not_allowed"

    def __init__(self, request: str, standing: str, needed: str) -> None:
        super().__init__(request, standing, needed)
        self.request = request
        self.standing = standing
        self.needed = needed

    def __str__(self) -> str:
        return f"{self.request} requires {_with_article(self.needed)}; you are {_with_article(self.standing)}"


def _with_article(standing: str) -> str:
    """Write a standing for a sentence. A phrase of several words stays as it is."""
    if " " in standing:
        return standing
    noun = {"human": "person", "external": "script"}.get(standing, standing)
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


class NotPerson(Sentence):
    """Only the human, or the same harness session, may do this."""

    code = "not_allowed"


class ReservedType(RequestError):
    """An event type that only Palaver itself writes."""

    code = "reserved_type"

    def __init__(self, type: str) -> None:
        super().__init__(type)
        self.type = type

    def __str__(self) -> str:
        return f"only Palaver writes events of type {self.type!r}; use another type"


class NotFound(RequestError):
    """The requested thing does not exist."""

    code = "not_found"

    def __init__(self, what: str, reason: str = "") -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"there is no {self.what}" + (f": {self.reason}" if self.reason else "")


class RateLimited(RequestError):
    """A brake held the message. It is stored, and `pal release` lets it through."""

    code = "rate_limited"

    def __init__(self, message: int, reason: str) -> None:
        super().__init__(message, reason)
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"message #{self.message} is held: {self.reason}; "
            f"a person can release it with 'pal release {self.message}'"
        )


class BadQuery(Sentence):
    """A filter, search or WHERE clause that cannot be used."""

    code = "bad_query"


# --------------------
# Errors of rooms, their notes and their listeners. The caller must change something.


class RoomNotFound(RequestError):
    """No room has this name."""

    code = "room_not_found"

    def __init__(self, room: str, nearest: Sequence[str] = ()) -> None:
        super().__init__(room, nearest)
        self.room = cut_name(room)
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
        self.agent_id = cut_name(agent_id)
        self.room = cut_name(room)

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
        self.agent_id = cut_name(agent_id)
        self.room = cut_name(room)

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
            return f"{self.agent_id} is present; only an operator or a person can remove it, with --force"
        return (
            f"{self.agent_id} was present recently: any member can remove it in {self.gone_in_s} "
            "seconds, an operator or a person now with --force"
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
        self.after_note_id = cut_name(after_note_id)

    def __str__(self) -> str:
        return f"no such note in this room: {self.after_note_id}; 'pal note list' shows the notes"


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


class DuplicateWait(RequestError):
    """The member already waits for the stick of this room."""

    code = "duplicate_listener"

    def __init__(self, agent_id: str, room: str) -> None:
        super().__init__(agent_id, room)
        self.agent_id = cut_name(agent_id)
        self.room = cut_name(room)

    def __str__(self) -> str:
        return (
            f"{self.agent_id} already waits for the stick of {self.room} in another call: use its result, "
            "end it, or try again when its time is over"
        )


# --------------------
# Errors of the stick of a room. The caller must change something, or wait for its turn.


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
        return (
            f"you do not own the stick in turn {self.turn_id} with this lease; 'pal stick wait' gets a new "
            "lease when it is your turn"
        )


class NotOwner(RequestError):
    """The caller uses the lease of another member."""

    code = "not_owner"

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner

    def __str__(self) -> str:
        return f"{self.owner} owns the stick, and only its owner can do that; 'pal stick wait' waits for it"


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
        return (
            f"{self.agent_id} is not present; pass the stick to another member, or leave it to a waiting one "
            "with 'pal stick release'"
        )


class ParkRequiresRelease(RequestError):
    """The owner of the stick wants to step aside without releasing it."""

    code = "park_requires_release"

    def __init__(self, room: str) -> None:
        super().__init__(room)
        self.room = room

    def __str__(self) -> str:
        return f"you own the stick of {self.room}; before you park, run 'pal stick release'"


class ObserverCannotHoldTurn(RequestError):
    """An observer or a guest can never own the stick."""

    code = "observer_cannot_hold_turn"

    def __init__(self, agent_id: str) -> None:
        super().__init__(agent_id)
        self.agent_id = agent_id

    def __str__(self) -> str:
        return f"{self.agent_id} is an observer or a guest and cannot own the stick; that requires a worker"


# --------------------
# Errors without a fault of the caller: the request was valid, and cannot be served now.


class DiskFull(Trouble):
    """The disk is full. Nothing was stored; stored data is intact."""

    code = "disk_full"


class StorageFailed(Trouble):
    """The log could not be written or read."""

    code = "storage_failed"


class DoorShut(Trouble):
    """A door cannot listen at its address; the bus runs without it."""

    code = "door_shut"


class NewerSchema(Unavailable):
    """The log was written by a newer Palaver."""

    code = "newer_schema"

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found, known)
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the log has schema {self.found}, but this Palaver supports only {self.known}; install a newer "
            "version"
        )


class ShuttingDown(Trouble):
    """The daemon is stopping."""

    code = "shutting_down"


class TooSlow(Trouble):
    """A read ran past its time limit and was cut."""

    code = "too_slow"


class Disconnected(Trouble):
    """The daemon cannot be reached."""

    code = "disconnected"


# --------------------
# Errors on a wire: written as code and details, and rebuilt from them.

_SHAPES: Final = frozenset({Sentence, Trouble})
"""Base classes of leaves. They have no code, and must not be chosen for the code that they inherit."""


def error_from_wire(code: str, sentence: str, details: Mapping[str, Any]) -> PalaverError:
    """Rebuild an error that a daemon wrote; an `OtherError` if this version does not know it.

    The details choose between classes that share a code.
    """
    # Leaves first: a base class has the code of one of its leaves, and must not be chosen instead of it.
    for kind in _branch(PalaverError):
        if (
            kind.code == code
            and kind not in _SHAPES
            and (found := _made(kind, sentence, details)) is not None
        ):
            return found
    return OtherError(code, sentence, details)


def _made(kind: type[PalaverError], sentence: str, details: Mapping[str, Any]) -> PalaverError | None:
    """Return the error of a class that has exactly these details, or None if it is another class.

    Another version may have more fields, or values of other types: then any of the three errors can come.
    """
    try:
        found = kind(**details) if details else kind(sentence)
        # A constructor may change a value, for example cut a name, and a class may have further fields.
        # `str` fails here instead of later, when the error is shown.
        is_same = found.details == details and bool(str(found))
    except (TypeError, ValueError, AttributeError):
        return None
    return found if is_same else None


def error_codes() -> frozenset[str]:
    """Return every code: each door's table is compared with it."""
    return frozenset(kind.code for kind in _branch(PalaverError))


def _branch(kind: type[PalaverError]) -> Iterator[type[PalaverError]]:
    """Yield a branch of the tree, leaves first: a class before the one it refines."""
    for child in kind.__subclasses__():
        yield from _branch(child)
    yield kind


# --------------------
# Similar names, for the text of an error. Pure.

_LIMIT_EDITS: Final = 2
_SHORT: Final = 4
"""A name of up to this length may differ in one character: with two, most short names would be similar."""
_LIMIT_COMPARED: Final = 60
"""Characters that are compared: the time grows with the square, and a caller may have sent a whole text."""


def nearest(word: str, known: Iterable[str], n: int = 1) -> list[str]:
    """Return up to `n` known names within two edits of a word, the most similar first, in any case.

    An edit adds, removes or replaces a character, or swaps two adjacent ones.
    """
    wanted = word[:_LIMIT_COMPARED].lower()
    limit = 1 if len(wanted) <= _SHORT else _LIMIT_EDITS
    # Lengths are compared first, because most names are excluded by them without counting edits.
    found = [
        (edits, name)
        for name in dict.fromkeys(known)
        if abs(len(name) - len(wanted)) <= limit and (edits := _edits(wanted, name.lower())) <= limit
    ]
    # By the edits alone: names with the same number stay in the order of `known`, where a caller puts the
    # likelier ones first.
    return [name for _, name in sorted(found, key=lambda one: one[0])[:n]]


def _edits(one: str, other: str) -> int:
    """Return the number of edits between two words.

    Three rows of the usual table are kept: a swap of two characters looks two rows back.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, above, row = row, before, [i]
        for j, second in enumerate(other, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != second))
            if i > 1 and j > 1 and letter == other[j - 2] and second == one[i - 2]:
                edits = min(edits, above[j - 2] + 1)
            row.append(edits)
    return row[-1]
