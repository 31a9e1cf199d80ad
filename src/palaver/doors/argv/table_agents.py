"""The commands by which an agent comes, goes and is seen. Data only."""

from typing import Final

from palaver.doors.argv.options import ROLE, TAG
from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Agents"

AGENT_COMMANDS: Final = (
    Command(
        path=("join",),
        group=_GROUP,
        summary="Take a name on the bus.",
        description=(
            "From now on this process, and all that it starts, is that agent: it can be written to, and "
            "what it sends carries its name. Without --name a free one is given. Names stay with the "
            "agent, also when it is started again."
        ),
        options=(
            Option(name="--name", metavar="NAME", help="The name to have: small letters, digits and _."),
            TAG,
            ROLE,
            Option(
                name="--harness",
                metavar="HARNESS",
                help="What it runs in; found out by itself where possible.",
                completes="harnesses",
            ),
            Option(name="--pid", metavar="PID", help="Tie the name to this process above the caller."),
            Option(
                name="--remote",
                metavar="NAME:DEVICE",
                help="Make an agent on another machine known here, such as luna:BOXE.",
            ),
        ),
        examples=(
            ("pal join", "take any free name"),
            ("pal join --name luna --tag api", "become api-luna"),
        ),
    ),
    Command(
        path=("leave",),
        group=_GROUP,
        summary="Give your name up.",
        description=(
            "You leave the list. Messages to you by name are still kept. The process that had the name, and "
            "everything below it, is a script until it ends: to act as a person again, open a new shell."
        ),
        examples=(("pal leave", "leave the bus"), ("pal leave --as luna", "let luna leave")),
    ),
    Command(
        path=("whoami",),
        group=_GROUP,
        summary="Show who you are to the others.",
        description="Your name, your standing, and how it was found out who you are.",
        examples=(("pal whoami", "who am I?"),),
    ),
    Command(
        path=("list",),
        group=_GROUP,
        summary="Show who is on the bus.",
        description=(
            "One line for each agent: name, state, for how long, and how many messages wait for it. An "
            "active agent that has long said nothing is stale; one that cannot be reached is away; one "
            "that rests and that nothing can wake is asleep, and its mail comes with its next prompt. "
            "Sub-agents stand below the agent in whose session they are."
        ),
        options=(
            Option(
                name="--verbose",
                short="-v",
                help="Also those who left, and who has read what each one wrote lately.",
            ),
        ),
        examples=(
            ("pal list", "who is there?"),
            ("pal list -v", "and who has read my last message?"),
            ("pal list --json", "the same, for programs"),
        ),
    ),
    Command(
        path=("status", "set"),
        group=_GROUP,
        summary="Say what you are doing.",
        description=(
            "Sets your own state, which decides what is brought to you now: an idle agent gets everything, "
            "one at work all but what is for idle ones, a blocked one only interrupts. 'pal recv' fetches "
            "whatever waits. 'listening' is another word for idle and 'inactive' for exited."
        ),
        positionals=(
            Positional(
                name="STATE",
                help="Your state from now on.",
                choices=("starting", "active", "idle", "blocked", "exited", "listening", "inactive"),
            ),
        ),
        options=(
            Option(name="--detail", metavar="TEXT", help="A few words on what or why."),
            Option(name="--tool", metavar="TOOL", help="The tool you are using."),
            Option(
                name="--file",
                metavar="PATH",
                help="The file you are editing: others can be told when two edit the same one.",
                completes="files",
            ),
        ),
        examples=(('pal status set active --detail "running the tests"', "tell the others you are busy"),),
    ),
)
