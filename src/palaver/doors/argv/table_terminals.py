"""The commands for agents that run in a terminal. Data only."""

from typing import Final

from palaver.doors.argv.options import DETACH, NAME, ROLE, TAG
from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Terminals"

_NAME: Final = Positional(name="NAME", help="The agent, by its full name.", completes="agents")

_PROMPT: Final = Option(
    name="--prompt",
    metavar="REGEX",
    help="The line at which an unknown program takes a message.",
)

TERMINAL_COMMANDS: Final = (
    Command(
        path=("run",),
        group=_GROUP,
        summary="Run a program as an agent, in its own terminal.",
        description=(
            "The program and everything that it starts is that agent. Its terminal continues when you close "
            "your window: that only detaches. Messages are typed into it when it can take them, and never "
            "into a dialog, a shell, a tool that the program started or a draft of a person. Name the "
            "prompt of a program that Palaver does not know with --prompt."
        ),
        rest="COMMAND...",
        options=(
            NAME,
            TAG,
            ROLE,
            Option(
                name="--harness",
                metavar="HARNESS",
                help="What the program is; otherwise known by its name.",
                completes="harnesses",
            ),
            _PROMPT,
            DETACH,
        ),
        examples=(
            ("pal run --name luna -- claude", "an agent that you see and that stays when you go"),
            ("pal run --detach --tag api -- codex", "one in the background"),
            ("pal run --prompt 'you> ' -- ./chat.py", "your own program, which takes a message at 'you> '"),
        ),
    ),
    Command(
        path=("attach",),
        group=_GROUP,
        summary="Look at an agent's terminal and type into it.",
        description=(
            "Its screen, a status line, and a bar to type in. Ctrl-\\ opens a menu; Ctrl-\\ d leaves, and "
            "the agent runs on. For a person only."
        ),
        positionals=(_NAME,),
        options=(
            Option(
                name="--plain",
                help="The agent's terminal and nothing else: your keys are its keys. Ctrl-\\ d leaves.",
            ),
        ),
        examples=(
            ("pal attach luna", "sit down at luna's terminal"),
            ("pal attach luna --plain", "without the status line and the bar"),
        ),
    ),
    Command(
        path=("peek",),
        group=_GROUP,
        summary="Print what an agent's terminal shows now.",
        description="The screen as text. It changes nothing and types nothing.",
        positionals=(_NAME,),
        options=(
            Option(
                name="--lines",
                metavar="N",
                help="The last so many lines, also what has rolled off the screen.",
            ),
        ),
        examples=(
            ("pal peek luna", "what is luna doing?"),
            ("pal peek luna --lines 200", "and before that?"),
        ),
    ),
    Command(
        path=("pause",),
        group=_GROUP,
        summary="Hand an agent nothing but interrupts.",
        description=(
            "For an operator or a person. All other mail waits until 'pal unpause', or until the agent "
            "fetches it itself with 'pal recv'."
        ),
        positionals=(_NAME,),
        examples=(("pal pause luna", "let luna work in peace"),),
    ),
    Command(
        path=("unpause",),
        group=_GROUP,
        summary="Hand an agent its mail again.",
        description="For an operator or a person.",
        positionals=(_NAME,),
        examples=(("pal unpause luna", "luna gets what has waited"),),
    ),
    Command(
        path=("stop",),
        group=_GROUP,
        summary="End an agent, politely first.",
        description=(
            "Asks the program to quit in its own way, then with SIGTERM, at last with SIGKILL, and says how "
            "it ended. For an operator or a person."
        ),
        positionals=(_NAME,),
        examples=(("pal stop luna", "let luna go home"),),
    ),
    Command(
        path=("kill",),
        group=_GROUP,
        summary="End an agent at once.",
        description="With SIGKILL, and says how it ended. For an operator or a person.",
        positionals=(_NAME,),
        examples=(("pal kill luna", "when it does not listen any more"),),
    ),
    Command(
        path=("resume",),
        group=_GROUP,
        summary="Start again what ran as this agent, under the same name.",
        description=(
            "The same command line in the same folder, with your environment. For who started it, an "
            "operator or a person."
        ),
        positionals=(_NAME,),
        options=(_PROMPT, DETACH),
        examples=(("pal resume luna", "luna is back"),),
    ),
)
