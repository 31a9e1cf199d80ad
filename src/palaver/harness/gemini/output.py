"""Read the output of Gemini CLI 0.61: its screen in a terminal, and its transcript. Pure."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from palaver.harness.base import Interrupt, KeyPress, Profile, TitleRule, View
from palaver.harness.hooks import PERMISSION, USED_UP, USED_UP_ASKED, one_line
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
from palaver.protocol.events import AgentState
from palaver.protocol.transcript import ToolCall, TranscriptEntry

# --------------------
# The screen: the composer, an open dialog, a reached usage limit.
#
# The composer is where the cursor is: in a frame of half blocks, or of two rules if no background is drawn,
# or in the last lines in the view for screen readers. While a dialog is open there is no composer, so the
# text of a conversation is never read as a dialog.

_FRAMES: Final = ((re.compile(r"▄{8,}$"), re.compile(r"▀{8,}$")), (re.compile(r"─{8,}$"),) * 2)
_PROMPT: Final = re.compile(r" (?P<mode>[>!*]) ?")
_TEXT_COLUMN: Final = 3
_PLAIN: Final = re.compile(r"(?P<mode>[>!*]) {2}")
_EMPTY: Final = frozenset({"Typeyourmessageor@path/to/file", "Press'Esc'forNORMALmode."})
"""The text of an untouched composer, without blanks."""
_DEAF: Final = frozenset({"Press'i'forINSERTmode."})
"""The same while keys are editor commands instead of text."""

_BOX_TOP: Final = re.compile(r" ?╭─+╮?$")
_BOX_BOTTOM: Final = re.compile(r" ?╰─+╯?$")
_BELOW: Final = re.compile(r" *(?:Press Ctrl|Gemini CLI is restarting|A folder trust level)")
"""Lines that may be below the box of a dialog."""
_CHOICE: Final = re.compile(r"(?:(?P<mark>●|\(checked\)) *)?\d+\. +(?P<words>\S.*)")
_ASKS: Final = re.compile(r"● |\b[Ee]nter\b|\b[Ee]sc\b")
_MENU: Final = re.compile(r"^[│┃] *● \d+\. |^ *● 1\. [^\n]*\n *2\. |^\(checked\) +\d+\. ", re.MULTILINE)
_SESSIONS: Final = re.compile(r"^ ?Chat Sessions \(.*(?:\n.*){1,8}^ ?❯ #\d", re.MULTILINE)
_QUESTION: Final = re.compile(r"[A-Z].*\?$")
_LEAVE: Final = re.compile(r"Allow once|suggest changes \(esc\)|^Apply this change\?$|^Allow execution of\b")
_LIMIT: Final = re.compile(r"Usage limit reached for (?P<what>.+)\.$")
_RESETS: Final = re.compile(r"Access resets at (?P<when>.+)\.$")
_DIALOG: Final = "dialog"
_ROWS_ASKED: Final = 12

_NEWER: Final = re.compile(r"[✦✕⚠>▄╭]|ℹ (?!This request failed)")
"""How later lines of a conversation begin. The notice `This request failed` belongs to the error itself."""
_QUOTA: Final = re.compile(r"\b[Qq]uota\b|RESOURCE_EXHAUSTED|\b[Uu]sage limit\b")
_RETRY: Final = re.compile(r"\bretry (?:after|in) (?P<seconds>\d+(?:\.\d+)?)s\b")
_MIDNIGHT: Final = "12am (America/Los_Angeles)"
"""When a daily quota resets, as Google documents for its API."""


def read_composer(view: View) -> str | None:
    """Return the text in the composer around the cursor; None if there is no composer."""
    frame = _frame(view)
    if frame is None:
        return _read_plain(view)
    top, bottom = frame
    prompt = _PROMPT.match(view.lines[top + 1])
    if prompt is None:
        return None
    rows = [row[_TEXT_COLUMN:] for row in view.bright[top + 1 : bottom]]
    is_first = (view.row, view.column) == (top + 1, _TEXT_COLUMN)
    return _text(prompt["mode"], rows, is_first=is_first)


def _text(mode: str, rows: Sequence[str], *, is_first: bool) -> str | None:
    """Return the typed text. With `is_first` the cursor is at its first position, before any text."""
    written = "".join("".join(rows).split())
    if mode == "!":
        return "\n".join(("!", *rows))
    # A person may type the words of the hint: they are the hint only while the cursor is before them.
    if is_first and written in _DEAF:
        return None
    return "" if is_first and written in _EMPTY else "\n".join(rows)


def _frame(view: View) -> tuple[int, int] | None:
    """Return the first and the last row of the frame around the cursor."""
    return _drawn_frame(view) or _frame_of_blanks(view)


def _drawn_frame(view: View) -> tuple[int, int] | None:
    # Upwards from the cursor: if the lower edge of another frame comes first, the cursor is not in a frame.
    for top in range(min(view.row, len(view.lines)) - 1, -1, -1):
        for begin, end in _FRAMES:
            if begin.match(view.lines[top]):
                below = range(view.row, len(view.lines))
                bottom = next((row for row in below if end.match(view.lines[row])), view.row)
                return None if bottom == view.row else (top, bottom)
            if end.match(view.lines[top]):
                return None
    return None


def _frame_of_blanks(view: View) -> tuple[int, int] | None:
    """Find a frame that is drawn by its background only, on a terminal with few colours."""
    lines, top = view.lines, view.row
    if not lines[top : top + 1] or not lines[top]:
        return None
    while top > 0 and not (_PROMPT.match(lines[top]) and not lines[top - 1]):
        if lines[top] and not lines[top].startswith(" " * _TEXT_COLUMN):
            return None
        top -= 1
    bottom = next((row for row in range(view.row, len(lines)) if not lines[row]), None)
    return (top - 1, bottom) if top and bottom is not None else None


def _read_plain(view: View) -> str | None:
    """Read the composer in the view for screen readers: the cursor is after all text."""
    if not view.lines[view.row : view.row + 1] or not view.lines[view.row] or any(view.lines[view.row + 1 :]):
        return None
    for start in range(view.row, -1, -1):
        if (prompt := _PLAIN.match(view.lines[start])) is not None:
            rows = [view.lines[start][_TEXT_COLUMN:], *view.lines[start + 1 : view.row + 1]]
            return _text(prompt["mode"], rows, is_first=start == view.row)
    return None


def read_dialog(view: View) -> str | None:
    """Return what an open dialog is about, as a status detail; None if no dialog is open."""
    # While a composer is visible, every dialog on the screen is a part of the conversation.
    if read_composer(view) is not None:
        return None
    if (box := _last_box(view)) is not None and any(map(_ASKS.search, box)):
        return _name(box)
    text = "\n".join(view.lines)
    if _SESSIONS.search(text):
        return f"{_DIALOG}: Chat Sessions"
    if (menu := _MENU.search(text)) is None:
        return None
    row = text.count("\n", 0, menu.start())
    return _name(view.lines[max(row - _ROWS_ASKED, 0) : row + _ROWS_ASKED])


def _last_box(view: View) -> Sequence[str] | None:
    """Return the rows of the box at the end of the screen, as far as they are visible."""
    shown = [row for row, line in enumerate(view.lines) if line and not _BELOW.match(line)]
    if not shown or not _BOX_BOTTOM.match(view.lines[shown[-1]]):
        return None
    bottom = view.lines[shown[-1]]
    edge, top = bottom.index("╰"), shown[-1]
    # A dialog may contain smaller boxes: only a corner above its own lower one is its top.
    while top and not (_BOX_TOP.match(view.lines[top - 1]) and view.lines[top - 1].index("╭") == edge):
        top -= 1
    return view.lines[top : shown[-1]]


def _name(rows: Sequence[str]) -> str:
    lines = [line for row in rows if (line := row.strip("│┃ ").removeprefix("? ").removeprefix("> ").strip())]
    if any(map(_LEAVE.search, lines)):
        return PERMISSION
    choices = [found["words"] for line in lines if (found := _CHOICE.match(line))]
    limit = next(filter(None, map(_LIMIT.match, lines)), None)
    if limit is not None:
        resets = (f"resets {found['when']}" for line in lines if (found := _RESETS.match(line)))
        asked = f"{' / '.join(choices)}?" if choices else ""
        return one_line(f"{USED_UP_ASKED}{'; '.join(filter(None, (limit['what'], *resets, asked)))}")
    titles = [line for line in lines if not _CHOICE.match(line)]
    asked = next((line for line in titles if _QUESTION.match(line)), titles[0] if titles else "")
    title = re.split(r" {3,}", asked)[0]
    return one_line(f"{_DIALOG}: {title}") if title else _DIALOG


def read_limit(view: View) -> str:
    """Return a status detail with the reset time if the last turn ended at a usage limit; else empty.

    The next action of the user ends it: newer lines follow it, or it disappears.
    """
    frame = _frame(view)
    above = view.lines[: frame[0]] if frame is not None else ()
    last = max((row for row, line in enumerate(above) if line.startswith("✕ ")), default=None)
    # Later output shows that the user has gone on since.
    if last is None or any(map(_NEWER.match, above[last + 1 :])):
        return ""
    end = last + 1
    while end < len(above) and above[end].startswith("  "):
        end += 1
    text = " ".join(line.strip() for line in above[last:end])
    if not _QUOTA.search(text):
        return ""
    if (retry := _RETRY.search(text)) is not None:
        return f"{USED_UP}, resets in {math.ceil(float(retry['seconds']))}s"
    return f"{USED_UP}, resets {_MIDNIGHT}" if "daily quota" in text else USED_UP


# --------------------
# Profile of Gemini CLI in a terminal, as version 0.61 draws it. Pure.
#
# Its title shows ready, working or action required. It has no OSC 7501.

_RESUMING: Final = ("-r", "--resume")
_LOADING_MS: Final = 2_500
"""Milliseconds. It draws its composer up to about a second before it has loaded a session that it resumes."""

PROFILE: Final = Profile(
    name="gemini",
    starts_twice=True,
    read_composer=read_composer,
    read_dialog=read_dialog,
    read_limit=read_limit,
    busy=(
        re.compile("^ [\u2800-\u28ff] [^\n]*\\(esc to cancel\\b", re.MULTILINE),
        re.compile(r"^responding [^\n]*\(esc to cancel\b", re.MULTILINE),
    ),
    compacting=(re.compile("^ ?(?:[\u2800-\u28ff]|responding) [^\n]*Compressing\\b", re.MULTILINE),),
    titles=(
        TitleRule(pattern=re.compile(r"^✋"), state=AgentState.BLOCKED, reason="permission"),
        TitleRule(pattern=re.compile(r"^✦|^⏲"), state=AgentState.ACTIVE),
        TitleRule(pattern=re.compile(r"^◇"), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted Text: \d+ (?:lines|chars)(?: #\d+)?\]"),
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(KeyPress(keys=b"\x03", wait_ms=500), KeyPress(keys=b"\x03", wait_ms=5_000)),
)


def profile_of_start(command: Sequence[str]) -> Profile:
    """Return the profile for this command: a resumed session takes some time to load."""
    if any(word.startswith(_RESUMING) for word in command):
        return replace(PROFILE, composer_wait_ms=_LOADING_MS)
    return PROFILE


# --------------------
# The transcript: JSON lines, one file per session.
#
# A message is written again, with the same id, when it grows. `$set` repeats the whole history when a session
# is resumed or was compressed: messages that were read already are skipped. Older versions wrote one JSON
# document with the same messages.

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
    _held_back: list[TranscriptEntry] = field(default_factory=list)

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
        yield from self._held_back
        self._open, self._late, self._held_back = None, {}, []

    def _read_history(
        self, messages: list[Mapping[str, object]], whole: Mapping[str, object]
    ) -> Iterator[TranscriptEntry]:
        ids = [word(message.get("id")) for message in messages]
        # A history without the last message that was read is a compressed one. A resumed session repeats
        # all of them.
        is_new = any(one and one not in self._seen for one in ids)
        if self._last and is_new and self._last not in ids:
            yield from self.rest()
            ts = time_ms(mapping(whole.get("$set")).get("lastUpdated"))
            # Not the record itself: it repeats the whole history, whose messages are separate entries.
            yield TranscriptEntry(role=SYSTEM, text=_COMPRESSED, whole={"$set": "messages"}, ts=ts)
        for message in messages:
            if word(message.get("id")) not in self._seen:
                yield from self._read_message(message)

    def _read_message(self, message: Mapping[str, object]) -> Iterator[TranscriptEntry]:
        key, kind = word(message.get("id")), message.get("type")
        is_update = self._open is not None and key == word(self._open.get("id"))
        # A reply is written again while it grows. Only its newest form counts, so it is held back until
        # then.
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
            # A result comes in a message after its call. The reply that has the call is still held back, and
            # gets it at its end.
            self._late |= answers
            if text and not text.startswith(_SETUP):
                yield from self.rest()
                yield TranscriptEntry(role=USER, text=text, whole=message, ts=ts)
        elif text:
            entry = TranscriptEntry(role=SYSTEM, text=text, whole=message, ts=ts)
            if self._open is None:
                yield entry
            else:
                self._held_back.append(entry)


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
