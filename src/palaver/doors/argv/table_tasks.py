"""The commands about tasks. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.model.task import STATUSES

DEFAULT_TASKS: Final = 50
"""How many tasks `pal task list` shows."""

_GROUP: Final = "Tasks"

_TASK_ID: Final = Positional(
    name="ID", help="The task: its number (42 or #42) or the end of its long id.", completes="tasks"
)
_TO: Final = Option(
    name="--to",
    metavar="TARGET",
    help="Notify these instead of the default recipients. May be repeated.",
    many=True,
    completes="targets",
)
_ASSIGNEE_HELP: Final = "Assignee: @luna, @api-, @workers or any other address"

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
            Option(name="--yes", help="Confirm a message to more than five (required for agents)."),
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
                help=f"{_ASSIGNEE_HELP}; '' removes the assignee.",
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
