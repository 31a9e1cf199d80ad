"""The requests about stored events as a whole: redact one, archive old ones, import exported ones."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from palaver.broker.context import Context, Imported, Outcome, Redacted
from palaver.broker.messages import fetch_event
from palaver.domain.rights import is_foreign_type, require_person
from palaver.errors import BadRequest, StorageFailed
from palaver.log.api import Decide, Log
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event, body_as, draft_of_import
from palaver.protocol.events import DeliveryReport, MessageSent, TextRemoved
from palaver.protocol.query import Query
from palaver.protocol.redaction import (
    FOLDED_TYPES,
    LEAST_QUOTED,
    REDACTED_TYPE,
    can_remove,
    is_removed,
    pieces_of,
    removed_text,
    without_text,
)
from palaver.protocol.requests import Archive, Import, Redact

# --------------------
# Remove the text of one event permanently, on a person's order, and keep a record of it.
#
# The record is written first. Then the event is replaced in log, index and archives, with the copies that
# Palaver made of it: notices of subscriptions that quote it, and screens that were kept with raw keys. A
# removal that a crash interrupted is finished at the next start.

Forget: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]
"""Removes data outside the log about events with these ids."""
_AT_ONCE: Final = 1000
"""Records whose texts are removed together: the database is copied once for all of them."""


async def redact(context: Context, caller: Caller, request: Redact, key: bytes | None) -> Redacted:
    """Write that a text is removed, then remove it. A repeat writes nothing, also at the same time."""
    require_person(caller, "redact")
    # A second order for the same text waits here, and then finds the record of the first one.
    async with context.redacting:
        return await _redact(context, caller, request, key)


async def _redact(context: Context, caller: Caller, request: Redact, key: bytes | None) -> Redacted:
    event = await fetch_event(context.log, request.event)
    if not can_remove(event, is_foreign=is_foreign_type(event.type)):
        raise BadRequest(f"#{event.seq} is an event of type {event.type}: it has no text to remove")
    if is_removed(event, is_foreign=is_foreign_type(event.type)) or event.seq in await _ordered(context.log):
        # A repeat of the same request returns its record; for any other order, nothing is written.
        first = await context.log.commit(None, lambda rows: None, request_key=key)
        return Redacted(event=first.event, of=event, unredacted=await _finish(context))
    copies, quotes, unsearched = await _find(context, event)
    payload: dict[str, object] = {
        "event": event.seq,
        "id": event.id,
        "of": event.type,
        "hash": request.hash,
    }
    if copies:
        payload["copies"] = [copy.seq for copy in copies]
    draft = Draft(
        type=REDACTED_TYPE,
        sender=caller.name,
        payload=payload,
        id=context.ids.next(),
        ts=context.clock.now_ms(),
    )
    # Before the removal: if the daemon is killed in between, the next start finds the order and finishes it.
    written = await context.log.commit(None, lambda rows: draft, request_key=key)
    assert written.event is not None
    left = await _finish(context)
    return Redacted(
        event=written.event, of=event, copies=copies, quotes=quotes, unsearched=unsearched, unredacted=left
    )


async def finish(context: Context, forget: Forget | None = None) -> dict[int, str]:
    """Remove all texts whose removal is recorded and not finished: the latest one, and those of a crash.

    `forget` receives the ids of the events of each removal before it is finished. Events that cannot be read
    now are returned with the reason, and tried again at the next call.
    """
    async with context.redacting:
        return await _finish(context, forget)


async def _finish(context: Context, forget: Forget | None = None) -> dict[int, str]:
    log = context.log
    left: dict[int, str] = {}
    # Those that failed earlier are tried once per call: their archive may have been restored meanwhile.
    waiting = log.unfinished_redactions()
    records = await _unfinished(log)
    while records or waiting:
        seqs = sorted({*waiting, *(seq for record in records for seq in _seqs_of(record))})
        left |= await _remove(log, seqs, forget)
        await log.mark_redacted(records[-1].seq if records else log.redacted(), sorted(left))
        # Only once in each call: an event that fails again would otherwise repeat this loop without an end.
        waiting = ()
        records = await _unfinished(log)
    return left


async def _remove(log: Log, seqs: Sequence[int], forget: Forget | None) -> dict[int, str]:
    """Remove the texts of some events; return the events that failed, with the reason."""
    left: dict[int, str] = {}
    ids: list[str] = []
    readable: list[int] = []
    folded: list[int] = []
    for seq in seqs:
        try:
            # `fetch` and not `event`: an event in a lost archive must stay unfinished, and not count as
            # missing.
            event = await log.fetch(seq)
        except StorageFailed as error:
            left[seq] = str(error)
            continue
        readable.append(seq)
        if event is not None:
            ids.append(event.id)
            folded += [seq] if event.type in FOLDED_TYPES else []
    if not readable:
        return left
    if forget is not None:
        # Before the log is changed: a removal that is interrupted here is still unfinished and starts again.
        await forget(ids)
    await log.redact(readable, _scrub)
    # The fold has copied the text of these types into rows.
    if folded:
        try:
            await log.rebuild()
        except StorageFailed as error:
            return left | dict.fromkeys(folded, f"the state cannot be rebuilt without its text: {error}")
        await log.redact(readable, _scrub)  # The old rows left their bytes in free pages.
    return left


async def _ordered(log: Log) -> set[int]:
    """Return the events whose removal is ordered and not finished."""
    records = await _unfinished(log)
    return {*log.unfinished_redactions(), *(seq for record in records for seq in _seqs_of(record))}


async def _unfinished(log: Log) -> list[Event]:
    # Without imported records: their numbers belong to another log, in which the removal was done.
    return await log.read(Query(types=(REDACTED_TYPE,), after=log.redacted(), limit=_AT_ONCE))


def _seqs_of(record: Event) -> list[int]:
    removed = body_as(record, TextRemoved)
    return [removed.event, *removed.copies]


def redacted_by(context: Context, event: Event) -> Redacted:
    """Return the outcome of a request from the record that it wrote."""
    of = context.log.recall(body_as(event, TextRemoved).event)
    assert of is not None
    return Redacted(event=event, of=of)


async def _find(
    context: Context, event: Event
) -> tuple[tuple[Event, ...], tuple[Event, ...], tuple[str, ...]]:
    """Return the copies that Palaver made of an event, and other events that quote the same text.

    Also return the archive files that could not be searched.
    """
    text = removed_text(event, is_foreign=is_foreign_type(event.type))
    # A short text such as "ok" is in many events, which then have nothing to do with the removed one.
    quoted = pieces_of(text) if len(text.strip()) >= LEAST_QUOTED else []
    # The number of results is limited, so copies are searched by exact fields, separately from quotes.
    number = _number(event)
    # The character after the number is part of the search, so that 4 does not find 42.
    notices = [f'"event":{number}{end}' for end in ",}"]
    screens = [f"{begin}{number}{end}" for begin in ('"messages":[', ",") for end in ",]"]
    found = await context.log.find_containing([*notices, *screens])
    copies = tuple(one for one in found.events if _is_copy(one, event))
    known = {event.seq, *(copy.seq for copy in copies)}
    others = (await context.log.find_containing(quoted)).events if quoted else ()
    quotes = tuple(one for one in others if one.seq not in known and one.type != REDACTED_TYPE)
    return copies, quotes, tuple(found.unreadable)


def _is_copy(one: Event, of: Event) -> bool:
    if (bool(one.imported), one.device) != (bool(of.imported), of.device):
        return False  # The same number means another event.
    match one.body:
        case MessageSent(event=int(number), sub=str()):
            return number == _number(of)
        case DeliveryReport(evidence=screen, messages=messages):
            return bool(screen) and _number(of) in messages
    return False


def _number(event: Event) -> int:
    """Return the seq by which other events of the same log refer to an event."""
    return event.imported or event.seq


def _scrub(event: Event) -> Event:
    return without_text(event, is_foreign=is_foreign_type(event.type))


# --------------------
# Move events from the log to an archive. Writes no event: seqs and rows do not change.


async def archive(context: Context, caller: Caller, request: Archive, key: bytes | None) -> Outcome:
    """Move the events before a seq into an archive. A repeat finds nothing left to move."""
    # A removal rewrites the archive files before the log. An event that was archived in between would be
    # copied with its text, or differ from its copy, which counts as a damaged archive.
    async with context.redacting:
        # Finish removals first: their records are searched in the log only.
        left = await _finish(context)
        return replace(await context.log.archive(request.before), unredacted=left)


# --------------------
# Import events of another log.


async def import_events(context: Context, caller: Caller, request: Import, key: bytes | None) -> Imported:
    """Store exported events unchanged, under new seqs, and skip known ones: a repeat stores nothing twice.

    Each one is stored as imported, so no delivery, watch or reminder follows from it.
    """
    require_person(caller, "import")
    # In one transaction and without request keys: sender and id of each event identify a repeat.
    outcomes = await context.log.commit_all([(None, _always(event)) for event in request.events])
    count = 0
    different: list[Event] = []
    for event, outcome in zip(request.events, outcomes, strict=True):
        # The others are stored already. The caller repeats the request, which skips them.
        if isinstance(outcome, Exception):
            raise outcome
        count += not outcome.is_repeat
        # The payload may differ: secrets are redacted in an export.
        if (first := outcome.event) is not None and (first.type, first.ts) != (event.type, event.ts):
            different.append(event)
    known = len(request.events) - count - len(different)
    return Imported(count=count, known=known, different=tuple(different))


def _always(event: Event) -> Decide:
    draft = draft_of_import(event)
    return lambda rows: draft
