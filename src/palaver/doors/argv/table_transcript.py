"""The command that reads transcripts. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.model.transcript import Level

DEFAULT_ENTRIES: Final = 20
"""How many entries `pal transcript` shows when nothing else is asked for."""

TRANSCRIPT_COMMANDS: Final = (
    Command(
        path=("transcript",),
        group="Agents",
        summary="Read what was said in an agent's own session.",
        description=(
            "Reads the transcript that the agent's harness keeps (Claude Code, Codex, Gemini CLI, OpenCode), "
            f"with your own rights. Without a range: the last {DEFAULT_ENTRIES} entries, and with --search "
            "the whole of it."
        ),
        positionals=(
            Positional(name="NAME", help="The agent, by its full name.", completes="agents"),
            Positional(
                name="RANGE",
                help="Which entries, counted from 1: 10-15, 10 for one, 10- for all from there on.",
                optional=True,
            ),
        ),
        options=(
            Option(
                name="--detail",
                metavar="LEVEL",
                help="How much of each entry: normal (what was said), detailed (also tools) or full.",
                choices=tuple(Level),
            ),
            Option(
                name="--search",
                metavar="RE",
                help=(
                    "Only entries in which this regular expression is found, in what the level shows. "
                    "Capital letters count only when it has one."
                ),
            ),
            Option(name="--last", metavar="N", help="Only the last so many of them."),
        ),
        examples=(
            ("pal transcript luna", "what happened last?"),
            ("pal transcript luna 10-15 --detail detailed", "six entries, with the tools"),
            ("pal transcript luna --search 'flaky|timeout'", "where did that come up?"),
        ),
    ),
)
