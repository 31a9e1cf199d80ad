"""An agent's own conversation: how a part of it is named, parsed and shown at three levels.

Pure: lines in, values out. Opens no file, and knows no harness: each one has its own reader.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

import msgspec

from palaver.errors import BadRequest, MessageTooLarge, NotFound

LIMIT_TRANSCRIPT_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of a transcript from which a part is taken."""
LIMIT_EXCERPT_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of a part: that of a bundle."""
LIMIT_SHORT_INPUT: Final = 200
"""Characters of a tool's input and output that `detailed` shows."""
LIMIT_DEPTH: Final = 100
"""Levels of nesting in an entry: half of the log's limit."""


class Detail(enum.StrEnum):
    """The contents of an entry at a level: role and text; the tools too; or everything."""

    NORMAL = "normal"
    FULL = "full"
    DETAILED = "detailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of an entry, with its input and, if known, its output."""

    name: str
    input: object = None
    output: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """One turn of a conversation, with the tools used in it. `whole` is everything the transcript has of it.

    Roles are `user`, `assistant` and `system`: text that a harness inserted, such as the summary after a
    compaction. `tool` is a result without its call. Plain files may have others.
    """

    role: str
    text: str
    tools: tuple[ToolCall, ...] = ()
    whole: Mapping[str, object]
    ts: int = 0
    """Its time in Unix ms; 0 if unknown."""


class TranscriptReader(Protocol):
    """Knows the format of one harness's transcript."""

    def entries(self, lines: Iterable[bytes]) -> Iterator[TranscriptEntry]:
        """Yield the entries in order, each as soon as it is known to be complete.

        Lines come with their ends. A last line without one is still being written: it is skipped if it cannot
        be read. No more is read than necessary to find the end of the requested entry. A reader of plain
        files raises `BadRequest` for an unreadable line; a reader of a harness skips it.
        """
        ...


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A requested part of a transcript. Entries count from 1; an empty agent is the caller."""

    agent: str = ""
    first: int
    last: int
    level: Detail = Detail.NORMAL


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """A part with its entries, as they were when it was taken."""

    agent: str
    first: int
    last: int
    level: str
    entries: tuple[dict[str, object], ...]


_NUMBER: Final = r"#?([0-9]{1,15})"
_RANGE: Final = re.compile(f"{_NUMBER}(?:-{_NUMBER})?")
_STRETCH: Final = re.compile(r"(?:(?P<agent>.+):)?(?P<range>#?[0-9][^:]*)(?::(?P<level>[^:]*))?", re.DOTALL)


def parse_range(text: str) -> tuple[int, int]:
    """Parse `100-120` or `100`, both ends included and counted from 1. The pair of `format_range`."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BadRequest(f"{text!r} is not a range; write 100-120, or 100 for a single one")
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    if not 1 <= first <= last:
        raise BadRequest(f"{text!r} is not a range; count from 1, and write the smaller number first")
    return first, last


def parse_span(text: str) -> tuple[int, int | None]:
    """Parse a range as `parse_range` does, or `100-`: open ended, with None as its end."""
    first = text.removesuffix("-")
    is_open = first != text and bool(first) and "-" not in first
    try:
        found = parse_range(first if is_open else text)
    except BadRequest as error:
        raise BadRequest(
            f"{text!r} is not a range; write 100-120, 100 for a single one, or 100- for all from 100 on; "
            "count "
            "from 1, and write the smaller number first"
        ) from error
    return found[0], None if is_open else found[1]


def format_range(first: int, last: int) -> str:
    """Format a range as short as possible."""
    return str(first) if first == last else f"{first}-{last}"


def parse_stretch(text: str) -> Stretch:
    """Parse `[NAME:]A-B[:LEVEL]`, the level in any case. The pair of `format_stretch`."""
    found = _STRETCH.fullmatch(text)
    if found is None:
        raise BadRequest(
            f"{text!r} is not a part of a transcript; write [NAME:]A-B[:LEVEL], such as luna:10-15:full"
        )
    first, last = parse_range(found["range"])
    return Stretch(agent=found["agent"] or "", first=first, last=last, level=_parse_level(found["level"]))


def format_stretch(stretch: Stretch) -> str:
    """Format a stretch with all its fields, always with the level."""
    whole = f"{format_range(stretch.first, stretch.last)}:{stretch.level}"
    return f"{stretch.agent}:{whole}" if stretch.agent else whole


def _parse_level(word: str | None) -> Detail:
    try:
        return Detail.NORMAL if word is None else Detail(word.lower())
    except ValueError:
        raise BadRequest(f"the level of a transcript must be {' or '.join(Detail)}, not {word!r}") from None


