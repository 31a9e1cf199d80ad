"""The commands that create and read bundles, and the bundle options of `pal send`. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

DEFAULT_BUNDLES: Final = 20
"""How many bundles `pal bundle list` shows."""

_GROUP: Final = "Bundles"

_BUNDLE_ID: Final = Positional(
    name="ID", help="The bundle: its eight characters, with or without bundle: before them."
)

CONTENT_OPTIONS: Final = (
    Option(name="--description", metavar="TEXT", help="The purpose of the bundle."),
    Option(
        name="--files",
        metavar="FILE,..",
        help="Store these files as they are now, from the working directory or below. May be repeated.",
        many=True,
        completes="files",
    ),
    Option(
        name="--events",
        metavar="A-B",
        help="Refer to these events of the log: 100-120 or 100. May be repeated.",
        many=True,
    ),
    Option(
        name="--transcript",
        metavar="PART",
        help=(
            "Store this part of a transcript: [NAME:]A-B[:LEVEL]. NAME is an agent (default: you); LEVEL is "
            "normal (text), detailed (also tools) or full (default: normal). May be repeated."
        ),
        many=True,
    ),
    Option(
        name="--transcript-file",
        metavar="FILE",
        help="Read the transcript from this file of JSON lines.",
        completes="files",
    ),
    Option(name="--extends", metavar="ID", help="Extend this bundle."),
    Option(
        name="--root",
        metavar="DIR",
        help="Allow files from this directory too. For a person only. May be repeated.",
        many=True,
        completes="directories",
    ),
)
"""The contents of a bundle."""

SEND_OPTIONS: Final = (
    Option(name="--bundle", metavar="ID", help="Attach this bundle."),
    Option(
        name="--title",
        metavar="TITLE",
        help="Create a bundle with this title from the options below, and attach it.",
    ),
    *CONTENT_OPTIONS,
)
"""The options by which `pal send` attaches or creates a bundle."""

BUNDLE_COMMANDS: Final = (
    Command(
        path=("bundle",),
        group=_GROUP,
        summary="Share files, events and transcripts as one bundle.",
        description="A bundle is stored with its contents. Attach it to a message with 'pal send --bundle'.",
        is_group=True,
        examples=(("pal bundle list", "list recent bundles"),),
    ),
    Command(
        path=("bundle", "create"),
        group=_GROUP,
        summary="Create a bundle.",
        description=(
            "The contents are stored as they are now and never change. Prints the id of the bundle, for 'pal "
            "bundle show' and 'pal send --bundle'."
        ),
        positionals=(Positional(name="TITLE", help="The title, in one line."),),
        options=CONTENT_OPTIONS,
        examples=(
            ('pal bundle create "Review PR-123" --files app.tsx,app.css', "store two files"),
            ('pal bundle create "How it broke" --events 100-120', "refer to events"),
            ('pal bundle create "Second round" --extends bundle:7f3q9x2m', "extend another bundle"),
        ),
    ),
    Command(
        path=("bundle", "show"),
        group=_GROUP,
        summary="Show the contents of a bundle.",
        description="Shows its description, files, events and transcripts, and the bundles that it extends.",
        positionals=(_BUNDLE_ID,),
        options=(Option(name="--full", help="Also print the contents of files, events and transcripts."),),
        examples=(
            ("pal bundle show bundle:7f3q9x2m", "list its contents"),
            ("pal bundle show 7f3q9x2m --full", "with full contents"),
        ),
    ),
    Command(
        path=("bundle", "list"),
        group=_GROUP,
        summary="List the latest bundles.",
        description="Shows the newest last.",
        options=(
            Option(name="--limit", metavar="N", help=f"At most N bundles (default: {DEFAULT_BUNDLES})."),
        ),
        examples=(("pal bundle list", "list recent bundles"),),
    ),
    Command(
        path=("bundle", "cat"),
        group=_GROUP,
        summary="Print the files of a bundle.",
        description=(
            "Prints the files as they were when the bundle was created. Without a path: all files, first "
            "those of the bundles that it extends, each after a line with its bundle, path, size and hash. "
            "With a path: only that file, byte for byte, from the nearest bundle that has it."
        ),
        positionals=(
            _BUNDLE_ID,
            Positional(
                name="PATH",
                help="The file, as 'pal bundle show' lists it (default: all files).",
                optional=True,
            ),
        ),
        examples=(
            ("pal bundle cat 7f3q9x2m", "print all files"),
            ("pal bundle cat 7f3q9x2m src/app.tsx", "print one file, byte for byte"),
        ),
    ),
)
