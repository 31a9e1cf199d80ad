"""Messages: their priorities, their payload, and the flat object for programs. The broker validates."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.protocol.agents import INSTANCE
from palaver.protocol.bundles import BUNDLE, bundle_summary
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    Freed,
    MessageSent,
    NoteAdded,
    NoteResolved,
    TaskCompleted,
    TaskCreated,
    TaskUpdated,
    fields_of,
)
from palaver.protocol.paths import Content, split_mailbox
from palaver.protocol.text import LIMIT_BODY_BYTES

MESSAGE: Final = "message"

REQUEST: Final = "request"
INFORM: Final = "inform"
ACK: Final = "ack"
INTENTS: Final = (REQUEST, INFORM, ACK)

HUMAN: Final = "human"
EXTERNAL: Final = "external"
SYSTEM: Final = "system"

BROADCAST: Final = "broadcast"
MENTIONS: Final = "mentions"
PATH: Final = "path"

# --------------------
# The four priorities of a message, and their names. Does not decide when one may be delivered.


# The numbers are a part of the stored keys of open mail, which sort by them, so they cannot change.
class Priority(enum.IntEnum):
    """Smaller goes first. `IDLE_FIRST` is last in, first out; the others are first in, first out."""

    INTERRUPT = 1
    NORMAL = 2
    IDLE_FIRST = 3
    IDLE = 4


_PRIORITY_NAMES: Final = {priority: priority.name.lower().replace("_", "-") for priority in Priority}
_PRIORITIES: Final = {word: priority for priority, word in _PRIORITY_NAMES.items()}

PRIORITY_WORDS: Final = tuple(_PRIORITIES)
"""Every name, most urgent first."""


def parse_priority(word: str) -> Priority:
    """Parse the exact name of a priority; refuse anything else."""
    priority = _PRIORITIES.get(word)
    if priority is None:
        raise BadRequest(f"invalid priority: {word}")
    return priority


def format_priority(priority: Priority) -> str:
    """Return the name that `parse_priority` reads."""
    return _PRIORITY_NAMES[priority]


# --------------------
# The payload, and the flat object for programs.

LOST: Final = "its content is lost"
"""The text shown for a message whose file in blobs/ is missing or changed."""

_to_json: Final = msgspec.json.Encoder().encode


def build_payload(
    *,
    text: str,
    scope: str,
    sender_kind: str,
    mentions: Sequence[str] = (),
    delivered_to: Sequence[str] = (),
    intent: str | None = None,
    thread: str | None = None,
    reply_to: str | None = None,
    bundle_id: str | None = None,
    priority: str | None = None,
    expires: int | None = None,
    path: str | None = None,
    content: Content | None = None,
) -> dict[str, object]:
    """Return a message's payload without empty fields, except `mentions` and `delivered_to`."""
    made: dict[str, object] = {
        "text": text,
        "scope": scope,
        "mentions": list(mentions),
        "sender_kind": sender_kind,
        "delivered_to": list(delivered_to),
    }
    for key, value in (
        ("intent", intent),
        ("thread", thread),
        ("reply_to", reply_to),
        ("bundle_id", bundle_id),
        ("priority", priority),
        ("expires", expires),
        ("path", path),
    ):
        if value:
            made[key] = value
    if content is not None:
        made |= {"command": content.command, "payload": content.payload, "source": content.source}
        made |= {"external_id": content.external_id} if content.external_id else {}
    return made


def is_raw(event: Event) -> bool:
    """Return whether a message is bytes to be typed instead of a text."""
    return isinstance(event.body, MessageSent) and event.body.raw is not None


def is_lost(event: Event) -> bool:
    """Return whether only the short fields of an event are left: its content was in a file that is lost."""
    return event.missing_blob is not None


def _kind_of(sender: str) -> str:
    return HUMAN if sender == HUMAN else INSTANCE


class FlatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"sender": "from"}):
    """The flat object by which programs read a message, in the order of its JSON.

    The fields up to `room` are always there, null if unknown; those after it only if they apply.
    """

    seq: int
    id: str
    ts: int
    sender: str
    to: tuple[str, ...]
    text: str
    scope: str
    mentions: tuple[str, ...]
    sender_kind: str
    delivered_to: tuple[str, ...]
    intent: str | None
    thread: str | None
    reply_to: str | None
    bundle_id: str | None
    priority: str
    room: str | None
    type: str | None = None
    """The type of a foreign envelope, whose content is in `payload`."""
    sent_ts: int | None = None
    """The time that the sender of an envelope wrote into it, 0 if it wrote none."""
    command: str | None = None
    """The command of a routed message, whose content is in `payload`."""
    payload: object = None
    path: str | None = None
    source: str | None = None
    external_id: str | None = None
    display_name: str | None = None
    """The nick of a sender on another network."""
    session: str | None = None
    """The session whose copy this is."""
    handled: bool = False
    handled_by: tuple[str, ...] = ()
    """The sessions that have a copy too, in the copy of their agent."""
    secret: int | None = None
    hash: str | None = None
    raw: str | None = None
    bare: bool = False
    expects_reply: bool = False
    missing_blob: str | None = None
    state: str | None = None
    """Its delivery state for the owner of the inbox that it is listed in."""
    files: Mapping[str, str] | None = None
    """The files that contain its text for agents in terminals, by the name of the agent."""


def handlers_of(event: Event, mailbox: str) -> tuple[str, ...]:
    """Return the sessions that handle the copy in a mailbox; empty for a copy that is not handled."""
    return event.body.handled.get(mailbox, ()) if isinstance(event.body, MessageSent) else ()


def flat(event: Event, *, room: str | None = None, mailbox: str = "") -> FlatMessage:
    """Return the flat object by which programs read a message: the copy in a mailbox, if one is given."""
    body = event.body
    handled_by = handlers_of(event, mailbox)
    # The broker wrote the content of a message. A foreign one is its sender's, and could claim anything.
    message = body if isinstance(body, MessageSent) else MessageSent(delivered_to=event.delivered_to)
    return FlatMessage(
        seq=event.seq,
        id=event.id,
        ts=event.ts,
        sender=event.sender,
        to=event.to,
        text=readable_text(event) if message.command else message.text,
        scope=message.scope or (MENTIONS if event.to else BROADCAST),
        mentions=message.mentions,
        sender_kind=message.sender_kind or _kind_of(event.sender),
        delivered_to=message.delivered_to,
        intent=message.intent,
        thread=message.thread,
        reply_to=reply_reference(event),
        bundle_id=message.bundle_id,
        priority=message.priority or "normal",
        room=room or message.room,
        sent_ts=event.sent_ts,
        command=message.command or None,
        payload=message.payload,
        path=message.path or None,
        source=message.source or None,
        external_id=message.external_id or None,
        display_name=message.display_name or None,
        session=split_mailbox(mailbox)[1] or None,
        handled=bool(handled_by),
        handled_by=handled_by,
        secret=message.secret or None,
        hash=message.hash or None,
        raw=message.raw or None,
        bare=message.bare,
        expects_reply=message.expects_reply,
        missing_blob=(event.missing_blob or None) if isinstance(body, MessageSent) else None,
    )


def reply_reference(event: Event) -> str | None:
    """Return the reference of the message that an event answers; an imported one adds the device."""
    # A number in an imported event is a seq of another log: without the device it would name a message of
    # this one.
    found = event.body.reply_to if isinstance(event.body, MessageSent) else None
    return f"{found}:{event.device}" if found and event.imported and found.isdecimal() else found


_LIMIT_SHOWN: Final = LIMIT_BODY_BYTES + 2000
"""Characters of the longest command with a payload of the usual limit. Only a webhook can have more."""


def readable_text(event: Event, *, handled_by: Sequence[str] = (), is_whole: bool = False) -> str:
    """Return the text of an event for people and agents.

    A message's text; with a command `command {json}`; of a bundle, which may be large, a summary; of a task,
    note or handoff a sentence with its number; of another type `type {json}`; a notice if the content is
    lost. A copy that sessions handled says so at the end.

    The payload of a webhook may be larger than any text. It is cut, unless `is_whole` is true.
    """
    if event.type == BUNDLE:
        text = bundle_summary(event)
    elif is_lost(event):
        text = f"({LOST})"
    elif not isinstance(message := event.body, MessageSent):
        # With an unreadable field the sentence would say less than the payload, so the payload is shown.
        sentence = "" if event.odd_fields else work_text(event)
        text = sentence or with_json(event.type, event.payload)
    elif message.command:
        text = with_json(message.command, message.payload)
        if len(text) > _LIMIT_SHOWN and not is_whole:
            rest = f"{len(text)} characters; 'pal show {event.seq}' prints all of them"
            text = f"{text[:LIMIT_BODY_BYTES]}… ({rest})"
    else:
        text = message.text
    return f"{text} (handled by {', '.join(handled_by)})" if handled_by else text


def with_json(word: str, payload: object) -> str:
    """Return a command or a type with its payload as JSON: `analyze {"topic":"tests"}`."""
    return f"{word} {_to_json({} if payload is None else payload).decode()}"


