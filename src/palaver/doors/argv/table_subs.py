"""The commands by which somebody is told of events. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_log import LOG_COMMANDS

_GROUP: Final = "The log"

FILTERS: Final = tuple(option for option in LOG_COMMANDS[0].options if option.many)
"""The word filters of `pal events`: those that may be given several times."""


def _about(name: str, text: str) -> Option:
    return Option(name=name, metavar="NAME", help=text, many=True, completes="agents")


SUBSCRIPTION_COMMANDS: Final = (
    Command(
        path=("events", "sub"),
        group=_GROUP,
        summary="Be told of events as they come.",
        description=(
            "From now on you get a message for each event that passes the filters, which mean the same as "
            "in 'pal events'. What the bus itself writes is passed over, and so is what you do yourself, "
            "unless --agent or --from names you."
        ),
        options=(
            *FILTERS,
            _about("--idle", "When this agent goes idle."),
            _about("--stopped", "When this agent stops."),
            _about("--blocked", "When this agent is blocked."),
            Option(name="--collision", help="When two agents edit the same file within 30 seconds."),
            Option(name="--once", help="Only the first time."),
            Option(
                name="--for",
                metavar="NAME",
                help="Tell this agent instead of you: one that you started, or as a person anyone.",
                completes="agents",
            ),
            Option(
                name="--text",
                metavar="TEXT",
                help="Add these words to every message.",
                shadows_global=True,
            ),
        ),
        exclusive=(
            ("--idle", "--stopped", "--blocked", "--collision", "--type"),
            ("--idle", "--stopped", "--blocked", "--collision", "--status"),
            ("--idle", "--stopped", "--blocked", "--agent"),
        ),
        examples=(
            ("pal events sub --idle nova --once", "tell me when nova is done"),
            ("pal events sub --type message --thread pr-123", "tell me of every word in a thread"),
            ("pal events sub --collision", "tell me when two edit the same file"),
            ('pal events sub --stopped nova --text "take over its task"', "and what to do then"),
        ),
    ),
    Command(
        path=("events", "subs"),
        group=_GROUP,
        summary="Show what you are told of.",
        description=(
            "Your subscriptions, and your requests that wait for an answer: you are told when the one you "
            "asked goes idle or stops without one."
        ),
        options=(Option(name="--all", help="Everybody's, not only yours."),),
        examples=(("pal events subs", "mine"), ("pal events subs --all --json", "everybody's, for programs")),
    ),
    Command(
        path=("events", "unsub"),
        group=_GROUP,
        summary="Be told no more.",
        description="Ends one of your subscriptions, or a wait for an answer. A person may end anybody's.",
        positionals=(Positional(name="ID", help="As 'pal events subs' shows it: a1b2c3, or w42-nova."),),
        examples=(("pal events unsub a1b2c3", "end it"), ("pal events unsub w42-nova", "let nova be")),
    ),
)
