"""The commands for subscriptions to events. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_log import LOG_COMMANDS

_GROUP: Final = "The log"

FILTERS: Final = tuple(option for option in LOG_COMMANDS[0].options if option.many)
"""The filters of `pal events` that may be given several times."""


def _about(name: str, text: str) -> Option:
    return Option(name=name, metavar="NAME", help=text, many=True, completes="agents")


SUBSCRIPTION_COMMANDS: Final = (
    Command(
        path=("events", "sub"),
        group=_GROUP,
        summary="Subscribe to events.",
        description=(
            "From now on you get a message for each event that matches the filters, which work as in 'pal "
            "events'. Events of the bus itself do not match. Your own actions match only if --agent or "
            "--from names you."
        ),
        options=(
            *FILTERS,
            _about("--idle", "When this agent goes idle."),
            _about("--stopped", "When this agent stops."),
            _about("--blocked", "When this agent is blocked."),
            Option(name="--collision", help="When two agents edit the same file within 30 seconds."),
            Option(name="--once", help="End the subscription after the first match."),
            Option(
                name="--for",
                metavar="NAME",
                help="Notify this agent, which you started; a person can name any (default: you).",
                completes="agents",
            ),
            Option(
                name="--text",
                metavar="TEXT",
                help="Add this text to every notification.",
                shadows_global=True,
            ),
        ),
        exclusive=(
            ("--idle", "--stopped", "--blocked", "--collision", "--type"),
            ("--idle", "--stopped", "--blocked", "--collision", "--status"),
            ("--idle", "--stopped", "--blocked", "--agent"),
        ),
        examples=(
            ("pal events sub --idle nova --once", "when nova is done"),
            ("pal events sub --type message --thread pr-123", "every message in a thread"),
            ("pal events sub --collision", "when two agents edit the same file"),
            ('pal events sub --stopped nova --text "take over its task"', "with an instruction"),
        ),
    ),
    Command(
        path=("events", "subs"),
        group=_GROUP,
        summary="List your subscriptions.",
        description=(
            "Also lists your requests without an answer: you are notified if the recipient goes idle or "
            "stops without answering."
        ),
        options=(Option(name="--all", help="Subscriptions of all agents, not only yours."),),
        examples=(
            ("pal events subs", "your subscriptions"),
            ("pal events subs --all --json", "all subscriptions, for programs"),
        ),
    ),
    Command(
        path=("events", "unsub"),
        group=_GROUP,
        summary="End a subscription.",
        description=(
            "Ends one of your subscriptions, or the watch for an answer. A person can end any of them."
        ),
        positionals=(Positional(name="ID", help="The id that 'pal events subs' shows: a1b2c3 or w42-nova."),),
        examples=(
            ("pal events unsub a1b2c3", "end a subscription"),
            ("pal events unsub w42-nova", "stop watching for nova's answer to #42"),
        ),
    ),
)
