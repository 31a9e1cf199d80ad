"""Any other program in a terminal: output is active, silence is idle. Pure.

A question near the cursor counts as a dialog: one that is answered by a word, a number, a secret or a mere
Enter. A prompt that asks nothing (`>>> `, `> `, `$ `) is none. It also honours OSC 7501 and the hooks of
whoever speaks them.
"""

import re
from typing import Final

from palaver.harness.profile import Interrupt, Press, Profile

_CHOICES: Final = r"yes|no|allow|deny|accept|reject|approve|cancel|always|once|continue|skip|trust|proceed"
_ASKING: Final = (
    r"are you sure|do you|would you|overwrite|replace|continue|proceed|confirm|trust|allow|approve|apply"
    r"|delete|remove|install|retry|abort|accept"
)

PROFILE: Final = Profile(
    name="generic",
    dialogs=(
        re.compile(
            r"^\W*(?:Do you want to|Would you like to|Do you trust)\b[^\n]*\?\W*(?:\n[^\n]*){0,20}\Z",
            re.MULTILINE,
        ),
        re.compile(r"\b[Pp]ermission required\b[^\n]*(?:\n[^\n]*){0,12}\Z"),
        re.compile(r"\bAllow once\b[^\n]*(?:\n[^\n]*){0,8}\Z"),
        # One of several lines with numbers is marked.
        re.compile(
            r"^\W*[>❯›▸▶►●◉→*] *\d+[.)] [^\n]*(?:\n\W*\d+[.)] [^\n]*)+(?:\n[^\n]*){0,12}\Z", re.MULTILINE
        ),
        re.compile(r"^\W*\d+[.)] [^\n]*\n\W*[>❯›▸▶►●◉→*] *\d+[.)] [^\n]*(?:\n[^\n]*){0,12}\Z", re.MULTILINE),
        re.compile(r"^\W*[>❯›▸▶→] *1[.)] [^\n]*\b2[.)] [^\n]*(?:\n[^\n]*){0,3}\Z", re.MULTILINE),
        re.compile(
            rf"^\W*[❯›▸▶►◉→] *(?:{_CHOICES})\b[^\n]*(?:\n[^\n]*){{0,8}}\Z", re.MULTILINE | re.IGNORECASE
        ),
        re.compile(
            r"\b(?:[Uu]se (?:the )?arrow keys|[Ee]nter to (?:confirm|select|continue|accept|approve|choose))\b"
            r"[^\n]*(?:\n[^\n]*){0,12}\Z"
        ),
    ),
    prompts=(
        re.compile(
            r"(?<![\w/])(?:y(?:es)?|n(?:o)?)\s?(?:/|\|| or )\s?(?:y(?:es)?|n(?:o)?)(?:/[\w\[\]]+)*(?![\w/])\W*$",
            re.IGNORECASE,
        ),
        re.compile(
            r"\b(?:pass(?:word|phrase|code)|PIN|token|secret|API[ _-]?key|OTP|one-time code|verification code)\b"
            r"[^:>\n]*[:>]\s*$",
            re.IGNORECASE,
        ),
        re.compile(rf"\b(?:{_ASKING})\b[^?\n]*\?\s*$", re.IGNORECASE),
        re.compile(
            r"\b(?:press|hit|type)\b[^\n]{0,40}\b(?:to|for)\b[^\n]*$"
            r"|\b(?:press|hit) (?:any key|enter|return|space)\b[^\n]*$"
            r"|\b(?:enter|return) to (?:continue|confirm|proceed|accept|exit|quit)\b[^\n]*$",
            re.IGNORECASE,
        ),
        re.compile(r"--\s?more\s?--|^\(END\)$|^:$", re.IGNORECASE),
    ),
    questions=(
        re.compile(r"\?[\s:>]*$"),
        re.compile(r"\?\s*[\[(][^\])\n]{1,40}[\])]\W*$"),
    ),
    interrupt=Interrupt(keys=b"\x03", most=3),
    quit=(Press(keys=b"\x03", wait_ms=1_000),),
)
