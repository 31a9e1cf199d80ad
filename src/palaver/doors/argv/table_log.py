"""The commands that read the log. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Completes, Option
from palaver.model.delivery import AgentState, State
from palaver.model.message import INTENTS
from palaver.model.query import STORED_STATES

DEFAULT_EVENTS: Final = 20
"""How many events `pal events` shows when nothing says otherwise."""

DEFAULT_BEHIND: Final = 100
"""How many events a consumer that is far behind gets in full."""

_GROUP: Final = "The log"


_STATES: Final = (*AgentState, *STORED_STATES, *State)
"""What an event can say that somebody's state, or that of a message, has become."""


def _filter(
    name: str, metavar: str, text: str, completes: Completes | None = None, choices: tuple[str, ...] = ()
) -> Option:
    return Option(name=name, metavar=metavar, help=text, many=True, completes=completes, choices=choices)


LOG_COMMANDS: Final = (
    Command(
        path=("events",),
        group=_GROUP,
        summary="Read, search and follow the log.",
        description=(
            "Everything that happened is an event: messages, joins, states, deliveries. The same filter "
            "given twice means or, different filters mean and. Reading changes nothing: nobody's mail is "
            "marked."
        ),
        options=(
            _filter("--type", "TYPE", "Of this type: message, status, life, delivery, agent.hello, …"),
            _filter("--agent", "NAME", "From, to or about this agent.", "agents"),
            _filter("--from", "NAME", "Sent by this one.", "agents"),
            _filter("--to", "NAME", "Sent to this one.", "agents"),
            _filter("--mention", "NAME", "Whose text names this one.", "agents"),
            _filter(
                "--target",
                "NAME",
                "Delivered to this one; self is you, and with --room all that concerns you there; any is "
                "everybody.",
                "agents",
            ),
            _filter("--thread", "NAME", "In this thread.", "threads"),
            _filter("--room", "NAME", "In this room, by its id or short name; a closed one too."),
            _filter("--intent", "INTENT", "With this intent: request, inform or ack.", choices=INTENTS),
            _filter("--file", "PATH", "About this file.", "files"),
            _filter(
                "--status",
                "STATE",
                "In which somebody's state became this one.",
                choices=tuple(map(str, _STATES)),
            ),
            Option(name="--after", metavar="SEQ", help="After this place in the log."),
            Option(name="--before", metavar="SEQ", help="Before this place in the log."),
            Option(name="--since", metavar="TIME", help="Not before this time: 10m (ago), 2026-03-01T09:00."),
            Option(name="--until", metavar="TIME", help="Not after this time."),
            Option(name="--search", metavar="WORDS", help="Whose text holds all these words."),
            Option(name="--sql", metavar="WHERE", help="For which this SQL condition is true."),
            Option(
                name="--last",
                metavar="N",
                help=(
                    f"The newest so many; otherwise {DEFAULT_EVENTS}. Of a consumer that is behind: how many "
                    f"it gets in full; otherwise {DEFAULT_BEHIND}."
                ),
            ),
            Option(name="--all", help="All of them, from the first on."),
            Option(name="--archived", help="All of them, and before them what is archived."),
            Option(name="--wait", metavar="TIME", help="Wait so long for the next one to come: 30, 5m."),
            Option(name="--follow", help="Go on for ever, each event as it comes."),
            Option(
                name="--consumer",
                metavar="NAME",
                help="Go on where the follower of this name stopped, and keep its place.",
            ),
        ),
        exclusive=(("--wait", "--follow", "--archived"), ("--last", "--all", "--archived")),
        examples=(
            ("pal events", "the latest"),
            ("pal events --thread pr-123 --all", "a whole conversation"),
            ("pal events --type message --from luna --since 2h", "what luna wrote lately"),
            ('pal events --search "flaky test"', "find words"),
            ("pal events --agent nova --type status --wait 5m", "wait until nova's state changes"),
            ("pal events --follow --json", "feed a program"),
            ("pal events --follow --consumer ci", "go on where ci stopped last time"),
            ("pal events --sql \"intent = 'request'\"", "ask in SQL"),
        ),
    ),
)
