"""CHATHISTORY: the stored messages of a channel or of a conversation, archived ones included.

A reply reads as many messages as it returns, found by the place where they are shown: the cost does not grow
with the log. Only stored events are history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from palaver.doors.irc.channels import Hub
from palaver.doors.irc.connection import Client
from palaver.doors.irc.irc_wire import (
    LIMIT_HISTORY,
    SERVER,
    Line,
    fold,
    format_time,
    is_channel,
    is_nick,
    name_of,
    nick_of,
    parse_time,
    path_of_nick,
)
from palaver.doors.irc.showing import MULTILINE, message_for
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
from palaver.protocol.message import HUMAN
from palaver.protocol.paths import split_mailbox
from palaver.protocol.query import (
    Query,
    agent_place,
    channel_place,
    is_guest,
    pair_place,
    places_of,
    thread_place,
)
from palaver.services.queries import Queries

COMMAND: Final = "CHATHISTORY"
_BATCH: Final = "chathistory"
_TARGETS: Final = "draft/chathistory-targets"
_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the texts in one reply; a client asks again for the rest."""
_LIMIT_PARTNERS: Final = 1000
"""Messages of a client that TARGETS looks through for conversations of two."""
_MSGID: Final = "msgid="
_TIMESTAMP: Final = "timestamp="


