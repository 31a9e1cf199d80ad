"""The tasks in the state: one row each, found by its id and listed by its seq, open or closed. Pure.

An event about a task is also mail for its recipients, as an envelope of any other type is.
"""

from typing import Final

import msgspec

from palaver.protocol.envelope import Event
from palaver.protocol.tasks import COMPLETED, OPEN, OVER, TASK_COMPLETE, TASK_CREATE, Task
from palaver.state.ledger import opened_by_envelope
from palaver.state.rows import Change, Rows, encode_row

TASKS: Final = "task"
TASK_PLACES: Final = "task.place"
OPEN_TASKS: Final = "task.open"

_CHANGEABLE: Final = ("title", "description", "status", "assignee")


class _TaskFields(msgspec.Struct, frozen=True, kw_only=True):
    """The payload fields that the fold reads. A missing field stays unchanged."""

    title: str | None = None
    description: str | None = None
    status: str | None = None
    assignee: str | None = None
    assignees: tuple[str, ...] = ()
    task_id: str = ""
    summary: str = ""


def fold_task(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of an event about a task.

    A task with a known id, or a change of an unknown task, raises an error that the fold skips; then it is
    not mail either.
    """
    words = msgspec.convert(event.payload, _TaskFields)
    task = _made(rows, event, words) if event.type == TASK_CREATE else _moved(rows, event, words)
    place = _place_key(task.seq)
    changes: list[Change] = [
        (TASKS, task.id, encode_row(task)),
        (OPEN_TASKS, place, None if task.status in OVER else task.id.encode()),
    ]
    if event.type == TASK_CREATE:
        changes.append((TASK_PLACES, place, task.id.encode()))
    return [*changes, *opened_by_envelope(rows, event)]


def _made(rows: Rows, event: Event, words: _TaskFields) -> Task:
    if not words.title or rows.get(TASKS, event.id) is not None:
        raise ValueError(event.id)
    return Task(
        id=event.id,
        seq=event.seq,
        title=words.title,
        status=OPEN,
        by=event.sender,
        created=event.ts,
        updated=event.ts,
        last=event.seq,
        description=words.description or "",
        assignee=words.assignee or "",
        assignees=words.assignees,
    )


def _moved(rows: Rows, event: Event, words: _TaskFields) -> Task:
    task = read_task(rows, words.task_id)
    if task is None:
        raise ValueError(words.task_id)
    task = msgspec.structs.replace(task, updated=event.ts, last=event.seq)
    if event.type == TASK_COMPLETE:
        return msgspec.structs.replace(
            task,
            status=COMPLETED,
            summary=words.summary,
            completed_by=event.sender,
            completed_id=event.id,
        )
    given: dict[str, object] = {
        name: value for name in _CHANGEABLE if (value := getattr(words, name)) is not None
    }
    if "assignee" in given:
        given["assignees"] = words.assignees
    if given.get("status", COMPLETED) != COMPLETED:  # It was completed, and is not any more.
        given |= {"summary": "", "completed_by": "", "completed_id": ""}
    return msgspec.structs.replace(task, **given)


def read_task(rows: Rows, id: str) -> Task | None:
    """Return a task by its id, or None."""
    value = rows.get(TASKS, id)
    return None if value is None else _decode(value)


def read_tasks(rows: Rows, *, is_open: bool, before: int = 0, limit: int = 1000) -> list[Task]:
    """Return the newest tasks, all or only open ones, newest first; with `before` only older ones."""
    table = OPEN_TASKS if is_open else TASK_PLACES
    after = _place_key(before) if before else ""
    found = []
    for _, value in rows.scan(table, "", after=after, limit=limit, reverse=True):
        task = read_task(rows, value.decode())
        assert task is not None  # one event wrote both
        found.append(task)
    return found


def _place_key(seq: int) -> str:
    return f"{seq:015d}"


_decode: Final = msgspec.json.Decoder(Task).decode
