"""Bundles: created as a whole or not at all, never changed, identified by eight characters."""

import asyncio
from collections.abc import Sequence

import msgspec

from palaver.broker.context import Context, Written
from palaver.errors import BadRequest, MessageTooLarge, NotFound
from palaver.log.api import Log
from palaver.protocol.agents import Caller
from palaver.protocol.bundles import (
    BUNDLE,
    LIMIT_BUNDLE_BYTES,
    LIMIT_EVENTS,
    LIMIT_FILE_BYTES,
    LIMIT_FILE_PATH_BYTES,
    LIMIT_FILES,
    LIMIT_TITLE_BYTES,
    BundleFile,
    CreateBundle,
    bundle_key,
    format_bundle_id,
    keep_file,
    parse_bundle_id,
    payload_of_bundle,
)
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import Bundle
from palaver.protocol.text import check_text, counted
from palaver.protocol.transcript import Detail, Excerpt, format_range
from palaver.state.references import read_bundle
from palaver.state.rows import Rows


async def create(context: Context, caller: Caller, request: CreateBundle, key: bytes | None) -> Written:
    """Store a bundle. Its id is the end of its event's id."""
    _check_words(request)
    size_bytes = _check_files(request.files) + _check_transcripts(request.transcripts)
    if size_bytes > LIMIT_BUNDLE_BYTES:
        raise MessageTooLarge("the bundle", size_bytes, LIMIT_BUNDLE_BYTES)
    _check_events(request.events, context.log.last())
    extends = attached_bundle(context.log, request.extends)
    # In a thread: hashing and encoding megabytes would block every other caller.
    files = await asyncio.to_thread(lambda: tuple(map(keep_file, request.files)))
    while True:
        event_id = context.ids.next()
        own_key = bundle_key(event_id)
        bundle = Bundle(
            bundle_id=format_bundle_id(own_key),
            title=request.title,
            description=request.description,
            files=files,
            events=request.events,
            transcripts=request.transcripts,
            extends=extends,
        )
        draft = Draft(
            type=BUNDLE,
            sender=caller.name,
            payload=payload_of_bundle(bundle),
            id=event_id,
            ts=context.clock.now_ms(),
            by=caller.by,
        )

        # The defaults bind the values of this round: the engine may call the decision later.
        def decide(rows: Rows, draft: Draft = draft, own_key: str = own_key) -> Draft | None:
            return draft if read_bundle(rows, own_key) is None else None

        # On the short id, so that two bundles that are made at once never get the same one.
        commit = await context.log.commit(f"{BUNDLE}/{own_key}", decide, request_key=key)
        if commit.event is not None:
            return Written(event=commit.event)
        # Another bundle has the same eight characters: try the next id.


async def find_bundle(log: Log, reference: str) -> Event:
    """Return the event that created a bundle. Raises `NotFound`."""
    key = parse_bundle_id(reference)
    row = read_bundle(log.rows, key)
    # Not `log.event`: a bundle can have megabytes, and an error must tell a lost archive from an unknown
    # bundle.
    event = None if row is None else await log.fetch(row.seq)
    if event is None:
        raise _no_bundle(key)
    return event


def attached_bundle(log: Log, reference: str) -> str:
    """Return the full id of a bundle that a request refers to; empty for an empty reference.

    Raises `NotFound`. Its content is not read: it can be several megabytes.
    """
    if not reference:
        return ""
    key = parse_bundle_id(reference)
    if read_bundle(log.rows, key) is None:
        raise _no_bundle(key)
    return format_bundle_id(key)


def _no_bundle(key: str) -> NotFound:
    return NotFound(format_bundle_id(key), "'pal bundle list' shows the bundles")


def _check_words(request: CreateBundle) -> None:
    if not request.title.strip():
        raise BadRequest("a bundle needs a title")
    check_text(request.title, "the title", LIMIT_TITLE_BYTES)
    if "\n" in request.title or "\r" in request.title:
        raise BadRequest("the title must be one line; put the rest into the description")
    check_text(request.description, "the description")


def _check_files(files: Sequence[BundleFile]) -> int:
    """Check the files and return their total size in bytes."""
    if len(files) > LIMIT_FILES:
        raise BadRequest(f"a bundle has at most {LIMIT_FILES} files; this one has {len(files)}")
    if len({file.path for file in files}) < len(files):
        raise BadRequest("a bundle cannot contain the same path twice")
    for file in files:
        check_text(file.path, "the path of a file", LIMIT_FILE_PATH_BYTES)
        if not file.path:
            raise BadRequest("a file in a bundle needs a path")
        if len(file.content) > LIMIT_FILE_BYTES:
            raise MessageTooLarge(file.path, len(file.content), LIMIT_FILE_BYTES)
    return sum(len(file.content) for file in files)


def _check_events(ranges: Sequence[tuple[int, int]], last: int) -> None:
    for start, end in ranges:
        if not 1 <= start <= end:
            raise BadRequest(
                f"{format_range(start, end)} is not a range of events; write A-B, counted from 1"
            )
        if end > last:
            raise NotFound(f"event {end}", f"the last event is #{last}")
    count = sum(end - start + 1 for start, end in ranges)
    if count > LIMIT_EVENTS:
        raise BadRequest(f"a bundle refers to at most {LIMIT_EVENTS} events; these ranges have {count}")


def _check_transcripts(excerpts: Sequence[Excerpt]) -> int:
    """Check the excerpts and return their total size in bytes."""
    for excerpt in excerpts:
        check_text(excerpt.agent, "the agent of a transcript")
        if excerpt.level not in list(Detail):
            raise BadRequest(
                f"the level of a transcript must be {' or '.join(Detail)}, not {excerpt.level!r}"
            )
        if not 1 <= excerpt.first <= excerpt.last:
            raise BadRequest(
                f"{format_range(excerpt.first, excerpt.last)} is not a range of entries; "
                "write A-B, counted from 1"
            )
        needed = excerpt.last - excerpt.first + 1
        if len(excerpt.entries) != needed:
            raise BadRequest(
                f"the range {format_range(excerpt.first, excerpt.last)} of a transcript needs "
                f"{counted(needed, 'entry', 'entries')}, not {len(excerpt.entries)}"
            )
    return sum(len(msgspec.json.encode(excerpt.entries)) for excerpt in excerpts)
