"""The commands for subscriptions to events."""

import shlex
from typing import Final

import msgspec

from palaver.broker.context import Written
from palaver.doors.cli.call import Call
from palaver.doors.cli.events import (
    LOG_COMMANDS,
    doubt_names,
    doubt_types,
    files_from,
    replies_from,
    types_from,
)
from palaver.doors.cli.spec import Command, Option, Parsed, Positional
from palaver.errors import UsageError
from palaver.protocol.display import Column, ago, lay_out
from palaver.protocol.envelope import body_as
from palaver.protocol.events import Filter, SubscriptionRemoved
from palaver.protocol.subscriptions import (
    BLOCKED,
    COLLISION,
    IDLE,
    STOPPED,
    Subscribe,
    Subscription,
    Unsubscribe,
    Watch,
    format_watch_id,
    preset_filter,
    subscription_from,
)
from palaver.state.rows import Rows
from palaver.state.watches import read_subscriptions, read_watches

# --------------------
# Rows of the commands for subscriptions to events.

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
            "events'. Events of the bus itself do not match. Your own actions match only if --agent, "
            "--from or --participant names you. Only one of --idle, --stopped, --blocked and --collision is "
            "possible, without --type and --status; the first three also without --agent. The same "
            "subscription twice is one. --send sends a message in your name, with your rights; it causes no "
            "other subscription to match."
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
            Option(
                name="--send",
                metavar="TEXT",
                help="Send this text to the agents that it mentions; without a mention, to you.",
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
            ('pal events sub --idle nova --send "@luna nova is done"', "send a message to luna then"),
        ),
        see=(("subscriptions", "subscriptions.md"),),
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
        positionals=(
            Positional(
                name="ID",
                help="The id that 'pal events subs' shows: a1b2c3 or w42-nova.",
                completes="subscriptions",
            ),
        ),
        examples=(
            ("pal events unsub a1b2c3", "end a subscription"),
            ("pal events unsub w42-nova", "stop watching for nova's answer to #42"),
        ),
    ),
)


# --------------------
# Functions of `pal events sub`, `subs` and `unsub`.

_OPTIONS: Final = {
    "types": "--type",
    "agents": "--agent",
    "senders": "--from",
    "to": "--to",
    "participants": "--participant",
    "mentions": "--mention",
    "targets": "--target",
    "threads": "--thread",
    "rooms": "--room",
    "intents": "--intent",
    "replies_to": "--reply-to",
    "tools": "--tool",
    "files": "--file",
    "statuses": "--status",
}
"""The option of each filter."""

_RESOLVED: Final = frozenset({"types", "replies_to", "files"})
"""Filters whose values are not stored as they were given."""

_PRESETS_WITH_NAMES: Final = (IDLE, STOPPED, BLOCKED)


async def subscribe(call: Call) -> int:
    """Subscribe the caller, or with --for another agent, to events."""
    preset = _preset(call.parsed)
    request = Subscribe(
        filter=_filter(call, preset),
        owner=call.parsed.value("--for") or "",
        once=call.parsed.has("--once"),
        preset=preset,
        text=call.parsed.value("--text") or "",
        send=_text_to_send(call.parsed),
    )
    before = call.services.queries.last()
    written = await call.submit(request)
    assert isinstance(written, Written)
    assert written.event is not None  # it is new, or the same as an earlier one
    wanted = request.filter
    await doubt_names(call, (*wanted.agents, *wanted.senders, *wanted.participants))
    await doubt_types(call, request.filter.types)
    made = subscription_from(written.event)
    assert made is not None  # a new subscription has a filter
    if call.is_json:
        await call.say_json(_view(made))
    else:
        already = "already " if made.seq <= before else ""
        whom = "" if made.owner == call.caller.name else f" for {made.owner}"
        await call.say(f"{already}subscribed{whom} as {made.id}: {call.safe(asked_for(made))}")
    return 0


