"""The commands that install files for harnesses. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Setup"

_WHAT: Final = Positional(
    name="WHAT",
    help="The skill, a harness, or everything.",
    choices=("skill", "claude", "codex", "opencode", "gemini", "all"),
)
_YES: Final = Option(name="--yes", help="Do not ask for confirmation.")
_DIR: Final = Positional(
    name="DIR",
    help="Folder for the skill (default: the skill folders of all harnesses).",
    optional=True,
    completes="directories",
)

INSTALL_COMMANDS: Final = (
    Command(
        path=("install",),
        group=_GROUP,
        summary="Set up a harness, or install the skill for agents.",
        description=(
            "With a harness: connects sessions that you start without 'pal' to the bus too. The command "
            "shows the changes to your settings and asks first. Existing settings are kept, and 'pal "
            "uninstall' restores the original file. The skill is a text that teaches agents when and how to "
            "send messages, pass the stick and add notes; it is written to DIR/palaver/SKILL.md. Run the "
            "command again to update. A different skill with that name is not changed. 'all' is the skill "
            "and every harness on your PATH."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Print the changes and write nothing."), _YES),
        exclusive=(("--print", "--yes"),),
        examples=(
            ("pal install claude", "connect every Claude Code session"),
            ("pal install gemini --print", "show the changes first"),
            ("pal install skill", "for all harnesses and projects"),
            ("pal install skill .claude/skills", "for Claude Code in this project"),
            ("pal install skill --print", "print the skill"),
            ("pal install all", "every harness on your PATH, and the skill"),
        ),
    ),
    Command(
        path=("uninstall",),
        group=_GROUP,
        summary="Undo 'pal install'.",
        description=(
            "Restores the settings of a harness byte for byte. If the file has changed since, only entries "
            "of Palaver are removed, and the command says so. Nothing else is changed. 'all' undoes every "
            "installation in all folders, removes the line of 'pal completion' from the start file of your "
            "shell, and prints the commands that remove Palaver itself."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Print what would be removed and remove nothing."), _YES),
        exclusive=(("--print", "--yes"),),
        examples=(
            ("pal uninstall claude", "restore the settings of Claude Code"),
            ("pal uninstall skill", "remove the skill everywhere"),
            ("pal uninstall all", "undo every 'pal install'"),
        ),
    ),
)
