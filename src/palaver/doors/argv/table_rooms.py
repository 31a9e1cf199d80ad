"""The commands about rooms and their notes. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

DEFAULT_NOTES: Final = 50
"""How many notes `pal note list` shows."""

_ROOMS: Final = "Rooms"
_NOTES: Final = "Notes"

ROOM: Final = Option(
    name="--room",
    metavar="ROOM",
    help="The room, as 'pal room list' shows it, or a path in its workspace; otherwise the one here.",
    completes="rooms",
)
"""Which room a command is about, when it is not the one of the working directory."""

_PATH: Final = Positional(
    name="PATH",
    help="A folder or file of the workspace; otherwise the working directory.",
    optional=True,
    completes="directories",
)
_NOTE_ID: Final = Positional(
    name="NOTE", help="The note, as 'pal note list' shows it, or the end of its long id.", completes="notes"
)

ROOM_COMMANDS: Final = (
    Command(
        path=("room",),
        group=_ROOMS,
        summary="Share a workspace with others.",
        is_group=True,
        examples=(("pal room state", "who is here, and who has the stick?"),),
    ),
    Command(
        path=("room", "join"),
        group=_ROOMS,
        summary="Join the room of a workspace.",
        description=(
            "A room belongs to a folder: the top of its git repository, or the nearest one that looks like a "
            "project. Worktrees share the room of the main checkout. If there is a room above already, you "
            "join that one; the first to come opens one. With --new it is opened at the very folder, and who "
            "works below it belongs there from then on."
        ),
        positionals=(_PATH,),
        options=(Option(name="--new", help="Open a room at this very folder, also inside another."),),
        examples=(
            ("pal room join", "the room of the working directory"),
            ("pal room join services/api --new", "a room of its own for a part"),
        ),
    ),
    Command(
        path=("room", "leave"),
        group=_ROOMS,
        summary="Leave a room.",
        description="If you hold the stick, it is free again, without a hand-over. History and notes stay.",
        positionals=(_PATH,),
        options=(ROOM,),
        examples=(("pal room leave", "the one of the working directory"),),
    ),
    Command(
        path=("room", "list"),
        group=_ROOMS,
        summary="Show the rooms.",
        description="The open rooms, or those at and above a path.",
        positionals=(
            Positional(
                name="PATH",
                help="Only those at this folder or file and above it.",
                optional=True,
                completes="directories",
            ),
        ),
        options=(Option(name="--all", help="Also those that are closed."),),
        examples=(
            ("pal room list", "those that are open"),
            ("pal room list .", "those that this folder is in"),
            ("pal room list --all", "and those that were closed"),
        ),
    ),
    Command(
        path=("room", "state"),
        group=_ROOMS,
        summary="Show who is in a room, and who has the stick.",
        positionals=(_PATH,),
        options=(ROOM,),
        examples=(
            ("pal room state", "the one of the working directory"),
            ("pal room state --room palaver-x7qa", "that one"),
        ),
    ),
    Command(
        path=("room", "kick"),
        group=_ROOMS,
        summary="Remove a member from a room.",
        description=(
            "Every member may remove one who is gone. One who is there can be removed only by an operator or "
            "a person, with --force."
        ),
        positionals=(Positional(name="NAME", help="Who.", completes="agents"), _PATH),
        options=(
            Option(name="--force", help="Also one who is there."),
            Option(name="--reason", metavar="TEXT", help="Why; it is kept."),
            ROOM,
        ),
        examples=(('pal room kick nova --reason "machine is off"', "nova will not come back"),),
    ),
    Command(
        path=("room", "close"),
        group=_ROOMS,
        summary="Close a room for good.",
        description=(
            "Needs an operator or a person. What happened in it stays readable; who joins at the same path "
            "afterwards opens a new room."
        ),
        positionals=(_PATH,),
        options=(Option(name="--reason", metavar="TEXT", help="Why; it is kept."), ROOM),
        examples=(("pal room close", "the one of the working directory"),),
    ),
)

NOTE_COMMANDS: Final = (
    Command(
        path=("note",),
        group=_NOTES,
        summary="Leave what others must know later.",
        is_group=True,
        examples=(("pal note list", "what is there to know?"),),
    ),
    Command(
        path=("note", "add"),
        group=_NOTES,
        summary="Leave a note in a room.",
        description=(
            "A note lasts until somebody resolves it. You need not hold the stick, but you must be a member. "
            "Everybody can read it."
        ),
        positionals=(
            Positional(name="TEXT", help="What there is to know; otherwise --stdin.", optional=True),
        ),
        options=(
            Option(name="--turn", metavar="N", help="The turn it is about."),
            Option(name="--stdin", help="Take the text from standard input."),
            ROOM,
        ),
        examples=(
            ('pal note add "CI has no libpq"', "for whoever comes next"),
            ("make check 2>&1 | tail -20 | pal note add --stdin", "what a program says"),
        ),
    ),
    Command(
        path=("note", "list"),
        group=_NOTES,
        summary="Show the notes of a room.",
        description="Oldest first.",
        options=(
            Option(name="--all", help="Also those that are resolved."),
            Option(name="--after", metavar="NOTE", help="Only those left after this one.", completes="notes"),
            Option(name="--limit", metavar="N", help=f"At most so many; otherwise {DEFAULT_NOTES}."),
            ROOM,
        ),
        examples=(
            ("pal note list", "what is there to know?"),
            ("pal note list --all --json", "for programs"),
        ),
    ),
    Command(
        path=("note", "resolve"),
        group=_NOTES,
        summary="Say that a note is done with.",
        positionals=(_NOTE_ID,),
        options=(ROOM,),
        examples=(("pal note resolve 7f3q9x2m", "it no longer holds"),),
    ),
)
