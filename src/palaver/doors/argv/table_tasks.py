"""The commands about tasks. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.model.task import STATUSES

DEFAULT_TASKS: Final = 50
"""How many tasks `pal task list` shows."""

_GROUP: Final = "Tasks"

_TASK_ID: Final = Positional(
    name="ID", help="The task: its number, 42 or #42, its long id or the end of that.", completes="tasks"
)
_TO: Final = Option(
    name="--to",
    metavar="TARGET",
    help="Tell these instead of those it concerns. May be given often.",
    many=True,
    completes="targets",
)
_ASSIGNEE_HELP: Final = "Who is to do it: @luna, @api-, @workers or any other address"

TASK_COMMANDS: Final = (
    Command(
        path=("task",),
        group=_GROUP,
        summary="Say what is to be done, and what is done.",
        is_group=True,
        examples=(("pal task list", "what is to be done?"),),
    ),
    Command(
        path=("task", "create"),
        group=_GROUP,
        summary="Write down what is to be done.",
        description=(
            "The assignee gets it as a message; without one everybody present does. Prints the number by "
            "which the task is meant from then on."
        ),
        positionals=(Positional(name="TITLE", help="What it is, in one line."),),
        options=(
            Option(name="--description", metavar="TEXT", help="What there is to know about it."),
            Option(name="--assignee", metavar="WHO", help=f"{_ASSIGNEE_HELP}.", completes="targets"),
            _TO,
            Option(name="--yes", help="Agents need this to tell more than five."),
        ),
        examples=(
            ('pal task create "Refactor auth" --assignee @nova', "for nova"),
            ('pal task create "Run all tests" --to @workers', "for whoever takes it"),
        ),
    ),
    Command(
        path=("task", "update"),
        group=_GROUP,
        summary="Say how a task stands, or change it.",
        description=(
            "What is not given stays as it is. Those who made the task or have it get a message. To take a "
            "task, give it to yourself."
        ),
        positionals=(_TASK_ID,),
        options=(
            Option(
                name="--status",
                metavar="STATUS",
                help=f"How it stands: {', '.join(STATUSES)}, or a word of your own.",
            ),
            Option(name="--title", metavar="TEXT", help="What it is, in one line."),
            Option(name="--description", metavar="TEXT", help="What there is to know about it."),
            Option(
                name="--assignee",
                metavar="WHO",
                help=f"{_ASSIGNEE_HELP}; '' for nobody.",
                completes="targets",
            ),
            _TO,
        ),
        examples=(
            ("pal task update 42 --status in_progress", "I am at it"),
            ("pal task update 42 --assignee @kira", "kira does it"),
        ),
    ),
    Command(
        path=("task", "complete"),
        group=_GROUP,
        summary="Say that a task is done.",
        description="Those who made the task or have it get a message.",
        positionals=(_TASK_ID,),
        options=(
            Option(name="--summary", metavar="TEXT", help="What came of it."),
            _TO,
        ),
        examples=(('pal task complete 42 --summary "tests pass"', "and what came of it"),),
    ),
    Command(
        path=("task", "list"),
        group=_GROUP,
        summary="Show the tasks that are open.",
        description="Newest last.",
        options=(
            Option(name="--all", help="Also those that are completed or cancelled."),
            Option(name="--mine", help="Only those that you are to do."),
            Option(
                name="--assignee",
                metavar="NAME",
                help="Only those that this agent is to do.",
                many=True,
                completes="agents",
            ),
            Option(name="--status", metavar="STATUS", help="Only those that stand so.", many=True),
            Option(name="--limit", metavar="N", help=f"At most so many; otherwise {DEFAULT_TASKS}."),
        ),
        exclusive=(("--mine", "--assignee"),),
        examples=(
            ("pal task list --mine", "what am I to do?"),
            ("pal task list --all --limit 5", "the last five, done or not"),
        ),
    ),
    Command(
        path=("task", "show"),
        group=_GROUP,
        summary="Show all about one task.",
        positionals=(_TASK_ID,),
        examples=(("pal task show 42", "task 42"),),
    ),
)
