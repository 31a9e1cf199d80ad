"""The commands that put files where harnesses look for them. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Installing"

_WHAT: Final = Positional(
    name="WHAT", help="The skill, or a harness.", choices=("skill", "claude", "codex", "opencode", "gemini")
)
_YES: Final = Option(name="--yes", help="Do not ask: for scripts.")
_DIR: Final = Positional(
    name="DIR",
    help="The folder of skills; otherwise all that harnesses look into.",
    optional=True,
    completes="directories",
)

INSTALL_COMMANDS: Final = (
    Command(
        path=("install",),
        group=_GROUP,
        summary="Set up a harness, or teach agents to use Palaver.",
        description=(
            "With a harness: sessions that you start without 'pal' are on the bus too. It shows what it will "
            "write into your settings and asks; what is there stays, and is kept as it was before. The skill "
            "tells an agent when to write a message, when to pass the stick, when to leave a note and how to "
            "do it. It is written to DIR/palaver/SKILL.md. Installing again brings it up to date; a skill of "
            "that name that is not ours stays as it is."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Print what would be written, and write nothing."), _YES),
        exclusive=(("--print", "--yes"),),
        examples=(
            ("pal install claude", "for every Claude Code that you start"),
            ("pal install gemini --print", "see what would be written"),
            ("pal install skill", "for all harnesses, for all your projects"),
            ("pal install skill .claude/skills", "for this project, in Claude Code"),
            ("pal install skill --print", "read it first"),
        ),
    ),
    Command(
        path=("uninstall",),
        group=_GROUP,
        summary="Remove what was installed.",
        description=(
            "Settings of a harness are put back byte for byte. In a file that was changed since, only what "
            "is ours is taken out, and it says so. What is not ours stays as it is."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Only say what would be removed."), _YES),
        exclusive=(("--print", "--yes"),),
        examples=(
            ("pal uninstall claude", "as it was before"),
            ("pal uninstall skill", "from everywhere"),
        ),
    ),
)
