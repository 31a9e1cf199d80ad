"""The commands that read the log and subscribe to events, and the filters that they share with others."""

import asyncio
import shlex
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from palaver.broker.context import Written
from palaver.doors.cli.call import EXIT_NOTHING, Call, named_room, topic_marks
from palaver.doors.cli.spec import Command, Completes, Option, Parsed, Positional, option_words, shown
from palaver.errors import PalaverError, UsageError, cut_name, nearest
from palaver.protocol.agents import RESERVED
from palaver.protocol.display import Column, Safe, ago, truncate
from palaver.protocol.envelope import Event, body_as, encode_event
from palaver.protocol.events import BODIES, AgentState, Filter, State, SubscriptionRemoved
from palaver.protocol.message import INTENTS, MESSAGE
from palaver.protocol.paths import PLUS
from palaver.protocol.query import STORED_STATES, STORED_TYPES, Query
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
from palaver.protocol.summary import summary
from palaver.services.agents import Consumer
from palaver.state.rooms import find_past_room
from palaver.state.rows import Rows
from palaver.state.watches import read_subscriptions, read_watches

# --------------------
# Row of the command that reads the log.

DEFAULT_EVENTS: Final = 20
"""The default number of events that `pal events` shows."""

DEFAULT_MISSED: Final = 100
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
            "the seq. A filter that is repeated accepts any of its values; different filters must all match. "
            "Reading does not mark messages as seen. Every user of this machine can read all events. An "
            "unknown name or type in a filter causes a hint on standard error. With --follow, "
            "SIGTERM and SIGHUP end the command cleanly."
        ),
        notes=(
            (
                "--target takes a name, self (you; with --room everything that concerns you there) or any "
                "(every agent). --from also finds what the bus sent on behalf of a room's member that was "
                "offline. --room takes the id of an open or closed room, or its short name; that of a closed "
                "room works if no other room has had it. In --file, '*' matches any characters, also "
                "slashes, and '?' any one. In --status, 'listening' is an alias of idle, 'inactive' of "
                "exited."
            ),
            (
                "--sql can only read, and is stopped after the time in the setting sql_timeout_ms (default: "
                "2 s)."
            ),
            (
                "--consumer requires --follow or --wait. With it, --last is the number of missed events to "
                f"print in full (default: {DEFAULT_MISSED})."
            ),
        ),
        options=(
            _filter(
                "--type",
                "TYPE",
                "Event type, or several: message,status,agent.hello.",
            ),
            _filter("--agent", "NAME", "From, to or about this agent.", "agents"),
            _filter(
                "--from",
                "NAME",
                "Sent by this agent.",
                "agents",
            ),
            _filter("--to", "NAME", "Sent to this agent.", "agents"),
            _filter("--participant", "NAME", "Sent by this agent or to it.", "agents"),
            _filter("--mention", "NAME", "The text mentions this agent.", "agents"),
            _filter(
                "--target",
                "NAME",
                "Delivered to this agent, to self or to any.",
                "agents",
            ),
            _filter("--thread", "NAME", "In this thread.", "threads"),
            _filter(
                "--room",
                "NAME",
                "In this room, open or closed.",
            ),
            _filter("--intent", "INTENT", "With this intent: request, inform or ack.", choices=INTENTS),
            _filter("--reply-to", "ID", "A reply to this message.", "ids"),
            _filter("--tool", "NAME", "An agent uses this tool: Bash. Case does not matter."),
            _filter(
                "--file",
                "GLOB",
                "About this file: 'src/app.py' or '*.py'.",
                "files",
            ),
            _filter(
                "--status",
                "STATE",
                "The state of an agent or message changed to this one.",
                choices=tuple(map(str, _STATES)),
            ),
            Option(
                name="--after", metavar="SEQ", help="After this seq. Overrides the stored seq of a consumer."
            ),
            Option(name="--before", metavar="SEQ", help="Before this seq."),
            Option(
                name="--since", metavar="TIME", help="Not before this time: 10m (ago) or 2026-03-01T09:00."
            ),
            Option(name="--until", metavar="TIME", help="Not after this time, written as for --since."),
            Option(name="--search", metavar="WORDS", help="The text contains all these words."),
            Option(
                name="--sql",
                metavar="WHERE",
                help="This SQL condition is true.",
            ),
            Option(
                name="--last",
                metavar="N",
                help=f"The newest N events (default: {DEFAULT_EVENTS}).",
            ),
            Option(name="--all", help="All events, from the first."),
            Option(name="--archived", help="All events, including archived ones. Not with --sql."),
            Option(
                name="--wait",
                metavar="TIME",
                help="Wait up to this long for the next event: 30 (seconds), 5m.",
            ),
            Option(name="--follow", help="Keep running; print each event as it arrives."),
            Option(
                name="--consumer",
                metavar="NAME",
                help="Continue where this consumer stopped, and store the seq.",
            ),
        ),
        exclusive=(("--wait", "--follow", "--archived"), ("--last", "--all", "--archived")),
        examples=(
            ("pal events", "the latest events"),
            ("pal events --thread pr-123 --all", "a whole conversation"),
            ("pal events --type message --from luna --since 2h", "recent messages of luna"),
            ("pal events --type status --tool Edit --file 'src/*.py'", "edits of Python files"),
            ('pal events --search "flaky test"', "full-text search"),
            ("pal events --agent nova --type status --wait 5m", "wait until nova's state changes"),
            ("pal events --follow --json", "pass events to a program"),
            ("pal events --follow --consumer ci", "continue where ci stopped"),
            ("pal events --sql \"intent = 'request'\"", "filter with SQL"),
        ),
        statuses=(
            (0, "Done, also if no event matches."),
            (3, "The time of --wait is over, and no event came."),
        ),
        see=(
            ("events", "events.md"),
            ("archive and export", "archive.md"),
            ("the receive contract", "receive-contract.md"),
        ),
    ),
)


