"""Entries of a transcript as a person reads them: role, time, text, and below it the tools. Pure."""

import json
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Final

from palaver.doors.argv.style import Paint
from palaver.model.transcript import LIMIT_SHORT_INPUT, Entry, Level, ToolCall

_INDENT: Final = "    "


def entry_text(entry: Entry, number: int, level: Level, *, paint: Paint, zone: tzinfo | None) -> str:
    """Return one entry as lines, followed by an empty line."""
    when = f"  {_clock(entry.ts, zone)}" if entry.ts else ""
    lines = [_head(f"[{number}] {entry.role}", entry.role, paint) + paint.dim(when)]
    if entry.text:
        lines.append(paint.safe(entry.text.rstrip("\n"), keep_lines=True))
    if level is not Level.NORMAL:
        for tool in entry.tools:
            lines += map(paint.safe, _tool_lines(tool, is_full=level is Level.FULL))
    return "\n".join(lines) + "\n\n"


def _clock(ts: int, zone: tzinfo | None) -> str:
    try:
        return datetime.fromtimestamp(ts / 1000, zone).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def _head(text: str, role: str, paint: Paint) -> str:
    colour = {"user": paint.green, "assistant": paint.cyan}.get(role, paint.dim)
    return colour(paint.safe(text))


def _tool_lines(tool: ToolCall, *, is_full: bool) -> Iterator[str]:
    given = tool.input if isinstance(tool.input, str) else json.dumps(tool.input, ensure_ascii=False)
    given = "" if tool.input is None else given
    yield from _below(f"{_INDENT}{tool.name or 'answer'} ", given, is_full=is_full)
    if tool.output is not None:
        sign = "✗" if tool.is_error else "→"
        yield from _below(f"{_INDENT}{sign} ", tool.output.rstrip("\n"), is_full=is_full)


def _below(head: str, text: str, *, is_full: bool) -> Iterator[str]:
    """Yield a text after a head, with its other lines below; unless in full, as one shortened line."""
    if not is_full:
        short = " ".join(text.split())
        cut = short if len(short) <= LIMIT_SHORT_INPUT else short[: LIMIT_SHORT_INPUT - 1] + "…"
        yield (head + cut).rstrip()
        return
    first, *further = text.split("\n")
    yield (head + first).rstrip()
    for line in further:
        yield f"{_INDENT}  {line}".rstrip()
