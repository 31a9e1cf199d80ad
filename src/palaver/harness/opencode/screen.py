"""Profile of OpenCode in a terminal, as version 1.18 draws it. Pure.

The composer is the block of rows after `┃` that ends in `╹▀▀▀`; its last row before the edge names the agent.
A permission dialog replaces it, without that edge. While busy it shows `esc interrupt` below. A first Escape
only changes that to `esc again to interrupt`, so an interrupt needs two. Neither title nor OSC 7501 shows
what it is doing.
"""

import re
from typing import Final

from palaver.harness.base import Interrupt, KeyPress, Profile, View

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
    bar = view.lines[bottom].index("╹")
    top = bottom
    while top > 0 and view.lines[top - 1][bar : bar + 1] == _BAR:
        top -= 1
    # A blank row, the text, a blank row, the agent's name.
    if not top < view.row < bottom - 2:
        return None
    rows = [row[bar + 3 :] for row in view.bright[top + 1 : bottom - 2]]
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