# --------------------
# Function of `pal events`: read, search, wait for and follow the log. Does not change the ledger.

_PAGE: Final = 1000
_FILTERS: Final = (
    *("--type", "--agent", "--from", "--to", "--participant", "--mention", "--target", "--thread", "--room"),
    *("--intent", "--reply-to", "--tool", "--file", "--status", "--search", "--before", "--until"),
)
_ALL_SHOWN: Final = b"shown"
"""The token of a wait whose events were all shown: a client that brings it back only needs its status."""


async def events(call: Call) -> int:
    """Show the stored events that pass the filters; with --wait or --follow wait for new ones."""
    query = await _query(call, call.parsed)
    await warn_unknown_names(call, (*query.agents, *query.senders, *query.participants))
    await warn_unknown_types(call, query.types)
    if call.parsed.has("--all") or call.parsed.has("--after"):
        _tell_of_archive(call, query)
    if call.parsed.has("--wait"):
        return await _wait(call, query)
    if call.parsed.has("--follow"):
        return await _follow(call, query)
    if call.parsed.has("--archived"):
        await _read_all(call, query)
    else:
        shown = await _read(call, query)
        # Fewer than were asked for: the rest may be archived.
        if query.last is not None and shown < query.last and _can_be_archived(call.parsed):
            _tell_of_archive(call, query)
    return 0


async def _read(call: Call, query: Query) -> int:
    """Show the events in the log, page by page; return how many were shown."""
    shown = 0
    # Many of the newest events are read upwards, page by page, so that they are never all in memory. The end
    # is fixed first: events that are stored during the reading are not among the newest N.
    if query.last is not None and query.last > _PAGE:
        end = call.services.queries.last() + 1 if query.before is None else query.before
        after = await call.services.queries.seq_before_newest(query, query.last)
        query = replace(query, after=after, before=end, last=None)
    while found := await call.services.queries.read(query):
        # One write per event: a client that reconnects skips as many writes as it has flushed.
        for event in found:
            await call.write(await make_event_line(call, event))
        shown += len(found)
        # With `last`, one read returns everything.
        if query.last is not None or len(found) < query.limit:
            break
        query = replace(query, after=found[-1].seq)
    return shown


async def _read_all(call: Call, query: Query) -> None:
    """Show the archived events, then those in the log."""
    async with aclosing(call.services.queries.pages(query)) as found:
        async for page in found:
            for event in page:
                await call.write(await make_event_line(call, event))


def _can_be_archived(parsed: Parsed) -> bool:
    """Return whether a filter is given that archived events could match. SQL never reads archives."""
    return any(map(parsed.has, _FILTERS)) and not parsed.has("--sql")


def _tell_of_archive(call: Call, query: Query) -> None:
    archived = call.services.queries.archived()
    if query.after < archived:
        where = call.services.daemon.home / "archive"
        call.warn(f"events up to #{archived} are archived in {where}; --archived shows them too")


