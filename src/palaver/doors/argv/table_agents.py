"""The commands to join, leave and list agents. Data only."""

from typing import Final

from palaver.doors.argv.options import ROLE, TAG
from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Agents"

AGENT_COMMANDS: Final = (
    Command(
        path=("join",),
        group=_GROUP,
        summary="Join the bus under a name.",
        description=(
            "From now on, this process and all processes that it starts are that agent: it can receive "
            "messages, and the messages it sends carry its name. An agent keeps its name when it is "
            "restarted."
        ),
        options=(
            Option(
                name="--name",
                metavar="NAME",
                help="Name: lower-case letters, digits and _ (default: a free name).",
            ),
            TAG,
            ROLE,
            Option(
                name="--harness",
                metavar="HARNESS",
                help="Harness it runs in (default: detected).",
                completes="harnesses",
            ),
            Option(
                name="--pid", metavar="PID", help="Bind the name to this process, an ancestor of the caller."
            ),
            Option(
                name="--remote",
                metavar="NAME:DEVICE",
                help="Register an agent of another machine, such as luna:BOXE.",
            ),
        ),
        examples=(
            ("pal join", "join under a free name"),
            ("pal join --name luna --tag api", "join as api-luna"),
        ),
    ),
    Command(
        path=("leave",),
        group=_GROUP,
        summary="Leave the bus and give up your name.",
        description=(
            "You no longer appear in the list. Messages to your name are still stored. The process that had "
            "the name, and its child processes, count as a script until they end: to act as a person again, "
            "open a new shell."
        ),
        examples=(("pal leave", "leave the bus"), ("pal leave --as luna", "remove luna")),
    ),
    Command(
        path=("whoami",),
        group=_GROUP,
        summary="Show your own name and rights.",
        description="Shows your name, your level of rights, and how they were determined.",
        examples=(("pal whoami", "who am I?"),),
    ),
    Command(
        path=("list",),
        group=_GROUP,
        summary="List the agents on the bus.",
        description=(
            "Shows one line per agent: name, state, how long it has had that state, and the number of "
            "waiting messages. 'stale': active, but silent for a long time. 'away': cannot be reached. "
            "'asleep': idle, and nothing can wake it; it gets its messages with its next prompt. Sub-agents "
            "are listed below their parent."
        ),
        options=(
            Option(
                name="--verbose",
                short="-v",
                help="Include agents that left, and show who has read recent messages.",
            ),
        ),
        examples=(
            ("pal list", "list the agents"),
            ("pal list -v", "also show who has read recent messages"),
            ("pal list --json", "for programs"),
        ),
    ),
    Command(
        path=("status", "set"),
        group=_GROUP,
        summary="Set your own state.",
        description=(
            "Your state decides which messages are delivered now: an idle agent gets all messages, an active "
            "one all except those for idle agents, a blocked one only interrupts. 'pal recv' reads all "
            "waiting messages in any state. 'listening' is an alias of idle, 'inactive' of exited. Agents in "
            "a harness do not need this command: their state is detected."
        ),
        positionals=(
            Positional(
                name="STATE",
                help="Your new state.",
                choices=("starting", "active", "idle", "blocked", "exited", "listening", "inactive"),
            ),
        ),
        options=(
            Option(name="--detail", metavar="TEXT", help="A short description of the work or the reason."),
            Option(name="--tool", metavar="TOOL", help="The tool you are using."),
            Option(
                name="--file",
                metavar="PATH",
                help="The file you are editing (see 'pal events sub --collision').",
                completes="files",
            ),
        ),
        examples=(
            ('pal status set active --detail "running the tests"', "show other agents that you are busy"),
        ),
    ),
)
