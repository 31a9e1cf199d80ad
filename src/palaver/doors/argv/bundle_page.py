"""Format bundles for programs and for people. Writes nothing."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from palaver.doors.argv.call import Call
from palaver.doors.argv.style import Column, Paint, lay_out, truncate
from palaver.log.fold_bundles import BundleRow
from palaver.model.bundle import Bundle, KeptFile, file_content
from palaver.model.envelope import Event
from palaver.model.message import readable_text
from palaver.model.transcript import Excerpt, format_range

_SHORT_LINE: Final = 200
"""Columns of an event in a summary that is not for a terminal."""


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
        rows = [[file.path, f"{file.size} bytes", file.sha256] for file in bundle.files]
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
    tools = entry.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        yield f"    {tool.get('name')} {tool.get('input')}".rstrip()
        if tool.get("output"):
            yield f"    {'✗' if tool.get('is_error') else '→'} {tool['output']}".rstrip()


def event_line(call: Call, event: Event, *, is_full: bool) -> str:
    paint = call.paint
    to = f" → {paint.names(event.to)}" if event.to else ""
    sender = f"{paint.safe(event.type)} {paint.name(event.sender)}"
    head = f"#{event.seq} {call.clock_time(event.ts)} {sender}{to}: "
    if is_full:
        return head + _body(call, readable_text(event))
    return truncate(head + paint.safe(readable_text(event)), call.width or _SHORT_LINE)


def _body(call: Call, text: str) -> str:
    return call.safe(text, keep_lines=True)
