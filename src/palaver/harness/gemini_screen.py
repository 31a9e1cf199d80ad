"""How the screen of Gemini CLI 0.61 reads: its composer, an open dialog, a used-up allowance. Pure.

The composer is where the cursor is: a frame of half blocks, or of two rules where no background is wanted,
or the last lines of all in the view for screen readers. While a dialog is open there is no composer; so what
stands in a conversation is never taken for one.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

from palaver.harness.hook_news import one_line
from palaver.harness.hook_states import PERMISSION, USED_UP, USED_UP_ASKED
from palaver.harness.profile import View

_FRAMES: Final = ((re.compile(r"▄{8,}$"), re.compile(r"▀{8,}$")), (re.compile(r"─{8,}$"),) * 2)
_PROMPT: Final = re.compile(r" (?P<mode>[>!*]) ?")
_TEXT_COLUMN: Final = 3
_PLAIN: Final = re.compile(r"(?P<mode>[>!*]) {2}")
_EMPTY: Final = frozenset({"Typeyourmessageor@path/to/file", "Press'Esc'forNORMALmode."})
"""What stands in a composer that nobody has written in, without its blanks."""
_DEAF: Final = frozenset({"Press'i'forINSERTmode."})
"""The same, where keys are commands of the editor and no text."""

_BOX_TOP: Final = re.compile(r" ?╭─+╮?$")
_BOX_BOTTOM: Final = re.compile(r" ?╰─+╯?$")
_BELOW: Final = re.compile(r" *(?:Press Ctrl|Gemini CLI is restarting|A folder trust level)")
"""What may stand below the box of a dialog."""
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
"""How what follows in a conversation begins."""
_QUOTA: Final = re.compile(r"\b[Qq]uota\b|RESOURCE_EXHAUSTED|\b[Uu]sage limit\b")
_RETRY: Final = re.compile(r"\bretry (?:after|in) (?P<seconds>\d+(?:\.\d+)?)s\b")
_MIDNIGHT: Final = "12am (America/Los_Angeles)"
"""When the allowance of a day is there again, as Google says for its API."""


def read_composer(view: View) -> str | None:
    """Give the text in the composer around the cursor."""
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
    """Give what is written; `is_first`: the cursor is where it is before anything is."""
    written = "".join("".join(rows).split())
    if mode == "!":
        return "\n".join(("!", *rows))
    if is_first and written in _DEAF:
        return None
    return "" if is_first and written in _EMPTY else "\n".join(rows)


def _frame(view: View) -> tuple[int, int] | None:
    """Give the first and the last row of the frame in which the cursor is."""
    return _drawn_frame(view) or _frame_of_blanks(view)


def _drawn_frame(view: View) -> tuple[int, int] | None:
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
    """Find the frame that is made of its background alone, where there are few colours."""
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
    """Read the composer of the view for screen readers: the cursor is behind all that is written."""
    if not view.lines[view.row : view.row + 1] or not view.lines[view.row] or any(view.lines[view.row + 1 :]):
        return None
    for start in range(view.row, -1, -1):
        if (prompt := _PLAIN.match(view.lines[start])) is not None:
            rows = [view.lines[start][_TEXT_COLUMN:], *view.lines[start + 1 : view.row + 1]]
            return _text(prompt["mode"], rows, is_first=start == view.row)
    return None


def read_dialog(view: View) -> str | None:
    """Say what an open dialog is about, in the words of a status; None when there is none."""
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
    """Give what is in the box with which the screen ends; what of it is above the screen is not known."""
    shown = [row for row, line in enumerate(view.lines) if line and not _BELOW.match(line)]
    if not shown or not _BOX_BOTTOM.match(view.lines[shown[-1]]):
        return None
    bottom = view.lines[shown[-1]]
    edge, top = bottom.index("╰"), shown[-1]
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
    """Say that the last turn ended for want of allowance, and until when where that is known; else nothing.

    The words are those of a status. What a person does next ends it: it stands below, or takes it away.
    """
    frame = _frame(view)
    above = view.lines[: frame[0]] if frame is not None else ()
    last = max((row for row, line in enumerate(above) if line.startswith("✕ ")), default=None)
    if last is None or any(map(_NEWER.match, above[last + 1 :])):
        return ""
    end = last + 1
    while end < len(above) and above[end].startswith("  "):
        end += 1
    said = " ".join(line.strip() for line in above[last:end])
    if not _QUOTA.search(said):
        return ""
    if (retry := _RETRY.search(said)) is not None:
        return f"{USED_UP}, resets in {math.ceil(float(retry['seconds']))}s"
    return f"{USED_UP}, resets {_MIDNIGHT}" if "daily quota" in said else USED_UP
