"""The commands that show and change settings. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Positional

_GROUP: Final = "The bus"

_KEY: Final = Positional(name="KEY", help="The name of the setting.", completes="settings")

CONFIG_COMMANDS: Final = (
    Command(
        path=("config",),
        group=_GROUP,
        summary="Show and change settings.",
        description=(
            "Settings are stored in config.toml in the home of the bus and are read when it starts. An "
            "environment variable PALAVER_NAME overrides the setting 'name' in the file."
        ),
        is_group=True,
        examples=(("pal config list", "show all settings and their values"),),
    ),
    Command(
        path=("config", "list"),
        group=_GROUP,
        summary="List all settings.",
        description="Shows the current value of each setting, its source and its meaning.",
        examples=(("pal config list", "for people"), ("pal config list --json", "for programs")),
    ),
    Command(
        path=("config", "get"),
        group=_GROUP,
        summary="Show the value of one setting.",
        positionals=(_KEY,),
        examples=(("pal config get brake_hops", "how long a chain of replies may get"),),
    ),
    Command(
        path=("config", "set"),
        group=_GROUP,
        summary="Change a setting.",
        description=(
            "Writes the value to config.toml and keeps comments and all other lines. It takes effect at the "
            "next start of the bus. Only a person can do this."
        ),
        positionals=(_KEY, Positional(name="VALUE", help="The new value.")),
        examples=(
            ("pal config set brake_per_minute 120", "let agents send more messages"),
            ('pal config set hints "answer in English"', "an instruction for every agent"),
        ),
    ),
    Command(
        path=("config", "edit"),
        group=_GROUP,
        summary="Edit the settings file in your editor.",
        description="Uses $VISUAL or $EDITOR (default: vi). An invalid file is not saved.",
        examples=(("pal config edit", "change several settings at once"),),
    ),
)
