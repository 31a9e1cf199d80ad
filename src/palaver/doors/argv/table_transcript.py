"""The command that reads transcripts. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.model.transcript import Level

DEFAULT_ENTRIES: Final = 20
"""The default number of entries that `pal transcript` shows."""

TRANSCRIPT_COMMANDS: Final = (
    Command(
        path=("transcript",),
        group="Agents",
        summary="Read the transcript of an agent's session.",
        description=(
            "Reads the transcript that the agent's harness stores (Claude Code, Codex, Gemini CLI, "
            "OpenCode), with your own rights."
        ),
        positionals=(
            Positional(name="NAME", help="Full name of the agent.", completes="agents"),
            Positional(
                name="RANGE",
                help=(
                    "Entries, counted from 1: 10-15, 10, or 10- for all from there on "
                    f"(default: the last {DEFAULT_ENTRIES}; all with --search)."
                ),
                optional=True,
            ),
        ),
        options=(
            Option(
                name="--detail",
                metavar="LEVEL",
                help="Detail: normal (text), detailed (also tools) or full (default: normal).",
                choices=tuple(Level),
            ),
            Option(
                name="--search",
                metavar="RE",
                help=(
                    "Only entries that match this regular expression. Case matters only if it has a capital "
                    "letter."
                ),
            ),
            Option(name="--last", metavar="N", help="Only the last N of these entries."),
        ),
        examples=(
            ("pal transcript luna", "the latest entries"),
            ("pal transcript luna 10-15 --detail detailed", "six entries, with tools"),
            ("pal transcript luna --search 'flaky|timeout'", "find entries about a topic"),
        ),
    ),
)
