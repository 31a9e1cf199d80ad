"""Claude Code in a terminal, as its version 2.1 draws itself. Pure.

The composer stands between two rules, after `❯`. A dialog takes its place. Busy it says `esc to interrupt` in
the last rows (not with a status line of the user's own), and by OSC 7501 once its probe was answered. Escape
stops it; a prompt that had no answer yet then comes back into the composer, as a draft. By OSC 7501 it also
says `working` while only sub-agents do, which it lists in its last rows.
"""

import re
from typing import Final

from palaver.harness.profile import USAGE_LIMITS, Interrupt, Press, Profile, TitleRule, View
from palaver.model.delivery import AgentState

_RULE: Final = re.compile(r"─{8,}")
_PROMPT: Final = re.compile(r"(?P<mode>[❯>!#])(?:\s|$)")


def read_composer(view: View) -> str | None:
    """Give the text between the rules around the cursor."""
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
    # In its shell and memory modes Enter does something else: that is never an empty composer.
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
    quit=(Press(keys=b"\x03", wait_ms=300), Press(keys=b"\x03", wait_ms=5_000)),
)
