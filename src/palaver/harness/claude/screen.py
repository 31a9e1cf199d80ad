"""Profile of Claude Code in a terminal, as version 2.1 draws it. Pure.

The composer is between two rules, after `❯`. A dialog replaces it. While busy, the last rows show `esc to
interrupt` (unless the user has a custom status line); Claude Code also reports its state by OSC 7501 once its
probe was answered. Escape interrupts it; a prompt that had no reply yet then returns to the composer as a
draft. By OSC 7501 it also reports `working` while only sub-agents work; it lists those in its last rows.
"""

import re
from typing import Final

from palaver.harness.base import USAGE_LIMITS, Interrupt, KeyPress, Profile, TitleRule, View
from palaver.protocol.events import AgentState

_RULE: Final = re.compile(r"─{8,}")
_PROMPT: Final = re.compile(r"(?P<mode>[❯>!#])(?:\s|$)")


def read_composer(view: View) -> str | None:
    """Return the text between the two rules around the cursor; None if there is no composer."""
    top = view.row - 1
    while top >= 0 and not _RULE.match(view.lines[top]):
        top -= 1
    bottom = view.row + 1
    while bottom < len(view.lines) and not _RULE.match(view.lines[bottom]):
        bottom += 1
    if top < 0 or bottom >= len(view.lines) or _RULE.match(view.lines[view.row]):
        return None
    prompt = _PROMPT.match(view.lines[top + 1])
    if prompt is None:
        return None
    rows = [row[2:] for row in view.bright[top + 1 : bottom]]
    # In the shell and memory modes Enter does something else, so the composer never counts as empty there.
    return "\n".join(rows) if prompt["mode"] in "❯>" else "\n".join((prompt["mode"], *rows))


PROFILE: Final = Profile(
    name="claude",
    opens_native=True,
    read_composer=read_composer,
    dialogs=(
        re.compile(r"^ +❯ \d+\. ", re.MULTILINE),
        re.compile(r"^ (?:Esc to cancel|Enter to (?:confirm|select))\b.*\Z", re.MULTILINE),
    ),
    busy=(re.compile(r"\besc to interrupt\b[^\n]*\Z"),),
    own_work=(
        re.compile(r"─{8}(?!.*─{8}).*\besc to interrupt\b", re.DOTALL),
        re.compile(r"^[·✢✳✶✻✽*] \S[^\n]*…", re.MULTILINE),
    ),
    compacting=(re.compile(r"^[·✢✳✶✻✽*] Compacting\b", re.MULTILINE),),
    usage_limits=USAGE_LIMITS,
    titles=(
        TitleRule(pattern=re.compile(r"^[◐◑◒◓\u2800-\u28ff] "), state=AgentState.ACTIVE),
        TitleRule(pattern=re.compile(r"^✳ "), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted text #\d+(?: \+\d+ lines)?\]"),
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(KeyPress(keys=b"\x03", wait_ms=300), KeyPress(keys=b"\x03", wait_ms=5_000)),
)