async def subscriptions(call: Call) -> int:
    """Show the subscriptions and watches of the caller, or with --all of every agent."""
    rows = call.services.queries.rows
    owner = None if call.parsed.has("--all") else call.owner
    made, watches = subscriptions_of(rows, owner)
    if call.is_json:
        for view in (*map(_view, _by_age(made)), *map(_watch_view, sorted(watches, key=_age))):
            await call.say_json(view)
        return 0
    if not made and not watches:
        await call.say("no subscriptions, and no requests that wait for an answer")
        return 0
    columns = [Column(title="ID", least=6), Column(title="FOR"), Column(title="AGE", is_right=True)]
    columns.append(Column(title="WHAT", least=12))
    now = call.services.clock.now_ms()
    lines = [[one.id, one.owner, ago(now - one.ts), asked_for(one)] for one in _by_age(made)]
    for watch in sorted(watches, key=_age):
        id_ = format_watch_id(watch.agent, watch.request)
        lines.append([id_, watch.sender, ago(now - watch.ts), f"request #{watch.request} to {watch.agent}"])
    await call.say_lines(lay_out(columns, lines, width=call.width, paint=call.paint))
    return 0


async def unsubscribe(call: Call) -> int:
    """End a subscription or a watch."""
    written = await call.submit(Unsubscribe(id=call.parsed.positionals[0]))
    assert isinstance(written, Written)
    assert written.event is not None  # an unknown id is refused
    gone = body_as(written.event, SubscriptionRemoved).id
    if call.is_json:
        await call.say_json({"id": gone, "removed": True})
    else:
        await call.say(f"ended {gone}")
    return 0


def _text_to_send(parsed: Parsed) -> str:
    text = parsed.value("--send")
    if text is not None and not text.strip():
        raise UsageError("--send requires a text that is not blank")
    return text or ""


def subscriptions_of(rows: Rows, owner: str | None) -> tuple[list[Subscription], list[Watch]]:
    """Return the active subscriptions and the watches of an owner; with None those of all."""
    made = [one for one in read_subscriptions(rows) if not one.spent and owner in (None, one.owner)]
    return made, [one for one in read_watches(rows) if owner in (None, one.sender)]


def asked_for(made: Subscription) -> str:
    """Format a subscription as its options: `--idle nova --once`."""
    words = [] if not made.preset else [f"--{made.preset}"]
    if made.preset in _PRESETS_WITH_NAMES:
        words = [word for name in made.filter.agents for word in (f"--{made.preset}", name)]
    is_given = {name: not made.preset or name not in ("types", "statuses", "agents") for name in _OPTIONS}
    is_given["agents"] |= made.preset == COLLISION
    for name, option in _OPTIONS.items():
        if is_given[name]:
            words += [word for value in getattr(made.filter, name) for word in (option, value)]
    words += ["--once"] if made.once else []
    words += ["--text", made.text] if made.text else []
    words += ["--send", made.send] if made.send else []
    return shlex.join(words)


def _preset(parsed: Parsed) -> str:
    given = [preset for preset in (*_PRESETS_WITH_NAMES, COLLISION) if parsed.has(f"--{preset}")]
    return given[0] if given else ""


def _filter(call: Call, preset: str) -> Filter:
    parsed = call.parsed
    given = Filter(
        **{name: tuple(parsed.values(option)) for name, option in _OPTIONS.items() if name not in _RESOLVED},
        types=types_from(call),
        replies_to=replies_from(call),
        files=files_from(call),
    )
    if not preset:
        return given
    names = (
        given.agents
        if preset == COLLISION
        else [call.agent(one).name for one in parsed.values(f"--{preset}")]
    )
    wanted = preset_filter(preset, names)
    return msgspec.structs.replace(given, types=wanted.types, agents=wanted.agents, statuses=wanted.statuses)


# --------------------
# Rendering: for programs and for people.


def _view(made: Subscription) -> dict[str, object]:
    view: dict[str, object] = msgspec.to_builtins(made)
    return {"kind": "subscription", **view}


def _watch_view(watch: Watch) -> dict[str, object]:
    return {
        "kind": "watch",
        "id": format_watch_id(watch.agent, watch.request),
        "owner": watch.sender,
        "agent": watch.agent,
        "request": watch.request,
        "ts": watch.ts,
    }


def _by_age(made: list[Subscription]) -> list[Subscription]:
    return sorted(made, key=lambda one: one.seq)


def _age(watch: Watch) -> tuple[int, str]:
    return watch.request, watch.agent
