"""The envelope of every fact, and its three forms: draft, event, line on a wire.

Pure, with one exception for external programs: `Envelope.new` asks the system for an id and a time. Checks no
rights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar

import msgspec

from palaver.errors import BadRequest
from palaver.ids import system_ulid, ulid_ms
from palaver.protocol.agents import ROLES
from palaver.protocol.events import EventBody, ForeignBody, MessageSent, RoomBody, read_body

VERSION: Final = 1
_SMALL: Final = 16 * 1024
"""Characters and values of a payload that the event loop may encode by itself."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One fact in its wire form. `seq` is set once it is stored."""

    v: int = VERSION
    type: str
    id: str
    sender: str = msgspec.field(name="from")
    to: tuple[str, ...] = ()
    ts: int = 0
    payload: dict[str, object] | None = None
    seq: int | None = None

    @classmethod
    def new(
        cls,
        type: str,
        sender: str,
        payload: Mapping[str, object] | None = None,
        to: Sequence[str] | None = None,
    ) -> "Envelope":
        """Create an envelope with a new id and time, for a program that is not the daemon.

        Raises `BadRequest`, as `from_json` does, if the type or the sender is empty.
        """
        made = system_ulid()
        _check_filled(type=type, id=made, sender=sender)
        return cls(
            type=type,
            id=made,
            sender=sender,
            to=tuple(to or ()),
            ts=ulid_ms(made),
            payload=dict(payload) if payload else None,
        )

    def to_json(self) -> str:
        """Encode the envelope on one line, without empty fields."""
        line = _WireEnvelope(
            v=self.v,
            type=self.type,
            id=self.id,
            sender=self.sender,
            to=self.to or msgspec.UNSET,
            ts=self.ts,
            payload=self.payload or msgspec.UNSET,
            seq=msgspec.UNSET if self.seq is None else self.seq,
        )
        return _encode(line).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Envelope":
        """Decode an envelope; unknown keys are ignored.

        Raises `BadRequest` with a sentence that names the missing or wrong field.
        """
        line = _read(text)
        return cls(
            v=line.v,
            type=line.type,
            id=line.id,
            sender=line.sender,
            to=line.to or (),
            ts=line.ts or 0,
            payload=line.payload or None,
            seq=line.seq if isinstance(line.seq, int) else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """The content of a fact: as it is stored, and as the struct of its type."""

    type: str
    payload: dict[str, object]
    """The content as it is stored and passed on. Readers use `body`."""
    _read: tuple[EventBody, frozenset[str]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def body(self) -> EventBody:
        """The content as the struct of its type, decoded at the first use. Never fails."""
        return (self._read or self._decode())[0]

    @property
    def odd_fields(self) -> frozenset[str]:
        """The names of the payload fields that could not be read; they have their defaults in `body`."""
        return (self._read or self._decode())[1]

    def _decode(self) -> tuple[EventBody, frozenset[str]]:
        read = read_body(self.type, self.payload)
        object.__setattr__(self, "_read", read)  # only a cache: no field changes
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(_Fact):
    """A fact that is not stored yet and has no seq."""

    sender: str
    to: tuple[str, ...] = ()
    id: str
    ts: int
    by: str | None = None
    delivered_to: tuple[str, ...] = ()
    """The recipients of a foreign envelope; a message has them in its payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(_Fact):
    """A fact with its seq in the log."""

    seq: int
    id: str
    sender: str
    to: tuple[str, ...]
    ts: int
    device: str
    by: str | None = None
    delivered_to: tuple[str, ...] = ()

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
        seq=seq,
        id=draft.id,
        type=draft.type,
        sender=draft.sender,
        to=draft.to,
        ts=draft.ts,
        device=device,
        payload=draft.payload,
        by=draft.by,
        delivered_to=draft.delivered_to,
    )


def encode_event(event: Event) -> bytes:
    """Encode an event as one line of JSON without a line end; the pair of `decode_event`."""
    return _encode(
        _WireEnvelope(
            v=VERSION,
            type=event.type,
            id=event.id,
            sender=event.sender,
            to=event.to or msgspec.UNSET,
            ts=event.ts,
            payload=event.payload or msgspec.UNSET,
            seq=event.seq,
            device=event.device,
            by=msgspec.UNSET if event.by is None else event.by,
            delivered_to=event.delivered_to or msgspec.UNSET,
        )
    )


def decode_event(line: bytes | str) -> Event:
    """Decode an event; raise `BadRequest` if it is invalid."""
    read = _read(line)
    if not isinstance(read.seq, int):
        raise BadRequest("not an event: the field `seq` is missing")
    if not isinstance(read.device, str):
        raise BadRequest("not an event: the field `device` is missing")
    return Event(
        seq=read.seq,
        id=read.id,
        type=read.type,
        sender=read.sender,
        to=read.to or (),
        ts=read.ts or 0,
        device=read.device,
        payload=read.payload or {},
        by=read.by if isinstance(read.by, str) else None,
        delivered_to=read.delivered_to or (),
    )


_ROLE_TOKENS: Final = {f"@{role}s": role for role in ROLES}


def matches_recipient(envelope: Envelope, name: str, role: str) -> bool:
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
    return bool(token) and token == name


_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _WireEnvelope(msgspec.Struct, kw_only=True):
    """The keys of a line in their order, for encoding and decoding."""

    v: int
    type: str
    id: str
    sender: str = msgspec.field(name="from")
    to: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET
    ts: _Int64 | None = 0
    payload: dict[str, object] | msgspec.UnsetType | None = msgspec.UNSET
    seq: _Int64 | msgspec.UnsetType | None = msgspec.UNSET
    device: str | msgspec.UnsetType | None = msgspec.UNSET
    by: str | msgspec.UnsetType | None = msgspec.UNSET
    delivered_to: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_WireEnvelope).decode


def _read(text: str | bytes) -> _WireEnvelope:
    try:
        line = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"not an envelope: {error}") from error
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
    size = 0
    waiting: list[object] = [payload]
    while waiting and size <= _SMALL:
        value = waiting.pop()
        size += len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1
        if size <= _SMALL and isinstance(value, dict):
            waiting.extend(value.values())
        elif size <= _SMALL and isinstance(value, (list, tuple)):
            waiting.extend(value)
    return size <= _SMALL
