"""Remove secrets from texts: values that look like a key or token, or are named as one. Pure.

    curl -H "Authorization: Bearer [redacted]" http://h/v1
    GITHUB_TOKEN=[redacted]        password: [redacted]        use [redacted] now

It recognises the keys of common vendors by their beginnings, JSON web tokens, private key blocks, passwords
in URLs, and values after names such as `password` or `API_KEY`. Plain hexadecimal is not a secret, whatever
its length: people write about commit hashes. It does not protect against secrets that are hidden on purpose.

The time is linear in the length of any text: every pattern begins at a fixed word or at the edge of a run of
letters, and never backtracks. Redacting twice is the same as once.
"""

import base64
import re
from base64 import b64decode
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from palaver.protocol.envelope import Event
from palaver.protocol.message import readable_text
from palaver.protocol.text import counted

REDACTED: Final = "[redacted]"

_MIXED: Final = r"(?=[a-z_-]{0,64}[A-Z0-9])"
"""Not only lower-case letters, as in `sk-translations`."""

_KEYS: Final = (
    r"gh[oprsu]_[A-Za-z0-9]{16,}+",  # GitHub
    r"github_pat_\w{16,}+",
    r"gl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-[\w.-]{16,}+",  # GitLab
    r"AIza[\w-]{30,}+",  # Google
    r"ya29\.[\w-]{16,}+",
    r"GOCSPX-[\w-]{16,}+",
    r"(?:xoxe\.)?xox[a-z]-[\w-]{10,}+",  # Slack
    r"xapp-[0-9]-[\w-]{10,}+",
    r"(?:A3T[A-Z0-9]|ABIA|ACCA|AGPA|AIDA|AKIA|AROA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    r"ABSK[A-Za-z0-9+/]{32,}+=*+",
    rf"sk-{_MIXED}[\w-]{{8,}}+",  # OpenAI, Anthropic, and compatible services
    r"[prs]k_(?:live|test)_[A-Za-z0-9]{10,}+",  # Stripe
    r"whsec_[A-Za-z0-9+/]{16,}+=*+",
    r"SG\.[\w-]{16,}+\.[\w-]{16,}+",  # SendGrid
    r"SK[0-9a-f]{32}(?![A-Za-z0-9])",  # Twilio
    r"[0-9]{8,10}:AA[\w-]{30,}+",  # Telegram
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}+",
    r"(?:hf|npm|gsk|r8|fw|lin_api|nfp|ntn|sbp|shp(?:at|ca|pa|ss)|do[opr]_v1)_[A-Za-z0-9]{20,}+",
    r"(?:dckr_pat|figd|glc|glsa|sntry[su])_[\w-]{20,}+",
    rf"(?:nvapi|pplx|pypi|tskey|xai|HRKU|NRAK|PMAK)-{_MIXED}[\w-]{{20,}}+",
    r"ATATT3[\w=-]{24,}+",  # Atlassian
    r"hv[bs]\.[\w-]{24,}+",  # Vault
    r"dapi[0-9a-f]{32}(?![A-Za-z0-9])",  # Databricks
    r"[MNO][\w-]{22,27}+\.[\w-]{6}\.[\w-]{27,}+",  # Discord
    r"key-[0-9a-f]{32}(?![A-Za-z0-9])",  # Mailgun
    r"sq0[a-z]{3}-[\w-]{22,}+",  # Square
    r"EAA[\w-]{57,}+",  # Facebook, and Square
)
"""The beginnings of vendors' keys, and their minimum lengths."""

# One or several: where one ends, the next may begin without any edge.
_VENDOR: Final = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_KEYS)})++", re.ASCII)
_WEB_TOKEN: Final = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)*+", re.ASCII)