# --------------------
# Tasks, notes and handoffs as sentences with their number.

_SHORT: Final = 8
"""Characters of a long id that are shown: its end, by which it can also be named."""

HANDOFF_LABELS: Final = {
    "status": "status",
    "next_action": "next",
    "artifacts": "artifacts",
    "open_questions": "questions",
    "do_not": "do not",
}
"""The usual parts of a handoff, and how they are called for people."""

_ARTIFACT_FIELDS: Final = frozenset({"path", "lines", "note"})


def work_text(event: Event, *, is_whole: bool = True) -> str:
    """Return a task, note or handoff as a sentence with its number: `task 42: Refactor auth (for nova)`.

    With `is_whole` also its longer parts, on their own lines. Empty for other events.
    """
    match event.body:
        case TaskCreated() as task:
            long = [task.description, _other_fields(event)]
            first = f"task {event.seq}: {task.title}{f' (for {task.assignee})' if task.assignee else ''}"
        case TaskUpdated() as task:
            long = [task.description or "", _other_fields(event)]
            changes = list(_task_changes(task)) or ["has changed"]
            first = f"task {task_number(event, task)} {', '.join(changes)}"
        case TaskCompleted() as task:
            long = [_other_fields(event)]
            how = f": {task.summary}" if task.summary else ""
            first = f"task {task_number(event, task)} is completed{how}"
        case NoteAdded() as note:
            return f"note {short_id(note.note)} in {note.room}: {note.text}"
        case NoteResolved() as note:
            return f"note {short_id(note.note)} in {note.room} is resolved"
        case Freed(handoff=dict() as handoff) as freed if handoff:
            long = [_handoff_text(handoff)]
            whom = f" for {freed.reserved_for}" if freed.reserved_for else ""
            first = f"handoff of turn {freed.turn_id} in {freed.room}{whom}"
            first += ":" if is_whole else f": {_part_text(handoff.get('status', ''))}"
        case _:
            return ""
    return "\n".join([first, *filter(None, long)]) if is_whole else first


def short_id(id_: str) -> str:
    """Return the part of a long id that is shown."""
    return id_[-_SHORT:].lower()


def task_number(event: Event, task: TaskUpdated | TaskCompleted) -> str:
    """Return the number of a changed task; of an older event the end of the task's id."""
    if not task.task_seq:
        return short_id(task.task_id)
    return f"{task.task_seq}:{event.device}" if event.imported else str(task.task_seq)


def handoff_parts(handoff: Mapping[str, object]) -> list[tuple[str, list[str]]]:
    """Return the parts of a handoff with their labels, the usual ones first; an unknown one has its key."""
    known = [key for key in HANDOFF_LABELS if handoff.get(key) not in (None, [], "")]
    found = []
    for key in (*known, *(key for key in handoff if key not in HANDOFF_LABELS)):
        value = handoff[key]
        parts = value if isinstance(value, list) else [value]
        format_part = _artifact_text if key == "artifacts" else _part_text
        found.append((HANDOFF_LABELS.get(key, key), [format_part(part) for part in parts]))
    return found


def _task_changes(task: TaskUpdated) -> Iterator[str]:
    if task.status is not None:
        yield f"is now {task.status}"
    if task.assignee is not None:
        yield f"is now for {task.assignee}" if task.assignee else "is no longer assigned"
    if task.title is not None:
        yield f"is now called: {task.title}"
    if task.description is not None:
        yield "has a new description" if task.description else "no longer has a description"


def _other_fields(event: Event) -> str:
    """Return the fields that the sender has added to ours."""
    known = fields_of(event.type).all
    others = {key: value for key, value in event.payload.items() if key not in known}
    return with_json("other fields:", others) if others else ""


def _handoff_text(handoff: Mapping[str, object]) -> str:
    return "\n".join(f"{label}: {'; '.join(parts)}" for label, parts in handoff_parts(handoff))


def _artifact_text(value: object) -> str:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        return _part_text(value)
    lines, note = value.get("lines"), value.get("note")
    numbers = lines if isinstance(lines, list) else [] if lines is None else [lines]
    ranges = ":" + ",".join(map(_part_text, numbers)) if numbers else ""
    text = f"{value['path']}{ranges}" + (f" ({note})" if note else "")
    others = {key: part for key, part in value.items() if key not in _ARTIFACT_FIELDS}
    return with_json(text, others) if others else text


def _part_text(value: object) -> str:
    return value if isinstance(value, str) else _to_json(value).decode()
