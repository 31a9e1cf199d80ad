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
            "Settings lie in config.toml in the home of the bus, and are read when it starts. A variable "
            "PALAVER_ with the name in capitals wins over the file."
        ),
        is_group=True,
        examples=(("pal config list", "what can be set, and how is it set?"),),
    ),
    Command(
        path=("config", "list"),
        group=_GROUP,
        summary="Show every setting.",
        description="With the value that holds now, where it comes from, and what it means.",
        examples=(("pal config list", "all of them"), ("pal config list --json", "the same, for programs")),
    ),
    Command(
        path=("config", "get"),
        group=_GROUP,
        summary="Show the value of one setting.",
        positionals=(_KEY,),
        examples=(("pal config get brake_hops", "how many answers until a brake holds?"),),
    ),
    Command(
        path=("config", "set"),
        group=_GROUP,
        summary="Change a setting.",
        description=(
            "Writes it into config.toml, where comments and all other lines stay as they are. It holds from "
            "the next start of the bus on. Only a person can do this."
        ),
        positionals=(_KEY, Positional(name="VALUE", help="What it is to be.")),
        examples=(
            ("pal config set brake_per_minute 120", "let agents write more often"),
            ('pal config set hints "answer in English"', "a text for every agent"),
        ),
    ),
    Command(
        path=("config", "edit"),
        group=_GROUP,
        summary="Open the file of settings in your editor.",
        description="Uses $VISUAL or $EDITOR. What the bus would not start with is not saved.",
        examples=(("pal config edit", "change several at once"),),
    ),
)
