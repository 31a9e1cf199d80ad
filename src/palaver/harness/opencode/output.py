"""Read the output of OpenCode 1.18: its screen in a terminal, and its transcript. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palaver.harness.base import Interrupt, KeyPress, Profile, View
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

# --------------------
# The screen, as version 1.18 draws it, and the profile for its terminal.
#
# The composer is the block of rows after `┃` that ends in `╹▀▀▀`; its last row before the edge names the
# agent. A permission dialog replaces it, without that edge. While busy it shows `esc interrupt` below. A
# first Escape only changes that to `esc again to interrupt`, so an interrupt needs two. Neither title nor OSC
# 7501 shows what it is doing.

_EDGE: Final = re.compile(r" *╹▀{8,}")
_BAR: Final = "┃"
_PLACEHOLDER: Final = re.compile(r'Ask anything(?:…|\.{3})(?: ".*)?$')


def read_composer(view: View) -> str | None:
    """Return the text in the block around the cursor; None if there is no composer."""
    bottom = view.row + 1
    while bottom < len(view.lines) and not _EDGE.match(view.lines[bottom]):
        bottom += 1
    if bottom >= len(view.lines):
        return None
    # The composer may be centred, so its column is known only from its lower edge.
    bar = view.lines[bottom].index("╹")
    top = bottom
    while top > 0 and view.lines[top - 1][bar : bar + 1] == _BAR:
        top -= 1
    # A blank row, the text, a blank row, the agent's name.
    if not top < view.row < bottom - 2:
        return None
    rows = [row[bar + 3 :] for row in view.bright[top + 1 : bottom - 2]]
    # A person may type the words of the hint: they are the hint only while the cursor is before them.
    is_untouched = len(rows) == 1 and view.column == bar + 3 and _PLACEHOLDER.match(rows[0])
    return "" if is_untouched else "\n".join(rows)


PROFILE: Final = Profile(
    name="opencode",
    read_composer=read_composer,
    dialogs=(
        re.compile(r"^ *┃ +△ ", re.MULTILINE),
        re.compile(r"^ *┃ +Allow once +Allow always +Reject", re.MULTILINE),
        re.compile(r"^ *┃ +[^\n]*\benter (?:confirm|submit|select)", re.MULTILINE),
    ),
    busy=(re.compile(r"\besc (?:again to )?interrupt\b[^\n]*\s*\Z"),),
    compacting=(re.compile(r"^ *Compaction\b[^\n]*…", re.MULTILINE),),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted ~\d+ lines\]"),
    interrupt=Interrupt(keys=b"\x1b", presses=2),
    quit=(KeyPress(keys=b"\x03", wait_ms=1_500), KeyPress(keys=b"\x03", wait_ms=5_000)),
)


# --------------------
# The transcript: messages and their parts from a database.
#
# A line is one message as OpenCode itself exports it: `{"info": {...}, "parts": [...]}`. The code that reads
# the database writes these lines.

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
