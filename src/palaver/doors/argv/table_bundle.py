"""The commands that make and read bundles, and the options by which `pal send` makes one. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

DEFAULT_BUNDLES: Final = 20
"""How many bundles `pal bundle list` shows."""

_GROUP: Final = "Bundles"

_BUNDLE_ID: Final = Positional(
    name="ID", help="The bundle: its eight characters, bundle: before them or not."
)

CONTENT_OPTIONS: Final = (
    Option(name="--description", metavar="TEXT", help="What the bundle is for."),
    Option(
        name="--files",
        metavar="FILE,..",
        help="Keep these files as they are now, from the working directory or below. May be given often.",
        many=True,
        completes="files",
    ),
    Option(
        name="--events",
        metavar="A-B",
        help="Refer to these places in the log. May be given often.",
        many=True,
    ),
    Option(
        name="--transcript",
        metavar="PART",
        help=(
            "Keep this part of a transcript: [NAME:]A-B[:LEVEL]. Without a name it is your own; the level is "
            "normal (what was said), detailed (also tools) or full (everything). May be given often."
        ),
        many=True,
    ),
    Option(
        name="--transcript-file",
        metavar="FILE",
        help="Take the transcript from this file of JSON lines.",
        completes="files",
    ),
    Option(name="--extends", metavar="ID", help="Build on this bundle."),
    Option(
        name="--root",
        metavar="DIR",
        help="Allow files from this directory too. Only a person can say so.",
        many=True,
        completes="directories",
    ),
)
"""What goes into a bundle."""

SEND_OPTIONS: Final = (
    Option(name="--bundle", metavar="ID", help="Attach this bundle."),
    Option(
        name="--title",
        metavar="TITLE",
        help="Make a bundle with this title, of what the options below say, and attach it.",
    ),
    *CONTENT_OPTIONS,
)
"""How `pal send` attaches a bundle, or makes one."""

BUNDLE_COMMANDS: Final = (
    Command(
        path=("bundle",),
        group=_GROUP,
        summary="Tie files, events and transcripts together.",
        is_group=True,
        examples=(("pal bundle list", "what is there?"),),
    ),
    Command(
        path=("bundle", "create"),
        group=_GROUP,
        summary="Make a bundle.",
        description=(
            "What it holds is kept as it is now, and nothing changes it later. Prints the id by which "
            "others read it, and by which 'pal send --bundle' attaches it."
        ),
        positionals=(Positional(name="TITLE", help="What it is, in one line."),),
        options=CONTENT_OPTIONS,
        examples=(
            ('pal bundle create "Review PR-123" --files app.tsx,app.css', "two files"),
            ('pal bundle create "How it broke" --events 100-120', "what happened"),
            ('pal bundle create "Second round" --extends bundle:7f3q9x2m', "on top of another"),
        ),
    ),
    Command(
        path=("bundle", "show"),
        group=_GROUP,
        summary="Show what a bundle holds.",
        description="Its description, files, events and transcripts, and the bundles it builds on.",
        positionals=(_BUNDLE_ID,),
        options=(Option(name="--full", help="Also show the contents."),),
        examples=(
            ("pal bundle show bundle:7f3q9x2m", "what is in it?"),
            ("pal bundle show 7f3q9x2m --full", "and all of it"),
        ),
    ),
    Command(
        path=("bundle", "list"),
        group=_GROUP,
        summary="Show the latest bundles.",
        description="Newest last.",
        options=(Option(name="--limit", metavar="N", help=f"At most so many; otherwise {DEFAULT_BUNDLES}."),),
        examples=(("pal bundle list", "what is there?"),),
    ),
    Command(
        path=("bundle", "cat"),
        group=_GROUP,
        summary="Print the files of a bundle.",
        description=(
            "As they were when the bundle was made. Without a path: all files of the bundles it builds on, "
            "the oldest first, and then its own, each below a line with its bundle, path, size and hash. "
            "With a path: that file alone, byte for byte, from the nearest bundle that has it."
        ),
        positionals=(
            _BUNDLE_ID,
            Positional(name="PATH", help="The file, as 'pal bundle show' names it.", optional=True),
        ),
        examples=(
            ("pal bundle cat 7f3q9x2m", "all files, those it builds on first"),
            ("pal bundle cat 7f3q9x2m src/app.tsx", "one file, byte for byte"),
        ),
    ),
)