_AFTER_MARKER: Final = (
    # A private key: up to its end or, if that is cut off, all that can be a part of it.
    re.compile(
        r"(-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----)"
        r"(?:[^-]*+(?:-(?!----)[^-]*+)*+(?=-----END )|(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)++)"
    ),
    re.compile(r"(hooks\.slack\.com/[a-z]{1,16}/)[\w/-]{8,}+", re.ASCII),
    re.compile(r"(?<![\w.-])(sig=)[\w%+/=-]{20,}+", re.ASCII),  # Azure's signatures in URLs
    re.compile(
        r"(?<![\w-])(curl[ \t](?:[^\n|;&]{0,256}?[ \t])??(?:-[A-Za-z]{0,8}u[ \t]{0,4}|--user[ \t=]{1,4})"
        r"([\"'])?[^\s:\"'$]{1,128}+:)(?!\$\{?\w+\}?(?:[\"'\s]|$))(?(2)[^\n\"']|[^\s\"']){1,512}+"
    ),
    re.compile(r"(://[^\s/:@?#\"'<>]{0,256}+:)[^\s/@\"'<>]{1,512}+(?=@)"),
    re.compile(
        r"(authorization[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?"
        r"(?:apikey|basic|bearer|digest|negotiate|token)[ \t]{1,8})[^\s\"',;]++",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?<![A-Za-z0-9])(bearer[ \t]{1,8})(?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{12,}+",
        re.IGNORECASE,
    ),
)
"""The first group stays, and the text after it is removed."""

