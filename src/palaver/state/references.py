"""Threads, bundles and tasks in the state, and how messages refer to them. Pure."""

from typing import Final

import msgspec

from palaver.protocol.bundles import format_bundle_id, parse_bundle_id
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import Bundle, TaskCompleted, TaskCreated, TaskUpdated
from palaver.protocol.tasks import COMPLETED, OPEN, OVER, Task
from palaver.state.ledger import opened_by_envelope
from palaver.state.rows import Change, Rows, encode_row

# --------------------
# Threads: the length, participants and time of each.
#
# A thread is only a name that messages share; it delivers nothing.

THREADS: Final = "thread"
"""Each thread, by its name."""
RECENT_THREADS: Final = "thread.recent"
"""The name of each thread, by the seq of its last message, newest first."""

_LIMIT_NAMES: Final = 20
_LARGEST_SEQ: Final = 10**15 - 1
"""The largest number of 15 digits, the length of a key."""


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thread: the seqs of its first and last message, their number, and its first participants.

    `ts` is the time of the last message, and `names` has at most twenty senders.
    """

    name: str
    first: int
    last: int
    count: int
    ts: int
    names: tuple[str, ...] = ()


_decode_thread: Final = msgspec.json.Decoder(Thread).decode


def fold_thread(rows: Rows, event: Event, name: str) -> list[Change]:
    """Return the changes of a message to its thread."""
    known = read_thread(rows, name)
    if known is None:
        known = Thread(name=name, first=event.seq, last=event.seq, count=0, ts=event.ts)
    names = known.names
    if event.sender not in names and len(names) < _LIMIT_NAMES:
        names = (*names, event.sender)
    # Below, the removal comes before the new row: in a new thread both have the same key.
    thread = msgspec.structs.replace(known, last=event.seq, count=known.count + 1, ts=event.ts, names=names)
    return [
        (THREADS, name, encode_row(thread)),
        (RECENT_THREADS, _recent_key(known.last), None),
        (RECENT_THREADS, _recent_key(event.seq), name.encode("utf-8", "surrogatepass")),
    ]


def read_thread(rows: Rows, name: str) -> Thread | None:
    """Return a thread by its name, or None."""
    value = rows.get(THREADS, name)
    return None if value is None else _decode_thread(value)


def read_threads(rows: Rows, limit: int) -> list[Thread]:
    """Return the most recently used threads, newest first."""
    recent = rows.scan(RECENT_THREADS, "", limit=limit)
    found = (read_thread(rows, value.decode("utf-8", "surrogatepass")) for _, value in recent)
    return [thread for thread in found if thread is not None]


def _recent_key(seq: int) -> str:
    """Return a key that sorts the newest first."""
    return f"{_LARGEST_SEQ - seq:015d}"


# --------------------
# Bundles: found by the eight characters of the id, and listed by seq.
#
# The rows contain the seq of a bundle; its contents are only in its event.

BUNDLES: Final = "bundle"
"""Each bundle, by the eight characters of its id."""
BUNDLE_PLACES: Final = "bundle.place"
"""The same characters, by seq."""

LIMIT_CHAIN: Final = 100
"""The number of steps that `read_parents` follows."""


class BundleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bundle, without its contents. `files` is the number of its files."""

    seq: int
    title: str
    by: str
    ts: int
    files: int = 0
    extends: str = ""


_decode_bundle: Final = msgspec.json.Decoder(BundleRow).decode


def made_bundle(rows: Rows, event: Event) -> list[Change]:
    """Return the rows of a new bundle. Raise ValueError for a known id, so that the fold skips the event."""
    bundle = body_as(event, Bundle)
    key = parse_bundle_id(bundle.bundle_id)
    if rows.get(BUNDLES, key) is not None:
        raise ValueError(bundle.bundle_id)
    row = BundleRow(
        seq=event.seq,
        title=bundle.title,
        by=event.sender,
        ts=event.ts,
        files=len(bundle.files),
        extends=bundle.extends,
    )
    by_seq = f"{event.seq:015d}"  # Of one length, so that the keys sort like the numbers.
    return [(BUNDLES, key, encode_row(row)), (BUNDLE_PLACES, by_seq, key.encode())]


def read_bundle(rows: Rows, key: str) -> BundleRow | None:
    """Return a bundle by its eight characters, in lower case, or None."""
    value = rows.get(BUNDLES, key)
    return None if value is None else _decode_bundle(value)


def read_newest_bundles(rows: Rows, limit: int) -> list[tuple[str, BundleRow]]:
    """Return the newest bundles with their ids, the newest last."""
    found = []
    for _, value in reversed(rows.scan(BUNDLE_PLACES, "", limit=limit, reverse=True)):
        key = value.decode()
        row = read_bundle(rows, key)
        assert row is not None  # One event wrote both.
        found.append((format_bundle_id(key), row))
    return found


def read_parents(rows: Rows, extends: str) -> list[tuple[str, BundleRow]]:
    """Return the bundle `extends` and its parents with their ids, the nearest first, at most a hundred.

    A bundle can only extend an older one, so there are no cycles: the limit is only for very long chains.
    """
    found: list[tuple[str, BundleRow]] = []
    while extends and len(found) < LIMIT_CHAIN:
        row = read_bundle(rows, parse_bundle_id(extends))
        if row is None:
            break
        found.append((extends, row))
        extends = row.extends
    return found


# --------------------
# The tasks in the state: one row each, found by its id and listed by its seq, open or closed. Pure.
#
# An event about a task is also mail for its recipients, as an envelope of any other type is.

TASKS: Final = "task"
TASK_PLACES: Final = "task.place"
OPEN_TASKS: Final = "task.open"

_ADDED_LATER: Final = frozenset({"task_seq"})
"""Fields that a program could use for something else before we wrote them: an unreadable one is ignored, so
that older events about the task still count."""
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
    # Only with a new assignee: in any other update the field is empty, and would remove the agents.
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
