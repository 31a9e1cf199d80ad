"""Profile of Codex in a terminal, as version 0.166 draws it. Pure.

The composer begins with a bright `›`; sent prompts follow a faint one. A dialog replaces the composer. Codex
always reports its state by OSC 7501 and by its title. Enter while it is busy cancels the running model
request; Tab queues the text after it.
"""

import re
from typing import Final

from palaver.harness.base import USAGE_LIMITS, Interrupt, KeyPress, Profile, TitleRule, View
from palaver.protocol.events import AgentState

HOOKS_NEED_REVIEW: Final = "hooks need review"
_CHOICE: Final = re.compile(r"› \d+\. ")
_REVIEW: Final = re.compile(r" *Hooks need review")
_REVIEW_KEYS: Final = re.compile(r" *enter confirm · esc \w+")


def read_composer(view: View) -> str | None:
    """Return the text from the last bright prompt to the blank row before the status."""
    first = view.row
    while first >= 0 and not view.bright[first].startswith("›"):
        first -= 1
    if first < 0 or _CHOICE.match(view.lines[first]):
        return None
    rows = [view.bright[first][2:]]
    for row in range(first + 1, len(view.lines)):
        line = view.lines[row]
        if line and not line.startswith("  "):
            return None
        if not line and row > view.row:
            break
        rows.append(view.bright[row][2:])
    return "\n".join(rows)


def read_dialog(view: View) -> str | None:
    """Recognize the dialog at the start of Codex about new hooks; its keys are on the last line."""
    shown = [line for line in view.lines if line.strip()]
    is_asking = bool(shown) and _REVIEW_KEYS.fullmatch(shown[-1]) is not None
    return HOOKS_NEED_REVIEW if is_asking and any(_REVIEW.fullmatch(line) for line in shown) else None


PROFILE: Final = Profile(
    name="codex",
    read_composer=read_composer,
    read_dialog=read_dialog,
    dialogs=(re.compile(r"^ *Press enter to (?:confirm|continue|submit|select)\b.*\Z", re.MULTILINE),),
    busy=(re.compile(r"^\W*\w[^\n]*\(\d[\dhms ]*s? • esc to interrupt\)", re.MULTILINE),),
    compacting=(re.compile(r"^[•◦] Compacting\b", re.MULTILINE),),
    usage_limits=USAGE_LIMITS,
    titles=(
        TitleRule(
            pattern=re.compile(r"^\[ ?[!.] ?\] Action Required"),
            state=AgentState.BLOCKED,
            reason="permission",
        ),
        TitleRule(pattern=re.compile("^[\u2800-\u28ff] "), state=AgentState.ACTIVE),
        TitleRule(pattern=re.compile(r"^\S"), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted Content \d+ chars\]"),
    queue_key=b"\t",
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(KeyPress(keys=b"\x03", wait_ms=300), KeyPress(keys=b"\x03", wait_ms=5_000)),
)
