"""All commands with their help texts. Data only: handlers are in `commands_*.py`.

`docs/cli.md` describes the same commands, and a test compares the two.
"""

from typing import Final

from palaver.doors.argv.spec import Command, Positional, Table, build_table
from palaver.doors.argv.table_agents import AGENT_COMMANDS
from palaver.doors.argv.table_archive import ARCHIVE_COMMANDS
from palaver.doors.argv.table_bundle import BUNDLE_COMMANDS
from palaver.doors.argv.table_bus import BUS_COMMANDS
from palaver.doors.argv.table_chat import CHAT_COMMANDS
from palaver.doors.argv.table_config import CONFIG_COMMANDS
from palaver.doors.argv.table_doors import DOOR_COMMANDS
from palaver.doors.argv.table_harness import HARNESS_COMMANDS
from palaver.doors.argv.table_install import INSTALL_COMMANDS
from palaver.doors.argv.table_log import LOG_COMMANDS
from palaver.doors.argv.table_messages import MESSAGE_COMMANDS
from palaver.doors.argv.table_permissions import PERMISSION_COMMANDS
from palaver.doors.argv.table_rooms import NOTE_COMMANDS, ROOM_COMMANDS
from palaver.doors.argv.table_stick import STICK_COMMANDS
from palaver.doors.argv.table_subs import SUBSCRIPTION_COMMANDS
from palaver.doors.argv.table_tasks import TASK_COMMANDS
from palaver.doors.argv.table_terminals import TERMINAL_COMMANDS
from palaver.doors.argv.table_threads import THREAD_COMMANDS
from palaver.doors.argv.table_transcript import TRANSCRIPT_COMMANDS

SHELLS: Final = ("bash", "zsh", "fish")

PROGRAM: Final = Command(
    path=(),
    summary="A message bus for coding agents and people.",
    is_group=True,
    examples=(
        ("pal join --name luna", "join the bus"),
        ("pal list", "list the agents"),
        ('pal send @nova "tests are green"', "send a message to nova"),
        ("pal recv --wait", "wait for a message and read it"),
    ),
)

_HELP_COMMANDS: Final = (
    Command(
        path=("completion",),
        group="Help",
        summary="Print a completion script for your shell.",
        description="It completes commands, options, agents, threads and message numbers.",
        positionals=(Positional(name="SHELL", help="Your shell.", choices=SHELLS),),
        examples=(
            ('eval "$(pal completion bash)"', "in ~/.bashrc"),
            ('eval "$(pal completion zsh)"', "in ~/.zshrc, after compinit"),
            ("pal completion fish | source", "in ~/.config/fish/config.fish"),
        ),
    ),
    Command(
        path=("help",),
        group="Help",
        summary="Show all commands, or help for one command.",
        positionals=(
            Positional(
                name="COMMAND",
                help="The command to explain (default: list all commands).",
                many=True,
                optional=True,
                completes="commands",
            ),
        ),
        examples=(("pal help send", "the same as pal send --help"),),
    ),
    Command(
        path=("__complete",),
        summary="Print completion candidates, one per line.",
        rest="WORD...",
        is_hidden=True,
    ),
)

COMMANDS: Final[tuple[Command, ...]] = (
    *BUS_COMMANDS,
    *CONFIG_COMMANDS,
    *AGENT_COMMANDS,
    *TRANSCRIPT_COMMANDS,
    *TERMINAL_COMMANDS,
    *HARNESS_COMMANDS,
    *PERMISSION_COMMANDS,
    *MESSAGE_COMMANDS,
    *THREAD_COMMANDS,
    *BUNDLE_COMMANDS,
    *ROOM_COMMANDS,
    *CHAT_COMMANDS,
    *STICK_COMMANDS,
    *NOTE_COMMANDS,
    *TASK_COMMANDS,
    *LOG_COMMANDS,
    *SUBSCRIPTION_COMMANDS,
    *ARCHIVE_COMMANDS,
    *DOOR_COMMANDS,
    *INSTALL_COMMANDS,
    *_HELP_COMMANDS,
)

TABLE: Final[Table] = build_table(PROGRAM, COMMANDS)
