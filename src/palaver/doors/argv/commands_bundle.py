"""`pal bundle`, and the bundle that `pal send --title` creates.

The client reads all files with its own rights. Nothing here opens a path.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from palaver.broker.bundles import find_bundle
from palaver.broker.messages import check_breadth
from palaver.broker.outcome import Sent, Written
from palaver.doors.argv.bundle_page import (
    bundle_row_view,
    bundle_view,
    content_lines,
    event_line,
    file_view,
    head_lines,
    headed_content,
)
from palaver.doors.argv.call import Call
from palaver.doors.argv.excerpts import let_client_take, read_excerpts
from palaver.doors.argv.style import Column, ago, lay_out
from palaver.doors.argv.table_bundle import CONTENT_OPTIONS, DEFAULT_BUNDLES
from palaver.errors import MessageTooLarge, NotFound, NotPerson, UsageError
from palaver.log.fold_bundles import read_newest_bundles, read_parents
from palaver.model.bundle import (
    LIMIT_BUNDLE_BYTES,
    LIMIT_FILE_BYTES,
    Bundle,
    BundleFile,
    CreateBundle,
    KeptFile,
    Located,
    bundle_from_payload,
    bundle_summary,
    file_content,
    locate_file,
    path_in_bundle,
)
from palaver.model.envelope import Event, encode_event
from palaver.model.message import HUMAN
from palaver.model.request import Send
from palaver.model.transcript import (
    LIMIT_TRANSCRIPT_BYTES,
    Excerpt,
    JsonLines,
    parse_range,
    parse_stretch,
    take_excerpt,
)


async def create(call: Call) -> int:
    """Create a bundle from the options."""
    if let_client_take(call):
        return 0
    event = await _make(call, call.parsed.positionals[0], call.asked.key)
    if call.is_json:
        bundle = bundle_from_payload(event.payload)
        parents = read_parents(call.services.log.rows, bundle.extends)
        await call.say_json(bundle_view(event, bundle, parents, is_full=False))
    else:
        await call.say(call.safe(f"made {bundle_summary(event.payload)}"))
    return 0


async def with_bundle(call: Call, request: Send) -> Send:
    """Return the request of a `pal send` command, after storing the bundle that the command describes.

    The bundle is a separate event before the message. It is not created in a dry run, or if the message
    would be refused. A repeated command creates no second bundle; nor does a repeat of a message with `--id`.
    """
    parsed = call.parsed
    title = parsed.value("--title")
    if title is None:
        if given := [option.name for option in CONTENT_OPTIONS if parsed.has(option.name)]:
            raise UsageError(f"{given[0]} makes a bundle, which needs a title: add --title TITLE")
        return request
    if request.is_dry_run or _is_sent(call, request):
        return request
    check = msgspec.structs.replace(request, is_dry_run=True)
    sent = await call.services.broker.submit(call.caller, check, key=call.asked.key)
    assert isinstance(sent, Sent)
    check_breadth(call.caller, request, sent)  # A dry run does not check this.
    made = await _make(call, title, _bundle_request_key(call, request))
    return msgspec.structs.replace(request, bundle_id=str(made.payload["bundle_id"]))


def _is_sent(call: Call, request: Send) -> bool:
    """Return whether the caller already sent a message with this id: that message keeps its bundle."""
    found = call.services.log.find(request.id) if request.id else []
    return any((one.id, one.sender) == (request.id, call.caller.name) for one in found)


def _bundle_request_key(call: Call, request: Send) -> bytes:
    """Return the request key of the bundle.

    It is the same in every repeat, so the bundle is created once even if its message was not stored.
    """
    own = f"{call.caller.name} {request.id}".encode() if request.id else call.asked.key
    return hashlib.sha256(own + b"bundle").digest()[: len(call.asked.key)]


async def show(call: Call) -> int:
    """Show the parts of a bundle; with --full also their content."""
    log, is_full = call.services.log, call.parsed.has("--full")
    event = await find_bundle(log, call.parsed.positionals[0])
    bundle = bundle_from_payload(event.payload)
    parents = read_parents(log.rows, bundle.extends)
    if call.is_json:
        await call.say_json(bundle_view(event, bundle, parents, is_full=is_full))
        if is_full:
            async for found in _events(call, bundle):
                await call.write(encode_event(found) + b"\n")
        return 0
    await call.say_lines(head_lines(call, event, bundle, parents))
    for lines in content_lines(call, bundle) if is_full else ():
        await call.say_lines(["", *lines])
    async for found in _events(call, bundle):
        await call.say(event_line(call, found, is_full=is_full))
    return 0


async def list_bundles(call: Call) -> int:
    """Show the newest bundles, newest last."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_BUNDLES
    found = read_newest_bundles(call.services.log.rows, limit)
    if call.is_json:
        for bundle_id, row in found:
            await call.say_json(bundle_row_view(bundle_id, row))
        return 0
    if not found:
        await call.say("no bundles yet")
        return 0
    columns = [
        Column(title="ID", least=15),
        Column(title="FROM", least=8),
        Column(title="AGE", is_right=True),
        Column(title="FILES", is_right=True),
        Column(title="TITLE", least=12),
    ]
    now = call.services.clock.now_ms()
    rows = [
        [bundle_id, row.by, ago(now - row.ts), str(row.files or ""), row.title] for bundle_id, row in found
    ]
    await call.say_lines(lay_out(columns, rows, width=call.width, paint=call.paint))
    return 0


