"""The commands for agents that run in a terminal. Data only."""

from typing import Final

from palaver.doors.argv.options import DETACH, NAME, ROLE, TAG
from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Terminals"

_NAME: Final = Positional(name="NAME", help="Full name of the agent.", completes="agents")

_PROMPT: Final = Option(
    name="--prompt",
    metavar="REGEX",
    help="Prompt at which an unknown program accepts a message.",
)

TERMINAL_COMMANDS: Final = (
    Command(
        path=("run",),
        group=_GROUP,
        summary="Run a program as an agent in its own terminal.",
        description=(
            "The program and all processes that it starts are that agent. Closing your window only detaches: "
            "the terminal keeps running. Messages are typed when the program can accept them, and never into "
            "a dialog, a shell, a tool that the program started, or a draft of a person. For a program that "
            "Palaver does not know, describe its prompt with --prompt."
        ),
        rest="COMMAND...",
        options=(
            NAME,
            TAG,
            ROLE,
            Option(
                name="--harness",
                metavar="HARNESS",
                help="Harness of the program (default: detected from its name).",
                completes="harnesses",
            ),
            _PROMPT,
            DETACH,
        ),
        examples=(
            ("pal run --name luna -- claude", "run Claude Code; detach with Ctrl-\\ d"),
            ("pal run --detach --tag api -- codex", "run Codex in the background"),
            ("pal run --prompt 'you> ' -- ./chat.py", "your own program, with the prompt 'you> '"),
        ),
    ),
    Command(
        path=("attach",),
        group=_GROUP,
        summary="Show an agent's terminal and type into it.",
        description=(
            "Shows the screen, a status line and an input bar. Ctrl-\\ opens a menu. Ctrl-\\ d detaches; the "
            "agent keeps running. For a person only."
        ),
        positionals=(_NAME,),
        options=(
            Option(
                name="--plain",
                help="Show only the terminal; all keys go to it. Ctrl-\\ d detaches.",
            ),
        ),
        examples=(
            ("pal attach luna", "open luna's terminal"),
            ("pal attach luna --plain", "without status line and input bar"),
        ),
    ),
    Command(
        path=("peek",),
        group=_GROUP,
        summary="Print the current screen of an agent's terminal.",
        description="Prints the screen as text. It changes nothing.",
        positionals=(_NAME,),
        options=(
            Option(
                name="--lines",
                metavar="N",
                help="The last N lines, including scrollback (default: the screen).",
            ),
        ),
        examples=(
            ("pal peek luna", "see what luna is doing"),
            ("pal peek luna --lines 200", "with earlier lines"),
        ),
    ),
    Command(
        path=("pause",),
        group=_GROUP,
        summary="Deliver only interrupts to an agent.",
        description=(
            "Other messages wait until 'pal unpause', or until the agent reads them with 'pal recv'. For an "
            "operator or a person."
        ),
        positionals=(_NAME,),
        examples=(("pal pause luna", "let luna work undisturbed"),),
    ),
    Command(
        path=("unpause",),
        group=_GROUP,
        summary="Deliver all messages to a paused agent again.",
        description="Waiting messages are delivered now. For an operator or a person.",
        positionals=(_NAME,),
        examples=(("pal unpause luna", "deliver luna's waiting messages"),),
    ),
    Command(
        path=("stop",),
        group=_GROUP,
        summary="Stop an agent gracefully.",
        description=(
            "Uses the program's own quit command, then SIGTERM, then SIGKILL, and prints how the program "
            "ended. For an operator or a person."
        ),
        positionals=(_NAME,),
        examples=(("pal stop luna", "stop luna"),),
    ),
    Command(
        path=("kill",),
        group=_GROUP,
        summary="Kill an agent immediately.",
        description="Sends SIGKILL and prints how the program ended. For an operator or a person.",
        positionals=(_NAME,),
        examples=(("pal kill luna", "luna no longer reacts"),),
    ),
    Command(
        path=("resume",),
        group=_GROUP,
        summary="Restart an agent's program under the same name.",
        description=(
            "Runs the same command line in the same folder, with your environment. For the caller that "
            "started the agent, an operator or a person."
        ),
        positionals=(_NAME,),
        options=(_PROMPT, DETACH),
        examples=(("pal resume luna", "start luna again"),),
    ),
)
