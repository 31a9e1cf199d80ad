"""Tasks: the requests about them, their envelopes, and the stored value. Pure.

The id of a task is that of the envelope that created it. Unknown fields are stored unread, so that programs
can add their own. Assignees are resolved elsewhere.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.protocol.envelope import Draft
from palaver.protocol.text import check_text

TASK_CREATE: Final = "task.create"
TASK_UPDATE: Final = "task.update"
TASK_COMPLETE: Final = "task.complete"
TASK_TYPES: Final = frozenset({TASK_CREATE, TASK_UPDATE, TASK_COMPLETE})

OPEN: Final = "open"
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
STATUSES: Final = (OPEN, "in_progress", "blocked", CANCELLED, COMPLETED)
"""The common statuses. Any other word is a status too."""
OVER: Final = frozenset({CANCELLED, COMPLETED})
"""A task with one of these statuses is closed."""

LIMIT_TITLE_BYTES: Final = 256
LIMIT_STATUS_BYTES: Final = 64
LIMIT_ASSIGNEE_BYTES: Final = 1024

# `assignees` and `task_seq` are here because the bus sets them: values of a sender are dropped.
_CREATED: Final = frozenset({"title", "description", "assignee", "assignees"})
_UPDATED: Final = _CREATED | {"task_id", "task_seq", "status"}
_COMPLETED: Final = frozenset({"task_id", "task_seq", "summary"})


class CreateTask(msgspec.Struct, frozen=True, kw_only=True):
    """Create a task and notify its assignee and the recipients in `to`.

    With neither, all present agents are notified.
    """

    title: str
    description: str = ""
    assignee: str = ""
    to: tuple[str, ...] = ()
    id: str = ""
    extra: dict[str, object] = msgspec.field(default_factory=dict)
    is_confirmed: bool = False
    """The caller knows that this goes to many."""


class UpdateTask(msgspec.Struct, frozen=True, kw_only=True):
    """Change the given fields, and nothing else. An empty assignee removes the current one.

    An empty `to` notifies the creator of the task and its current and former assignees.
    """

    task: str
    status: str | None = None
    title: str | None = None
    description: str | None = None
    assignee: str | None = None
    to: tuple[str, ...] = ()
    id: str = ""
    extra: dict[str, object] = msgspec.field(default_factory=dict)


class CompleteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Mark a task as completed; `to` as in `UpdateTask`."""

    task: str
    summary: str = ""
    to: tuple[str, ...] = ()
    id: str = ""
    extra: dict[str, object] = msgspec.field(default_factory=dict)


TaskRequest = CreateTask | UpdateTask | CompleteTask


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current state of one task. `seq` is its number: the seq of the event that created it."""

    id: str
    seq: int
    title: str
    status: str
    by: str
    created: int
    updated: int
    last: int
    """The seq of the newest event about it."""
    description: str = ""
    assignee: str = ""
    """As it was written."""
    assignees: tuple[str, ...] = ()
    """The agents that it selected at that time."""
    summary: str = ""
    completed_by: str = ""
    completed_id: str = ""
    """The id of the event that completed it."""


class _TaskWords(msgspec.Struct, frozen=True, kw_only=True):
    """The payload fields of a request about a task, as a program has written them."""

    title: object = None
    description: object = None
    status: object = None
    # Missing leaves the assignee as it is; null removes it. For the other fields both mean the same.
    assignee: object = msgspec.UNSET
    task_id: object = None
    summary: object = None


def task_request_from(envelope: Draft) -> TaskRequest | None:
    """Parse an envelope as a request about a task; None for another type.

    Raises `BadRequest` with a sentence that names the missing or wrong field.
    """
    # All fields are of the type `object`, so this never fails, and the sentences below name the wrong field.
    payload = envelope.payload
    given = msgspec.convert(payload, _TaskWords)
    match envelope.type:
        case "task.create":
            return CreateTask(
                title=_needed(given.title, "title"),
                description=_word(given.description, "description") or "",
                assignee="" if given.assignee is msgspec.UNSET else _word(given.assignee, "assignee") or "",
                to=envelope.to,
                id=envelope.id,
                extra=_extra(payload, _CREATED),
            )
        case "task.update":
            return UpdateTask(
                task=_needed(given.task_id, "task_id"),
                status=_word(given.status, "status"),
                title=_word(given.title, "title"),
                description=_word(given.description, "description"),
                assignee=None if given.assignee is msgspec.UNSET else _word(given.assignee, "assignee") or "",
                to=envelope.to,
                id=envelope.id,
                extra=_extra(payload, _UPDATED),
            )
        case "task.complete":
            return CompleteTask(
                task=_needed(given.task_id, "task_id"),
                summary=_word(given.summary, "summary") or "",
                to=envelope.to,
                id=envelope.id,
                extra=_extra(payload, _COMPLETED),
            )
    return None


def check_task(
    *,
    title: str | None = None,
    description: str | None = None,
    status: str | None = None,
    assignee: str | None = None,
    summary: str | None = None,
) -> None:
    """Refuse fields of a task that cannot be stored; None is not checked."""
    if title is not None:
        if not title.strip():
            raise BadRequest("a task needs a title")
        check_text(title, "the title", LIMIT_TITLE_BYTES)
        _check_line(title, "the title must be one line; put the rest into the description")
    if status is not None:
        check_text(status, "the status", LIMIT_STATUS_BYTES)
        if not status or status.split() != [status]:
            raise BadRequest(f"a status is one word, such as {', '.join(STATUSES)}; not {status!r}")
    if assignee is not None:
        check_text(assignee, "the assignee", LIMIT_ASSIGNEE_BYTES)
    for text, what in ((description, "the description"), (summary, "the summary")):
        if text is not None:
            check_text(text, what)


def _check_line(text: str, sentence: str) -> None:
    if "\n" in text or "\r" in text:
        raise BadRequest(sentence)


def _needed(given: object, name: str) -> str:
    found = _word(given, name)
    if found is None:
        raise BadRequest(f"payload.{name} is missing")
    return found


def _word(given: object, name: str) -> str | None:
    if given is not None and not isinstance(given, str):
        raise BadRequest(f"payload.{name} must be a string")
    return given


def _extra(payload: Mapping[str, object], known: frozenset[str]) -> dict[str, object]:
    return {name: value for name, value in payload.items() if name not in known}
