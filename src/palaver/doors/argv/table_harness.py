"""The commands that start harnesses, and the commands that harnesses run. Data only."""

from typing import Final

from palaver.doors.argv.options import DETACH, NAME, ROLE, TAG
from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Harnesses"

_OPTIONS: Final = (NAME, TAG, ROLE, DETACH)

_CODEX_OPTIONS: Final = (
    *_OPTIONS,
    Option(name="--no-hooks", help="Run without hooks, even if you agreed to them."),
    Option(name="--hooks", help="Ask again whether Codex may run hooks of Palaver."),
)

HARNESS_COMMANDS: Final = (
    Command(
        path=("claude",),
        group=_GROUP,
        summary="Start Claude Code as an agent.",
        description=(
            "Like 'pal run -- claude', but messages arrive without keystrokes, while it works and while it "
            "is idle. Arguments after the options below go to Claude Code unchanged. Your own settings apply "
            "and are not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        examples=(
            ("pal claude", "start a session in this folder"),
            ("pal claude --name luna --model opus", "choose the name; --model goes to Claude Code"),
            ('pal claude -p "run the tests"', "run one prompt without a terminal"),
            ("pal claude --continue", "resume the last conversation under its name"),
        ),
    ),
    Command(
        path=("codex",),
        group=_GROUP,
        summary="Start Codex as an agent.",
        description=(
            "Like 'pal run -- codex', but messages arrive without keystrokes, while it works and while it is "
            "idle. Arguments after the options below go to Codex unchanged. Your own settings apply and are "
            "not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_CODEX_OPTIONS,
        examples=(
            ("pal codex", "start a session in this folder"),
            ("pal codex --name nova -m gpt-6-sol", "choose the name; -m goes to Codex"),
            ('pal codex exec "run the tests"', "run one prompt without a terminal"),
            ("pal codex resume --last", "resume the last conversation under its name"),
        ),
    ),
    Command(
        path=("opencode",),
        group=_GROUP,
        summary="Start OpenCode as an agent.",
        description=(
            "Like 'pal run -- opencode', but messages arrive without keystrokes, while it works and while it "
            "is idle. Arguments after the options below go to OpenCode unchanged. Your own settings apply "
            "and are not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        examples=(
            ("pal opencode", "start a session in this folder"),
            ("pal opencode --name kira --agent plan", "choose the name; --agent goes to OpenCode"),
            ("pal opencode --continue", "resume the last conversation under its name"),
        ),
    ),
    Command(
        path=("gemini",),
        group=_GROUP,
        summary="Start Gemini CLI as an agent.",
        description=(
            "Like 'pal run -- gemini', but messages arrive without keystrokes while it works; while it is "
            "idle, they are typed. Arguments after the options below go to Gemini CLI unchanged. Your own "
            "settings apply and are not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        examples=(
            ("pal gemini", "start a session in this folder"),
            ("pal gemini --name juno -m gemini-pro", "choose the name; -m goes to Gemini CLI"),
            ('pal gemini -p "run the tests"', "run one prompt without a terminal"),
            ("pal gemini --resume latest", "resume the last conversation under its name"),
        ),
    ),
    Command(
        path=("hook",),
        group=_GROUP,
        summary="Forward a harness hook to the bus and print the reply.",
        description=(
            "Harnesses run this command. It reads the input of the hook from standard input. It never blocks "
            "the harness: if the bus is not running, or after an error, it prints nothing and exits with "
            "status 0."
        ),
        positionals=(
            Positional(name="HARNESS", help="The harness.", choices=("claude", "codex", "gemini")),
            Positional(name="EVENT", help="The name of the hook, such as Stop."),
        ),
        options=(
            Option(name="--installed", help="The hook was set up by 'pal install', not for one session."),
        ),
        examples=(("pal hook claude Stop", "as the command of a hook"),),
    ),
    Command(
        path=("monitor",),
        summary="Print a line for each message as it arrives; run by a harness.",
        is_hidden=True,
    ),
    Command(
        path=("rewake",),
        summary="Wait for messages, print them and exit with 2; run by a harness.",
        is_hidden=True,
        positionals=(Positional(name="EVENT", help="The hook that started this command, such as Stop."),),
        options=(
            Option(name="--installed", help="The hook was set up by 'pal install', not for one session."),
        ),
    ),
)