async def _wait(call: Call, query: Query) -> int:
    """Show the next events. A client that lost the daemon continues from where it began, without a gap."""
    if call.asked.resume == _ALL_SHOWN:
        return 0
    timeout_s = call.parsed.duration_s("--wait")
    async with following(call, query) as follower:
        seq = await follower.begin()
        async with aclosing(call.services.queries.follow(query, after=seq, with_archives=True)) as pages:
            try:
                async with asyncio.timeout(timeout_s):
                    with call.connection.waiting():
                        found = await anext(pages, None)
            except TimeoutError:
                found = None
        if found is None:
            return EXIT_NOTHING
        await follower.show(found, _ALL_SHOWN)
        await follower.flushed()
    return 0


async def _follow(call: Call, query: Query) -> int:
    """Show new events until the client ends. After SIGTERM or SIGHUP, flush them and print the cursor."""
    async with following(call, query) as follower:
        with call.connection.ending_gently():
            seq = await follower.begin()
            async with aclosing(call.services.queries.follow(query, after=seq, with_archives=True)) as pages:
                while True:
                    # Only this is marked as waiting, so a daemon that stops ends the command here, and not
                    # while it shows events.
                    with call.connection.waiting():
                        found = await anext(pages, None)
                    # The query has an end (--before), and the log has passed it.
                    if found is None:
                        break
                    await follower.show(found)
        # After a signal too: lines that the client still writes out must count for the cursor below.
        await follower.flushed()
        if call.connection.is_asked_to_end and follower.flushed_seq is not None:
            call.say_cursor(follower.flushed_seq)
    return 0


async def _query(call: Call, parsed: Parsed) -> Query:
    if parsed.has("--archived") and parsed.has("--sql"):
        raise UsageError("--sql reads only the log: it cannot be combined with --archived")
    if (parsed.has("--follow") or parsed.has("--wait")) and (parsed.has("--search") or parsed.has("--sql")):
        raise UsageError("--search and --sql cannot be combined with --wait or --follow")
    if parsed.has("--consumer") and not (parsed.has("--follow") or parsed.has("--wait")):
        raise UsageError("--consumer requires --follow or --wait")
    is_consumer = parsed.has("--consumer")  # It may skip all events that it has missed.
    last = parsed.number("--last", least=0 if is_consumer else 1)
    if last is None and not any(map(parsed.has, ("--all", "--archived", "--after", "--follow"))):
        last = DEFAULT_EVENTS
    query = await query_from(call, last=last, limit=_PAGE)
    # A follower acts on new events. An imported event is old: it happened in another log.
    return replace(query, with_imported=not (parsed.has("--follow") or parsed.has("--wait")))


# --------------------
# Parse the filters that commands on the log share: a query, and points in time.

_SELF: Final = "self"
_ANY: Final = "any"


def files_from(call: Call) -> tuple[str, ...]:
    """Return the file filter: each path as given, and as an absolute path."""
    given = call.parsed.references("--file")
    # As given too, because '*.py' must match in every folder; absolute too, because 'pal status set' stores
    # such a path.
    return tuple(dict.fromkeys([*given, *map(call.absolute, given)]))


def types_from(call: Call) -> tuple[str, ...]:
    """Return the filter by type: each value may be a list with commas."""
    types = [one.strip() for given in call.parsed.values("--type") for one in given.split(",")]
    if not all(types):
        raise UsageError("--type requires one or more event types, such as message or message,status")
    return tuple(dict.fromkeys(types))


def replies_from(call: Call) -> tuple[str, ...]:
    """Return the filter by the message that is replied to: its seq, as its replies have it.

    Raises NotFound.
    """
    found = map(call.services.queries.message, call.parsed.values("--reply-to"))
    return tuple(f"{one.imported}:{one.device}" if one.imported else str(one.seq) for one in found)


def targets_from(call: Call) -> tuple[str, ...]:
    """Return the filter by recipient: `self` is the caller, and `any` means no filter."""
    return () if concerns_from(call) else _named_targets(call)


def concerns_from(call: Call) -> str:
    """Return the caller if `self` is the only target in a room: then all events that concern it match."""
    return call.caller.name if _targets(call) == [_SELF] and call.parsed.values("--room") else ""


