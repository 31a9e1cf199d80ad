"""An event as the SQLite engine stores it: one row, and a blob if the payload is large."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from palaver.errors import BadRequest, StorageFailed
from palaver.log.blobs import LIMIT_ROW_BYTES, Blobs
from palaver.model.envelope import Event

Record: TypeAlias = tuple[
    int,  # seq
    str,  # id
    str,  # type
    str,  # sender
    str | None,  # recipients
    int,  # ts
    str,  # device
    str | None,  # by_
    str | None,  # delivered_to
    str | None,  # thread
    str | None,  # room
    str,  # payload
    str | None,  # blob
    bytes | None,  # request_key
]
"""The columns of one row, in the order of `COLUMNS`."""

COLUMNS: Final = (
    "seq, id, type, sender, recipients, ts, device, by_, delivered_to, thread, room, payload, blob, "
    "request_key"
)

LIMIT_DEPTH: Final = 200
"""Levels of nesting in a payload. SQLite reads a thousand at most: one deeper row would fail every query."""

_SEARCHED: Final = ("text", "title", "description", "body", "detail", "reason")
_KEPT_IN_ROW: Final = (
    "scope",
    "sender_kind",
    "intent",
    "thread",
    "reply_to",
    "bundle_id",
    "priority",
    "room",
    "command",
    "path",
    "state",
    "agent",
    "file",
    "expires",
    "held",
)
_LISTS_KEPT_IN_ROW: Final = ("mentions", "delivered_to", "wakes", "dead")
_LIMIT_KEPT_CHARACTERS: Final = 1024
_LIMIT_KEPT_LIST_BYTES: Final = 16 * 1024
"""Names of a few hundred recipients: enough for any message written by hand."""

_SMALL: Final = 16 * 1024
"""Characters and values of a payload that the event loop may store by itself."""

_encode: Final = msgspec.json.Encoder().encode
decode_payload: Final = msgspec.json.Decoder(dict[str, object]).decode
_decode_list: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def record_from_event(event: Event, request_key: bytes | None, blobs: Blobs) -> Record:
    """Return the row of an event; a large payload is durable in its blob on return.

    Raises BadRequest for a payload that JSON cannot represent, and OSError if there is no space for a blob.
    """
    payload = encode_payload(event.payload)
    blob = None
    if len(payload) > LIMIT_ROW_BYTES:
        blob = blobs.write(payload)
        payload = _encode(_short_fields(event.payload))
    return (
        event.seq,
        event.id,
        event.type,
        event.sender,
        _list_text(event.to),
        event.ts,
        event.device,
        event.by,
        _list_text(event.delivered_to),
        _word(event.payload, "thread"),
        _word(event.payload, "room"),
        payload.decode(),
        blob,
        request_key,
    )


def event_from_record(record: Record, blobs: Blobs) -> Event:
    """Return the event of a row. If its blob is lost, the payload has its short fields and `missing_blob`.

    Raises StorageFailed for a row that is not an event.
    """
    seq, id_, type_, sender, recipients, ts, device, by, delivered_to, _, _, payload, blob, _ = record
    try:
        fields = decode_payload(payload)
        if blob is not None:
            content = blobs.read(blob)
            fields = {**fields, "missing_blob": blob} if content is None else decode_payload(content)
        to, routed_to = _list_from(recipients), _list_from(delivered_to)
        f"{id_}{type_}{sender}{device}{by}".encode()  # fails if a byte of one of them is damaged
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        raise StorageFailed(f"event #{seq} cannot be read: {error}") from error
    if not (id_ and type_ and sender):
        raise StorageFailed(f"event #{seq} cannot be read: its id, type or sender is empty")
    return Event(
        seq=seq,
        id=id_,
        type=type_,
        sender=sender,
        to=to,
        ts=ts,
        device=device,
        payload=fields,
        by=by,
        delivered_to=routed_to,
    )


def readable_events(records: Iterable[Record], blobs: Blobs) -> Iterator[Event]:
    """Yield the events of rows, and skip unreadable ones: one bad row must not stop every reader."""
    for record in records:
        try:
            event = event_from_record(record, blobs)
        except StorageFailed:
            continue
        yield event


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


def searched_text(payload: dict[str, object]) -> str:
    """Return the text that a search covers, as the view `events_text` does."""
    return "".join([f"{text}\n" for key in _SEARCHED if isinstance(text := payload.get(key), str)])


def encode_payload(payload: dict[str, object]) -> bytes:
    """Encode a payload as JSON; the pair of `decode_payload`. Raises BadRequest if that is impossible."""
    encoded = _json(payload)
    # Counting brackets is cheap, and few payloads have enough of them to nest too deep.
    if encoded.count(b"{") + encoded.count(b"[") > LIMIT_DEPTH and _depth(payload) > LIMIT_DEPTH:
        raise BadRequest(f"the payload is nested more than {LIMIT_DEPTH} levels deep")
    return encoded


def _json(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"the event cannot be stored: {error}") from error


def _list_text(names: tuple[str, ...]) -> str | None:
    return _json(names).decode() if names else None


def _list_from(text: str | None) -> tuple[str, ...]:
    return () if text is None else _decode_list(text)


def _depth(payload: object) -> int:
    depth = 0
    level = [payload]
    while level:
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, (list, tuple)):
                below.extend(value)
        level = below
        depth += 1
    return depth


def _short_fields(payload: dict[str, object]) -> dict[str, object]:
    """Return the fields that can still be queried, and are still known if the blob is lost."""
    words: dict[str, object] = {
        key: value
        for key in _KEPT_IN_ROW
        if isinstance(value := payload.get(key), (str, int)) and len(str(value)) <= _LIMIT_KEPT_CHARACTERS
    }
    lists: dict[str, object] = {
        key: value
        for key in _LISTS_KEPT_IN_ROW
        if isinstance(value := payload.get(key), (list, tuple))
        and len(_encode(value)) <= _LIMIT_KEPT_LIST_BYTES
    }
    return words | lists


def _word(payload: dict[str, object], key: str) -> str | None:
    """Return the value that an index stores for a key: a string, or the empty one for any other type."""
    found = payload.get(key)
    if found is None or isinstance(found, str):
        return found
    return ""