async def cat(call: Call) -> int:
    """Print the files of a bundle and of the bundles it extends, oldest first; or one file, byte for byte."""
    reference, *paths = call.parsed.positionals
    bundle = await _bundle(call, reference)
    if paths:
        holder, file = await _find_file(call, bundle, paths[0])
        await (call.say_json(file_view(holder, file)) if call.is_json else call.write(file_content(file)))
        return 0
    has_files = False
    for holder in reversed(list(_with_parents(call, bundle))):
        for file in (await _bundle(call, holder)).files:
            has_files = True
            if call.is_json:
                await call.say_json(file_view(holder, file))
            else:
                await call.write(headed_content(holder, file, call.paint))
    if not has_files:
        call.warn(f"{bundle.bundle_id} has no files")
    return 0


# Creating


async def _make(call: Call, title: str, key: bytes) -> Event:
    parsed = call.parsed
    request = CreateBundle(
        title=title,
        description=parsed.value("--description") or "",
        events=tuple(map(parse_range, _divided(parsed.values("--events")))),
        transcripts=await _take_transcripts(call),
        files=await _read_files(call),
        extends=parsed.value("--extends") or "",
    )
    written = await call.services.broker.submit(call.caller, request, key=key)
    assert isinstance(written, Written)
    assert written.event is not None  # a refused bundle raises
    return written.event


async def _read_files(call: Call) -> tuple[BundleFile, ...]:
    """Let the client read the files that it may add: each file once, up to the size limit of a bundle."""
    named = [_locate(call, given) for given in _divided(call.parsed.values("--files"))]
    files: list[BundleFile] = []
    size_bytes = 0
    for path, real in {found.path: found.real for found in named}.items():
        content = await call.connection.read_file(real, LIMIT_FILE_BYTES)
        size_bytes += len(content)
        if size_bytes > LIMIT_BUNDLE_BYTES:
            raise MessageTooLarge("the bundle", size_bytes, LIMIT_BUNDLE_BYTES)
        files.append(BundleFile(path=path, content=content))
    return tuple(files)


async def _take_transcripts(call: Call) -> tuple[Excerpt, ...]:
    given, file = call.parsed.values("--transcript"), call.parsed.value("--transcript-file")
    if file is not None and not given:
        raise UsageError("--transcript-file needs the part of it that is wanted: add --transcript A-B")
    if not given:
        return ()
    if file is None:
        return await read_excerpts(call)
    wanted = [
        (stretch, call.agent(stretch.agent).name if stretch.agent else call.caller.name)
        for stretch in map(parse_stretch, given)
    ]
    content = await call.connection.read_file(_locate(call, file).real, LIMIT_TRANSCRIPT_BYTES)

    def take() -> tuple[Excerpt, ...]:
        lines = content.splitlines(keepends=True)
        return tuple(take_excerpt(JsonLines(), lines, stretch, agent) for stretch, agent in wanted)

    # A transcript may have many megabytes: parse it in a thread, so that other callers do not wait.
    return await asyncio.to_thread(take)


def _locate(call: Call, given: str) -> Located:
    # A human who acts for an agent (--as) named the file, so the human's rights apply.
    is_human = HUMAN in (call.caller.kind, call.caller.by)
    roots = call.parsed.values("--root")
    if roots and not is_human:
        raise NotPerson("only the human can allow more directories with --root")
    # Resolving links reads names only; it opens no file.
    return locate_file(given, cwd=call.asked.cwd, roots=roots, is_human=is_human, real=os.path.realpath)


def _divided(values: Iterable[str]) -> list[str]:
    return [part for value in values for part in value.split(",") if part]


# Reading


def _with_parents(call: Call, bundle: Bundle) -> Iterator[str]:
    """Yield the ids of a bundle and of the bundles it extends, nearest first."""
    yield bundle.bundle_id
    for bundle_id, _ in read_parents(call.services.log.rows, bundle.extends):
        yield bundle_id


async def _bundle(call: Call, reference: str) -> Bundle:
    return bundle_from_payload((await find_bundle(call.services.log, reference)).payload)


async def _find_file(call: Call, bundle: Bundle, given: str) -> tuple[str, KeptFile]:
    """Return the nearest file with this path, and the id of its bundle."""
    wanted = (given, path_in_bundle(given, call.asked.cwd))
    for bundle_id in _with_parents(call, bundle):
        for file in (await _bundle(call, bundle_id)).files:
            if file.path in wanted:
                return bundle_id, file
    raise NotFound(f"file {given} in {bundle.bundle_id}", f"'pal bundle show {bundle.bundle_id}' lists them")


async def _events(call: Call, bundle: Bundle) -> AsyncIterator[Event]:
    """Yield the events that a bundle refers to, one at a time: each may be large."""
    for first, last in bundle.events:
        for place in range(first, last + 1):
            if (event := await call.services.log.fetch(place)) is not None:
                yield event
