"""The tasks in the state: one row each, found by its id and listed by its seq, open or closed. Pure.

An event about a task is also mail for its recipients, as an envelope of any other type is.
"""

from typing import Final

import msgspec

from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import TaskCompleted, TaskCreated, TaskUpdated
from palaver.protocol.tasks import COMPLETED, OPEN, OVER, Task
from palaver.state.ledger import opened_by_envelope
from palaver.state.rows import Change, Rows, encode_row

TASKS: Final = "task"
TASK_PLACES: Final = "task.place"
OPEN_TASKS: Final = "task.open"

_ADDED_LATER: Final = frozenset({"task_seq"})
"""Fields that a program could use for something else before we wrote them."""
_CHANGEABLE: Final = ("title", "description", "status", "assignee")


def fold_task(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of an event about a task.

    A task with a known id, or a change of an unknown task, raises an error that the fold skips; then it is
    not mail either.
    """
    body = event.body
    if event.odd_fields - _ADDED_LATER:
        raise ValueError(", ".join(sorted(event.odd_fields)))
    task = _made(rows, event, body) if isinstance(body, TaskCreated) else _moved(rows, event)
    key = _seq_key(task.seq)
    changes: list[Change] = [
        (TASKS, task.id, encode_row(task)),
        (OPEN_TASKS, key, None if task.status in OVER else task.id.encode()),
    ]
    if isinstance(body, TaskCreated):
        changes.append((TASK_PLACES, key, task.id.encode()))
    return [*changes, *opened_by_envelope(rows, event)]


def _made(rows: Rows, event: Event, created: TaskCreated) -> Task:
    if not created.title or rows.get(TASKS, event.id) is not None:
        raise ValueError(event.id)
    return Task(
        id=event.id,
        seq=event.seq,
        title=created.title,
        status=OPEN,
        by=event.sender,
        created=event.ts,
        updated=event.ts,
        last=event.seq,
        description=created.description,
        assignee=created.assignee,
        assignees=created.assignees,
    )


def _moved(rows: Rows, event: Event) -> Task:
    if isinstance(completed := event.body, TaskCompleted):
        return msgspec.structs.replace(
            _known(rows, event, completed.task_id),
            status=COMPLETED,
            summary=completed.summary,
            completed_by=event.sender,
            completed_id=event.id,
        )
    words = body_as(event, TaskUpdated)
    task = _known(rows, event, words.task_id)
    given: dict[str, object] = {
        name: value for name in _CHANGEABLE if (value := getattr(words, name)) is not None
    }
    if "assignee" in given:
        given["assignees"] = words.assignees
    if given.get("status", COMPLETED) != COMPLETED:  # It was completed, and is not any more.
        given |= {"summary": "", "completed_by": "", "completed_id": ""}
    return msgspec.structs.replace(task, **given)


def _known(rows: Rows, event: Event, id: str) -> Task:
    """Return the changed task, with the time and seq of the change."""
    task = read_task(rows, id)
    if task is None:
        raise ValueError(id)
    return msgspec.structs.replace(task, updated=event.ts, last=event.seq)


def read_task(rows: Rows, id: str) -> Task | None:
    """Return a task by its id, or None."""
    value = rows.get(TASKS, id)
    return None if value is None else _decode(value)


def read_tasks(rows: Rows, *, is_open: bool, before: int = 0, limit: int = 1000) -> list[Task]:
    """Return the newest tasks, all or only open ones, newest first; with `before` only older ones."""
    table = OPEN_TASKS if is_open else TASK_PLACES
    after = _seq_key(before) if before else ""
    found = []
    for _, value in rows.scan(table, "", after=after, limit=limit, reverse=True):
        task = read_task(rows, value.decode())
        assert task is not None  # one event wrote both
        found.append(task)
    return found


def _seq_key(seq: int) -> str:
    return f"{seq:015d}"


_decode: Final = msgspec.json.Decoder(Task).decode
