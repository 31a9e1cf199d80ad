"""Tasks: created, updated and completed. The event is also a message for the agents it concerns.

The assignees are resolved here, when the request is made. A repeat of the same envelope is one event; a
second task with the same id, and a second completion, are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from palaver.broker.context import Context, Sent
from palaver.broker.messages import check_breadth, find_event, store
from palaver.domain.routing import Resolved, resolve
from palaver.errors import BadRequest, NotFound, RoomNotFound
from palaver.log.api import Log
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft
from palaver.protocol.message import HUMAN, MENTIONS
from palaver.protocol.requests import Send
from palaver.protocol.tasks import (
    COMPLETED,
    TASK_COMPLETE,
    TASK_CREATE,
    TASK_UPDATE,
    CompleteTask,
    CreateTask,
    Task,
    TaskRequest,
    UpdateTask,
    check_task,
)
from palaver.state.references import read_task
from palaver.state.rooms import find_room, read_rooms_of
from palaver.state.rows import Rows


@dataclass(frozen=True, slots=True)
class _Step:
    """The event to write about one task, its recipients, and a check at commit time."""

    task_id: str
    type: str
    payload: dict[str, object]
    resolved: Resolved
    check: Callable[[Task | None], None]
    """Receives the task as it is at commit time, and raises to refuse."""


async def ask(context: Context, caller: Caller, request: TaskRequest, key: bytes | None) -> Sent:
    """Handle a local request about a task; recipients are the agents it concerns, or those it names."""
    notified = _resolve(context, caller, *request.to) if request.to else None
    return await ask_telling(context, caller, request, notified, key)


async def ask_telling(
    context: Context,
    caller: Caller,
    request: TaskRequest,
    notified: Resolved | None,
    key: bytes | None,
    *,
    sent_ts: int | None = None,
) -> Sent:
    """Handle a request about a task with these recipients and any new assignee; None: all it concerns.

    `sent_ts` is the time in the envelope that the request came in.
    """
    event_id = request.id or context.ids.next()
    match request:
        case CreateTask():
            step = _create(context, caller, request, notified, event_id)
        case UpdateTask():
            step = _update(context, caller, request, notified)
        case _:
            step = _complete(context, caller, request, notified, event_id)
    draft = Draft(
        type=step.type,
        sender=caller.name,
        payload={
            # First, so that foreign fields of an envelope cannot replace those of the bus.
            **request.extra,
            **{name: value for name, value in step.payload.items() if value is not None},
        },
        to=step.resolved.to,
        id=event_id,
        ts=context.clock.now_ms(),
        by=caller.by,
        delivered_to=step.resolved.recipients,
        sent_ts=sent_ts,
    )

    def decide(rows: Rows) -> Draft:
        step.check(read_task(rows, step.task_id))
        return draft

    # On the key of the task: of two completions at the same time, the check refuses the second one.
    return await store(context, draft, step.resolved, key, decide=decide, on=f"task/{step.task_id}")


def find_task(log: Log, reference: str) -> Task:
    """Return a task by its id, a unique end of that, or its number. Raises `NotFound`."""
    task = read_task(log.rows, reference)
    if task is not None:
        return task
    try:
        event = find_event(log, reference, what="a task")
    except NotFound:
        raise NotFound(f"task {reference}", "'pal task list' shows the tasks") from None
    task = read_task(log.rows, event.id) if event.type == TASK_CREATE else None
    # An id is unique only for its sender: this event may have the id of another sender's task.
    if task is None or task.seq != event.seq:
        raise NotFound(f"task {reference}", f"#{event.seq} is an event of type {event.type}")
    return task


def _create(
    context: Context, caller: Caller, request: CreateTask, notified: Resolved | None, event_id: str
) -> _Step:
    check_task(title=request.title, description=request.description, assignee=request.assignee)
    assigned = _assigned(context, caller, request.assignee)
    if notified is None:
        notified = Resolved(to=assigned.to, scope=MENTIONS) if request.assignee else _resolve(context, caller)
        # A task without an assignee is announced to all agents, so it needs the same confirmation as a
        # message.
        broadcast = Sent(event=None, to=notified.to, delivered_to=notified.recipients)
        check_breadth(caller, Send(text="", is_confirmed=request.is_confirmed), broadcast)

    def check(known: Task | None) -> None:
        # The own task passes: the log compares sender and id, and returns its first event or refuses it.
        if known is not None and known.by != caller.name:
            raise BadRequest(
                f"the task id {known.id} is taken by #{known.seq} of {known.by}; use another id. "
                "Nothing was stored"
            )

    payload: dict[str, object] = {"title": request.title, "description": request.description or None}
    # Resolved now and stored: the fold must not depend on which agents exist when it runs.
    if request.assignee:
        payload |= _assignment(request.assignee, assigned)
    return _Step(event_id, TASK_CREATE, payload, _with(caller, notified, assigned), check)


def _update(context: Context, caller: Caller, request: UpdateTask, notified: Resolved | None) -> _Step:
    payload = {
        "status": request.status,
        "title": request.title,
        "description": request.description,
        "assignee": request.assignee,
    }
    if not request.extra and all(value is None for value in payload.values()):
        raise BadRequest("nothing to change: name a new status, title, description or assignee")
    check_task(**payload)
    task = find_task(context.log, request.task)
    assigned = _assigned(context, caller, request.assignee or "")
    if notified is None:
        notified = _concerned(context, caller, task)
        notified = replace(notified, to=tuple(dict.fromkeys((*notified.to, *assigned.to))))
    fields: dict[str, object] = {"task_id": task.id, "task_seq": task.seq, **payload}
    if request.assignee:
        fields |= _assignment(request.assignee, assigned)
    return _Step(task.id, TASK_UPDATE, fields, _with(caller, notified, assigned), lambda known: None)


def _complete(
    context: Context, caller: Caller, request: CompleteTask, notified: Resolved | None, event_id: str
) -> _Step:
    check_task(summary=request.summary)
    task = find_task(context.log, request.task)

    def check(known: Task | None) -> None:
        if known is None or known.status != COMPLETED:
            return
        # A repeat of the same envelope passes: the log returns its first event.
        if (known.completed_by, known.completed_id) != (caller.name, event_id):
            whose = f" by {known.completed_by}" if known.completed_by else ""
            raise BadRequest(
                f"task #{known.seq} is already completed{whose}; to reopen it, run 'pal task update'"
            )

    payload: dict[str, object] = {
        "task_id": task.id,
        "task_seq": task.seq,
        "summary": request.summary or None,
    }
    return _Step(task.id, TASK_COMPLETE, payload, notified or _concerned(context, caller, task), check)


def _resolve(context: Context, caller: Caller, *tokens: str) -> Resolved:
    return resolve(
        tokens,
        context.directory,
        sender=caller.name,
        is_present=context.is_present,
        rooms=lambda name: members_of(context, caller, name),
    )


def members_of(context: Context, caller: Caller, name: str | None) -> Sequence[str] | None:
    """Return the members of a room, or of the caller's only one; None if there is no such open room."""
    rows = context.log.rows
    if name is None:
        own = list(read_rooms_of(rows, caller.name))
        return tuple(own[0].names) if len(own) == 1 else None
    try:
        room = find_room(rows, name)
    except RoomNotFound:
        return None
    return tuple(room.names) if room.is_open else None


