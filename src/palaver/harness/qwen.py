"""Profile of Qwen Code in a terminal, as version 0.15 draws it. Pure.

Its composer is between the last two rules on the screen; its cursor is hidden and elsewhere. While a dialog
is open there is no composer.
"""

import re
from typing import Final

from palaver.harness.profile import Interrupt, Press, Profile, View

_RULE: Final = re.compile(r"─{8,}$")
_PROMPT: Final = re.compile(r"(?P<mode>[>!*]) ?")
_TEXT_COLUMN: Final = 2
_EMPTY: Final = frozenset({"Typeyourmessageor@path/to/file"})
"""The text of an empty composer, without blanks."""
_COMMANDS: Final = "Press'i'forINSERTmode"
"""Shown while keys are editor commands instead of text."""


def read_composer(view: View) -> str | None:
    """Return the text between the last two rules; None if there is no composer."""
    rules = [row for row, line in enumerate(view.lines) if _RULE.match(line)][-2:]
    if len(rules) < 2 or rules[1] - rules[0] < 2:
        return None
    top, bottom = rules
    prompt = _PROMPT.match(view.lines[top + 1])
    if prompt is None:
        return None
    rows = [row[_TEXT_COLUMN:] for row in view.lines[top + 1 : bottom]]
    written = "".join("".join(rows).split())
    if written.startswith(_COMMANDS):
        return None
    text = "" if written in _EMPTY else "\n".join(rows)
    return f"!\n{text}" if prompt["mode"] == "!" else text


PROFILE: Final = Profile(
    name="qwen",
    read_composer=read_composer,
    dialogs=(
        re.compile(r"^ *[│┃] *[›❯●] *\d+\. ", re.MULTILINE),
        re.compile(r"^ *[›●] 1\. [^\n]*\n *2\. ", re.MULTILINE),
        re.compile(r"\bWaiting for user confirmation\b"),
    ),
    busy=(re.compile("^ *[\u2800-\u28ff] [^\n]*\\besc to cancel\\b", re.MULTILINE),),
    compacting=(re.compile("^ *[\u2800-\u28ff] [^\n]*\\bCompressing\\b", re.MULTILINE),),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted Content \d+ chars\](?: #\d+)?"),
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(Press(keys=b"\x03", wait_ms=500), Press(keys=b"\x03", wait_ms=5_000)),
)
