r"""The texts that an agent reads: the fence with its messages, and the line typed into a terminal. Pure.

    <pal>[request:pr-123 #42] luna → nova (+2 others): can you review this?</pal>
    <pal>[2 new messages] | [request #42] luna → nova (+1): … | [ack #43] kira → nova: … | (pal: a hint)</pal>

No body or name can close the fence, or forge a head or the tail of the fence:

- In a body one backslash is put before every `[` or `(` that begins like a head or the tail, `\[request #1]`,
  and one after every `<` that begins a fence, `<\/pal>`, or a tag of a harness, `<\system-reminder>`.
  Look-alike characters count as the same. Existing backslashes stay, so that removing one is exact. An
  invisible character is written as its number, `\u{200b}`. All other bodies are unchanged.
- In a thread or name a backslash is put before every character that the head is made of, and before those
  that look like one; `<` and line ends are written `\lt`, `\n` and `\r`, invisible characters as numbers.
"""

import re
import shlex
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from palaver.errors import BadRequest
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
from palaver.protocol.message import BROADCAST, INTENTS, REQUEST, SYSTEM, handlers_of, readable_text
from palaver.protocol.paths import count_others, split_mailbox
from palaver.protocol.tasks import TASK_CREATE

# --------------------
# Tags by which harnesses mark their own text in a prompt. Texts for agents contain them escaped, so that a
# model never takes a message for words of its harness. Pure.

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
# The whole run of backslashes: only their number tells whether the last one begins an escape.
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


@cache
def _to_show() -> re.Pattern[str]:
    """Return the pattern of the parts that are escaped. Compiled on first use: few texts need it.

    It begins with a character class, which is fast to search, and matches each run of backslashes as a whole.
    """
    return re.compile(
        rf"([\\{UNSEEN}](?:(?<=\\)\\*(?:[{UNSEEN}]|{_CODE}|)|(?<!\\)(?!(?<=[{_KEPT_SOMEWHERE}])(?:{KEPT}))))"
    )


