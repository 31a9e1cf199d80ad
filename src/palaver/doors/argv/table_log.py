"""The commands that read the log. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Completes, Option
from palaver.model.delivery import AgentState, State
from palaver.model.message import INTENTS
from palaver.model.query import STORED_STATES

DEFAULT_EVENTS: Final = 20
"""The default number of events that `pal events` shows."""

DEFAULT_BEHIND: Final = 100
"""How many missed events a consumer gets in full."""

_GROUP: Final = "The log"


_STATES: Final = (*AgentState, *STORED_STATES, *State)
"""The states of agents and messages that an event can report."""


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
            "Everything that happens is an event: messages, joins, states, deliveries. Events have a number, "
            "the seq. Values of one repeated filter are combined with 'or', different filters with 'and'. "
            "Reading does not mark messages as seen."
        ),
        options=(
            _filter("--type", "TYPE", "Event type: message, status, life, delivery, agent.hello, …"),
            _filter("--agent", "NAME", "From, to or about this agent.", "agents"),
            _filter("--from", "NAME", "Sent by this agent.", "agents"),
            _filter("--to", "NAME", "Sent to this agent.", "agents"),
            _filter("--mention", "NAME", "The text mentions this agent.", "agents"),
            _filter(
                "--target",
                "NAME",
                "Delivered to this agent, self (you; with --room: everything that concerns you there) or any "
                "(every agent).",
                "agents",
            ),
            _filter("--thread", "NAME", "In this thread.", "threads"),
            _filter("--room", "NAME", "In this room, open or closed: its id or short name."),
            _filter("--intent", "INTENT", "With this intent: request, inform or ack.", choices=INTENTS),
            _filter("--file", "PATH", "About this file.", "files"),
            _filter(
                "--status",
                "STATE",
                "The state of an agent or message changed to this one.",
                choices=tuple(map(str, _STATES)),
            ),
            Option(name="--after", metavar="SEQ", help="After this seq."),
            Option(name="--before", metavar="SEQ", help="Before this seq."),
            Option(
                name="--since", metavar="TIME", help="Not before this time: 10m (ago) or 2026-03-01T09:00."
            ),
            Option(name="--until", metavar="TIME", help="Not after this time, written as for --since."),
            Option(name="--search", metavar="WORDS", help="The text contains all these words."),
            Option(name="--sql", metavar="WHERE", help="This SQL condition is true."),
            Option(
                name="--last",
                metavar="N",
                help=(
                    f"The newest N events (default: {DEFAULT_EVENTS}). With --consumer: the number of missed "
                    f"events to print in full (default: {DEFAULT_BEHIND})."
                ),
            ),
            Option(name="--all", help="All events, from the first."),
            Option(name="--archived", help="All events, including archived ones."),
            Option(
                name="--wait",
                metavar="TIME",
                help="Wait up to this long for the next event: 30 (seconds), 5m.",
            ),
            Option(name="--follow", help="Keep running; print each event as it arrives."),
            Option(
                name="--consumer",
                metavar="NAME",
                help="Continue where the consumer of this name stopped.",
            ),
        ),
        exclusive=(("--wait", "--follow", "--archived"), ("--last", "--all", "--archived")),
        examples=(
            ("pal events", "the latest events"),
            ("pal events --thread pr-123 --all", "a whole conversation"),
            ("pal events --type message --from luna --since 2h", "recent messages of luna"),
            ('pal events --search "flaky test"', "full-text search"),
            ("pal events --agent nova --type status --wait 5m", "wait until nova's state changes"),
            ("pal events --follow --json", "pass events to a program"),
            ("pal events --follow --consumer ci", "continue where ci stopped"),
            ("pal events --sql \"intent = 'request'\"", "filter with SQL"),
        ),
    ),
)
