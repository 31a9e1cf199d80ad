"""Profile of any other program in a terminal: output means active, silence means idle. Pure.

A question near the cursor counts as a dialog: one that takes a word, a number, a secret or just Enter. A
prompt that asks nothing (`>>> `, `> `, `$ `) does not. OSC 7501 and hooks of the program also count.
"""

import re
from typing import Final

from palaver.harness.profile import Interrupt, Press, Profile

_ASKING: Final = r"^\W*(?:Do you want to|Would you like to|Do you trust)\b[^\n]*\?\W*"
_CHOICES: Final = r"yes|no|allow|deny|accept|reject|approve|cancel|always|once|continue|skip|trust|proceed"
_MARK: Final = r"^\W*[>❯›▸▶►●◉→*] *"
_NUMBER: Final = r"\d{1,2}[.)] [^\n]*"
_REST: Final = r"(?:\n[^\n]*){0,12}\Z"
_YES_NO: Final = r"y(?:es)?\s?(?:/|\||\bor\b)\s?n(?:o)?|n(?:o)?\s?(?:/|\||\bor\b)\s?y(?:es)?"
_SECRETS: Final = r"pass(?:word|phrase|code)|PIN|token|secret|API[ _-]?key|OTP|(?:one-time|verification) code"
_ASKED: Final = r"choose|select|pick|enter|type|input|provide|specify|choice|selection|option|answer"
_FIELDS: Final = "|".join(
    (
        _ASKED,
        "confirm",
        "name",
        "user(?:name)?",
        "login",
        "e-?mail",
        "code",
        "number",
        "value",
        "path",
        "file",
    )
)
_GO_ON: Final = r"continue|proceed|confirm|accept|approve|start|begin|close|exit|finish|return|go on"

PROFILE: Final = Profile(
    name="generic",
    dialogs=(
        re.compile(rf"{_ASKING}\n(?:[^\n]*\n){{0,3}}\W*{_NUMBER}(?:\n[^\n]*){{0,20}}\Z", re.MULTILINE),
        re.compile(rf"{_ASKING}(?:\n[^\n]*){{0,11}}\Z", re.MULTILINE),
        re.compile(rf"\b[Pp]ermission required\b[^\n]*{_REST}"),
        re.compile(rf"\bAllow once\b[^\n]*{_REST}"),
        # One of several numbered lines is marked.
        re.compile(rf"{_MARK}{_NUMBER}(?:\n\W*{_NUMBER})+{_REST}", re.MULTILINE),
        re.compile(rf"^\W*{_NUMBER}\n\W*[>❯›▸▶►●◉→*] *{_NUMBER}{_REST}", re.MULTILINE),
        re.compile(rf"{_MARK}1[.)] [^\n]*\b2[.)] [^\n]*{_REST}", re.MULTILINE),
        re.compile(
            rf"^\W*[❯›▸▶►◉→] *(?:{_CHOICES})\b[^\n]*(?:\n[^\n]*){{0,8}}\Z", re.MULTILINE | re.IGNORECASE
        ),
        re.compile(rf"\b[Uu]se (?:the )?arrow keys\b[^\n]*{_REST}"),
        re.compile(rf"\b[Ee]nter to (?:confirm|select|choose|{_GO_ON})\b[^\n]*(?:\n[^\n]*){{0,3}}\Z"),
    ),
    prompts=(
        re.compile(rf"(?<![\w/])(?:{_YES_NO})(?:/[\w\[\]]+)*(?![\w/])\W*$", re.IGNORECASE),
        re.compile(rf"\b(?:{_SECRETS})\b[^:>\n]*[:>]\s*$", re.IGNORECASE),
        re.compile(
            r"\b(?:press|hit|strike)\W+(?:any key|a key|enter|return|space)\b\W*(?:key\W*)?$", re.IGNORECASE
        ),
        re.compile(rf"\b(?:press|hit|strike)\b[^\n]{{0,30}}\bto (?:{_GO_ON})\b[^\n]*$", re.IGNORECASE),
        re.compile(rf"\b(?:enter|return) to (?:{_GO_ON})\b[^\n]*$", re.IGNORECASE),
        re.compile(r"--\s?more\s?--|^\(END\)\s*$", re.IGNORECASE),
        re.compile(rf"^\W*(?:please\W+)?(?:{_ASKED})\b[^\n]*[:：]\s*$", re.IGNORECASE),
    ),
    questions=(
        re.compile(r"[?？؟⁇][\s:：>]*$"),
        re.compile(r"[?？؟]\s*[\[(（【][^\])）】\n]{1,40}[\])）】]\W*$"),
        # A few words to choose from, in any language: `(j/n)`, `[S/n]`.
        re.compile(r"[\[(（【]\s*\w{1,12}(?:\s*[/|,]\s*\w{1,12})+\s*[\])）】]\W*$"),
        re.compile(rf"\b(?:{_FIELDS})\W{{0,3}}[:：>]\s*$", re.IGNORECASE),
    ),
    interrupt=Interrupt(keys=b"\x03", most=3),
    quit=(Press(keys=b"\x03", wait_ms=1_000),),
)
