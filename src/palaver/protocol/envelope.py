"""The two values of a fact, a draft and its stored event, and the line that represents both.

Pure, with one exception for external programs: `Draft.new` asks the system for an id and a time. Checks no
rights.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec

from palaver.errors import BadRequest
from palaver.ids import system_ulid, ulid_ms
from palaver.protocol.agents import ROLES
from palaver.protocol.events import (
    BYE,
    HELLO,
    MIGRATED,
    CommonFields,
    EventBody,
    ForeignBody,
    LifeChanged,
    MessageSent,
    PathSubscribed,
    RoomBody,
    SessionCreated,
    read_body,
)

VERSION: Final = 1
_LEFT: Final = "left"
"""The reason of an `agent.bye` that gives none."""
_SMALL: Final = 16 * 1024
"""Characters and values of a payload that the event loop may encode by itself. A larger one is
encoded, escaped and stored in a thread, because all other callers would wait."""


# `dict` gives the frozen struct a place for the cached properties. The version is a tag, because a tag is
# written first, and always, also where fields with defaults are left out.
class _Fact(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True, tag_field="v", tag=VERSION
):
    """The fields of every fact, in the order of a line. Empty fields are not written."""

    v: ClassVar[int] = VERSION
    type: str
    id: str
    sender: str = msgspec.field(name="from")
    to: tuple[str, ...] = ()
    ts: int = msgspec.field(default_factory=int)  # a plain default of 0 would not be written
    payload: dict[str, object] = msgspec.field(default_factory=dict)
    """The content as it is stored and passed on. Readers use `body`."""

    @cached_property  # Each part of the fold reads it, for every event.
    def body(self) -> EventBody:
        """The content as the struct of its type, decoded at the first use. Never fails."""
        # One step makes both values: a second cached property costs as much as decoding a short payload.
        body, self.__dict__["odd_fields"] = read_body(self.type, self.payload)
        return body

    @cached_property
    def odd_fields(self) -> frozenset[str]:
        """The names of the payload fields that could not be read; they have their defaults in `body`."""
        return read_body(self.type, self.payload)[1]

    def to_json(self) -> str:
        """Encode it on one line, without empty fields."""
        return _encode(self).decode()


class Draft(_Fact, frozen=True, kw_only=True):
    """A fact that is not stored yet and has no seq. Programs know it as `palaver.Envelope`."""

    # So that a caller that has either value can ask for its `seq`.
    seq: ClassVar[None] = None
    by: str | None = None
    delivered_to: tuple[str, ...] = ()
    """The recipients of a foreign envelope; a message has them in its payload."""
    device: str = ""
    """The device of the log that an imported event comes from; empty means the log that stores it."""
    imported: int = 0
    """As in `Event`."""
    sent_ts: int | None = None
    """As in `Event`."""

    @classmethod
    def new(
        cls,
        type: str,
        sender: str,
        payload: Mapping[str, object] | None = None,
        to: str | Sequence[str] | None = None,
    ) -> "Draft":
        """Create an envelope with a new id and time, for a program that is not the daemon.

        Ids rise, also within a millisecond and in several threads. Raises `BadRequest`, as `from_json` does,
        with the name of the empty or wrong field.
        """
        # The time is taken from the id below, so that both are the same.
        made = system_ulid()
        _check_filled(type=type, id=made, sender=sender)
        if payload is not None and not isinstance(payload, Mapping):
            raise BadRequest("not an envelope: the field `payload` must be an object")
        tokens = (to,) if isinstance(to, str) else tuple(to or ())
        if not all(isinstance(token, str) for token in tokens):
            raise BadRequest("not an envelope: the field `to` must be a list of texts")
        return cls(
            type=type,
            id=made,
            sender=sender,
            to=tokens,
            ts=ulid_ms(made),
            payload=dict(payload or {}),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "Draft | Event":
        """Decode an envelope: an event if it has a seq, else a draft. Unknown keys are ignored.

        Raises `BadRequest` with a sentence that names the missing or wrong field.
        """
        line = _read_line(text)
        return _draft_from(line) if line.seq is None else _event_from(line, line.seq, line.device or "")


class Event(_Fact, frozen=True, kw_only=True):
    """A fact with its seq in the log."""

    seq: int
    device: str = ""
    """The device of the log; empty for an event that another program wrote without it."""
    by: str | None = None
    delivered_to: tuple[str, ...] = ()
    imported: int = 0
    """The seq of an imported event in the log that it comes from; 0 for an event of this log.

    An imported event is history: it is read like any other, and nothing reacts to it.
    """
    sent_ts: int | None = None
    """The `ts` that the sender wrote into its envelope, 0 if it wrote none; None for any other event.

    `ts` is the time of the log, which the sender cannot choose.
    """

    @property
    def envelope(self) -> Draft:
        """The event as an envelope: the value that came in, without the fields that the bus has added."""
        body = self.body
        return made_envelope(
            type=self.type,
            id=self.id,
            sender=self.sender,
            to=self.to,
            delivered_to=body.delivered_to if isinstance(body, MessageSent) else self.delivered_to,
            ts=self.ts,
            sent_ts=self.sent_ts,
            payload=self.payload,
        )

    @cached_property  # The log, the mailbox and the door ask for each message.
    def has_small_payload(self) -> bool:
        """Whether the payload is encoded and stored quickly."""
        return is_small(self.payload)

    @property
    def missing_blob(self) -> str | None:
        """The name of the lost file that had the content; None if the content is there."""
        found = self.payload.get("missing_blob")
        return found if isinstance(found, str) else None


_B = TypeVar("_B", bound=EventBody)


def body_as(fact: Draft | Event, kind: type[_B]) -> _B:
    """Return the content of an event whose type the caller knows; raise TypeError if it cannot be read."""
    body = fact.body
    if not isinstance(body, kind):
        raise TypeError(f"the content of {fact.id} cannot be read as the type {fact.type}")
    return body


def room_id_of(event: Draft | Event) -> str | None:
    """Return the id of the room that an event is about, or None."""
    body = event.body
    return body.room if isinstance(body, RoomBody | MessageSent | ForeignBody) else None


def is_migrated(event: Draft | Event) -> bool:
    """Return whether an event only repeats what another path broker had stored: no one must react to it."""
    match event.body:
        case MessageSent(migrated=taken):
            return taken is not None
        case PathSubscribed(added=ts) | SessionCreated(created=ts):
            return ts != 0
        case LifeChanged(action=action):
            return action == MIGRATED
    return False


def common_fields(event: Event) -> CommonFields:
    """Return the fields that are shown separately for an event of any type. Never fails."""
    return msgspec.convert(event.payload, CommonFields)


def from_agent(event: Event) -> str | None:
    """Return the source of an event: its sender, or the agent it names, as a claim names the last owner.

    A filter applies to every type, so this reads the stored field as the index of the log does.
    """
    found = event.payload.get("from", event.sender)
    return found if isinstance(found, str) else None


def words_of(event: Event, key: str) -> tuple[str, ...]:
    """Return the string or the strings of a payload field, for a filter. A filter applies to every type.

    Other values are ignored.
    """
    found = event.payload.get(key)
    if isinstance(found, str):
        return (found,)
    if isinstance(found, (list, tuple)):
        return tuple([word for word in found if isinstance(word, str)])
    return ()


def check_draft(draft: Draft) -> None:
    """Refuse a draft that no reader could read back: its type, id and sender must not be empty."""
    if not (draft.type and draft.id and draft.sender):
        empty = "type" if not draft.type else "id" if not draft.id else "from"
        raise BadRequest(f"the event cannot be stored: its field `{empty}` is empty")


def event_from(draft: Draft, seq: int, device: str) -> Event:
    """Return the event of a draft with its seq."""
    return Event(
        type=draft.type,
        id=draft.id,
        sender=draft.sender,
        to=draft.to,
        ts=draft.ts,
        payload=draft.payload,
        seq=seq,
        # An imported event keeps the device of its own log: with that of this log, its numbers would name
        # other events.
        device=draft.device or device,
        by=draft.by,
        delivered_to=draft.delivered_to,
        imported=draft.imported,
        sent_ts=draft.sent_ts,
    )


def draft_of_import(event: Event) -> Draft:
    """Return the draft by which another log stores an event: all of it, and the seq that it had."""
    return Draft(
        type=event.type,
        id=event.id,
        sender=event.sender,
        to=event.to,
        ts=event.ts,
        payload=event.payload,
        by=event.by,
        delivered_to=event.delivered_to,
        device=event.device,
        imported=event.seq,
        sent_ts=event.sent_ts,
    )


_ROLE_TOKENS: Final = {f"@{role}s": role for role in ROLES}


def matches_recipient(envelope: Draft | Event, name: str, role: str) -> bool:
    """Return whether an envelope on the wire is meant for a name with a role.

    The exact rules of the wire: case matters, `@name` is not a name, a glob ends in `-*`, no `to` is
    everyone.
    """
    return not envelope.to or any(_token_matches(token, name, role) for token in envelope.to)


def _token_matches(token: str, name: str, role: str) -> bool:
    if token == "@all":  # noqa: S105 - a token of an address
        return True
    if token in _ROLE_TOKENS:
        return _ROLE_TOKENS[token] == role
    if token.startswith("@") and token.endswith("-*"):
        return name.startswith(token[1:-1])
    # An empty token is invalid. It must not select a program that has no name.
    return bool(token) and token == name


# --------------------
# An event as the envelope that came in.

_FROM_SENDER: Final[Mapping[str, tuple[str, ...]]] = {
    "message": (
        *("text", "intent", "thread", "reply_to", "bundle_id", "priority", "room"),
        *("command", "payload", "path", "source", "external_id"),
    ),
    HELLO: ("runtime", "version"),
    BYE: ("reason",),
}
"""The payload fields that a sender can set, by type. The bus adds all others."""
_TASKS: Final = frozenset({"task.create", "task.update", "task.complete"})
TASK_FIELDS_OF_BUS: Final = frozenset({"assignees", "task_seq"})
"""The fields that the bus adds to the payload of an event about a task; its sender has not written them."""


def made_envelope(
    *,
    type: str,
    id: str,
    sender: str,
    to: tuple[str, ...],
    delivered_to: tuple[str, ...],
    ts: int,
    sent_ts: int | None,
    payload: Mapping[str, object],
) -> Draft:
    """Return the envelope of an event with these fields.

    An envelope that a program sent leaves as it came. Any other event gets the time of the log, and a `to`
    that selects its recipients by the rules of the wire: other addresses, such as a room, become names.
    """
    if sent_ts is not None:
        # A room or a path is the IRC channel that an envelope without `to` was written in.
        to = tuple(token for token in to if not token.startswith("#") and "/" not in token)
    elif not all(_is_wire_group(token) or token in delivered_to for token in to):
        to = delivered_to
    return Draft(
        type=type,
        id=id,
        sender=sender,
        to=to,
        ts=ts if sent_ts is None else sent_ts,
        payload=_sent_payload(type, payload),
    )


def _is_wire_group(token: str) -> bool:
    return token == "@all" or token in _ROLE_TOKENS or (token.startswith("@") and token.endswith("-*"))  # noqa: S105 - a token of an address


def _sent_payload(type: str, payload: Mapping[str, object]) -> dict[str, object]:
    if type in _TASKS:
        return {name: value for name, value in payload.items() if name not in TASK_FIELDS_OF_BUS}
    if type not in _FROM_SENDER:
        return dict(payload)
    kept = {
        name: payload[name]
        for name in _FROM_SENDER[type]
        if name in payload and payload[name] is not None and payload[name] != ""
    }
    if "command" in kept:
        kept.pop("text", None)  # how the command reads for people
    if kept.get("priority") == "normal":
        del kept["priority"]
    if type == BYE and kept.get("reason") == _LEFT:
        del kept["reason"]
    return kept


# --------------------
# A fact as one line of JSON, on a wire, in an archive and in an export.

# The log stores these numbers in SQLite, whose integers have 64 bits. Python's have no limit.
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Line(msgspec.Struct, kw_only=True):
    """The fields that a line may have. Other programs may write null for an empty field; we leave it out."""

    v: int
    type: str
    id: str
    sender: str = msgspec.field(name="from")
    to: tuple[str, ...] | None = ()
    ts: _Int64 | None = 0
    payload: dict[str, object] | None = None
    seq: _Int64 | None = None
    device: str | None = None
    by: str | None = None
    delivered_to: tuple[str, ...] | None = ()
    imported: _Int64 | None = 0
    sent_ts: _Int64 | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Line).decode


def encode_event(event: Event) -> bytes:
    """Encode an event as one line of JSON without a line end; the pair of `decode_event`."""
    return _encode(event)


def decode_event(line: bytes | str) -> Event:
    """Decode an event; raise `BadRequest` if it is invalid."""
    read = _read_line(line)
    if read.seq is None:
        raise BadRequest("not an event: the field `seq` is missing")
    if read.device is None:
        raise BadRequest("not an event: the field `device` is missing")
    return _event_from(read, read.seq, read.device)


def decode_draft(line: bytes | str) -> Draft:
    """Decode an envelope that another program wants to be stored; raise `BadRequest` if it is invalid.

    Fields that only the broker may set are ignored: its seq, device, author, recipients, origin and the
    second time.
    """
    return _draft_from(_read_line(line))


def _event_from(line: _Line, seq: int, device: str) -> Event:
    return Event(
        type=line.type,
        id=line.id,
        sender=line.sender,
        to=line.to or (),
        ts=line.ts or 0,
        payload=line.payload or {},
        seq=seq,
        device=device,
        by=line.by,
        delivered_to=line.delivered_to or (),
        imported=line.imported or 0,
        sent_ts=line.sent_ts,
    )


def _draft_from(line: _Line) -> Draft:
    return Draft(
        type=line.type,
        id=line.id,
        sender=line.sender,
        to=line.to or (),
        ts=line.ts or 0,
        payload=line.payload or {},
    )


def _read_line(text: str | bytes) -> _Line:
    try:
        line = _decode(text)
    # RecursionError comes from a line that is nested too deeply: the sender is at fault, and gets a refusal.
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"not an envelope: {error}") from error
    # A newer version may give a field another meaning, so nothing of it is used.
    if line.v != VERSION:
        raise BadRequest(f"not an envelope: the field `v` must be {VERSION}")
    _check_filled(type=line.type, id=line.id, sender=line.sender)
    return line


def _check_filled(*, type: str, id: str, sender: str) -> None:
    if not (type and id and sender):
        empty = "type" if not type else "id" if not id else "from"
        raise BadRequest(f"not an envelope: the field `{empty}` is empty")


def is_small(payload: dict[str, object]) -> bool:
    """Return whether a payload is encoded and stored quickly: few values, and no long texts."""
    size = len(payload)
    # A list instead of recursion, because the depth of a payload is its sender's.
    containers: list[Iterable[object]] = [payload.values()]
    while containers and size <= _SMALL:
        for value in containers.pop():
            if isinstance(value, (str, bytes)):
                size += len(value)
            elif isinstance(value, (list, tuple, dict)):
                size += len(value)
                containers.append(value.values() if isinstance(value, dict) else value)
            else:
                size += 1
            if size > _SMALL:  # The rest may be megabytes.
                return False
    return size <= _SMALL