class JsonLines:
    """Reads plain JSON lines: an object per line, with `role`, and `text` or `content`.

    `content` is a text or a list of blocks; a block has a `text`, or is a `tool_use` with `name` and `input`.
    Tools may also be in a list `tools`. Empty lines are skipped.
    """

    def entries(self, lines: Iterable[bytes]) -> Iterator[TranscriptEntry]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                whole = _decode(line)
            except (msgspec.DecodeError, UnicodeError):
                if not line.endswith(b"\n"):
                    return  # it is still being written
                raise BadRequest(f"line {number} of the transcript is not a JSON object") from None
            except RecursionError:
                raise _too_deep(number) from None
            # Counting brackets is cheap, and few lines have enough of them to nest too deep.
            if line.count(b"{") + line.count(b"[") > LIMIT_DEPTH and is_deep(whole):
                raise _too_deep(number)
            yield _entry(whole)


def _too_deep(number: int) -> BadRequest:
    return BadRequest(f"line {number} of the transcript is nested more than {LIMIT_DEPTH} levels deep")


def is_deep(whole: object, limit: int = LIMIT_DEPTH) -> bool:
    """Return whether a value is nested deeper than an entry may be, or than another limit."""
    # Level by level instead of by recursion, which a deep value could exhaust.
    level = [whole]
    for _ in range(limit):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below
    return any(isinstance(value, (dict, list)) for value in level)


def take_excerpt(reader: TranscriptReader, lines: Iterable[bytes], stretch: Stretch, agent: str) -> Excerpt:
    """Return a part of an agent's transcript; raise `NotFound` if the transcript is too short.

    Only the requested part is kept in memory; raises `MessageTooLarge` if it is larger than a bundle.
    """
    # The check is in the loop, so that a huge part is refused before all of it is in memory.
    number, size_bytes, taken = 0, 0, []
    # `islice` ends at the last requested entry: the rest of the transcript need not be readable.
    for number, entry in enumerate(islice(reader.entries(lines), stretch.last), 1):
        if number >= stretch.first:
            taken.append(entry_at_level(entry, number, stretch.level))
            size_bytes += len(_encode(taken[-1]))
        if size_bytes > LIMIT_EXCERPT_BYTES:
            what = f"part {format_range(stretch.first, number)} of the transcript of {agent}"
            raise MessageTooLarge(what, size_bytes, LIMIT_EXCERPT_BYTES)
    if number < stretch.last:
        wanted = format_range(stretch.first, stretch.last)
        has = f"{number} entr{'y' if number == 1 else 'ies'}"
        raise NotFound(f"part {wanted} in the transcript of {agent}", f"it has {has}")
    return Excerpt(
        agent=agent,
        first=stretch.first,
        last=stretch.last,
        level=stretch.level.value,
        entries=tuple(taken),
    )


def entry_at_level(entry: TranscriptEntry, number: int, level: Detail) -> dict[str, object]:
    """Return the fields of an entry that a level shows; every level includes the one below it."""
    shown: dict[str, object] = {"number": number, "role": entry.role, "text": entry.text}
    if entry.ts:
        shown["ts"] = entry.ts
    if level is not Detail.NORMAL and entry.tools:
        shown["tools"] = [_tool_view(tool) for tool in entry.tools]
    if level is Detail.FULL:
        shown["whole"] = dict(entry.whole)
    return shown


def _tool_view(tool: ToolCall) -> dict[str, object]:
    shown: dict[str, object] = {"name": tool.name, "input": _short(tool.input)}
    if tool.output is not None:
        shown["output"] = _short(tool.output)
    if tool.is_error:
        shown["is_error"] = True
    return shown


_decode: Final = msgspec.json.Decoder(dict[str, object]).decode
_encode: Final = msgspec.json.Encoder().encode


def _short(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else _encode(value).decode()
    return text if len(text) <= LIMIT_SHORT_INPUT else text[: LIMIT_SHORT_INPUT - 1] + "…"


def _entry(whole: dict[str, object]) -> TranscriptEntry:
    content = whole.get("text", whole.get("content"))
    blocks = content if isinstance(content, list) else [content]
    used = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    listed = whole.get("tools")
    return TranscriptEntry(
        role=_word(whole.get("role")),
        text="\n".join(text for block in blocks if (text := _text(block))),
        tools=tuple(map(_tool, used + (listed if isinstance(listed, list) else []))),
        whole=whole,
    )


def _text(block: object) -> str:
    return _word(block.get("text") if isinstance(block, dict) else block)


def _tool(block: object) -> ToolCall:
    if not isinstance(block, dict):
        return ToolCall(name=_word(block))
    return ToolCall(name=_word(block.get("name")), input=block.get("input"))


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
