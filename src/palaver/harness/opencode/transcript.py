"""Read the transcript of OpenCode 1.18: messages and their parts from a database. Pure.

A line is one message as OpenCode itself exports it: `{"info": {...}, "parts": [...]}`. The code that reads
the database writes these lines.
"""

from collections.abc import Iterable, Iterator, Mapping
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
    time_ms,
    word,
)
from palaver.protocol.transcript import ToolCall, TranscriptEntry

_COMPACTED: Final = "The conversation was compacted."


class OpencodeTranscript:
    """Reads the messages of one session."""

    def entries(self, lines: Iterable[bytes]) -> Iterator[TranscriptEntry]:
        for line in lines:
            if (whole := read_object(line)) is not None and (entry := _entry(whole)) is not None:
                yield entry


def _entry(whole: Mapping[str, object]) -> TranscriptEntry | None:
    info, parts = mapping(whole.get("info")), list(map(mapping, items(whole.get("parts"))))
    texts = [part for part in parts if part.get("type") == "text" and part.get("ignored") is not True]
    text = joined(word(part.get("text")) for part in texts)
    tools = tuple(_tool(part) for part in parts if part.get("type") == "tool")
    role = USER if info.get("role") == USER else ASSISTANT
    if any(part.get("type") == "compaction" for part in parts):
        role, text = SYSTEM, text or _COMPACTED
    elif role == ASSISTANT and info.get("summary") is True:
        role = SYSTEM  # its own summary from when the conversation was compacted
    elif role == USER and texts and all(part.get("synthetic") is True for part in texts):
        role = SYSTEM
    error = mapping(info.get("error"))
    if error:
        reason = word(mapping(error.get("data")).get("message")) or word(error.get("name"))
        text = joined((text, f"(error: {reason})"))
    if not text and not tools:
        return None
    ts = time_ms(mapping(info.get("time")).get("created"))
    return TranscriptEntry(role=role, text=text, tools=tools, whole=whole, ts=ts)


def _tool(part: Mapping[str, object]) -> ToolCall:
    state = mapping(part.get("state"))
    is_error = state.get("status") == "error"
    output = state.get("error" if is_error else "output")
    return ToolCall(
        name=word(part.get("tool")),
        input=state.get("input"),
        output=output if isinstance(output, str) else None,
        is_error=is_error,
    )


def opencode_folders(session: str, environment: Mapping[str, str]) -> tuple[TranscriptFolder, ...]:
    """Return where the databases are; each contains many sessions."""
    home, named = environment.get("HOME", ""), environment.get("OPENCODE_DB", "")
    data = environment.get("XDG_DATA_HOME") or (f"{home}/.local/share" if home else "")
    if named.startswith("/"):
        folder, _, name = named.rpartition("/")
        return (TranscriptFolder(folder or "/", name),)
    names = (named,) if named else ("opencode.db", "opencode-*.db")
    return tuple(TranscriptFolder(f"{data}/opencode", name) for name in names) if data else ()
