"""Escape the tags by which harnesses mark their own text in a prompt. Pure.

A separate module from `agent_text.py`, because it changes with the harnesses, and the fence does not.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

# --------------------
# Tags by which harnesses mark their own text in a prompt; texts for agents contain them escaped. Pure.

CONTROL_TAGS: Final = {
    "claude": (
        *(
            "system-reminder",
            "system-note",
            "system",
            "task-notification",
            "tool_use_error",
            "function_results",
        ),
        *(
            "function_calls",
            "antml:function_calls",
            "antml:invoke",
            "invoke",
            "command-name",
            "command-message",
        ),
        *(
            "command-args",
            "local-command-stdout",
            "local-command-stderr",
            "local-command-caveat",
            "bash-input",
        ),
        *("bash-stdout", "bash-stderr", "user-prompt-submit-hook", "session-start-hook", "user-memory-input"),
        *("persisted-output", "new-diagnostics", "mcp-server-note", "mcp-resource", "non-user-message"),
        *(
            "user-message",
            "agent-message",
            "cross-session-message",
            "teammate-message",
            "channel",
            "tool-call",
        ),
        *(
            "tool-result",
            "cc-memory",
            "claude_md",
            "user_claude_md",
            "autonomous-loop",
            "artifact-room-event",
        ),
        *("webhook-payload", "previous-conversation", "pasted_content", "sandbox_violations", "total_tokens"),
    ),
    "codex": (
        *(
            "environment_context",
            "user_instructions",
            "instructions",
            "permissions instructions",
            "turn_aborted",
        ),
        *(
            "collaboration_mode",
            "skills_instructions",
            "apps_instructions",
            "plugins_instructions",
            "model_switch",
        ),
        *("environments_instructions", "managed_developer_instructions", "model_instructions", "user_action"),
        *("user_shell_command", "subagent_notification", "agent_message_board_notification", "proposed_plan"),
        *("codex_internal_context", "codex_delegation", "context_window", "context_window_reminder"),
        *(
            "context_window_guidance",
            "current_time_reminder",
            "persistent_mode",
            "permission_profile",
            "user_query",
        ),
        *(
            "multi_agent_mode",
            "multi_agent_role",
            "startup_context",
            "personality_spec",
            "token_budget",
            "skill",
        ),
        *(
            "user_verification_notice",
            "content_filter_guidance",
            "untrusted_objective",
            "realtime_conversation",
        ),
    ),
    "gemini": (
        *("hook_context", "session_context", "state_snapshot", "loaded_context", "extension_context"),
        *("project_context", "global_context", "untrusted_context", "user_project_memory", "activated_skill"),
        *(
            "available_skills",
            "available_subagents",
            "system_note",
            "background_output",
            "tool_output_masked",
        ),
        *("original_user_request", "user_input"),
    ),
    "opencode": (
        *("system-reminder", "system-update", "conversation-checkpoint", "recent-context", "prior-summary"),
        *("mcp_instructions", "shell_metadata", "skill_content", "available_references", "available_skills"),
        *("github_action_context", "env"),
    ),
}
"""Per harness, the names of its tags, as the tested versions write them."""

# --------------------
# Invisible characters in texts for agents, and characters that look like others. Pure.
#
# `show_invisible` writes each invisible character as `\u{200b}`; `hide_invisible` is its inverse. `fold`
# turns look-alikes into the ASCII character they look like, so that a forged head is recognised.

# Invisible characters

_JOINING: Final = (
    "\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff\u0710-\u074f\u0750-\u077f\u07ca-\u07ea\u08a0-\u08c7"  # Arabic
    "\u0900-\u0dff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17b3\u17b6-\u17dd\u1820-\u18aa"  # Indic, Khmer
    "\u1a20-\u1aad\u1b05-\u1b4b\ua840-\ua871\ufb50-\ufdfb\ufe70-\ufefc\U00011000-\U00011fff"
)
"""Letters of scripts in which a joiner or non-joiner changes how a word is written."""
_PICTURES: Final = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_IDEOGRAPHS: Final = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

UNSEEN: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""For a character class: controls, characters without width, direction marks, tags, variants and blanks."""
KEPT: Final = (
    rf"(?<=[{_PICTURES}\ufe0f]\u200d)(?=[{_PICTURES}])"  # one emoji made of several
    rf"|(?<=[{_JOINING}][\u200c\u200d])(?=[{_JOINING}\s]|$)"
    rf"|(?<=[{_PICTURES}][\ufe0e\ufe0f])|(?<=[0-9#*]\ufe0f)(?=\u20e3)"
    rf"|(?<=[{_IDEOGRAPHS}][\ufe00-\ufe02\U000e0100-\U000e01ef])"
    r"|(?<=[\u1820-\u18aa][\u180b-\u180d\u180f])"
)
"""A pattern of the position after such a character at which it is needed, and stays."""
_KEPT_SOMEWHERE: Final = "\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""The only characters to which `KEPT` applies. Checked first, because `KEPT` is slow."""
_CODE: Final = r"u\{[0-9a-f]{2,6}\}"
_IS_UNSEEN: Final = re.compile(f"[{UNSEEN}]")
# It begins with a character class, which is fast to search, and matches each run of backslashes as a whole.
_TO_SHOW: Final = re.compile(
    rf"([\\{UNSEEN}](?:(?<=\\)\\*(?:[{UNSEEN}]|{_CODE}|)|(?<!\\)(?!(?<=[{_KEPT_SOMEWHERE}])(?:{KEPT}))))"
)
_TO_HIDE: Final = re.compile(rf"(?<!\\)(\\+)({_CODE})")


