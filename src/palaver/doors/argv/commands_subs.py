"""`pal events sub`, `subs` and `unsub`: subscriptions to events, and watches of unanswered requests."""

import shlex
from typing import Final

import msgspec

from palaver.broker.outcome import Written
from palaver.doors.argv.call import Call
from palaver.doors.argv.doubts import doubt_names, doubt_types
from palaver.doors.argv.filters import files_from
from palaver.doors.argv.parsed import Parsed
from palaver.doors.argv.style import Column, ago, lay_out
from palaver.log.fold_watches import read_subscriptions, read_watches
from palaver.model.query import Filter
from palaver.model.subscription import (
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
)

_OPTIONS: Final = {
    "types": "--type",
    "agents": "--agent",
    "senders": "--from",
    "to": "--to",
    "mentions": "--mention",
    "targets": "--target",
    "threads": "--thread",
    "rooms": "--room",
    "intents": "--intent",
    "files": "--file",
    "statuses": "--status",
}
"""The option of each filter."""

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
    )
    written = await call.services.broker.submit(call.caller, request, key=call.asked.key)
    assert isinstance(written, Written)
    assert written.event is not None  # a subscription is always new
    await doubt_names(call, (*request.filter.agents, *request.filter.senders))
    await doubt_types(call, request.filter.types)
    made = msgspec.convert(
        {**written.event.payload, "seq": written.event.seq, "ts": written.event.ts}, Subscription
    )
    if call.is_json:
        await call.say_json(_view(made))
    else:
        whom = "" if made.owner == call.caller.name else f" for {made.owner}"
        await call.say(f"subscribed{whom} as {made.id}: {call.safe(_asked_for(made))}")
    return 0


async def subscriptions(call: Call) -> int:
    """Show the subscriptions and watches of the caller, or with --all of every agent."""
    rows = call.services.log.rows
    owner = None if call.parsed.has("--all") else call.owner
    made = [one for one in read_subscriptions(rows) if not one.spent and owner in (None, one.owner)]
    watches = [one for one in read_watches(rows) if owner in (None, one.sender)]
    if call.is_json:
        for view in (*map(_view, _by_age(made)), *map(_watch_view, sorted(watches, key=_age))):
            await call.say_json(view)
        return 0
    if not made and not watches:
        await call.say("no subscriptions, and no request waits for an answer")
        return 0
    columns = [Column(title="ID", least=6), Column(title="FOR"), Column(title="AGE", is_right=True)]
    columns.append(Column(title="WHAT", least=12))
    now = call.services.clock.now_ms()
    lines = [[one.id, one.owner, ago(now - one.ts), _asked_for(one)] for one in _by_age(made)]
    for watch in sorted(watches, key=_age):
        id_ = format_watch_id(watch.agent, watch.request)
        lines.append([id_, watch.sender, ago(now - watch.ts), f"request #{watch.request} to {watch.agent}"])
    await call.say_lines(lay_out(columns, lines, width=call.width, paint=call.paint))
    return 0


async def unsubscribe(call: Call) -> int:
    """End a subscription or a watch."""
    written = await call.services.broker.submit(
        call.caller, Unsubscribe(id=call.parsed.positionals[0]), key=call.asked.key
    )
    assert isinstance(written, Written)
    assert written.event is not None  # an unknown id is refused
    gone = str(written.event.payload["id"])
    if call.is_json:
        await call.say_json({"id": gone, "removed": True})
    else:
        await call.say(f"{gone} is over")
    return 0


def _preset(parsed: Parsed) -> str:
    given = [preset for preset in (*_PRESETS_WITH_NAMES, COLLISION) if parsed.has(f"--{preset}")]
    return given[0] if given else ""


def _filter(call: Call, preset: str) -> Filter:
    parsed = call.parsed
    given = Filter(
        **{name: tuple(parsed.values(option)) for name, option in _OPTIONS.items() if name != "files"},
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


def _asked_for(made: Subscription) -> str:
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
    return shlex.join(words)


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
