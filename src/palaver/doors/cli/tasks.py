"""The commands about tasks."""

from collections.abc import Iterator
from typing import Final

import msgspec

from palaver.broker.context import Sent
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import Command, Option, Positional
from palaver.errors import UsageError
from palaver.protocol.display import Column, ago
from palaver.protocol.events import TaskCompleted, TaskUpdated
from palaver.protocol.paths import readable_mailbox
from palaver.protocol.tasks import (
    COMPLETED,
    OVER,
    STATUSES,
    CompleteTask,
    CreateTask,
    Task,
    TaskRequest,
    UpdateTask,
)
from palaver.services.views import sent_view
from palaver.state.references import read_tasks

# --------------------
# Rows of the commands about tasks.

DEFAULT_TASKS: Final = 50
"""How many tasks `pal task list` shows."""

_GROUP: Final = "Tasks"

_TASK_ID: Final = Positional(
    name="ID", help="The task: its number (42 or #42) or the end of its long id.", completes="tasks"
)
_TO: Final = Option(
    name="--to",
    metavar="TARGET",
    help="Notify these, not the default ones. May be repeated.",
    many=True,
    completes="targets",
)
_ASSIGNEE_HELP: Final = "Assignee: @luna, @api-, @workers or another address"

TASK_COMMANDS: Final = (
    Command(
        path=("task",),
        group=_GROUP,
        summary="Create, assign and complete tasks.",
        description="A task has a title, an assignee and a status. Agents get a message when it changes.",
        is_group=True,
        examples=(
            ("pal task list", "list open tasks"),
            ('pal task create "Refactor auth" --assignee @nova', "assign a task to nova"),
        ),
        see=(("tasks", "tasks.md"),),
    ),
    Command(
        path=("task", "create"),
        group=_GROUP,
        summary="Create a task.",
        description=(
            "The assignee gets a message; without an assignee, all present agents do. Prints the number of "
            "the task."
        ),
        positionals=(Positional(name="TITLE", help="The title, in one line."),),
        options=(
            Option(name="--description", metavar="TEXT", help="Details of the task."),
            Option(name="--assignee", metavar="WHO", help=f"{_ASSIGNEE_HELP}.", completes="targets"),
            _TO,
            Option(name="--yes", help="Confirm more than five recipients (required for agents)."),
        ),
        examples=(
            ('pal task create "Refactor auth" --assignee @nova', "assign a task to nova"),
            ('pal task create "Run all tests" --to @workers', "offer a task to all workers"),
        ),
    ),
    Command(
        path=("task", "update"),
        group=_GROUP,
        summary="Change a task or its status.",
        description=(
            "Fields that you omit stay unchanged. The creator and the assignee get a message. To take a "
            "task, assign it to yourself."
        ),
        positionals=(_TASK_ID,),
        options=(
            Option(
                name="--status",
                metavar="STATUS",
                help=f"New status: {', '.join(STATUSES)}, or another single word.",
            ),
            Option(name="--title", metavar="TEXT", help="The title, in one line."),
            Option(name="--description", metavar="TEXT", help="Details of the task."),
            Option(
                name="--assignee",
                metavar="WHO",
                help="New assignee, such as @luna or @workers; '' for none.",
                completes="targets",
            ),
            _TO,
        ),
        examples=(
            ("pal task update 42 --status in_progress", "start work on it"),
            ("pal task update 42 --assignee @kira", "assign it to kira"),
        ),
    ),
    Command(
        path=("task", "complete"),
        group=_GROUP,
        summary="Mark a task as completed.",
        description="The creator and the assignee get a message.",
        positionals=(_TASK_ID,),
        options=(
            Option(name="--summary", metavar="TEXT", help="The result."),
            _TO,
        ),
        examples=(('pal task complete 42 --summary "tests pass"', "complete it with a result"),),
    ),
    Command(
        path=("task", "list"),
        group=_GROUP,
        summary="List open tasks.",
        description="Shows the newest last.",
        options=(
            Option(name="--all", help="Include completed and cancelled tasks."),
            Option(name="--mine", help="Only tasks that are assigned to you."),
            Option(
                name="--assignee",
                metavar="NAME",
                help="Only tasks of this agent. May be repeated.",
                many=True,
                completes="agents",
            ),
            Option(
                name="--status",
                metavar="STATUS",
                help="Only tasks with this status. May be repeated.",
                many=True,
            ),
            Option(name="--limit", metavar="N", help=f"At most N tasks (default: {DEFAULT_TASKS})."),
        ),
        exclusive=(("--mine", "--assignee"),),
        examples=(
            ("pal task list --mine", "list my tasks"),
            ("pal task list --all --limit 5", "the last five, open or closed"),
        ),
    ),
    Command(
        path=("task", "show"),
        group=_GROUP,
        summary="Show the details of a task.",
        positionals=(_TASK_ID,),
        examples=(("pal task show 42", "show task 42"),),
    ),
)


# --------------------
# Functions of `pal task`.

_PAGE: Final = 500
_SINGULAR: Final = {"--status", "--title", "--description", "--assignee"}


async def create(call: Call) -> int:
    """Create a task and notify its assignees."""
    parsed = call.parsed
    request = CreateTask(
        title=parsed.positionals[0],
        description=parsed.value("--description") or "",
        assignee=parsed.reference("--assignee"),
        to=tuple(parsed.values("--to")),
        is_confirmed=parsed.has("--yes"),
    )
    return await _ask(call, request, "created")