def _named_targets(call: Call) -> tuple[str, ...]:
    given = _targets(call)
    return () if _ANY in given else tuple(call.caller.name if name == _SELF else name for name in given)


def _targets(call: Call) -> list[str]:
    names = [name.removeprefix("@") for name in call.parsed.references("--target")]
    # The id of a session keeps its case, as in luna+Chat-1; the query folds the name in front of it.
    return [name if PLUS in name else name.lower() for name in names]


async def rooms_from(call: Call) -> tuple[str, ...]:
    """Return the filter by room: an id, a path, or the short name of an open room or of one closed room.

    Raises `AmbiguousRecipient` when several rooms have the name, and `RoomNotFound`.
    """
    rows = call.services.queries.rows
    named = [await named_room(call, word) for word in call.parsed.values("--room")]
    return tuple(find_past_room(rows, word).id for word in named)


async def query_from(call: Call, *, last: int | None = None, limit: int) -> Query:
    """Return the query of a command that has all filters."""
    parsed = call.parsed
    return Query(
        types=types_from(call),
        agents=tuple(parsed.references("--agent")),
        senders=tuple(parsed.references("--from")),
        to=tuple(parsed.references("--to")),
        participants=tuple(parsed.references("--participant")),
        mentions=tuple(parsed.references("--mention")),
        targets=targets_from(call),
        concerns=concerns_from(call),
        threads=tuple(parsed.references("--thread")),
        rooms=await rooms_from(call),
        intents=tuple(parsed.references("--intent")),
        replies_to=replies_from(call),
        tools=tuple(parsed.references("--tool")),
        files=files_from(call),
        statuses=tuple(parsed.references("--status")),
        after=parsed.number("--after") or 0,
        before=parsed.number("--before"),
        since=time_from(call, "--since"),
        until=time_from(call, "--until"),
        search=parsed.reference("--search"),
        sql=parsed.reference("--sql"),
        last=last,
        limit=limit,
        with_imported=True,
    )


def time_from(call: Call, name: str) -> int | None:
    """Return a time: an age (10m), or a date with or without a time, in the caller's time zone."""
    given = call.parsed.value(name)
    if given is None:
        return None
    try:
        # Before dates: 3600 is an age in seconds, although a date may consist of digits only too.
        seconds = call.parsed.duration_s(name)
    except UsageError:
        seconds = None
    if seconds is not None:
        return call.now_ms() - int(seconds * 1000)
    # The parser and the conversion fail for dates that the platform cannot represent, such as the year 1.
    try:
        date_time = datetime.fromisoformat(given)
        # A date without a zone is in the caller's zone; `astimezone` alone would use that of this machine.
        if date_time.tzinfo is None:
            date_time = (
                date_time.replace(tzinfo=call.zone) if call.zone is not None else date_time.astimezone()
            )
        return int(date_time.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{name} requires a time such as 10m (ago) or 2026-03-01T09:00, not {shown(given)}"
        ) from None


# --------------------
# Warn about unknown names and event types in filters, on standard error. Refuses nothing.
#
# An unknown name or type may appear later, so it is allowed; but most often it is a typing error.


async def warn_unknown_names(call: Call, names: Iterable[str]) -> None:
    """Warn about names that no agent has ever had here. A client that reconnects gets no second warning."""
    for name in () if call.asked.resume else names:
        if not await _is_known(call, name):
            near = call.services.broker.directory.nearest(name.removeprefix("@").lower())
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "'pal list -v' shows present and past agents"
            )
            call.warn(f"unknown agent: {cut_name(name)}; {hint}")


async def warn_unknown_types(call: Call, types: Iterable[str]) -> None:
    """Warn about types that no event has, if a known type is similar."""
    known = [*BODIES, *STORED_TYPES]
    for type_ in () if call.asked.resume else types:
        near = [] if type_ in known else nearest(type_, known)
        if near and not await call.services.queries.read(Query(types=(type_,), last=1)):
            call.warn(f"the log has no event of type {type_}; did you mean {near[0]}?")


async def _is_known(call: Call, name: str) -> bool:
    plain = name.removeprefix("@").lower()
    if plain in RESERVED or call.services.broker.directory.find(plain) is not None:
        return True
    # Other senders than agents, such as nicks of a bridged network, are known only by their events.
    return bool(await call.services.queries.read(Query(senders=(name,), last=1)))


