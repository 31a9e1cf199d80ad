"""Gemini CLI in a terminal, as its version 0.61 draws itself. Pure.

The composer is the frame of half blocks in which the cursor is; what was sent before stands in such frames
too. Its title says ready, working or action required. It has no OSC 7501.
"""

import re
from typing import Final

from palaver.harness.profile import USAGE_LIMITS, Interrupt, Press, Profile, TitleRule, View
from palaver.model.delivery import AgentState

_TOP: Final = re.compile(r"▄{8,}$")
_BOTTOM: Final = re.compile(r"▀{8,}$")
_PROMPT: Final = re.compile(r" (?P<mode>[>!*]) ?")
_PLACEHOLDER: Final = re.compile(r" {1,2}Type your message or @path/to/file$")
_TEXT_COLUMN: Final = 3


def read_composer(view: View) -> str | None:
    """Give the text in the frame around the cursor."""
    top = view.row - 1
    while top >= 0 and not _TOP.match(view.lines[top]):
        if _BOTTOM.match(view.lines[top]):
            return None
        top -= 1
    bottom = view.row
    while bottom < len(view.lines) and not _BOTTOM.match(view.lines[bottom]):
        bottom += 1
    if top < 0 or bottom >= len(view.lines) or bottom == view.row:
        return None
    prompt = _PROMPT.match(view.lines[top + 1])
    if prompt is None:
        return None
    rows = [row[_TEXT_COLUMN:] for row in view.bright[top + 1 : bottom]]
    if prompt["mode"] == "!":
        return "\n".join(("!", *rows))
    is_untouched = len(rows) == 1 and view.column == _TEXT_COLUMN and _PLACEHOLDER.match(rows[0])
    return "" if is_untouched else "\n".join(rows)


PROFILE: Final = Profile(
    name="gemini",
    read_composer=read_composer,
    dialogs=(
        re.compile(r"^[│┃] *● \d+\. ", re.MULTILINE),
        re.compile(r"^ *● 1\. [^\n]*\n *2\. ", re.MULTILINE),
    ),
    busy=(re.compile("^ [\u2800-\u28ff] [^\n]*\\(esc to cancel\\b", re.MULTILINE),),
    compacting=(re.compile("^ [\u2800-\u28ff] [^\n]*Compressing\\b", re.MULTILINE),),
    usage_limits=(*USAGE_LIMITS, re.compile(r"^✕ .*(?:[Qq]uota exceeded|usage limit)", re.MULTILINE)),
    titles=(
        TitleRule(pattern=re.compile(r"^✋"), state=AgentState.BLOCKED, reason="permission"),
        TitleRule(pattern=re.compile(r"^✦|^⏲"), state=AgentState.ACTIVE),
        TitleRule(pattern=re.compile(r"^◇"), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted Text: \d+ (?:lines|chars)(?: #\d+)?\]"),
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(Press(keys=b"\x03", wait_ms=500), Press(keys=b"\x03", wait_ms=5_000)),
)