def _replace(text: str, write: Callable[[str], str]) -> str:
    """Replace what `_to_show` finds. Each different find is written once: a function per find is slow."""
    parts = _to_show().split(text)
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
    # `show_invisible` doubles the backslashes before a number: an odd one begins the escape.
    count, code = len(found[1]), found[2]
    char = _unseen_of(code)
    return "\\" * (count // 2) + (char if count % 2 else code) if char else found[0]


def _unseen_of(code: str) -> str:
    """Return the character of a number written by `code_of`; empty if it is a visible one."""
    # Only in the spelling of `code_of`: otherwise `\u{0200b}`, which a writer may mean literally, would
    # change.
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
    # A character that is not in the table stays one character: the blank stands only for this length.
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
    # Both cases of each: `fold` uses the table before it makes letters small.
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


LIMIT_TERMINAL: Final = 300
"""Characters of a body that are typed; a longer one is read from its file."""

_INTENT: Final = "|".join(INTENTS)
_MARK: Final = (
    rf"\[\s*(?:(?:{_INTENT})\s*[:#]|thread\s*:|new\s+message\s*\#|\d+\s+new\s+message)"
    r"|\(\s*(?:\+\s*\d+\s+more\s*:|pal\s*:)"
)
"""The beginning of a part of a fence."""


def _like(words: str) -> str:
    """Return a pattern of words in which ASCII letters that look alike are the same.

    A model reads `new rnessage` as `new message`, so a forged head may be written that way too.
    """
    for letter, others in (("[il]", "[il1|]"), ("o", "[o0]"), ("m", "(?:m|rn)"), ("w", "(?:w|vv)")):
        words = re.sub(letter, others.replace("\\", r"\\"), words)
    return words.replace(" ", r"\s+")


_HEADS: Final = (
    rf"\s*(?=[a-z\d|])(?:(?:{'|'.join(map(_like, INTENTS))})\s*[:#]|thread\s*:|{_like('new message')}\s*\#"
    rf"|[\dil|o]+\s+{_like('new message')}|(?:urgent\s+)?{_like('pal message')}"
    rf"|{_like('pal')}\s*-\s*[a-z]+\s*\])"
)
"""The continuation of a head after `[`, in a text whose look-alikes are folded."""
_TAILS: Final = rf"\s*(?=[+p])(?:\+\s*[\dil|o]+\s+{_like('more')}\s*:|{_like('pal')}\s*:)"
"""The continuation of a tail after `(`."""
_TAGS: Final = "|".join(
    sorted({_like(re.sub("[-_]", "[-_]", tag)) for tags in CONTROL_TAGS.values() for tag in tags})
)
_FENCE: Final = rf"\s*(?:/\s*)?(?=[a-z01|])(?:(?:{_like('pal')}|{_TAGS})\b|\|[a-z_]+\|)"
"""The text after `<` in a fence, in a tag of a harness, and in a token of a model, `<|im_start|>`."""

_NOTHING_TO_ESCAPE: Final = re.compile(r"[\t\n\r\x20-\x27\x29-\x3b\x3d-\x5a\x5d-\x7e]*")
"""Plain ASCII without a sign that can begin a head, a tail, a fence or an escape: most bodies."""
_SYSTEM_NAME: Final = re.compile(r"\[pal-[a-z]+\]")
_NOT_SEEN: Final = rf"[{UNSEEN}](?:(?P<kept>{KEPT})|(?P<unseen>))"
_HEAD_SIGNS: Final = "\\[](|<\n\r"
_NOT_DEVICE: Final = re.compile(r"[^A-Za-z0-9]")
_LINE_ENDS: Final = re.compile("\r\n|[\n\r\u2028\u2029]")
_LETTERS: Final = {"<": "lt", "\n": "n", "\r": "r"}
_SIGNS: Final = {letters: sign for sign, letters in _LETTERS.items()}
_ESCAPED: Final = re.compile(r"\\(lt|n|r|u\{[0-9a-f]{2,6}\}|.)", re.DOTALL)

_QUOTED: Final = r"\\."
_THREAD: Final = rf"(?:{_QUOTED}|[^\\\[\](|<\n\r])+"
# A colon before a letter or digit belongs to a device. Any other colon ends the head, so names escape it.
_NAME: Final = rf"\[pal-[a-z]+\]|(?:{_QUOTED}|:(?=[A-Za-z0-9])|[^\\\[\](|<\n\r→:])*"
# Without round brackets: the closing one ends the session in a head.
_SESSION: Final = rf"(?:{_QUOTED}|:(?=[A-Za-z0-9])|[^\\\[\]()|<\n\r→:])+"
# At most the 19 digits of a 64-bit number, because `int` raises for a number with thousands of them.
_HEAD: Final = re.compile(
    rf"\[(?:(?P<intent>{_INTENT})(?::(?P<topic>{_THREAD}))?"
    rf"|thread:(?P<thread>{_THREAD})|new message)"
    r" \#(?P<seq>\d{1,19})(?::(?P<device>[A-Za-z0-9]+))?\]"
    rf" (?P<sender>{_NAME}) → (?P<recipient>{_NAME})(?: \(session (?P<session>{_SESSION})\))?"
    r"(?: \(\+(?P<others>\d{1,19})(?: others?)?\))?: "
)
_COUNT: Final = re.compile(r"\[(\d{1,19}) new messages\]")
_TYPED_HEAD: Final = re.compile(r"\[(?:URGENT )?pal message #(\d{1,18}) from:")
# ` | ` alone is ordinary text in a body. Only before a mark does it separate, and bodies escape marks.
_SEPARATOR: Final = re.compile(rf" \| (?={_MARK})", re.IGNORECASE)
_TAIL: Final = re.compile(r"\(\+\d+ more: pal recv\)|\(pal: .*\)", re.DOTALL)


@cache
def _to_escape() -> re.Pattern[str]:
    """Return the pattern for `escape_body`. Compiled on first use: few bodies need it.

    It begins with a character class, which is fast to search. The position within a run of backslashes does
    not matter.
    """
    return re.compile(rf"[\[(<](?:(?<=\[)(?={_HEADS})|(?<=\()(?={_TAILS})|(?<=<)(?=\\*{_FENCE})(?P<fence>))")


@cache
def _to_unescape() -> re.Pattern[str]:
    """Return the pattern for `unescape_body`. Compiled on first use: few processes need it."""
    return re.compile(rf"\\(?:(?=\[{_HEADS})|(?=\({_TAILS}))|<\\(?=\\*{_FENCE})(?P<fence>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLine:
    """One message as an agent reads it."""

    seq: int
    device: str | None = None
    """Set for a message of another machine: letters and digits."""
    sender: str
    recipient: str
    session: str = ""
    """The session of the recipient whose copy it is."""
    others: int = 0
    intent: str | None = None
    thread: str | None = None
    text: str


def injection_line(event: Event, mailbox: str, device: str) -> MessageLine:
    """Return a message, the copy in a mailbox, as one line of the text for an agent."""
    # A foreign envelope has no message of ours, whatever it claims: its payload is its sender's, who could
    # forge the recipients or the intent.
    message = event.body if isinstance(event.body, MessageSent) else MessageSent()
    recipient, session = split_mailbox(mailbox)
    return MessageLine(
        seq=event.seq,
        device=None if event.device == device else event.device,
        sender=event.sender,
        recipient=recipient,
        session=session,
        others=count_others(message.delivered_to or event.delivered_to),
        intent=message.intent,
        thread=message.thread,
        text=readable_text(event, handled_by=handlers_of(event, mailbox)),
    )


def format_injection(
    lines: Sequence[MessageLine], *, rest: int = 0, hints: str = "", tips: Sequence[str] = ()
) -> str:
    """Format messages into one fence; `rest` is the number of further waiting ones. Empty for no content.

    The caller decides how many messages go together.
    """
    parts = [_format_line(line, is_alone=len(lines) == 1) for line in lines]
    if len(lines) != 1:
        parts.insert(0, f"[{len(lines)} new messages]")
    if rest:
        parts.append(f"(+{rest} more: pal recv)")
    parts.extend(f"(pal: {escape_body(text)})" for text in (hints, *tips) if text)
    return "" if parts == ["[0 new messages]"] else f"<pal>{' | '.join(parts)}</pal>"


def parse_injection(text: str) -> list[MessageLine]:
    """Parse the messages of a fence; raise `BadRequest` if it is not one of ours."""
    if not (text.startswith("<pal>") and text.endswith("</pal>")):
        raise BadRequest("the text must be inside <pal>...</pal>")
    inner = text[len("<pal>") : -len("</pal>")]
    parts = _SEPARATOR.split(inner)
    counted = _COUNT.fullmatch(parts[0])
    if counted:
        del parts[0]
    heads = [_HEAD.match(part) for part in parts]
    tail = [part for part, head in zip(parts, heads, strict=True) if head is None]
    lines = [_parse_line(part, head) for part, head in zip(parts, heads, strict=True) if head is not None]
    if len(lines) != (int(counted[1]) if counted else 1):
        raise BadRequest("the number of messages does not match the header")
    # Messages come first. Everything after them must be a hint.
    if tail != parts[len(lines) :] or not all(_TAIL.fullmatch(part) for part in tail):
        raise BadRequest("there is unexpected text inside <pal>...</pal>")
    return lines


def format_terminal(
    line: MessageLine,
    file: str,
    *,
    is_urgent: bool = False,
    expects_reply: bool = False,
    is_reference: bool = False,
) -> str:
    """Return the text for a terminal: the body, or above 300 characters the file to read.

    `is_reference`: the file to read, however short the body is.

    The head contains the seq for a reply; it says whether the message is urgent, and how to reply if the
    sender expects that.
    """
    is_short = len(line.text) <= LIMIT_TERMINAL and not is_reference
    text = escape_body(line.text) if is_short else format_reference(file)
    urgent = "URGENT " if is_urgent else ""
    answer = f" (response expected: pal send --reply-to {line.seq} -- TEXT)" if expects_reply else ""
    return f"[{urgent}pal message #{line.seq} from: {_escape_name(line.sender)}{answer}] {text}"


def format_reference(file: str) -> str:
    """Return the text that is typed instead of a message: the file to read."""
    return f"Read {file}"


def typed_in(text: str) -> frozenset[int]:
    """Return the seqs of the messages whose text for a terminal is in a text."""
    return frozenset(map(int, _TYPED_HEAD.findall(text)))


def format_one_line(line: MessageLine, limit: int) -> tuple[str, bool]:
    """Return a message on one line of at most `limit` characters, and whether it is complete. No fence.

    For lanes that carry lines. Line ends are shown as signs, and a cut text says where to read the rest.
    """
    head, text = _format_head(line, is_alone=True), escape_body(line.text)
    flat = _LINE_ENDS.sub(" ⏎ ", text)
    if len(head) + len(flat) <= limit:
        return head + flat, flat == text
    tail = f"… (cut; the whole text comes with this, else: pal show {line.seq})"
    return head + flat[: max(0, limit - len(head) - len(tail))] + tail, False


def is_system_name(name: str) -> bool:
    """Return whether a name is a system sender, such as `[pal-events]`."""
    return _SYSTEM_NAME.fullmatch(name) is not None


def escape_body(body: str) -> str:
    """Escape a body so that it cannot close the fence or forge a head; the pair of `unescape_body`."""
    if _NOTHING_TO_ESCAPE.fullmatch(body):
        return body
    # Searched in the folded text, where a forged head has one spelling. The cuts are made in the original.
    shown = show_invisible(body)
    folded = fold(shown)
    # Before `[` or `(`, but after `<`: a reader that searches for `<pal>` must not find it after a backslash.
    found = [one.end() if one.lastgroup else one.start() for one in _to_escape().finditer(folded)]
    if not found:
        return shown
    indices = fold_indices(shown, folded)
    cuts = [0, *(indices[at] for at in found), len(shown)]
    return "\\".join(shown[start:end] for start, end in pairwise(cuts))


def escape_json(text: str) -> str:
    r"""Escape JSON for a model as `escape_body` does for a body, without changing its meaning.

    Text that resembles a head, a fence or a tag begins with a number: `\u003csystem-reminder>`.
    """
    shown = unseen_to_json(text)
    folded = fold(shown)
    found = [one.start() for one in _to_escape().finditer(folded)]
    if not found:
        return shown
    indices = fold_indices(shown, folded)
    cuts = [indices[at] for at in found]
    codes = {char: json_code(char) for char in {shown[at] for at in cuts}}
    rest = [f"{codes[shown[at]]}{shown[at + 1 : end]}" for at, end in pairwise([*cuts, len(shown)])]
    return shown[: cuts[0]] + "".join(rest)


def unescape_body(body: str) -> str:
    """Return the body that was passed to `escape_body`."""
    folded = fold(body)
    indices, parts, start = fold_indices(body, folded), [], 0
    for found in _to_unescape().finditer(folded):
        parts.append(body[start : indices[found.end() - 1]])
        start = indices[found.end()]
    return hide_invisible("".join([*parts, body[start:]]))


def format_message_file(text: str) -> bytes:
    """Return the content of a message's file. It is escaped, because an agent reads it."""
    text = escape_body(text)
    return (text if text.endswith("\n") else f"{text}\n").encode(errors="replace")


def parse_message_file(content: bytes) -> str:
    """Return the text of a message's file, without the line end that the file ends with."""
    return unescape_body(content.decode(errors="replace").removesuffix("\n"))


def _format_line(line: MessageLine, *, is_alone: bool) -> str:
    return _format_head(line, is_alone=is_alone) + escape_body(line.text)


def _format_head(line: MessageLine, *, is_alone: bool) -> str:
    topic = f":{_thread_signs().sub(_escape_sign, line.thread)}" if line.thread else ""
    kind = f"{line.intent}{topic}" if line.intent else f"thread{topic}" if topic else "new message"
    # The device of an imported event is another log's, and could otherwise contain a part of a head.
    device = _NOT_DEVICE.sub("", line.device or "")
    number = f"{line.seq}:{device}" if device else f"{line.seq}"
    others = ""
    if line.others:
        word = "" if not is_alone else " other" if line.others == 1 else " others"
        others = f" (+{line.others}{word})"
    session = f" (session {_name_signs().sub(_escape_sign, line.session)})" if line.session else ""
    names = f"{_escape_name(line.sender)} → {_escape_name(line.recipient)}{session}{others}"
    return f"[{kind} #{number}] {names}: "


def _parse_line(part: str, head: re.Match[str]) -> MessageLine:
    thread = head["topic"] or head["thread"]
    return MessageLine(
        seq=int(head["seq"]),
        device=head["device"],
        sender=_unescape(head["sender"]),
        recipient=_unescape(head["recipient"]),
        session=_unescape(head["session"] or ""),
        others=int(head["others"] or 0),
        intent=head["intent"],
        thread=_unescape(thread) if thread else None,
        text=unescape_body(part[head.end() :]),
    )


def _escape_name(name: str) -> str:
    # System senders are written in brackets, and no other sender can have such a name.
    return name if is_system_name(name) else _name_signs().sub(_escape_sign, name)


@cache
def _thread_signs() -> re.Pattern[str]:
    return re.compile(rf"{_NOT_SEEN}|[{re.escape(alike(_HEAD_SIGNS))}]")


@cache
def _name_signs() -> re.Pattern[str]:
    colons = alike(":")[1:]
    signs = re.escape(alike(_HEAD_SIGNS + "→") + colons)
    return re.compile(rf"{_NOT_SEEN}|[{signs}]|:(?![A-Za-z0-9])")


def _escape_sign(found: re.Match[str]) -> str:
    if found.lastgroup == "kept":
        return found[0]
    if sign := _LETTERS.get(found[0]):
        return "\\" + sign
    # A backslash before a look-alike of `<` does not disarm it: the text after it makes the fence.
    return "\\" + (code_of(found[0]) if found.lastgroup or fold(found[0]) == "<" else found[0])


def _unescape(text: str) -> str:
    if is_system_name(text):
        return text
    return _ESCAPED.sub(_unescape_sign, text)


def _unescape_sign(found: re.Match[str]) -> str:
    sign = found[1]
    return chr(int(sign[2:-1], 16)) if len(sign) > 2 else _SIGNS.get(sign, sign)


# --------------------
# One-time tips: shown when an agent first reads a request, broadcast, thread or task. Pure.
#
# The shown tips are stored with its deliveries, so that a restart repeats none; nothing here remembers them.

REQUEST_TIP: Final = "request"
BROADCAST_TIP: Final = "broadcast"
THREAD_TIP: Final = "thread"
TASK_TIP: Final = "task"
TIPS: Final = (REQUEST_TIP, BROADCAST_TIP, THREAD_TIP, TASK_TIP)


def tips_for(events: Sequence[Event], shown: Collection[str]) -> dict[str, str]:
    """Return the tips for these messages that are not in `shown`, each by its name."""
    found: dict[str, str] = {}
    for event in events:
        for name, sentence in _tips_of(event):
            if name not in shown:
                found.setdefault(name, sentence)
    return found


def _tips_of(event: Event) -> Iterator[tuple[str, str]]:
    message = event.body
    if event.type == TASK_CREATE:
        steps = f"pal task update {event.seq} --status in_progress, then pal task complete {event.seq}"
        yield TASK_TIP, f"report the status: {steps}"
    if not isinstance(message, MessageSent) or message.sender_kind == SYSTEM:
        return
    answer = f"pal send --reply-to {event.seq} -- …"
    if message.intent == REQUEST:
        yield REQUEST_TIP, f"answer with: {answer}"
    if message.scope == BROADCAST:
        yield BROADCAST_TIP, f"this went to everyone; to answer only its sender: {answer}"
    if message.thread is not None:
        yield THREAD_TIP, f"the whole thread: pal thread show {shlex.quote(message.thread)}"
