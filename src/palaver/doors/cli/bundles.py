"""The commands that create and read bundles, and the bundle options of `pal send`."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from palaver.broker.context import Sent, Written
from palaver.broker.messages import check_breadth
from palaver.doors.cli.call import Call
from palaver.doors.cli.events import event_text
from palaver.doors.cli.spec import Command, Option, Positional
from palaver.doors.cli.threads import session_of_agent
from palaver.errors import BadRequest, MessageTooLarge, NotFound, NotPerson, UsageError
from palaver.harness.hooks import as_list
from palaver.harness.registry import EXCERPT_VERB, EXCERPTS, ExcerptOrder, order_to_word
from palaver.protocol.agents import Agent
from palaver.protocol.bundles import (
    LIMIT_BUNDLE_BYTES,
    LIMIT_FILE_BYTES,
    BundleFile,
    CreateBundle,
    Located,
    bundle_of,
    bundle_summary,
    file_content,
    locate_file,
    path_in_bundle,
)
from palaver.protocol.display import Column, Paint, ago, lay_out
from palaver.protocol.envelope import Event, encode_event
from palaver.protocol.events import Bundle, KeptFile
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import Send
from palaver.protocol.text import counted
from palaver.protocol.transcript import (
    LIMIT_TRANSCRIPT_BYTES,
    Excerpt,
    JsonLines,
    Stretch,
    format_range,
    parse_range,
    parse_stretch,
    take_excerpt,
)
from palaver.state.references import BundleRow, read_newest_bundles, read_parents

# --------------------
# Rows of the commands that create and read bundles, and the bundle options of `pal send`.

DEFAULT_BUNDLES: Final = 20
"""How many bundles `pal bundle list` shows."""

_GROUP: Final = "Bundles"

_BUNDLE_ID: Final = Positional(
    name="ID",
    help="Bundle id, such as bundle:a1b2c3d4 or a1b2c3d4.",
    completes="bundles",
)

CONTENT_OPTIONS: Final = (
    Option(name="--description", metavar="TEXT", help="The purpose of the bundle."),
    Option(
        name="--files",
        metavar="FILE,..",
        help="Store these files (A,B). May be repeated.",
        many=True,
        completes="files",
    ),
    Option(
        name="--events",
        metavar="A-B",
        help="Events of the log: 100-120 or 100. May be repeated.",
        many=True,
    ),
    Option(
        name="--transcript",
        metavar="PART",
        help="Transcript: '[NAME:]A-B[:LEVEL]'. May be repeated.",
        many=True,
    ),
    Option(
        name="--transcript-file",
        metavar="FILE",
        help="Read the transcript from this file of JSON lines.",
        completes="files",
    ),
    Option(name="--extends", metavar="ID", help="Extend this bundle.", completes="bundles"),
    Option(
        name="--root",
        metavar="DIR",
        help="Also allow this folder. For a person. May be repeated.",
        many=True,
        completes="directories",
    ),
)
"""The contents of a bundle."""

SEND_OPTIONS: Final = (
    Option(name="--bundle", metavar="ID", help="Attach this bundle.", completes="bundles"),
    Option(
        name="--title",
        metavar="TITLE",
        help="Create a bundle with this title, and attach it.",
    ),
    *CONTENT_OPTIONS,
)
"""The options by which `pal send` attaches or creates a bundle."""

BUNDLE_COMMANDS: Final = (
    Command(
        path=("bundle",),
        group=_GROUP,
        summary="Share files, events and transcripts as one bundle.",
        description="A bundle is stored with its contents. Attach it to a message with 'pal send --bundle'.",
        is_group=True,
        examples=(("pal bundle list", "list recent bundles"),),
        see=(("bundles", "bundles.md"),),
    ),
    Command(
        path=("bundle", "create"),
        group=_GROUP,
        summary="Create a bundle.",
        description=(
            "The contents are stored as they are now and never change. Prints the id of the bundle, for "
            "'pal bundle show' and 'pal send --bundle'. A file has at most 1 MiB, a bundle 4 MiB and 200 "
            "files. If a limit is exceeded, or a file is outside the allowed folders, nothing is stored."
        ),
        notes=(
            (
                "Files are in the working directory or below; a person can also name others by their "
                "absolute path, or allow a folder with --root."
            ),
            (
                "In --transcript, NAME is an agent (default: you), and LEVEL is normal (text), detailed "
                "(also tools) or full (default: normal)."
            ),
        ),
        positionals=(Positional(name="TITLE", help="The title, in one line."),),
        options=CONTENT_OPTIONS,
        examples=(
            ('pal bundle create "Review PR-123" --files app.tsx,app.css', "store two files"),
            ('pal bundle create "How it broke" --events 100-120', "refer to events"),
            ('pal bundle create "Second round" --extends bundle:7f3q9x2m', "extend another bundle"),
        ),
        see=(("limits", "bundles.md#limits"),),
    ),
    Command(
        path=("bundle", "show"),
        group=_GROUP,
        summary="Show the contents of a bundle.",
        description=(
            "Shows its description, each file with its size and SHA-256, events and transcripts, and the "
            "bundles that it extends."
        ),
        positionals=(_BUNDLE_ID,),
        options=(Option(name="--full", help="Also print the contents of files, events and transcripts."),),
        examples=(
            ("pal bundle show bundle:7f3q9x2m", "list its contents"),
            ("pal bundle show 7f3q9x2m --full", "with full contents"),
        ),
        json="one object; with --full the events follow, one per line.",
    ),
    Command(
        path=("bundle", "list"),
        group=_GROUP,
        summary="List the latest bundles.",
        description="Shows the newest last.",
        options=(
            Option(name="--limit", metavar="N", help=f"At most N bundles (default: {DEFAULT_BUNDLES})."),
        ),
        examples=(("pal bundle list", "list recent bundles"),),
    ),
    Command(
        path=("bundle", "cat"),
        group=_GROUP,
        summary="Print the files of a bundle.",
        description=(
            "Prints the files as they were when the bundle was created. Without a path: all files, first "
            "those of the bundles that it extends, each after a line with its bundle, path, size and hash. "
            "With a path: only that file, byte for byte, from the nearest bundle that has it."
        ),
        positionals=(
            _BUNDLE_ID,
            Positional(
                name="PATH",
                help="A file of 'pal bundle show' (default: all files).",
                optional=True,
            ),
        ),
        examples=(
            ("pal bundle cat 7f3q9x2m", "print all files"),
            ("pal bundle cat 7f3q9x2m src/app.tsx", "print one file, byte for byte"),
        ),
    ),
)


# --------------------
# Functions of `pal bundle`, and the bundle that `pal send --title` creates.
#
# The client reads all files with its own rights. Nothing here opens a path.


async def create(call: Call) -> int:
    """Create a bundle from the options."""
    if let_client_take(call):
        return 0
    event = await _make(call, call.parsed.positionals[0], call.asked.key)
    if call.is_json:
        bundle = bundle_of(event)
        parents = read_parents(call.services.queries.rows, bundle.extends)
        await call.say_json(bundle_view(event, bundle, parents, is_full=False))
    else:
        await call.say(call.safe(f"created {bundle_summary(event)}"))
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
            raise UsageError(f"{given[0]} creates a bundle, which requires --title TITLE")
        return request
    if request.is_dry_run or _is_sent(call, request):
        return request
    # First without effect: an event cannot be taken back, so a refused message would leave a bundle.
    check = msgspec.structs.replace(request, is_dry_run=True)
    # A dry run stores nothing, so the key of the command is still unused for the message.
    sent = await call.submit(check)
    assert isinstance(sent, Sent)
    check_breadth(call.caller, request, sent)  # A dry run does not check this.
    made = await _make(call, title, _bundle_request_key(call, request))
    return msgspec.structs.replace(request, bundle_id=bundle_of(made).bundle_id)


def _is_sent(call: Call, request: Send) -> bool:
    """Return whether the caller already sent a message with this id: that message keeps its bundle."""
    found = call.services.queries.with_id(request.id) if request.id else []
    return any((one.id, one.sender) == (request.id, call.caller.name) for one in found)


def _bundle_request_key(call: Call, request: Send) -> bytes:
    """Return the request key of the bundle.

    It is the same in every repeat, so the bundle is created once even if its message was not stored.
    """
    own = f"{call.caller.name} {request.id}".encode() if request.id else call.asked.key
    return hashlib.sha256(own + b"bundle").digest()[: len(call.asked.key)]


async def show(call: Call) -> int:
    """Show the parts of a bundle; with --full also their content."""
    queries, is_full = call.services.queries, call.parsed.has("--full")
    event = await queries.bundle(call.parsed.positionals[0])
    bundle = bundle_of(event)
    parents = read_parents(queries.rows, bundle.extends)
    if call.is_json:
        await call.say_json(bundle_view(event, bundle, parents, is_full=is_full))
        if is_full:
            async for found in _events(call, bundle):
                await call.write(encode_event(found) + b"\n")
        return 0
    await call.say_lines(head_lines(call, event, bundle, parents))
    # In a thread: a bundle may have megabytes, and escaping them would block the event loop.
    for lines in await asyncio.to_thread(list, content_lines(call, bundle)) if is_full else ():
        await call.say_lines(["", *lines])
    async for found in _events(call, bundle):
        await call.say(event_text(call, found, is_full=is_full))
    return 0


async def list_bundles(call: Call) -> int:
    """Show the newest bundles, newest last."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_BUNDLES
    found = read_newest_bundles(call.services.queries.rows, limit)
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
    now = call.now_ms()
    rows = [
        [bundle_id, row.by, ago(now - row.ts), str(row.files or ""), row.title] for bundle_id, row in found
    ]
    await call.say_table(columns, rows)
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