class HistoryRefused(Exception):
    """A CHATHISTORY that cannot be answered, with the code of its FAIL and the words after it."""

    def __init__(self, code: str, *context: str, text: str) -> None:
        super().__init__(code, context, text)
        self.code = code
        self.context = context
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point in the history: messages before it have a lower seq than `before`, later ones than `after`."""

    before: int
    after: int


async def chathistory(hub: Hub, client: Client, params: Sequence[str]) -> None:
    """Answer a CHATHISTORY."""
    try:
        await _answer(hub, client, params)
    except HistoryRefused as refused:
        client.fail(COMMAND, refused.code, *refused.context, text=refused.text)


async def _answer(hub: Hub, client: Client, params: Sequence[str]) -> None:
    word = params[0].upper() if params else "*"
    if word not in _PARAMS:
        raise HistoryRefused("UNKNOWN_COMMAND", word, text=f"Use one of {', '.join(_PARAMS)}")
    if len(params) != _PARAMS[word]:
        raise HistoryRefused("INVALID_PARAMS", word, text=f"{word} needs {_PARAMS[word] - 1} parameters")
    limit = _limit(word, params[-1])
    if word == "TARGETS":
        await _send_targets(hub, client, params[1], params[2], limit)
        return
    target = params[1]
    places = places_for(hub, client, target)
    if not places:
        raise HistoryRefused(
            "INVALID_TARGET", word, target, text="Messages could not be retrieved: join the channel first"
        )
    queries = hub.services.queries
    points = [await _point(queries, word, ref) for ref in params[2:-1]]
    events = await _SELECT[word](queries, Query(shown=places, with_imported=True), points, limit)
    is_newest_first = word in ("LATEST", "BEFORE")
    _send(hub, client, target, _fitting(events, is_newest_first=is_newest_first))


_PARAMS: Final = {"LATEST": 4, "BEFORE": 4, "AFTER": 4, "AROUND": 4, "BETWEEN": 5, "TARGETS": 4}
"""The number of parameters of each subcommand, with its own name."""


def _limit(word: str, written: str) -> int:
    if not (written.isascii() and written.isdecimal() and len(written) < 10):
        raise HistoryRefused("INVALID_PARAMS", word, written, text="The limit must be a number")
    return min(int(written), LIMIT_HISTORY)


def places_for(hub: Hub, client: Client, target: str) -> tuple[str, ...]:
    """Return the words of the places whose messages a target shows to a client; none for a wrong target."""
    if not target.startswith("#"):
        if not is_nick(target):
            return ()
        own = client.account.caller.name
        others = {_name(target), path_of_nick(target)}
        return tuple(sorted(pair_place(own, other) for other in others))
    if not is_channel(target) or fold(target) not in client.joined:
        return ()
    ref = hub.ref(target)
    match ref.kind:
        case "agent":
            return (agent_place(ref.name), channel_place(target))
        case "thread":
            return (thread_place(ref.name), channel_place(target))
        case _:
            return (channel_place(target),)


def _name(nick: str) -> str:
    name = name_of(nick)
    return HUMAN if name.lower() == HUMAN else name


# --------------------
# Points and ranges.


async def _point(queries: Queries, word: str, ref: str) -> Point | None:
    """Return the point of a reference, or None for `*`."""
    if ref == "*" and word == "LATEST":
        return None
    if ref.startswith(_TIMESTAMP):
        try:
            ts = parse_time(ref.removeprefix(_TIMESTAMP))
        except ValueError as error:
            raise HistoryRefused("INVALID_PARAMS", word, ref, text=str(error)) from None
        return Point(before=await queries.seq_at(ts), after=await queries.seq_at(ts + 1) - 1)
    if not ref.startswith(_MSGID):
        raise HistoryRefused(
            "INVALID_MSGREFTYPE", word, ref, text="Refer to a message with msgid= or timestamp="
        )
    id = ref.removeprefix(_MSGID)
    for event in queries.with_id(id):
        if event.id == id and places_of(event):
            return Point(before=event.seq, after=event.seq)
    raise HistoryRefused("MESSAGE_ERROR", word, ref, text="There is no message with this id")


async def _latest(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    (point,) = points
    return await queries.shown(replace(query, after=0 if point is None else point.after, last=limit))


async def _before(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    (point,) = _all(points)
    return await queries.shown(replace(query, before=point.before, last=limit))


async def _after(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    (point,) = _all(points)
    return await queries.shown(replace(query, after=point.after, limit=limit))


async def _around(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    """Return messages before and after a point; the message there is one of them."""
    (point,) = _all(points)
    earlier = await _before(queries, query, points, limit // 2)
    later = await queries.shown(replace(query, after=point.before - 1, limit=limit - len(earlier)))
    return [*earlier, *later]


async def _between(queries: Queries, query: Query, points: Sequence[Point | None], limit: int) -> list[Event]:
    """Return messages between two points, beginning at the first one."""
    first, second = _all(points)
    if first.before <= second.before:
        return await queries.shown(replace(query, after=first.after, before=second.before, limit=limit))
    return await queries.shown(replace(query, after=second.after, before=first.before, last=limit))


def _all(points: Sequence[Point | None]) -> list[Point]:
    return [point for point in points if point is not None]


_SELECT: Final = {
    "LATEST": _latest,
    "BEFORE": _before,
    "AFTER": _after,
    "AROUND": _around,
    "BETWEEN": _between,
}


def _fitting(events: Sequence[Event], *, is_newest_first: bool) -> list[Event]:
    """Return as many messages as one reply may have, from the end that was asked for, and at least one."""
    kept: list[Event] = []
    size_bytes = 0
    for event in reversed(events) if is_newest_first else events:
        text = event.body.text if isinstance(event.body, MessageSent) else ""
        size_bytes += len(text.encode()) if text else len(event.to_json())
        if kept and size_bytes > _LIMIT_BYTES:
            break
        kept.append(event)
    return kept[::-1] if is_newest_first else kept


# --------------------
# Replies.


def _send(hub: Hub, client: Client, target: str, events: Sequence[Event]) -> None:
    """Send messages in the order of the log, as one batch."""
    own = client.account.caller.name
    nick = target if (user := hub.user(target)) is None else user.nick
    lines: list[Line] = []
    for number, event in enumerate(events):
        to = target if target.startswith("#") else nick if event.sender == own else client.nick
        message = message_for(hub, event, client, to)
        if not message.is_batch:
            lines += message.lines
            continue
        # A batch inside the batch: only its first and its last line belong to the outer one.
        id = f"h{number}"
        tags, inside = message.tags or {}, {"batch": id}
        begin = Line(source=message.source, command="BATCH", params=(f"+{id}", MULTILINE, to), tags=tags)
        lines.append(begin)
        lines += [
            Line(source=line.source, command=line.command, params=line.params, tags={**line.tags, **inside})
            for line in message.lines
        ]
        lines.append(Line(source=message.source, command="BATCH", params=(f"-{id}",)))
    client.send_batch(_BATCH, (target,), lines)


async def _send_targets(hub: Hub, client: Client, first: str, second: str, limit: int) -> None:
    """Send the channels of a client and its conversations of two with messages between two times."""
    queries = hub.services.queries
    points = [await _time_point(queries, ref) for ref in (first, second)]
    is_newest_first = points[0].before > points[1].before
    low, high = sorted(points, key=_before_of)
    newest = Query(with_imported=True, last=1)
    found: dict[str, Event] = {}
    for channel in client.joined.values():
        for event in await queries.shown(replace(newest, shown=places_for(hub, client, channel))):
            found[channel] = event
    own = client.account.caller.name
    mine = replace(newest, shown=(agent_place(own),), last=_LIMIT_PARTNERS)
    for event in await queries.shown(mine):
        found |= dict.fromkeys(_partners(event, own), event)
    # Only the newest message of a target counts.
    inside = [(name, event) for name, event in found.items() if low.after < event.seq < high.before]
    inside.sort(key=_seq_of)
    chosen = inside[max(0, len(inside) - limit) :] if is_newest_first else inside[:limit]
    lines = [
        Line(source=SERVER, command=COMMAND, params=("TARGETS", target, format_time(event.ts)))
        for target, event in chosen
    ]
    client.send_batch(_TARGETS, (), lines)


async def _time_point(queries: Queries, ref: str) -> Point:
    if not ref.startswith(_TIMESTAMP):
        raise HistoryRefused("INVALID_PARAMS", "TARGETS", ref, text="TARGETS needs two times: timestamp=…")
    point = await _point(queries, "TARGETS", ref)
    assert point is not None  # it is not `*`
    return point


def _before_of(point: Point) -> int:
    return point.before


def _seq_of(found: tuple[str, Event]) -> int:
    return found[1].seq


def _partners(event: Event, own: str) -> list[str]:
    """Return the nicks of the other parties of a direct message."""
    places = places_of(event)
    names = event.delivered_to
    if isinstance(event.body, MessageSent):
        names = event.body.delivered_to
    guests = tuple(token for token in event.to if is_guest(token))
    parties = {split_mailbox(name)[0] for name in (event.sender, *names, *guests)}
    return [nick_of(name) for name in sorted(parties) if name != own and pair_place(own, name) in places]