_NAME: Final = re.compile(
    r"(?<![\w.-])([\w.-]++)"
    r"(?:\\{0,3}[\"'`]?\]?[ \t]{0,8}(?P<sign>:=|=>|={1,3}|:(?![:/]))[ \t]{0,8}|[ \t]{1,8})",
    re.ASCII,
)
# `[redacted]` counts as one value. Its bracket would otherwise end the value, and each further run would add
# another bracket.
_VALUE: Final = re.compile(
    r"(?P<q>[\"'`])(?P<quoted>(?:\\.|(?!(?P=q))[^\n\\])*+)"
    r"|\\{1,3}(?P<e>[\"'`])(?P<escaped>(?:(?!\\{1,3}(?P=e))[^\n])*+)"
    r"|(?P<bare>(?:\[redacted\]|<[\w -]{1,64}+>|[^\s\"'`,;&\\)\]}]|[,;)\]}](?=[^\s\"'`,;&\\)\]}])"
    r"|&(?![\w.-]++=)|\\(?![\"'`nr]))++)",
    re.ASCII,
)
_JUDGED_CHARACTERS: Final = 128
"""Characters of a possible secret that are checked. It may begin again at the next name, so an unlimited
check would take quadratic time."""

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_ENDINGS: Final = ("apikey", "passphrase", "passwd", "password", "secret", "token")
_ALWAYS: Final = ("passphrase", "passwd", "password")
# Also ordinary words: alone, they make a secret only of a value that looks random.
_ALONE_MAYBE: Final = frozenset({"authorization", "credential", "credentials", "secret", "token"})
# They count only after another word, as in `db_pass`: `pass` alone is an ordinary word.
_AFTER_ANOTHER: Final = frozenset({"credential", "credentials", "pass", "pwd"})
_KINDS_OF_KEY: Final = frozenset(
    {"access", "account", "api", "auth", "encryption", "private", "secret", "signing"}
)
# In names of environment variables, where `KEY` is seldom an ordinary word.
_SHOUTED: Final = frozenset(
    {"CREDENTIAL", "CREDENTIALS", "KEY", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN"}
)
# Values that stay, because they are not secrets: variables, placeholders, and types or constants in code.
_ORDINARY: Final = re.compile(
    r"\$\{?\w+\}?|<[\w -]+>|\*+|\.{3}|…"
    r"|(?i:str|string|bytes|none|null|nil|true|false|int|bool|boolean|undefined|optional|required|any)",
    re.ASCII,
)
_RANDOM: Final = re.compile(r"(?=[^0-9]{0,64}[0-9])(?=[^A-Za-z]{0,64}[A-Za-z])\S{6,}", re.ASCII)


class _Kept(Enum):
    """How to treat the value of a name."""

    OPEN = auto()
    MAYBE = auto()
    """A secret, if it looks like one."""
    SECRET = auto()
    """A secret, whatever it looks like."""


def redact(text: str) -> str:
    """Replace every secret with `[redacted]`; other text stays as it is."""
    for pattern in (_VENDOR, _WEB_TOKEN):
        text = pattern.sub(REDACTED, text)
    for pattern in _AFTER_MARKER:
        text = pattern.sub(rf"\1{REDACTED}", text)
    return _redact_named(text)


def redact_event(event: Event) -> Event:
    """Redact every string of an event's payload at any depth, by its contents and by its name.

    Bytes under the name `base64` are decoded, and removed completely if they contain a secret.
    """
    return replace(event, payload={key: _redact_value(value, key) for key, value in event.payload.items()})


def _redact_value(value: object, name: str) -> object:
    if isinstance(value, str):
        if name == "base64" and (size_bytes := _hidden_bytes(value)):
            return f"[redacted: {counted(size_bytes, 'byte')}]"
        return REDACTED if _is_secret(value, _kept_after(name)) else redact(value)
    if isinstance(value, Mapping):
        return {key: _redact_value(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_value(inner, name) for inner in value]
    return value


def _hidden_bytes(value: str) -> int:
    """Return the number of bytes of an encoded content that contains a secret; otherwise 0."""
    try:
        # Padding may have been cut off, and too much of it is ignored.
        content = b64decode(value + "===")
    except ValueError:  # It is not encoded content.
        return 0
    # Every byte is a character in this encoding, so it never fails and keeps the ASCII parts.
    text = content.decode("latin-1")
    return len(content) if redact(text) != text else 0


def _redact_named(text: str) -> str:
    parts: list[str] = []
    done = 0
    for found in _NAME.finditer(text):
        if found.start() < done:  # A part of a value that was just removed.
            continue
        kept = _kept_after_sign(found)
        if kept is _Kept.OPEN:
            continue
        if kept is _Kept.MAYBE:
            # Only a limited part is checked: it is not consumed, and would be checked again.
            judged = _VALUE.match(text, found.end(), found.end() + _JUDGED_CHARACTERS)
            if judged is None or not _is_secret(judged[judged.lastgroup or 0], kept):
                continue
        value = _VALUE.match(text, found.end())
        if value is None:
            continue
        start, end = value.span(value.lastgroup or 0)
        # A placeholder or a type stays, but it is consumed: its own words must not be read as names.
        is_ordinary = kept is _Kept.SECRET and not _is_secret(text[start:end], kept)
        parts += [text[done:start], text[start:end] if is_ordinary else REDACTED]
        done = end
    return "".join([*parts, text[done:]])


def _kept_after_sign(found: re.Match[str]) -> _Kept:
    name, sign = found[1], found["sign"]
    if sign is None and not name.startswith("--"):  # Most words of a text end here.
        return _Kept.OPEN
    kept = _kept_after(name)
    if sign is None:  # `--token abc`, but neither "a token for" nor "--token for the bot".
        return _Kept.OPEN if kept is _Kept.OPEN else _Kept.MAYBE
    # `KEY=` is a variable of a shell. `_kept_after` finds only longer names in capitals, because `key` alone
    # is an ordinary word.
    if kept is _Kept.OPEN and name == "KEY" and sign == "=":
        return _Kept.SECRET
    return kept


def _kept_after(name: str) -> _Kept:
    """Judge a name alone: `GITHUB_TOKEN`, `db.password`, `apiKey`, `x-api-key`; but not `max_tokens`."""
    if "_" in name and name.isupper() and not _SHOUTED.isdisjoint(name.split("_")):
        return _Kept.SECRET
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return _Kept.OPEN
    *before, last = words
    if last.endswith(_ALWAYS) or (last == "key" and before and before[-1] in _KINDS_OF_KEY):
        return _Kept.SECRET
    if before and (last.endswith(_ENDINGS) or last in _AFTER_ANOTHER):
        return _Kept.SECRET
    if last in _ALONE_MAYBE:
        return _Kept.MAYBE
    return _Kept.SECRET if last.endswith(_ENDINGS) else _Kept.OPEN


def _is_secret(value: str, kept: _Kept) -> bool:
    if kept is _Kept.SECRET:
        return bool(value) and not _ORDINARY.fullmatch(value)
    return kept is _Kept.MAYBE and _RANDOM.fullmatch(value) is not None


# --------------------
# Events without their text, for `pal redact`: which fields are removed, and which stay. Pure.

REDACTED_TYPE: Final = "redacted"
"""The type of the event that records that a text was removed."""
LEAST_QUOTED: Final = 4
"""Shorter texts are not searched in other events: they would be found by accident."""
FOLDED_TYPES: Final = frozenset({"note_added", "task.create", "task.update", "task.complete", "bundle"})
"""Types whose text is also in rows of the fold: the rows are rebuilt after it is removed."""

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "message": ("text", "raw", "hash"),
    "life": ("text",),
    "delivery": ("evidence",),
    "note_added": ("text",),
    "task.create": ("title", "description"),
    "task.update": ("title", "description"),
    "task.complete": ("summary",),
    "bundle": ("title", "description"),
}
_ROUTED: Final = ("command", "payload")
"""The content of a routed message. Both fields are removed, so that the message reads as one with a removed
text."""
_EMPTY: Final = frozenset({"raw", "hash"})
"""Fields that are emptied instead: other code reads their form."""
_PRINTED: Final = re.compile(rf"[^\x00-\x1f\x7f]{{{LEAST_QUOTED},}}")


def can_remove(event: Event, *, is_foreign: bool) -> bool:
    """Return whether an event has a text that can be removed. A foreign payload is removed completely."""
    if is_foreign or _is_routed(event):
        return True
    return any(isinstance(event.payload.get(key), str) for key in _FIELDS.get(event.type, ()))


def removed_text(event: Event, *, is_foreign: bool) -> str:
    """Return the text that is removed from an event, for a hash and to search for copies."""
    if is_foreign:
        return msgspec.json.encode(event.payload).decode()
    raw = event.payload.get("raw")
    if event.type == "message" and isinstance(raw, str) and raw:
        return base64.b64decode(raw).decode("utf-8", "replace")
    if _is_routed(event):
        return readable_text(event, is_whole=True)
    texts = (event.payload.get(key) for key in _FIELDS[event.type] if key not in _EMPTY)
    return "\n".join(text for text in texts if isinstance(text, str))


def without_text(event: Event, *, is_foreign: bool) -> Event:
    """Return the event without its text. Everything that decides about its delivery stays."""
    if is_foreign:
        return replace(event, payload={"text": REDACTED})
    payload = dict(event.payload)
    if _is_routed(event):
        # A text, so that the loop below replaces it, as in a message that never had a command.
        payload |= {"text": ""}
        payload = {key: value for key, value in payload.items() if key not in _ROUTED}
    for key in _FIELDS[event.type]:
        if isinstance(payload.get(key), str):
            payload[key] = "" if key in _EMPTY else REDACTED
    return replace(event, payload=payload)


def _is_routed(event: Event) -> bool:
    return event.type == "message" and any(key in event.payload for key in _ROUTED)


def is_removed(event: Event, *, is_foreign: bool) -> bool:
    """Return whether the text of an event was removed: there is nothing left to remove."""
    return can_remove(event, is_foreign=is_foreign) and event == without_text(event, is_foreign=is_foreign)


def pieces_of(text: str) -> list[str]:
    """Return the printable pieces of a text that are long enough to be searched, as JSON writes them."""
    pieces = (piece.strip() for piece in _PRINTED.findall(text))
    return [msgspec.json.encode(piece).decode()[1:-1] for piece in pieces if len(piece) >= LEAST_QUOTED]


# --------------------
# Detect whether the line at the cursor asks for a secret. Pure.
#
# A terminal that does not echo reports it itself. Programs that draw their own input are recognised by the
# words before the cursor, or by the signs that they draw instead of the typed text.

_WORDS: Final = re.compile(
    r"(?:\b(?:pass(?:word|phrase|code)|PIN|token|secret|(?:API|access|private)[ _-]?key|OTP"
    r"|(?:one-time|verification|authori[sz]ation|access) code|passwort|kennwort|mot de passe|contraseña|senha"
    r"|пароль)\b|密码|密碼|パスワード)[^:>\n]{0,80}(?:[:：>›»❯]|\[(?:input is )?hidden\])\s*$",
    re.IGNORECASE,
)
_MASKED: Final = re.compile(r"[*•●∙·⦁]{2,}\s*$")


def asks_secret(before_cursor: str) -> bool:
    """Return whether the text that ends at the cursor asks for a secret, or hides one that is being typed."""
    return _WORDS.search(before_cursor) is not None or _MASKED.search(before_cursor) is not None