# --------------------
# A follower of the log on a command line: where it begins, which events it skips, and what it has flushed.
#
# A seq counts only after the client has written out everything up to it: the printed cursor and the stored
# cursor of a consumer are never ahead of that. A client that never reads delays only itself.

_FOLLOW_PAGE: Final = 1000
_LIMIT_WRITE_BYTES: Final = 16 * 1024
"""Events that are available together are written together, up to about this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedEvents:
    """A number of events that are left out after one seq and before another."""

    count: int
    after: int
    before: int
    is_archived: bool = False
    """Some of them are archived."""


@asynccontextmanager
async def following(call: Call, query: Query) -> AsyncIterator["EventFollower"]:
    """Yield a follower; with --consumer take that consumer, and always release it at the end.

    Raises an error if another process uses the consumer: two readers would move one cursor.
    """
    name = call.parsed.value("--consumer")
    if name is None:
        yield EventFollower(call, query, None)
        return
    peer = call.connection.peer
    consumer = await call.services.agents.consumers.take(call.caller.name, name, pid=peer.pid)
    try:
        yield EventFollower(call, query, consumer)
    finally:
        consumer.release()


class EventFollower:
    """Shows events in the order of their seqs, and records the seq up to which they are flushed.

    After a crash, events that were written but not flushed are shown again; none is left out.
    """

    def __init__(self, call: Call, query: Query, consumer: Consumer | None) -> None:
        self._call = call
        self._queries = call.services.queries
        # For a follower, --last counts missed events, and does not limit the query.
        self._query = replace(query, last=None)
        self._consumer = consumer
        self._failure: PalaverError | None = None
        self.flushed_seq: int | None = None
        """The seq up to which everything was written out; None before `begin`."""
        self.is_resumed = False
        """The client had lost the daemon and has reconnected."""

    async def begin(self) -> int:
        """Return the seq to follow from, after showing which earlier events are skipped."""
        seq, most = await self._start()
        if self._consumer is not None:
            await self._consumer.begin(seq)
        elif not self.is_resumed:
            seq = max(seq, self._queries.archived())  # Only a consumer can have missed archived events.
        self.flushed_seq = seq
        if most is not None and (skipped := await self._skipped(seq, most)) is not None:
            seq = skipped.before - 1
            await self._write(skipped_line(self._call, skipped), seq)
        elif not self.is_resumed:
            await self._write(b"", seq)  # A token to resume from, even if nothing is shown.
        return seq

    async def show(self, events: Iterable[Event], last_token: bytes = b"") -> None:
        """Write events, the available ones together in one write. Waits while the client does not read."""
        lines, size, seq = [], 0, None
        for event in events:
            if seq is not None and size >= _LIMIT_WRITE_BYTES:
                await self._write(b"".join(lines), seq)
                lines, size = [], 0
            line = await make_event_line(self._call, event)
            lines.append(line)
            size += len(line)
            seq = event.seq
        if seq is not None:
            await self._write(b"".join(lines), seq, last_token)

    async def flushed(self) -> None:
        """Wait until everything is written out, and raise if a consumer's cursor could not be stored."""
        await self._call.connection.output.flushed()
        self._check()

    async def _start(self) -> tuple[int, int | None]:
        """Return the seq to begin after, and how many events after it are shown at most; None means all."""
        call, parsed, query = self._call, self._call.parsed, self._query
        most, last = parsed.number("--last"), self._queries.last()
        # Before the options and the stored seq: the token says what this client has flushed already.
        if (resumed := _resumed(call)) is not None:
            self.is_resumed = True
            return resumed, None
        if parsed.has("--after"):
            return query.after, most
        kept = None if self._consumer is None else self._consumer.seq()
        if kept is not None:
            if kept > last:  # The log was replaced by an older one, such as a backup.
                call.warn(f"the stored seq is #{kept}, but the log ends at #{last}: continuing there")
            if most is None and not parsed.has("--all"):
                most = DEFAULT_MISSED
            return min(kept, last), most
        is_from_now = parsed.has("--wait")  # --wait shows only new events.
        if parsed.has("--all") and not is_from_now:
            return 0, None
        if most is None or is_from_now:
            return last, None
        return await self._queries.seq_before_newest(query, most), None

    async def _skipped(self, seq: int, most: int) -> SkippedEvents | None:
        """Return what is skipped if only the `most` newest events after a seq are shown; None for nothing."""
        # This read keeps all its events in memory, and finds no archived ones.
        if most < _FOLLOW_PAGE and seq >= self._queries.archived():
            # The usual case needs one short read, however long the log is.
            asked = replace(self._query, after=seq, last=most + 1, limit=most + 1)
            if len(await self._queries.read(asked)) <= most:
                return None
        return await self._newest(seq, most)

    async def _newest(self, seq: int, most: int) -> SkippedEvents | None:
        """Count all matching events after a seq, archived or not. Keeps only seqs in memory."""
        newest: deque[int] = deque(maxlen=most)
        count, end = 0, seq
        asked = replace(self._query, after=seq, limit=_FOLLOW_PAGE)
        async with aclosing(self._queries.pages(asked)) as found:
            async for page in found:
                count += len(page)
                newest.extend(event.seq for event in page)
                end = page[-1].seq
        if count <= most:
            return None
        # With `--last 0` everything is skipped, and the follower begins after the last matching event.
        before = newest[0] if newest else end + 1
        is_archived = seq < self._queries.archived()
        return SkippedEvents(count=count - len(newest), after=seq, before=before, is_archived=is_archived)

    async def _write(self, data: bytes, seq: int, token: bytes = b"") -> None:
        self._check()
        await self._call.write(data, token or str(seq).encode(), flushed=partial(self._flushed, seq))

    def _flushed(self, seq: int) -> None:
        self.flushed_seq = seq
        if self._consumer is not None and self._failure is None:
            try:
                self._consumer.keep(seq)
            except PalaverError as error:
                self._failure = error  # The next write raises it: this callback has no caller that could.

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _resumed(call: Call) -> int | None:
    """Return the seq after which a reconnected client continues; None for a new client."""
    token = call.asked.resume
    # Other commands have tokens of other forms. Fifteen digits always fit into the 64 bits of a seq.
    return int(token) if token is not None and token.isdigit() and len(token) <= 15 else None


