"""Shared parts of the transcript readers: lines of any content, and calls with later results. Pure.

Nothing here raises because of a file's content: unreadable content counts as empty.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from palaver.protocol.transcript import LIMIT_DEPTH, ToolCall, TranscriptEntry, is_deep


class TranscriptFolder(NamedTuple):
    """Where transcripts may be: files below a folder whose names match a shell pattern."""

    folder: str
    pattern: str

    def __str__(self) -> str:
        return f"{self.folder}/{self.pattern}"


USER: Final = "user"
ASSISTANT: Final = "assistant"
SYSTEM: Final = "system"
TOOL: Final = "tool"

_LIMIT_HELD_BACK: Final = 64
"""Entries that may wait for the result of an earlier call. With more, the call counts as having no result."""

_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


def read_object(line: bytes) -> dict[str, object] | None:
    """Read one line as a JSON object; None if it is not one, is half written or is nested too deep.

    Harnesses cut texts anywhere: half a character, or half a surrogate pair, is replaced.
    """
    try:
        found: object = _decode(line)
    # The fast decoder refuses half characters; the standard parser, which accepts them, is much slower and
    # runs only for such lines.
    except (msgspec.DecodeError, UnicodeError):
        found = _mended(line)
    except RecursionError:
        return None
    # Counting brackets first is cheap: few lines have enough of them to nest too deep.
    if line.count(b"{") + line.count(b"[") > LIMIT_DEPTH and is_deep(found):
        return None
    return found if isinstance(found, dict) else None


def _mended(line: bytes) -> object:
    # The last line of a running session is often half written: it is refused before the slow parser reads
    # it.
    if not line.lstrip().startswith(b"{") or not line.rstrip().endswith(b"}"):
        return None
    try:
        found: object = json.loads(line.decode("utf-8", "replace"))
        return None if is_deep(found) else _without_halves(found)
    except (ValueError, RecursionError):
        return None


def _without_halves(value: object) -> object:
    """Return a value that can be encoded again: without half characters and non-finite numbers.

    The standard parser accepts both, but JSON in UTF-8 can express neither.
    """
    if isinstance(value, str):
        # In UTF-16 two surrogates that belong together become one character, and only a single one is
        # replaced.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_without_halves(one) for one in value]
    if isinstance(value, dict):
        return {str(_without_halves(key)): _without_halves(one) for key, one in value.items()}
    return value


def mapping(value: object) -> Mapping[str, object]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return a JSON list; an empty one for any other value."""
    return value if isinstance(value, list) else []


def word(value: object) -> str:
    """Return a string; an empty one for any other value."""
    return value if isinstance(value, str) else ""


def joined(texts: Iterable[str]) -> str:
    """Join the parts of a text with line breaks, without the blank ones."""
    return "\n".join(text for text in texts if text.strip())


def texts_in(content: object) -> str:
    """Return the text of a string, or of a list of strings and of parts with a `text`."""
    if isinstance(content, str):
        return content
    return joined(word(part) or word(mapping(part).get("text")) for part in items(content))


def time_ms(value: object) -> int:
    """Read a time in ms: a text such as `2026-11-15T11:44:26.054Z`, or Unix ms; 0 for anything else."""
    if isinstance(value, str):
        try:
            return max(0, int(datetime.fromisoformat(value).timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            return 0
    # JSON `true` is an integer in Python.
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if isinstance(value, int) and is_number and 0 < value < 1 << 53 else 0


@dataclass(slots=True)
class _Turn:
    """An assistant's turn that may still grow."""

    key: str
    ts: int
    texts: list[str] = field(default_factory=list)
    tools: list[ToolCall] = field(default_factory=list)
    tool_indexes: dict[str, int] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    wholes: list[Mapping[str, object]] = field(default_factory=list)

    def entry(self) -> TranscriptEntry:
        whole = self.wholes[0] if len(self.wholes) == 1 else {"lines": self.wholes}
        return TranscriptEntry(
            role=ASSISTANT, text=joined(self.texts), tools=tuple(self.tools), whole=whole, ts=self.ts
        )


class Gathering:
    """Combines lines into entries: an assistant's turn, its calls and their results.

    One turn at a time is held back, until the next one begins or another role speaks. System texts that
    arrive while a call has no result yet come after that turn. A result whose call is unknown, or was already
    returned, is an entry by itself.
    """

    def __init__(self) -> None:
        self._turn: _Turn | None = None
        self._held_back: list[TranscriptEntry] = []

    def assistant(
        self, key: str, text: str, calls: Iterable[tuple[str, ToolCall]], whole: Mapping[str, object], ts: int
    ) -> Iterator[TranscriptEntry]:
        """Add to the assistant's turn with this key, or begin it. Each call comes with its id."""
        if self._turn is None or self._turn.key != key:
            yield from self.rest()
            self._turn = _Turn(key=key, ts=ts)
        turn = self._turn
        turn.texts.append(text)
        turn.wholes.append(whole)
        for call_id, tool in calls:
            turn.tool_indexes[call_id] = len(turn.tools)
            turn.tools.append(tool)
            turn.unanswered.add(call_id)

    def answered(
        self, call_id: str, output: str, *, is_error: bool, whole: Mapping[str, object], ts: int
    ) -> Iterator[TranscriptEntry]:
        """Add the result of a call."""
        turn = self._turn
        if turn is not None and call_id in turn.tool_indexes:
            index = turn.tool_indexes[call_id]
            turn.tools[index] = replace(turn.tools[index], output=output, is_error=is_error)
            turn.unanswered.discard(call_id)
            turn.wholes.append(whole)
            return
        yield from self.rest()
        tool = ToolCall(name="", output=output, is_error=is_error)
        yield TranscriptEntry(role=TOOL, text="", tools=(tool,), whole=whole, ts=ts)

    def add_text(
        self, role: str, text: str, whole: Mapping[str, object], ts: int
    ) -> Iterator[TranscriptEntry]:
        """Add a text of the user or of the system."""
        entry = TranscriptEntry(role=role, text=text, whole=whole, ts=ts)
        is_waiting = (
            self._turn is not None and self._turn.unanswered and len(self._held_back) < _LIMIT_HELD_BACK
        )
        # Harnesses write the text of a hook between a call and its result. If it ended the turn, the result
        # would become an entry without its call.
        if role == SYSTEM and is_waiting:
            self._held_back.append(entry)
            return
        yield from self.rest()
        yield entry

    def rest(self) -> Iterator[TranscriptEntry]:
        """Yield the entries that were held back."""
        if self._turn is not None:
            yield self._turn.entry()
        yield from self._held_back
        self._turn, self._held_back = None, []
