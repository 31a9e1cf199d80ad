"""Detect whether the line at the cursor asks for a secret. Pure.

A terminal that does not echo reports it itself. Programs that draw their own input are recognised by the
words before the cursor, or by the signs that they draw instead of the typed text.
"""

import re
from typing import Final

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