# --------------------
# Rendering: an event as a line of `pal events`, and the line about skipped events. Writes nothing.

_MESSAGE_SENT: Final = "message_sent"
_NO_FILTERS: Final = frozenset(
    {"--after", "--before", "--last", "--all", "--archived", "--wait", "--follow", "--consumer"}
)

_encode: Final = msgspec.json.Encoder().encode


async def make_event_line(call: Call, event: Event) -> bytes:
    """Return the line of an event. That of a payload of megabytes is made in a thread: it takes too long."""
    if event.has_small_payload:
        return _event_line(call, event)
    return await asyncio.to_thread(_event_line, call, event)


def _event_line(call: Call, event: Event) -> bytes:
    """Return one line with its line end: JSON if asked for, and for streams under a harness; else text."""
    types = types_from(call)
    name = event.type
    if event.type == MESSAGE and _MESSAGE_SENT in types and MESSAGE not in types:
        name = _MESSAGE_SENT  # another name of the type, and the one in the filter
    if _is_json(call):
        return encode_event(event if name == event.type else replace(event, type=name)) + b"\n"
    return (event_text(call, event, name) + "\n").encode("utf-8", "backslashreplace")


def skipped_line(call: Call, skipped: SkippedEvents) -> bytes:
    """Return a line with the number of skipped events and the command that shows them.

    In JSON it has `skipped` and neither `type` nor `id`, so that no program takes it for an event.
    """
    command = shlex.join(_command(call, skipped))
    if _is_json(call):
        fields = {
            "skipped": skipped.count,
            "after": skipped.after,
            "before": skipped.before,
            "command": command,
        }
        return _encode(fields) + b"\n"
    events = f"{skipped.count} older event{'' if skipped.count == 1 else 's'}"
    line = f"… {events} left out; to see them: {call.safe(command)}"
    return f"{call.paint.dim(line)}\n".encode("utf-8", "backslashreplace")


def _is_json(call: Call) -> bool:
    is_stream = call.parsed.has("--follow") or call.parsed.has("--wait")
    return call.is_json or (is_stream and call.is_json_stream)


def _command(call: Call, skipped: SkippedEvents) -> Iterator[str]:
    yield from ("pal", "events", "--after", str(skipped.after), "--before", str(skipped.before))
    yield "--archived" if skipped.is_archived else "--all"
    for name, value in call.parsed.options.items():
        # The command has its own bounds. The filters stay, so that it shows the events that were counted.
        if name not in _NO_FILTERS:
            for one in value if isinstance(value, list) else [value]:
                yield from option_words(name, str(one))


