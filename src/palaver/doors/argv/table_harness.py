"""The commands that start harnesses, and those that harnesses run themselves. Data only."""

from typing import Final

from palaver.doors.argv.options import DETACH, NAME, ROLE, TAG
from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Harnesses"

_OPTIONS: Final = (NAME, TAG, ROLE, DETACH)

_CODEX_OPTIONS: Final = (
    *_OPTIONS,
    Option(name="--no-hooks", help="Give it no hooks, whatever was agreed to."),
    Option(name="--hooks", help="Ask again whether it may run hooks of Palaver."),
)

HARNESS_COMMANDS: Final = (
    Command(
        path=("claude",),
        group=_GROUP,
        summary="Start Claude Code as an agent.",
        description=(
            "As 'pal run -- claude', and messages reach it without a key being typed, at work and at rest. "
            "What stands behind the options below goes to Claude Code as it is; its settings are "
            "yours, and nothing is written to them. A conversation that is resumed keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        examples=(
            ("pal claude", "a session in this folder"),
            ("pal claude --name luna --model opus", "with a name of your choice, and an option of its own"),
            ('pal claude -p "run the tests"', "without a terminal, to the end of one turn"),
            ("pal claude --continue", "the last conversation here, with the name it had"),
        ),
    ),
    Command(
        path=("codex",),
        group=_GROUP,
        summary="Start Codex as an agent.",
        description=(
            "As 'pal run -- codex', and messages reach it without a key being typed, while it works and when "
            "it rests. What stands behind the options below goes to Codex as it is; its settings are yours, "
            "and nothing is written to them. A conversation that is resumed keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_CODEX_OPTIONS,
        examples=(
            ("pal codex", "a session in this folder"),
            ("pal codex --name nova -m gpt-6-sol", "with a name of your choice, and an option of its own"),
            ('pal codex exec "run the tests"', "without a terminal, to the end of one turn"),
            ("pal codex resume --last", "the last conversation here, with the name it had"),
        ),
    ),
    Command(
        path=("opencode",),
        group=_GROUP,
        summary="Start OpenCode as an agent.",
        description=(
            "As 'pal run -- opencode', and messages reach it without a key being typed, while it works and "
            "when it rests. What stands behind the options below goes to OpenCode as it is; its settings are "
            "yours, and nothing is written to them. A conversation that is resumed keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        examples=(
            ("pal opencode", "a session in this folder"),
            ("pal opencode --name kira --agent plan", "with a name of your choice, and an option of its own"),
            ("pal opencode --continue", "the last conversation here, with the name it had"),
        ),
    ),
    Command(
        path=("gemini",),
        group=_GROUP,
        summary="Start Gemini CLI as an agent.",
        description=(
            "As 'pal run -- gemini', and while it works messages reach it without a key being typed; when it "
            "rests they are typed. What stands behind the options below goes to Gemini CLI as it is; its "
            "settings are yours, and nothing is written to them. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        examples=(
            ("pal gemini", "a session in this folder"),
            ("pal gemini --name juno -m gemini-pro", "with a name of your choice, and an option of its own"),
            ('pal gemini -p "run the tests"', "without a terminal, to the end of one turn"),
            ("pal gemini --resume latest", "the last conversation here, with the name it had"),
        ),
    ),
    Command(
        path=("hook",),
        group=_GROUP,
        summary="Pass on what a harness says in a hook, and print the answer.",
        description=(
            "For harnesses. It reads the input of the hook from standard input and never gets in the way: "
            "without a bus, or when something is wrong, it prints nothing and ends with status 0."
        ),
        positionals=(
            Positional(name="HARNESS", help="Whose hook it is.", choices=("claude", "codex", "gemini")),
            Positional(name="EVENT", help="The hook, such as Stop."),
        ),
        options=(
            Option(name="--installed", help="It was set up by 'pal install', and not for one session."),
        ),
        examples=(("pal hook claude Stop", "as a command of a hook"),),
    ),
    Command(
        path=("monitor",),
        summary="Print a line for each message as it comes, for a harness that keeps this running.",
        is_hidden=True,
    ),
    Command(
        path=("rewake",),
        summary="Wait for messages, print them and end with status 2, for a harness that is woken by that.",
        is_hidden=True,
        positionals=(Positional(name="EVENT", help="The hook that leaves this running, such as Stop."),),
        options=(
            Option(name="--installed", help="It was set up by 'pal install', and not for one session."),
        ),
    ),
)