# Parts of `pal bundle create` and of `pal send --title`.


async def _make(call: Call, title: str, key: bytes) -> Event:
    parsed = call.parsed
    request = CreateBundle(
        title=title,
        description=parsed.value("--description") or "",
        events=tuple(map(parse_range, _divided(parsed.values("--events")))),
        transcripts=await _take_transcripts(call),
        files=await _read_files(call),
        extends=parsed.reference("--extends"),
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
    # A file that is named twice is read and stored once.
    for path, real in {found.path: found.real for found in named}.items():
        # The path with its links resolved, as it was checked: a link that changes meanwhile has no effect.
        content = await call.connection.read_file(real, LIMIT_FILE_BYTES)
        # Checked after each file, so that the daemon never holds much more than one bundle may have.
        size_bytes += len(content)
        if size_bytes > LIMIT_BUNDLE_BYTES:
            raise MessageTooLarge("the bundle", size_bytes, LIMIT_BUNDLE_BYTES)
        files.append(BundleFile(path=path, content=content))
    return tuple(files)


async def _take_transcripts(call: Call) -> tuple[Excerpt, ...]:
    given, file = call.parsed.values("--transcript"), call.parsed.value("--transcript-file")
    if file is not None and not given:
        raise UsageError("--transcript-file requires --transcript A-B")
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
    is_human = call.caller.is_person or call.caller.by == HUMAN
    roots = call.parsed.values("--root")
    if roots and not is_human:
        raise NotPerson("only a person can allow more directories with --root")
    # Resolving links reads names only; it opens no file.
    return locate_file(given, cwd=call.asked.cwd, roots=roots, is_human=is_human, real=os.path.realpath)


def _divided(values: Iterable[str]) -> list[str]:
    # A comma always separates, so a file with a comma in its name cannot be added.
    return [part for value in values for part in value.split(",") if part]


# Parts of the commands that read a bundle.


def _with_parents(call: Call, bundle: Bundle) -> Iterator[str]:
    """Yield the ids of a bundle and of the bundles it extends, nearest first."""
    yield bundle.bundle_id
    for bundle_id, _ in read_parents(call.services.queries.rows, bundle.extends):
        yield bundle_id


async def _bundle(call: Call, reference: str) -> Bundle:
    return bundle_of(await call.services.queries.bundle(reference))


async def _find_file(call: Call, bundle: Bundle, given: str) -> tuple[str, KeptFile]:
    """Return the nearest file with this path, and the id of its bundle."""
    # As a bundle stores it, or as a path here: the reader may be in the folder in which it was made.
    wanted = (given, path_in_bundle(given, call.asked.cwd))
    for bundle_id in _with_parents(call, bundle):
        for file in (await _bundle(call, bundle_id)).files:
            if file.path in wanted:
                return bundle_id, file
    raise NotFound(f"file {given} in {bundle.bundle_id}", f"'pal bundle show {bundle.bundle_id}' lists them")


async def _events(call: Call, bundle: Bundle) -> AsyncIterator[Event]:
    """Yield the events that a bundle refers to, one at a time: each may be large."""
    for first, last in bundle.events:
        for seq in range(first, last + 1):
            if (event := await call.services.queries.fetch(seq)) is not None:
                yield event


# --------------------
# Excerpts of transcripts for a bundle: the client reads them, and repeats its request with them.
#
# The reply to the first request says which sessions to read. The client reads the transcripts with its own
# rights and makes the same request again, with a file of the excerpts. The daemon opens no file.

_LIMIT_BYTES: Final = 2 * LIMIT_BUNDLE_BYTES
"""Limit of that file. It is above the limit of a bundle, so that the check of the bundle reports the size."""


def let_client_take(call: Call) -> bool:
    """Let the client read the excerpts that `--transcript` names; return False if there is nothing to read.

    After True the command is done: the client repeats it.
    """
    given = call.parsed.values("--transcript")
    # With the variable, the client has read the excerpts already and repeats the command.
    if not given or call.parsed.has("--transcript-file") or EXCERPTS in call.asked.environment:
        return False
    wanted = tuple(
        (session_of_agent(call, _agent(call, stretch)), stretch) for stretch in map(parse_stretch, given)
    )
    order = ExcerptOrder(wanted=wanted, is_json=call.is_json)
    call.connection.run_here(EXCERPT_VERB, order_to_word(order), *call.asked.argv)
    return True


async def read_excerpts(call: Call) -> tuple[Excerpt, ...]:
    """Let the client send its excerpts; raise `BadRequest` if they do not match the options."""
    content = await call.connection.read_file(call.asked.environment.get(EXCERPTS, ""), _LIMIT_BYTES)
    try:
        found = msgspec.json.decode(content, type=tuple[Excerpt, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # The comparison below refuses it.
        found = ()
    # The file comes from the client, which may have made it for other options, or for another agent.
    wanted = [
        (_agent(call, stretch).name, stretch.first, stretch.last, stretch.level.value)
        for stretch in map(parse_stretch, call.parsed.values("--transcript"))
    ]
    if [(one.agent, one.first, one.last, one.level) for one in found] != wanted:
        raise BadRequest(f"the file in ${EXCERPTS} lacks the entries of --transcript; unset {EXCERPTS}")
    return found


def _agent(call: Call, stretch: Stretch) -> Agent:
    if stretch.agent:
        return call.agent(stretch.agent)
    own = call.services.broker.directory.get(call.caller.name)
    if own is None:
        raise NotFound(
            f"transcript of {call.caller.name}",
            "name the agent with NAME:A-B, or a file of JSON lines with --transcript-file",
        )
    return own


# --------------------
# Rendering: bundles for programs and for people. Writes nothing.


def bundle_view(
    event: Event, bundle: Bundle, parents: Sequence[tuple[str, BundleRow]], *, is_full: bool
) -> dict[str, object]:
    """Return a bundle for JSON output; with the content of its parts only if `is_full`."""
    return {
        "bundle_id": bundle.bundle_id,
        "seq": event.seq,
        "id": event.id,
        "ts": event.ts,
        "from": event.sender,
        "title": bundle.title,
        "description": bundle.description,
        "files": bundle.files if is_full else [_without(file, "content", "base64") for file in bundle.files],
        "events": bundle.events,
        "transcripts": (
            bundle.transcripts if is_full else [_without(one, "entries") for one in bundle.transcripts]
        ),
        "extends": bundle.extends or None,
        "parents": [bundle_row_view(bundle_id, row) for bundle_id, row in parents],
    }


def _without(part: KeptFile | Excerpt, *names: str) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(part).items() if name not in names}


def bundle_row_view(bundle_id: str, row: BundleRow) -> dict[str, object]:
    return {
        "bundle_id": bundle_id,
        "seq": row.seq,
        "ts": row.ts,
        "from": row.by,
        "title": row.title,
        "files": row.files,
        "extends": row.extends or None,
    }


def file_view(bundle_id: str, file: KeptFile) -> dict[str, object]:
    """Return a file with its content for JSON output, and the id of its bundle."""
    return {"bundle_id": bundle_id, **msgspec.to_builtins(file)}


def headed_content(bundle_id: str, file: KeptFile, paint: Paint) -> bytes:
    """Return a file's exact bytes below a heading, and a line end if the bytes have no final one."""
    head = paint.safe(f"==> {bundle_id} {file.path} ({file.size} bytes, sha256 {file.sha256}) <==")
    content = file_content(file)
    end = b"" if content.endswith(b"\n") or not content else b"\n"
    return head.encode("utf-8", "backslashreplace") + b"\n" + content + end


def head_lines(
    call: Call, event: Event, bundle: Bundle, parents: Sequence[tuple[str, BundleRow]]
) -> list[str]:
    """Return the heading of a bundle, and one line for each of its parts."""
    lines = [
        call.paint.bold(call.safe(f"{bundle.bundle_id} {bundle.title}")),
        call.safe(f"from {event.sender}, {call.clock_time(event.ts)}, #{event.seq}, {event.id}"),
    ]
    lines += [call.safe(f"extends {bundle_id} {row.title} (from {row.by})") for bundle_id, row in parents]
    if bundle.description:
        lines += ["", _body(call, bundle.description)]
    if bundle.files:
        rows = [[file.path, counted(file.size, "byte"), file.sha256] for file in bundle.files]
        columns = [
            Column(title="FILE", least=12),
            Column(title="SIZE", is_right=True),
            Column(title="SHA-256"),
        ]
        # Do not shorten for a narrow terminal: a part of a hash proves nothing.
        lines += ["", *lay_out(columns, rows, width=None, paint=call.paint)]
    parts = [
        f"transcript of {one.agent}, {format_range(one.first, one.last)}, {one.level}"
        for one in bundle.transcripts
    ]
    parts += [f"events {format_range(*one)}" for one in bundle.events]
    return [*lines, "", *map(call.safe, parts)] if parts else lines


def content_lines(call: Call, bundle: Bundle) -> Iterator[list[str]]:
    """Yield each file and transcript below a heading."""
    for file in bundle.files:
        text = "(no text)" if file.content is None else _body(call, file.content)
        yield [call.paint.bold(call.safe(f"==> {file.path} <==")), text.removesuffix("\n")]
    for excerpt in bundle.transcripts:
        yield [
            call.paint.bold(call.safe(f"==> transcript of {excerpt.agent} <==")),
            *(_body(call, line) for entry in excerpt.entries for line in _entry_lines(entry)),
        ]


def _entry_lines(entry: dict[str, object]) -> Iterator[str]:
    yield f"[{entry.get('number')}] {entry.get('role')}: {entry.get('text')}"
    # The client wrote the entries, and the broker checks only their number and size: any field may be odd.
    for tool in as_list(entry.get("tools")):
        yield f"    {tool.get('name')} {tool.get('input')}".rstrip()
        if tool.get("output"):
            yield f"    {'✗' if tool.get('is_error') else '→'} {tool['output']}".rstrip()


def _body(call: Call, text: str) -> str:
    return call.safe(text, keep_lines=True)
