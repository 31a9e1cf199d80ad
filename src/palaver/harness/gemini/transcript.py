"""Read the transcript of Gemini CLI 0.61: JSON lines, one file per session. Pure.

A message is written again, with the same id, when it grows. `$set` repeats the whole history when a session
is resumed or was compressed: messages that were read already are skipped. Older versions wrote one JSON
document with the same messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from palaver.harness.transcripts import (
    ASSISTANT,
    SYSTEM,
    USER,
    TranscriptFolder,
    items,
    joined,
    mapping,
    read_object,
    texts_in,
    time_ms,
    word,
)
from palaver.protocol.transcript import ToolCall, TranscriptEntry

LIMIT_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""Largest JSON document of an older version; a larger one is not read."""

_SETUP: Final = "<session_context>"
_COMPRESSED: Final = "The conversation was compressed."
_TAKEN_BACK: Final = "The conversation was reset to an earlier point."


class GeminiTranscript:
    """Reads the lines of one session."""

    def entries(self, lines: Iterable[bytes]) -> Iterator[TranscriptEntry]:
        session = _GeminiSession()
        for whole in _records(iter(lines)):
            yield from session.read(whole)
        yield from session.rest()


def _records(lines: Iterator[bytes]) -> Iterator[Mapping[str, object]]:
    first = next(lines, b"")
    if first.strip() == b"{":  # a document over many lines, which can be read only as a whole
        size, kept = 0, []
        for line in chain((first,), lines):
            size += len(line)
            if size > LIMIT_DOCUMENT_BYTES:
                return
            kept.append(line)
        first = b"".join(kept)
    for line in chain((first,), lines):
        if (whole := read_object(line)) is not None:
            yield whole


@dataclass(slots=True)
class _GeminiSession:
    """The state of reading one session: the ids that were read, and the last reply, which may still grow."""

    _seen: set[str] = field(default_factory=set)
    _last: str = ""
    _open: Mapping[str, object] | None = None
    _late: dict[str, ToolCall] = field(default_factory=dict)
    _behind: list[TranscriptEntry] = field(default_factory=list)

    def read(self, whole: Mapping[str, object]) -> Iterator[TranscriptEntry]:
        updated = items(mapping(whole.get("$set")).get("messages"))
        if "$rewindTo" in whole:
            yield from self.rest()
            yield TranscriptEntry(role=SYSTEM, text=_TAKEN_BACK, whole=whole)
        elif updated:
            yield from self._read_history(list(map(mapping, updated)), whole)
        elif word(whole.get("id")):
            yield from self._read_message(whole)
        else:
            for message in items(whole.get("messages")):
                yield from self._read_message(mapping(message))

    def rest(self) -> Iterator[TranscriptEntry]:
        """Yield the entries that were held back."""
        if self._open is not None:
            yield _answer(self._open, self._late)
        yield from self._behind
        self._open, self._late, self._behind = None, {}, []

    def _read_history(
        self, messages: list[Mapping[str, object]], whole: Mapping[str, object]
    ) -> Iterator[TranscriptEntry]:
        ids = [word(message.get("id")) for message in messages]
        is_new = any(one and one not in self._seen for one in ids)
        if self._last and is_new and self._last not in ids:
            yield from self.rest()
            ts = time_ms(mapping(whole.get("$set")).get("lastUpdated"))
            yield TranscriptEntry(role=SYSTEM, text=_COMPRESSED, whole={"$set": "messages"}, ts=ts)
        for message in messages:
            if word(message.get("id")) not in self._seen:
                yield from self._read_message(message)

    def _read_message(self, message: Mapping[str, object]) -> Iterator[TranscriptEntry]:
        key, kind = word(message.get("id")), message.get("type")
        is_update = self._open is not None and key == word(self._open.get("id"))
        if is_update and kind == "gemini":
            self._open = message
            return
        if not key or key in self._seen:
            return
        self._seen.add(key)
        self._last = key
        text, ts = texts_in(message.get("content")), time_ms(message.get("timestamp"))
        if kind == "gemini":
            yield from self.rest()
            self._open = message
        elif kind == USER:
            answers = _answers(message.get("content"))
            self._late |= answers
            if text and not text.startswith(_SETUP):
                yield from self.rest()
                yield TranscriptEntry(role=USER, text=text, whole=message, ts=ts)
        elif text:
            entry = TranscriptEntry(role=SYSTEM, text=text, whole=message, ts=ts)
            if self._open is None:
                yield entry
            else:
                self._behind.append(entry)


def _answer(message: Mapping[str, object], late: Mapping[str, ToolCall]) -> TranscriptEntry:
    calls = [_call(mapping(call)) for call in items(message.get("toolCalls"))]
    if not calls:
        parts = (mapping(mapping(part).get("functionCall")) for part in items(message.get("content")))
        calls = [_call(part) for part in parts if part]
    tools = [
        replace(tool, output=late[key].output, is_error=late[key].is_error)
        if tool.output is None and key in late
        else tool
        for key, tool in calls
    ]
    return TranscriptEntry(
        role=ASSISTANT,
        text=texts_in(message.get("content")),
        tools=tuple(tools),
        whole=message,
        ts=time_ms(message.get("timestamp")),
    )


def _call(call: Mapping[str, object]) -> tuple[str, ToolCall]:
    found = _answers(call.get("result"))
    output = joined(tool.output or "" for tool in found.values()) if found else None
    if output is None and isinstance(call.get("resultDisplay"), str):
        output = word(call.get("resultDisplay"))
    tool = ToolCall(
        name=word(call.get("name")),
        input=call.get("args"),
        output=output,
        is_error=call.get("status") in ("error", "cancelled"),
    )
    return word(call.get("id")), tool


def _answers(content: object) -> dict[str, ToolCall]:
    """Return the results of calls by call id."""
    found = {}
    for part in items(content):
        answer = mapping(mapping(part).get("functionResponse"))
        if answer:
            given = mapping(answer.get("response"))
            is_error = "error" in given and "output" not in given
            text = word(given.get("error" if is_error else "output"))
            found[word(answer.get("id"))] = ToolCall(
                name=word(answer.get("name")), output=text, is_error=is_error
            )
    return found


def gemini_folders(session: str, environment: Mapping[str, str]) -> tuple[TranscriptFolder, ...]:
    """Return where a session may be; the file names contain the start of its id."""
    homes = dict.fromkeys(filter(None, (environment.get("GEMINI_CLI_HOME"), environment.get("HOME"))))
    return tuple(
        TranscriptFolder(f"{home}/.gemini/tmp", f"*/chats/session-*-{session[:8]}.{ending}")
        for home in homes
        for ending in ("jsonl", "json")
    )