async def update(call: Call) -> int:
    """Change the fields of a task that are given."""
    parsed = call.parsed
    if not any(map(parsed.has, _SINGULAR)):
        raise UsageError("nothing to change: use --status, --title, --description or --assignee")
    request = UpdateTask(
        task=parsed.positionals[0],
        status=parsed.value("--status"),
        title=parsed.value("--title"),
        description=parsed.value("--description"),
        # `value`, because an empty assignee removes the current one.
        assignee=parsed.value("--assignee"),
        to=tuple(parsed.values("--to")),
    )
    return await _ask(call, request, "updated")


async def complete(call: Call) -> int:
    """Mark a task as completed."""
    parsed = call.parsed
    request = CompleteTask(
        task=parsed.positionals[0],
        summary=parsed.value("--summary") or "",
        to=tuple(parsed.values("--to")),
    )
    return await _ask(call, request, "completed")


async def list_tasks(call: Call) -> int:
    """Show the newest tasks that pass the filters, newest last."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_TASKS
    found = _newest(call, limit)
    if call.is_json:
        for task in found:
            await call.say_json(task_view(task))
        return 0
    if not found:
        is_filtered = any(map(call.parsed.has, ("--mine", "--assignee", "--status")))
        none_open = "no open tasks; 'pal task create TITLE' creates one"
        await call.say("no task matches these filters" if is_filtered else none_open)
        return 0
    now, paint = call.now_ms(), call.paint
    columns = [
        Column(title="TASK", least=5, paint=paint.bold),
        Column(title="STATUS", least=6),
        Column(title="FOR", least=6, paint=paint.cyan),
        Column(title="AGE", is_right=True),
        Column(title="WHAT", least=20),
    ]
    rows = [
        [f"#{task.seq}", task.status, _whose(task) or "-", ago(now - task.created), task.title]
        for task in found
    ]
    await call.say_table(columns, rows)
    return 0


async def show(call: Call) -> int:
    """Show all fields of one task."""
    task = call.services.queries.task(call.parsed.positionals[0])
    if call.is_json:
        await call.say_json(task_view(task))
    else:
        await call.say_lines(_lines(call, task))
    return 0


async def _ask(call: Call, request: TaskRequest, word: str) -> int:
    sent = await call.submit(request)
    assert isinstance(sent, Sent)
    assert sent.event is not None  # a request about a task is never a dry run
    body = sent.event.body
    # A new task has the id of the event that created it.
    reference = body.task_id if isinstance(body, TaskUpdated | TaskCompleted) else sent.event.id
    task = call.services.queries.task(reference)
    if call.is_json:
        await call.say_json({**msgspec.to_builtins(sent_view(sent)), "task": task_view(task)})
        return 0
    lines = [f"{word} task #{task.seq}{_for(task)}: {task.title}"]
    names = ", ".join(map(readable_mailbox, sent.delivered_to))
    lines.append(f"notified {names}" if names else "no agent was notified")
    lines += [f"{group} has no members now" for group in sent.empty_groups]
    lines += [f"no agent is subscribed to {path}" for path in sent.dead]
    await call.say_lines(map(call.safe, lines))
    return 0


def _newest(call: Call, limit: int) -> list[Task]:
    """Return the `limit` newest tasks that pass the filters, newest last."""
    rows, parsed = call.services.queries.rows, call.parsed
    names = (
        {call.owner}
        if parsed.has("--mine")
        else {call.agent(one).name for one in parsed.values("--assignee")}
    )
    statuses = set(parsed.values("--status"))
    # Finished tasks are read only if the options can select one.
    is_open = not parsed.has("--all") and not statuses & OVER
    found: list[Task] = []
    before = 0
    # Page by page from the newest on, because the filters are not in the index: how many rows are needed for
    # `limit` tasks is not known before.
    while page := read_tasks(rows, is_open=is_open, before=before, limit=_PAGE):
        for task in page:
            if (not names or names.intersection(task.assignees)) and (
                not statuses or task.status in statuses
            ):
                found.append(task)
            if len(found) == limit:
                return found[::-1]
        before = page[-1].seq
    return found[::-1]


# --------------------
# Rendering: tasks for programs and for people.


def task_view(task: Task) -> dict[str, object]:
    """Return one task for JSON output."""
    return {
        "task_id": task.id,
        "seq": task.seq,
        "title": task.title,
        "description": task.description,
        "status": task.status,
        "assignee": task.assignee or None,
        "assignees": list(task.assignees),
        "from": task.by,
        "created": task.created,
        "updated": task.updated,
        "summary": task.summary or None,
        "completed_by": task.completed_by or None,
    }


def _whose(task: Task) -> str:
    """Return the assignee of a task: the name of a single agent, else the group as it was written."""
    return task.assignees[0] if len(task.assignees) == 1 else task.assignee


def _for(task: Task) -> str:
    whose = _whose(task)
    return f" for {whose}" if whose else ""


def _lines(call: Call, task: Task) -> Iterator[str]:
    yield call.paint.bold(call.safe(f"#{task.seq} {task.title}"))
    names = f" ({', '.join(task.assignees)})" if len(task.assignees) > 1 else ""
    yield call.safe(f"{task.status}{_for(task)}{names}")
    yield call.safe(f"from {task.by}, {call.clock_time(task.created)}, {task.id}")
    if task.last != task.seq:
        yield call.safe(f"last change {call.clock_time(task.updated)}, #{task.last}")
    if task.description:
        yield ""
        yield call.safe(task.description, keep_lines=True)
    if task.status == COMPLETED:
        yield ""
        who = f"completed by {task.completed_by}" if task.completed_by else "completed"
        yield call.safe(f"{who}: {task.summary}" if task.summary else who, keep_lines=True)
