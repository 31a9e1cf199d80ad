"""The commands about the stick. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_rooms import ROOM

_GROUP: Final = "The stick"

_LEASE: Final = (
    Option(name="--lease", metavar="LEASE", help="The expected lease (default: your current one)."),
    Option(name="--turn", metavar="N", help="The expected turn (default: the current one)."),
)
_HANDOFF: Final = (
    Option(name="--status", metavar="TEXT", help="Handoff: the current state of the work."),
    Option(name="--next", metavar="TEXT", help="Handoff: the next step."),
    Option(
        name="--artifact",
        metavar="FILE",
        help="Handoff: a file to look at: FILE, FILE:3 or FILE:10-80. May be repeated.",
        many=True,
        completes="files",
    ),
    Option(
        name="--question",
        metavar="TEXT",
        help="Handoff: an open question. May be repeated.",
        many=True,
    ),
    Option(
        name="--do-not",
        metavar="TEXT",
        help="Handoff: an action to avoid. May be repeated.",
        many=True,
    ),
    Option(
        name="--handoff",
        metavar="JSON",
        help="The whole handoff as one JSON object, or - for standard input.",
    ),
)
_EXCLUSIVE: Final = tuple(("--handoff", option.name) for option in _HANDOFF if option.name != "--handoff")

_WAITING: Final = (
    Option(name="--no-solo", help="Do not take it while you are alone in the room."),
    ROOM,
)

STICK_COMMANDS: Final = (
    Command(
        path=("stick",),
        group=_GROUP,
        summary="Take turns: only the owner of the stick may write.",
        description=(
            "Each room has one stick. Only the member that owns it changes files in the workspace. Take it "
            "with 'wait' or 'claim'; give it up with 'release' or 'pass', with notes for the next owner (a "
            "handoff)."
        ),
        is_group=True,
        examples=(("pal stick wait", "wait for my turn"),),
    ),
    Command(
        path=("stick", "wait"),
        group=_GROUP,
        summary="Wait until you own the stick.",
        description=(
            "Then shows the handoff of the previous owner. Exit status: 0 if it is your turn; 3 after the "
            "timeout; 1 if the room was closed, or if 'pal stick takeover' is possible because the owner has "
            "exited or its lease has expired."
        ),
        options=(
            Option(
                name="--timeout",
                metavar="TIME",
                help="Wait at most this long: 30 (seconds), 250ms, 5m (default: no limit).",
            ),
            Option(name="--park", help="Take it only if it is passed to you or reserved for you."),
            Option(name="--events", help="Also show messages and events for you in the meantime."),
            Option(
                name="--after",
                metavar="SEQ",
                help="With --events: only events after this seq (default: unread).",
            ),
            *_WAITING,
        ),
        examples=(
            ("pal stick wait", "wait without a limit"),
            ("pal stick wait --timeout 10m", "wait at most ten minutes"),
            ("pal stick wait --park", "only if it is passed to me"),
            ("pal stick wait --events", "also show what I have missed"),
        ),
    ),
    Command(
        path=("stick", "claim"),
        group=_GROUP,
        summary="Take the stick if it is free.",
        description=(
            "Tries once and does not wait. Exit status: 0 if it is your turn, 3 if not, 1 as for 'pal stick "
            "wait'."
        ),
        options=_WAITING,
        examples=(("pal stick claim", "take it now, if possible"),),
    ),
    Command(
        path=("stick", "heartbeat"),
        group=_GROUP,
        summary="Renew your lease of the stick.",
        description=(
            "Shows that you still work. Every other command renews the lease too, so you need this only if "
            "you are silent for a long time."
        ),
        options=(*_LEASE, ROOM),
        examples=(("pal stick heartbeat", "I am still working"),),
    ),
    Command(
        path=("stick", "release"),
        group=_GROUP,
        summary="Release the stick, with a handoff.",
        description=(
            "The stick goes to the waiting member that has never had it or had it longest ago. A handoff "
            "requires --status and --next; the next owner sees all of it."
        ),
        options=(*_HANDOFF, *_LEASE, ROOM),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick release --status "parser done" --next "wire it in"', "with the required notes"),
            (
                'pal stick release --status "tests pass" --next review --artifact a.py:3 --do-not publish',
                "with more notes",
            ),
            ("cat handoff.json | pal stick release --handoff -", "handoff from a program"),
        ),
    ),
    Command(
        path=("stick", "pass"),
        group=_GROUP,
        summary="Pass the stick to one member, with a handoff.",
        description=(
            "The stick is reserved for that member. If the member is away, this requires --override and an "
            "operator or a person."
        ),
        positionals=(Positional(name="NAME", help="The next owner.", completes="agents"),),
        options=(
            *_HANDOFF,
            Option(name="--override", help="Also pass it to a member that is away."),
            *_LEASE,
            ROOM,
        ),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick pass nova --status "done" --next "review src/auth"', "nova is the next owner"),
        ),
    ),
    Command(
        path=("stick", "takeover"),
        group=_GROUP,
        summary="Take the stick from an owner that is gone or idle.",
        description=(
            "Possible if the owner has exited, its lease has expired or it has been idle for a long time, or "
            "if a reservation was not claimed. With --override, an operator or a person can take it from any "
            "owner. Check the workspace first: work may be unfinished."
        ),
        options=(
            Option(name="--reason", metavar="TEXT", help="The reason, for the log (required)."),
            Option(name="--override", help="Also take it from an owner that is working."),
            Option(name="--turn", metavar="N", help="The turn you expect to end (default: the current one)."),
            ROOM,
        ),
        examples=(('pal stick takeover --reason "luna is gone"', "continue the work of luna"),),
    ),
)