def show_invisible(text: str) -> str:
    r"""Write invisible characters as `\u{200b}`; joiners stay if a script or an emoji needs them.

    Backslashes before such a number are doubled, so that `hide_invisible` is exact.
    """
    has_any = "\\u{" in text or _IS_UNSEEN.search(text)
    return _replace(text, _show) if has_any else text


def hide_invisible(text: str) -> str:
    """Return the text that was passed to `show_invisible`."""
    return _TO_HIDE.sub(_hide, text)


def unseen_to_json(text: str) -> str:
    r"""Write each invisible character in JSON as an escape, `\u200b`; the content stays the same."""
    return _replace(text, _show_json) if _IS_UNSEEN.search(text) else text


def json_code(char: str) -> str:
    r"""Return the JSON escape of one character: `\u003c`; beyond 16 bits as a pair."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def code_of(char: str) -> str:
    r"""Return the number form of one character: `u{200b}`, without the backslash before it."""
    return f"u{{{ord(char):02x}}}"


def _replace(text: str, write: Callable[[str], str]) -> str:
    """Replace what `_TO_SHOW` finds. Each different find is written once: a function per find is slow."""
    parts = _TO_SHOW.split(text)
    finds = parts[1::2]
    written = {find: write(find) for find in set(finds)}
    parts[1::2] = [written[find] for find in finds]
    return "".join(parts)


def _show(find: str) -> str:
    last = find[-1]
    if last == "}":
        code = find[find.index("u") :]
        return find[: -len(code)] * 2 + code if _unseen_of(code) else find
    return find if last == "\\" else find[:-1] * 2 + "\\" + code_of(last)


def _show_json(find: str) -> str:
    return find if find[-1] in "\\}" else find[:-1] + json_code(find[-1])


def _hide(found: re.Match[str]) -> str:
    count, code = len(found[1]), found[2]
    char = _unseen_of(code)
    return "\\" * (count // 2) + (char if count % 2 else code) if char else found[0]


def _unseen_of(code: str) -> str:
    """Return the character of a number written by `code_of`; empty if it is a visible one."""
    number = int(code[2:-1], 16)
    char = chr(number) if number < 0x110000 else ""
    return char if _IS_UNSEEN.match(char) and code_of(char) == code else ""


# Look-alikes

_ALIKE: Final = {
    "a": "ɑαаᎪᗅᴀ⍺ꓮꭺ",
    "b": "ƅβвьᏏᏼᑲᖯᗷꓐꮟʙ",
    "c": "ϲсᏟᴄⲥꓚꮯ",
    "d": "ԁᎠᏧᑯᗞᗪᴅꓒꓓꭰꮷ",
    "e": "εеҽᎬᴇ℮⋿ⴹꓰꬲꭼ",
    "f": "ϝքᖴẝꓝꞙꬵ",
    "g": "ɡցᏀᏳᏻᶃꓖꮐɢ",
    "h": "ηнһհᎻᏂᕼⲏꓧꮋꮒʜ",
    "i": "ıɩɪιіӏᎥᛁ⍳ⵏꓲꙇꭵ",
    "j": "ϳјᎫᒍᴊꓙꭻ",
    "k": "κкᏦᛕᴋⲕꓗꮶ",
    "l": "ƖǀᏞᒪⳑꓡꮮʟ∣￨",
    "m": "μмᎷᗰᴍⲙꓟꮇϻ",
    "n": "ոռɴⲛꓠпһ",
    "o": "οσоօᴏᴑⲟⵔ〇ꓳꬽ",
    "p": "ρрᏢᑭᴘ⍴ⲣꓑꮲ",
    "q": "ԛգզⵕ",
    "r": "ʀгᎡᎱᏒᖇᴦⲅꓣꭇꭈꭱꮁꮢ",
    "s": "ƽѕՏᏕᏚꓢꜱꮥꮪ",
    "t": "τтᎢᴛ⊤⟙ⲧꓔꭲ",
    "u": "ʋυսᑌᴜꓴꞟꭎꭒ",
    "v": "νѵᏙᐯᴠ∨⋁ⴸꓦꮩ",
    "w": "ɯѡԝաᎳᏔᴡꓪꮃꮤω",
    "x": "×χхᕁᕽ᙭⤫⤬⨯ⲭⵝꓫ",
    "y": "ɣʏγуүყᎩᎽᶌỿⲩꓬꭚꭹꮍ",
    "z": "ζᏃᴢꓜꮓ",
    "[": "⁅❲【〔〖〘〚⟦⟬⦋⦍⦏⸢⸤「『⌈⌊",
    "]": "⁆❳】〕〗〙〛⟧⟭⦌⦎⦐⸣⸥」』⌉⌋",
    "(": "❨❪⦅⸨⟮⁽₍﴾",
    ")": "❩❫⦆⸩⟯⁾₎﴿",
    "<": "˂ᐸᚲ‹❮❬❰⟨⟪〈《⧼≺«⪡",
    ">": "˃ᐳ›❯❭❱⟩⟫〉》⧽≻»⪢",
    "/": "᜵⁁⁄∕╱⟋⧸ノ〳丿",
    ":": "ː˸։׃܃܄ःઃ᛬᠃⁚∶ꓽ꞉",
    "#": "♯⋕⌗⧣",
    "+": "᛭➕",
    "|": "│┃❘❙❚⏐⎪",
    "-": "˗‐‑‒–—−⁃➖Ⲻ﹘ー",
    "→": "➔➙➛➜➝➞➟➠⟶⇒⇨⮕⭢⟹￫↦➤",
    "_": "‗﹍﹎﹏",
}
"""Per ASCII character, those of other scripts that look like it, from the confusables of Unicode."""

_COMPATIBLE: Final = (
    *((0xA0, 0x250), (0x2B0, 0x300), (0x1D2C, 0x1DC0), (0x1E9A, 0x1E9F), (0x2000, 0x2190), (0x2460, 0x2500)),
    *(
        (0x2A70, 0x2A80),
        (0x2C7C, 0x2C7E),
        (0x3000, 0x3040),
        (0x3200, 0x3400),
        (0xA69C, 0xA800),
        (0xAB5C, 0xAB6A),
    ),
    *((0xFB00, 0xFB30), (0xFE10, 0xFE70), (0xFF01, 0xFFEF), (0x10780, 0x107BB), (0x1D400, 0x1D800)),
    *((0x1E030, 0x1E06E), (0x1F100, 0x1F191), (0x1FBF0, 0x1FBFA), (0x2474, 0x24B6)),
)
"""Blocks with characters that compatibility normalization turns into others."""


def fold(text: str) -> str:
    """Return the text in lower case, with look-alikes replaced by the ASCII they look like.

    Invisible characters are left out, also those that `show_invisible` keeps, so that none hides a part.
    """
    return text.lower() if text.isascii() else text.translate(_fold_table()).lower()


def fold_indices(text: str, folded: str) -> Sequence[int]:
    """Return the index in `text` of each character of `fold(text)`, and the length of `text` as the last."""
    if len(folded) == len(text) and not _IS_UNSEEN.search(text):  # None was left out, so each became one.
        return range(len(text) + 1)
    table = _fold_table()
    return [*(index for index, char in enumerate(text) for _ in table.get(ord(char), " ")), len(text)]


@cache
def _fold_table() -> dict[int, str]:
    ranges = re.findall("(.)-(.)|(.)", UNSEEN, re.DOTALL)
    unseen = (code for first, last, one in ranges for code in range(ord(first or one), ord(last or one) + 1))
    return {**_table(), **dict.fromkeys(unseen, "")}


def alike(signs: str) -> str:
    """Return those signs and every character that looks like one of them."""
    return signs + "".join(chr(code) for code, to in _table().items() if to in signs)


@cache
def _table() -> dict[int, str]:
    table = {ord(form): to for to, some in _ALIKE.items() for char in some for form in _cases(char)}
    for first, last in _COMPATIBLE:
        for code in range(first, last):
            plain = unicodedata.normalize("NFKC", chr(code)).casefold()
            if code not in table and plain != chr(code):
                table[code] = "".join(table.get(ord(char), char) for char in plain)
    # A backslash escapes, so it has no look-alikes.
    return {code: to for code, to in table.items() if to and "\\" not in to}


def _cases(char: str) -> set[str]:
    return {form for form in (char, char.lower(), char.upper()) if len(form) == 1 and not form.isascii()}
