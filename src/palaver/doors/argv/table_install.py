"""The commands that put files where harnesses look for them. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Installing"

_WHAT: Final = Positional(name="WHAT", help="What to install: skill.", choices=("skill",))
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
        summary="Teach agents to use Palaver.",
        description=(
            "The skill tells an agent when to write a message, when to pass the stick, when to leave a note "
            "and how to do it. It is written to DIR/palaver/SKILL.md. Installing again brings it up to date; "
            "a skill of that name that is not ours stays as it is."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Print it instead."),),
        examples=(
            ("pal install skill", "for all harnesses, for all your projects"),
            ("pal install skill .claude/skills", "for this project, in Claude Code"),
            ("pal install skill --print", "read it first"),
        ),
    ),
    Command(
        path=("uninstall",),
        group=_GROUP,
        summary="Remove what was installed.",
        description="What is not ours stays as it is.",
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Only say what would be removed."),),
        examples=(("pal uninstall skill", "from everywhere"),),
    ),
)
