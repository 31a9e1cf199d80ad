"""The commands about the stick. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_rooms import ROOM

_GROUP: Final = "The stick"

_LEASE: Final = (
    Option(name="--lease", metavar="LEASE", help="The lease you mean; otherwise the one you have."),
    Option(name="--turn", metavar="N", help="The turn you mean; otherwise the one that is."),
)
_HAND_OVER: Final = (
    Option(name="--status", metavar="TEXT", help="Hand-over: how things stand."),
    Option(name="--next", metavar="TEXT", help="Hand-over: what is to be done next."),
    Option(
        name="--artifact",
        metavar="FILE",
        help="Hand-over: what to look at: FILE, FILE:3 or FILE:10-80. May be given often.",
        many=True,
        completes="files",
    ),
    Option(
        name="--question",
        metavar="TEXT",
        help="Hand-over: what is open. May be given often.",
        many=True,
    ),
    Option(
        name="--do-not",
        metavar="TEXT",
        help="Hand-over: what not to do. May be given often.",
        many=True,
    ),
    Option(
        name="--handoff",
        metavar="JSON",
        help="The whole hand-over as one JSON object, or - to read it from standard input.",
    ),
)
_EXCLUSIVE: Final = tuple(("--handoff", option.name) for option in _HAND_OVER if option.name != "--handoff")

_WAITING: Final = (
    Option(name="--no-solo", help="Not while you are alone in the room."),
    ROOM,
)

STICK_COMMANDS: Final = (
    Command(
        path=("stick",),
        group=_GROUP,
        summary="Write by turns.",
        description="Who holds the stick of a room writes to its workspace, and nobody else does.",
        is_group=True,
        examples=(("pal stick wait", "wait for my turn"),),
    ),
    Command(
        path=("stick", "wait"),
        group=_GROUP,
        summary="Wait until the stick is yours.",
        description=(
            "Shows the hand-over of the one before you. Exit status 0 when it is your turn, 3 when the time "
            "was over first, and 1 when the room was closed, or when the holder is gone or out of time, so "
            "that 'pal stick takeover' is possible."
        ),
        options=(
            Option(
                name="--timeout",
                metavar="TIME",
                help="Wait no longer than this: 30 (seconds), 250ms, 5m, 1h.",
            ),
            Option(name="--park", help="Take only what is passed to you, or reserved for you."),
            Option(name="--events", help="Show also what was said and done for you meanwhile."),
            Option(name="--after", metavar="SEQ", help="With --events: only behind this place in the log."),
            *_WAITING,
        ),
        examples=(
            ("pal stick wait", "as long as it takes"),
            ("pal stick wait --timeout 10m", "or do something else in ten minutes"),
            ("pal stick wait --park", "only when I am meant"),
            ("pal stick wait --events", "and tell me what I have missed"),
        ),
    ),
    Command(
        path=("stick", "claim"),
        group=_GROUP,
        summary="Take the stick if it is free.",
        description="Tries once. Exit status as of 'pal stick wait', and 3 when it is not your turn.",
        options=_WAITING,
        examples=(("pal stick claim", "now or not"),),
    ),
    Command(
        path=("stick", "heartbeat"),
        group=_GROUP,
        summary="Say that you still work.",
        description=(
            "Renews your lease. Whatever you do on the bus renews it too, so this is only for long silent "
            "stretches."
        ),
        options=(*_LEASE, ROOM),
        examples=(("pal stick heartbeat", "still at it"),),
    ),
    Command(
        path=("stick", "release"),
        group=_GROUP,
        summary="Give the stick back, with a hand-over.",
        description=(
            "It goes to the one who has waited for it most fairly. A hand-over says at least --status and "
            "--next; the next holder is shown all of it."
        ),
        options=(*_HAND_OVER, *_LEASE, ROOM),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick release --status "parser done" --next "wire it in"', "the least"),
            (
                'pal stick release --status "tests pass" --next review --artifact a.py:3 --do-not publish',
                "and more",
            ),
            ("cat handoff.json | pal stick release --handoff -", "from a program"),
        ),
    ),
    Command(
        path=("stick", "pass"),
        group=_GROUP,
        summary="Pass the stick to one member, with a hand-over.",
        description="It waits for that member. One who is away gets it only with --override, an operator's.",
        positionals=(Positional(name="NAME", help="Who gets it.", completes="agents"),),
        options=(*_HAND_OVER, Option(name="--override", help="Also to one who is away."), *_LEASE, ROOM),
        exclusive=_EXCLUSIVE,
        examples=(('pal stick pass nova --status "done" --next "review src/auth"', "nova is next"),),
    ),
    Command(
        path=("stick", "takeover"),
        group=_GROUP,
        summary="Take the stick from one who lost it.",
        description=(
            "Possible when the holder is gone, out of time or idle for long, or when nobody fetched what was "
            "reserved. With --override an operator or a person takes it from anybody. Look at what you find "
            "in the workspace: it may be half done."
        ),
        options=(
            Option(name="--reason", metavar="TEXT", help="Why; it is kept, and you must say it."),
            Option(name="--override", help="Also from one who works."),
            Option(name="--turn", metavar="N", help="The turn you mean to end; otherwise the one that is."),
            ROOM,
        ),
        examples=(('pal stick takeover --reason "luna is gone"', "go on in its place"),),
    ),
)
