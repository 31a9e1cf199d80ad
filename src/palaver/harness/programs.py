"""Profiles of programs in a terminal that have no folder here, and profile files of users. Pure."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.harness.base import LIMIT_LINE, Interrupt, KeyPress, Profile, View, compile_rule
from palaver.harness.hooks import PERMISSION

# --------------------
# Profile of any other program in a terminal: output means active, silence means idle.
#
# A question near the cursor counts as a dialog: one that takes a word, a number, a secret or just Enter. A
# prompt that asks nothing (`>>> `, `> `, `$ `) does not. OSC 7501 and hooks of the program also count.

_ASKING: Final = r"^\W*(?:Do you want to|Would you like to|Do you trust)\b[^\n]*\?\W*"
_CHOICES: Final = r"yes|no|allow|deny|accept|reject|approve|cancel|always|once|continue|skip|trust|proceed"
_SELECTED: Final = r"^\W*[>❯›▸▶►●◉→*] *"
"""The sign before the selected one of several choices."""
_NUMBER: Final = r"\d{1,2}[.)] [^\n]*"
_REST: Final = r"(?:\n[^\n]*){0,12}\Z"
"""The other lines of a dialog: up to 12, to the end of the screen.

The limit keeps earlier output that only mentions such a question from counting as an open dialog.
"""
_YES_NO: Final = r"y(?:es)?\s?(?:/|\||\bor\b)\s?n(?:o)?|n(?:o)?\s?(?:/|\||\bor\b)\s?y(?:es)?"
_SECRETS: Final = r"pass(?:word|phrase|code)|PIN|token|secret|API[ _-]?key|OTP|(?:one-time|verification) code"
_REQUESTS: Final = r"choose|select|pick|enter|type|input|provide|specify|choice|selection|option|answer"
_FIELDS: Final = "|".join(
    (
        _REQUESTS,
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

GENERIC: Final = Profile(
    name="generic",
    dialogs=(
        re.compile(rf"{_ASKING}\n(?:[^\n]*\n){{0,3}}\W*{_NUMBER}(?:\n[^\n]*){{0,20}}\Z", re.MULTILINE),
        re.compile(rf"{_ASKING}(?:\n[^\n]*){{0,11}}\Z", re.MULTILINE),
        re.compile(rf"\b[Pp]ermission required\b[^\n]*{_REST}"),
        re.compile(rf"\bAllow once\b[^\n]*{_REST}"),
        # One of several numbered lines is marked.
        re.compile(rf"{_SELECTED}{_NUMBER}(?:\n\W*{_NUMBER})+{_REST}", re.MULTILINE),
        re.compile(rf"^\W*{_NUMBER}\n\W*[>❯›▸▶►●◉→*] *{_NUMBER}{_REST}", re.MULTILINE),
        re.compile(rf"{_SELECTED}1[.)] [^\n]*\b2[.)] [^\n]*{_REST}", re.MULTILINE),
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
        re.compile(rf"^\W*(?:please\W+)?(?:{_REQUESTS})\b[^\n]*[:：]\s*$", re.IGNORECASE),
    ),
    questions=(
        re.compile(r"[?？؟⁇][\s:：>]*$"),
        re.compile(r"[?？؟]\s*[\[(（【][^\])）】\n]{1,40}[\])）】]\W*$"),
        # A few words to choose from, in any language: `(j/n)`, `[S/n]`.
        re.compile(r"[\[(（【]\s*\w{1,12}(?:\s*[/|,]\s*\w{1,12})+\s*[\])）】]\W*$"),
        re.compile(rf"\b(?:{_FIELDS})\W{{0,3}}[:：>]\s*$", re.IGNORECASE),
    ),
    interrupt=Interrupt(keys=b"\x03", most=3),
    quit=(KeyPress(keys=b"\x03", wait_ms=1_000),),
)

# --------------------
# Profile of aider in a terminal, as version 0.86 draws it.
#
# aider asks its questions in the same line editor as its prompt, with bracketed paste on. So only its own
# prompts count as prompts: `> `, `ask> `, `architect> `. In multi-line mode (`multi> `) Enter sends nothing.

AIDER: Final = replace(
    GENERIC,
    name="aider",
    takes_messages=(re.compile(r"(?:(?!multi)[a-z][a-z-]{0,30})?>"),),
    has_known_prompts=True,
    # A second Ctrl-C within two seconds ends it.
    interrupt=Interrupt(keys=b"\x03"),
)

# --------------------
# Profile of GitHub Copilot CLI in a terminal, as version 1.0 draws it.
#
# Its composer is a frame of half blocks around the cursor. While a dialog is open there is no composer.

_COPILOT_TOP: Final = re.compile(r"╻▄{8,}$")
_COPILOT_BOTTOM: Final = re.compile(r"╹▀{8,}$")
_COPILOT_SIDE: Final = "┃"
_COPILOT_TEXT_COLUMN: Final = 2
_COPILOT_SHELL: Final = re.compile(r"(?:^|·) *Shell(?: *·|$)")


def read_copilot_composer(view: View) -> str | None:
    """Return the text in the frame around the cursor; None if there is no composer."""
    top = bottom = view.row
    while 0 <= top < len(view.lines) and view.lines[top].startswith(_COPILOT_SIDE):
        top -= 1
    while bottom < len(view.lines) and view.lines[bottom].startswith(_COPILOT_SIDE):
        bottom += 1
    if not (0 <= top < view.row < bottom < len(view.lines)):
        return None
    if not _COPILOT_TOP.match(view.lines[top]) or not _COPILOT_BOTTOM.match(view.lines[bottom]):
        return None
    # Faint text in the frame is a hint of the program, not a draft.
    text = "\n".join(row[_COPILOT_TEXT_COLUMN:] for row in view.bright[top + 1 : bottom])
    below = view.lines[bottom + 1] if bottom + 1 < len(view.lines) else ""
    # In its shell mode Enter runs a command, so the composer never counts as empty there.
    return f"!\n{text}" if _COPILOT_SHELL.search(below) else text


COPILOT: Final = Profile(
    name="copilot",
    read_composer=read_copilot_composer,
    dialogs=(
        re.compile(r"^ *[│┃] *❯ *\d+\. ", re.MULTILINE),
        re.compile(r"^ *[│┃] *[^\n]*\benter to (?:select|confirm|submit)\b", re.MULTILINE | re.IGNORECASE),
    ),
    busy=(re.compile(r"\besc to (?:cancel|interrupt|stop)\b", re.IGNORECASE),),
    has_paste=True,
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(KeyPress(keys=b"\x03", wait_ms=500), KeyPress(keys=b"\x03", wait_ms=5_000)),
)

# --------------------
# Profile of Qwen Code in a terminal, as version 0.15 draws it.
#
# Its composer is between the last two rules on the screen; its cursor is hidden and elsewhere. While a dialog
# is open there is no composer.

_QWEN_RULE: Final = re.compile(r"─{8,}$")
_QWEN_PROMPT: Final = re.compile(r"(?P<mode>[>!*]) ?")
_QWEN_TEXT_COLUMN: Final = 2
_QWEN_EMPTY: Final = "Typeyourmessageor@path/to/file"
"""The text of an empty composer, without blanks."""
_QWEN_COMMANDS: Final = "Press'i'forINSERTmode"
"""Shown while keys are editor commands instead of text."""


def read_qwen_composer(view: View) -> str | None:
    """Return the text between the last two rules; None if there is no composer."""
    # Rules in the conversation are above the composer, so only the last two can be its frame.
    rules = [row for row, line in enumerate(view.lines) if _QWEN_RULE.match(line)][-2:]
    if len(rules) < 2 or rules[1] - rules[0] < 2:
        return None
    top, bottom = rules
    prompt = _QWEN_PROMPT.match(view.lines[top + 1])
    if prompt is None:
        return None
    rows = [row[_QWEN_TEXT_COLUMN:] for row in view.lines[top + 1 : bottom]]
    # Compared without blanks, because a narrow window wraps the hint.
    written = "".join("".join(rows).split())
    if written.startswith(_QWEN_COMMANDS):
        return None
    text = "" if written == _QWEN_EMPTY else "\n".join(rows)
    # In its shell mode Enter runs a command, so the composer never counts as empty there.
    return f"!\n{text}" if prompt["mode"] == "!" else text


QWEN: Final = Profile(
    name="qwen",
    read_composer=read_qwen_composer,
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
    quit=(KeyPress(keys=b"\x03", wait_ms=500), KeyPress(keys=b"\x03", wait_ms=5_000)),
)

# --------------------
# A profile that a user wrote for a program: a TOML file in the `profiles` folder of the home.
#
# -> commands = ["mytool"]        # program names; without it the name of the file
# -> prompts = ['you> ']          # the whole line up to the cursor, where a message may be typed
# -> dialogs = ['Proceed\?']      # on any line of the screen: a question is open, and nothing is typed
# -> interrupt = "ctrl-c"         # or "escape" or "none"
# -> settle_ms = 300              # between the text and Enter
# -> idle_after_ms = 2000         # this much silence means that the program is idle

LIMIT_BYTES: Final = 64 * 1024
_LIMIT_RULES: Final = 20
_LIMIT_MS: Final = 60_000
_INTERRUPTS: Final[Mapping[str, Interrupt]] = {
    "ctrl-c": Interrupt(keys=b"\x03", most=3),
    "escape": Interrupt(keys=b"\x1b"),
    "none": Interrupt(keys=b"", most=0),
}


class _ProfileFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    commands: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    dialogs: tuple[str, ...] = ()
    interrupt: str = "ctrl-c"
    settle_ms: int = GENERIC.settle_ms
    idle_after_ms: int = GENERIC.idle_after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProfile:
    """A profile and the program names that it is for."""

    profile: Profile
    commands: tuple[str, ...]


def parse_user_profile(name: str, content: bytes) -> UserProfile:
    """Read a profile file; `name` is its name without `.toml`. Raises BadRequest for a mistake."""
    where = f"profile {name}"
    # The reader passes an empty content for a file that it could not read.
    if not content or len(content) > LIMIT_BYTES:
        raise BadRequest(f"{where} is empty, cannot be read or is larger than {LIMIT_BYTES} bytes")
    try:
        file = msgspec.convert(tomllib.loads(content.decode()), _ProfileFile)
    except UnicodeDecodeError:
        raise BadRequest(f"{where} is not UTF-8") from None
    except msgspec.ValidationError as error:
        raise BadRequest(
            f"{where}: {error}; it may have {', '.join(_ProfileFile.__struct_fields__)}"
        ) from None
    # The parser raises RecursionError for deep nesting, and a plain ValueError for huge numbers.
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{where} is not TOML: {error}") from None
    if file.interrupt not in _INTERRUPTS:
        raise BadRequest(f"{where}: interrupt must be {' or '.join(map(repr, _INTERRUPTS))}")
    for field, value in (("settle_ms", file.settle_ms), ("idle_after_ms", file.idle_after_ms)):
        if not 0 < value <= _LIMIT_MS:
            raise BadRequest(f"{where}: {field} must be a number from 1 to {_LIMIT_MS}")
    if max(len(file.prompts), len(file.dialogs)) > _LIMIT_RULES:
        raise BadRequest(
            f"{where} has too many rules: use at most {_LIMIT_RULES} prompts and {_LIMIT_RULES} dialogs"
        )
    dialogs = tuple(compile_rule(one, f"{where}: dialog {one!r}") for one in file.dialogs)
    profile = replace(
        GENERIC,
        name=name,
        takes_messages=tuple(compile_rule(one, f"{where}: prompt {one!r}") for one in file.prompts),
        has_named_prompt=bool(file.prompts),
        # Not `dialogs`, whose rules see the whole screen at once: the rules of a user are safe only for one
        # line of limited length. The dialogs of the generic profile apply in addition.
        read_dialog=lambda view: _read_dialog(dialogs, view),
        interrupt=_INTERRUPTS[file.interrupt],
        settle_ms=file.settle_ms,
        idle_after_ms=file.idle_after_ms,
    )
    return UserProfile(profile=profile, commands=file.commands or (name,))


def _read_dialog(dialogs: tuple[re.Pattern[str], ...], view: View) -> str | None:
    is_open = any(rule.search(line[:LIMIT_LINE]) for rule in dialogs for line in view.lines)
    return PERMISSION if is_open else None


def with_prompt(profile: Profile, prompt: str) -> Profile:
    """Add the rule of `pal run --prompt`. Raises BadRequest if it is not a valid rule."""
    if not prompt:
        return profile
    rules = (*profile.takes_messages, compile_rule(prompt, "--prompt"))
    return replace(profile, takes_messages=rules, has_named_prompt=True)
