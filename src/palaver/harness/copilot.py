"""Profile of GitHub Copilot CLI in a terminal, as version 1.0 draws it. Pure.

Its composer is a frame of half blocks around the cursor. While a dialog is open there is no composer.
"""

import re
from typing import Final

from palaver.harness.profile import Interrupt, Press, Profile, View

_TOP: Final = re.compile(r"╻▄{8,}$")
_BOTTOM: Final = re.compile(r"╹▀{8,}$")
_SIDE: Final = "┃"
_TEXT_COLUMN: Final = 2
_SHELL: Final = re.compile(r"(?:^|·) *Shell(?: *·|$)")


def read_composer(view: View) -> str | None:
    """Return the text in the frame around the cursor; None if there is no composer."""
    top = bottom = view.row
    while 0 <= top < len(view.lines) and view.lines[top].startswith(_SIDE):
        top -= 1
    while bottom < len(view.lines) and view.lines[bottom].startswith(_SIDE):
        bottom += 1
    if not (0 <= top < view.row < bottom < len(view.lines)):
        return None
    if not _TOP.match(view.lines[top]) or not _BOTTOM.match(view.lines[bottom]):
        return None
    text = "\n".join(row[_TEXT_COLUMN:] for row in view.bright[top + 1 : bottom])
    below = view.lines[bottom + 1] if bottom + 1 < len(view.lines) else ""
    # In its shell mode Enter runs a command, so the composer never counts as empty there.
    return f"!\n{text}" if _SHELL.search(below) else text


PROFILE: Final = Profile(
    name="copilot",
    read_composer=read_composer,
    dialogs=(
        re.compile(r"^ *[│┃] *❯ *\d+\. ", re.MULTILINE),
        re.compile(r"^ *[│┃] *[^\n]*\benter to (?:select|confirm|submit)\b", re.MULTILINE | re.IGNORECASE),
    ),
    busy=(re.compile(r"\besc to (?:cancel|interrupt|stop)\b", re.IGNORECASE),),
    has_paste=True,
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(Press(keys=b"\x03", wait_ms=500), Press(keys=b"\x03", wait_ms=5_000)),
)