def _assigned(context: Context, caller: Caller, assignee: str) -> Resolved:
    """Return the agents that an assignee selects, in any form of address; an unknown name is refused."""
    return _resolve(context, caller, assignee) if assignee else Resolved()


def _assignment(assignee: str, assigned: Resolved) -> dict[str, object]:
    return {"assignee": assignee, "assignees": list(assigned.recipients)}


def _concerned(context: Context, caller: Caller, task: Task) -> Resolved:
    """Return the agents that a task concerns: its creator and its assignees. A script has no mailbox."""
    names = dict.fromkeys(
        name
        for name in (task.by, *task.assignees)
        if name != caller.name and (name == HUMAN or context.directory.get(name) is not None)
    )
    return Resolved(to=tuple(names), recipients=tuple(names), scope=MENTIONS)


def _with(caller: Caller, notified: Resolved, assigned: Resolved) -> Resolved:
    """Add new assignees to the recipients. The caller is not notified of a task that it took itself."""
    given = (name for name in assigned.recipients if name != caller.name)
    return replace(
        notified,
        recipients=tuple(dict.fromkeys((*notified.recipients, *given))),
        empty_groups=tuple(dict.fromkeys((*notified.empty_groups, *assigned.empty_groups))),
        dead=tuple(dict.fromkeys((*notified.dead, *assigned.dead))),
    )