def event_text(call: Call, event: Event, name: str = "", *, is_full: bool = False) -> str:
    """Return an event as text for people, with another name of its type if one is given.

    It is one line, cut to the width of a terminal; with `is_full` the summary is complete, with its lines.
    """
    paint = call.paint
    to = f" → {paint.names(event.to)}" if event.to else ""
    marks = topic_marks(event)
    about = paint.safe(f" [{', '.join(marks)}]") if marks else ""
    text, kind = paint.safe(summary(event), keep_lines=is_full), paint.safe(name or event.type)
    sender = paint.name(event.sender)
    plain = f"#{event.seq} {call.clock_time(event.ts)} {kind} {sender}{to}{about}: "
    if call.width is not None and not is_full:
        text = Safe(truncate(text, max(20, call.width - len(plain))))
    seq, date_time = paint.bold(f"#{event.seq}"), paint.dim(call.clock_time(event.ts))
    return f"{seq} {date_time} {paint.green(kind)} {paint.cyan(sender)}{to}{about}: {text}"


# --------------------
# Rows of the commands for subscriptions to events.

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
            "subscription twice is one. A person can name any agent with --for. --send sends a message in "
            "your name, with your rights; it causes no other subscription to match."
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
                help="Notify this agent, which you started (default: you).",
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
                help="Send this text to the agents it mentions (default: you).",
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

_RESOLVED: Final = frozenset({"types", "targets", "rooms", "replies_to", "files"})
"""Filters whose values are not stored as they were given."""

_PRESETS_WITH_NAMES: Final = (IDLE, STOPPED, BLOCKED)


async def subscribe(call: Call) -> int:
    """Subscribe the caller, or with --for another agent, to events."""
    preset = _preset(call.parsed)
    request = Subscribe(
        filter=await _filter_from(call, preset),
        owner=call.parsed.reference("--for"),
        once=call.parsed.has("--once"),
        preset=preset,
        text=call.parsed.value("--text") or "",
        send=_text_to_send(call.parsed),
    )
    # An equal subscription is returned and not stored again: its seq is then not above this one.
    before = call.services.queries.last()
    written = await call.submit(request)
    assert isinstance(written, Written)
    assert written.event is not None  # it is new, or the same as an earlier one
    wanted = request.filter
    await warn_unknown_names(call, (*wanted.agents, *wanted.senders, *wanted.participants))
    await warn_unknown_types(call, request.filter.types)
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
    now = call.now_ms()
    lines = [[one.id, one.owner, ago(now - one.ts), asked_for(one)] for one in _by_age(made)]
    for watch in sorted(watches, key=_age):
        id_ = format_watch_id(watch.agent, watch.request)
        lines.append([id_, watch.sender, ago(now - watch.ts), f"request #{watch.request} to {watch.agent}"])
    await call.say_table(columns, lines)
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
        words = [word for name in made.filter.agents for word in option_words(f"--{made.preset}", name)]
    # The option of a preset stands for these three filters, which it sets itself; only --collision leaves
    # room for --agent.
    is_given = {name: not made.preset or name not in ("types", "statuses", "agents") for name in _OPTIONS}
    is_given["agents"] |= made.preset == COLLISION
    for name, option in _OPTIONS.items():
        if is_given[name]:
            words += [word for value in getattr(made.filter, name) for word in option_words(option, value)]
    words += ["--once"] if made.once else []
    words += option_words("--text", made.text) if made.text else []
    words += option_words("--send", made.send) if made.send else []
    return shlex.join(words)


def _preset(parsed: Parsed) -> str:
    given = [preset for preset in (*_PRESETS_WITH_NAMES, COLLISION) if parsed.has(f"--{preset}")]
    return given[0] if given else ""


async def _filter_from(call: Call, preset: str) -> Filter:
    parsed = call.parsed
    given = Filter(
        **{
            name: tuple(parsed.references(option))
            for name, option in _OPTIONS.items()
            if name not in _RESOLVED
        },
        types=types_from(call),
        # Here and not when an event is compared: an event has names and ids of rooms, never `self` or a path.
        targets=_named_targets(call),
        rooms=await rooms_from(call),
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
# Rendering: subscriptions and watches for programs.


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
