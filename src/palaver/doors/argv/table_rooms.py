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
    help="Room, as 'pal room list' shows it, or a path in its workspace (default: your room here).",
    completes="rooms",
)
"""The room of a command, if it is not the one of the working directory."""

_PATH: Final = Positional(
    name="PATH",
    help="Folder or file in the workspace (default: working directory).",
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
        summary="Share a workspace with other agents.",
        description=(
            "A room is the group of agents that work in one folder. Its members see each other, exchange "
            "messages, take turns with the stick and keep notes."
        ),
        is_group=True,
        examples=(
            ("pal room join", "join the room of the working directory"),
            ("pal room state", "show members and the owner of the stick"),
        ),
    ),
    Command(
        path=("room", "join"),
        group=_ROOMS,
        summary="Join the room of a workspace.",
        description=(
            "A room belongs to a folder: the top of a git repository, or the nearest folder that looks like "
            "a project. Worktrees share the room of the main checkout. If a parent folder already has a "
            "room, you join that one; otherwise a new room is opened. With --new, a room is opened at "
            "exactly this folder, and agents that work below it belong to it from then on."
        ),
        positionals=(_PATH,),
        options=(Option(name="--new", help="Open a room at exactly this folder, even inside another room."),),
        examples=(
            ("pal room join", "join the room of the working directory"),
            ("pal room join services/api --new", "open a separate room for a subfolder"),
        ),
    ),
    Command(
        path=("room", "leave"),
        group=_ROOMS,
        summary="Leave a room.",
        description="If you own the stick, it becomes free, without a handoff. History and notes are kept.",
        positionals=(_PATH,),
        options=(ROOM,),
        examples=(("pal room leave", "leave the room of the working directory"),),
    ),
    Command(
        path=("room", "list"),
        group=_ROOMS,
        summary="List rooms.",
        description="Lists the open rooms, or the rooms of a path and its parent folders.",
        positionals=(
            Positional(
                name="PATH",
                help="Only rooms of this path and its parents (default: all rooms).",
                optional=True,
                completes="directories",
            ),
        ),
        options=(Option(name="--all", help="Include closed rooms."),),
        examples=(
            ("pal room list", "open rooms"),
            ("pal room list .", "rooms of this folder"),
            ("pal room list --all", "also closed rooms"),
        ),
    ),
    Command(
        path=("room", "state"),
        group=_ROOMS,
        summary="Show a room's members and the owner of its stick.",
        positionals=(_PATH,),
        options=(ROOM,),
        examples=(
            ("pal room state", "the room of the working directory"),
            ("pal room state --room palaver-x7qa", "another room"),
        ),
    ),
    Command(
        path=("room", "kick"),
        group=_ROOMS,
        summary="Remove a member from a room.",
        description=(
            "Every member can remove a member that is offline. A present member can be removed only with "
            "--force, by an operator or a person."
        ),
        positionals=(Positional(name="NAME", help="The member to remove.", completes="agents"), _PATH),
        options=(
            Option(name="--force", help="Also remove a present member."),
            Option(name="--reason", metavar="TEXT", help="The reason, for the log."),
            ROOM,
        ),
        examples=(('pal room kick nova --reason "machine is off"', "remove an offline member"),),
    ),
    Command(
        path=("room", "close"),
        group=_ROOMS,
        summary="Close a room permanently.",
        description=(
            "The history stays readable. An agent that joins at the same path later opens a new room. For an "
            "operator or a person."
        ),
        positionals=(_PATH,),
        options=(Option(name="--reason", metavar="TEXT", help="The reason, for the log."), ROOM),
        examples=(("pal room close", "close the room of the working directory"),),
    ),
)

NOTE_COMMANDS: Final = (
    Command(
        path=("note",),
        group=_NOTES,
        summary="Keep lasting notes in a room.",
        description="Notes tell the other members what they need to know later, until a note is resolved.",
        is_group=True,
        examples=(
            ('pal note add "CI has no libpq"', "a note for the other members"),
            ("pal note list", "show open notes"),
        ),
    ),
    Command(
        path=("note", "add"),
        group=_NOTES,
        summary="Add a note to a room.",
        description=(
            "A note stays open until it is resolved. You must be a member, but you need not own the stick. "
            "Every agent on this bus can read it."
        ),
        positionals=(Positional(name="TEXT", help="The text (or use --stdin).", optional=True),),
        options=(
            Option(name="--turn", metavar="N", help="The turn that the note is about."),
            Option(name="--stdin", help="Read the text from standard input."),
            ROOM,
        ),
        examples=(
            ('pal note add "CI has no libpq"', "a note for the other members"),
            ("make check 2>&1 | tail -20 | pal note add --stdin", "add the output of a program"),
        ),
    ),
    Command(
        path=("note", "list"),
        group=_NOTES,
        summary="List the notes of a room.",
        description="Shows the oldest first.",
        options=(
            Option(name="--all", help="Include resolved notes."),
            Option(name="--after", metavar="NOTE", help="Only notes after this one.", completes="notes"),
            Option(name="--limit", metavar="N", help=f"At most N notes (default: {DEFAULT_NOTES})."),
            ROOM,
        ),
        examples=(
            ("pal note list", "show open notes"),
            ("pal note list --all --json", "all notes, for programs"),
        ),
    ),
    Command(
        path=("note", "resolve"),
        group=_NOTES,
        summary="Mark a note as resolved.",
        positionals=(_NOTE_ID,),
        options=(ROOM,),
        examples=(("pal note resolve 7f3q9x2m", "the note no longer applies"),),
    ),
)
