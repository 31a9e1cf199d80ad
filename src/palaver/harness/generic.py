"""Any other program in a terminal: output is active, silence is idle. Pure.

A question near the cursor counts as a dialog. It also honours OSC 7501 and the hooks of whoever speaks them.
"""

import re
from typing import Final

from palaver.harness.profile import Interrupt, Press, Profile

PROFILE: Final = Profile(
    name="generic",
    dialogs=(
        re.compile(
            r"^\W*(?:Do you want to|Would you like to|Do you trust)\b[^\n]*\?\W*(?:\n[^\n]*){0,8}\Z",
            re.MULTILINE,
        ),
        re.compile(r"\b[Pp]ermission required\b[^\n]*(?:\n[^\n]*){0,8}\Z"),
        re.compile(r"\bAllow once\b[^\n]*(?:\n[^\n]*){0,4}\Z"),
    ),
    prompts=(
        re.compile(r"[\[(](?:y(?:es)?/n(?:o)?(?:/[\w\[\]]+)*|n/y)[\])]\W*$", re.IGNORECASE),
        re.compile(r"\b(?:pass(?:word|phrase|code)|PIN)\b[^:]*:\s*$", re.IGNORECASE),
        re.compile(r"\b(?:are you sure|overwrite|continue|proceed)\b[^?\n]*\?\s*$", re.IGNORECASE),
    ),
    interrupt=Interrupt(keys=b"\x03", most=3),
    quit=(Press(keys=b"\x03", wait_ms=1_000),),
)
