"""The content of the settings file: its validation, and the change of one value. Pure.

`with_setting` changes one value and leaves every other character as it was: comments, blank lines, order.
"""

import json
from typing import Final

from palaver.config import Settings, parse_file, settings_from
from palaver.protocol.text import check_text

LIMIT_HINTS_BYTES: Final = 1_000


def check_settings(settings: Settings) -> Settings:
    """Refuse texts that agents must not read; return the settings."""
    check_text(settings.hints, "the setting 'hints'", LIMIT_HINTS_BYTES)
    return settings


def parse_settings(content: bytes, name: str) -> Settings:
    """Parse a file of settings as the bus does at its start; raise the same errors."""
    return check_settings(settings_from(parse_file(content, name)))


def format_value(value: str | int) -> str:
    """Format a value as TOML."""
    if isinstance(value, int):
        return str(value)
    # A text of JSON is one of TOML, with two exceptions: TOML has no surrogate pairs, which JSON writes for
    # emoji unless other characters stay as they are, and DEL must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def without_setting(text: str, key: str) -> str:
    """Return a file of settings without a key. Raises ValueError if the text is not TOML without tables."""
    import tomlkit  # Only a change of settings needs it; no start waits for it.

    file = tomlkit.parse(text)
    if key in file:
        file.remove(key)
    return tomlkit.dumps(file)


def with_setting(text: str, key: str, value: str | int) -> str:
    """Return a file of settings in which a key has a value, on its own line or on a new one at the end.

    The text must be TOML without tables, or ValueError is raised. A comment after the old value is kept after
    the new one.
    """
    import tomlkit  # Only a change of settings needs it; no start waits for it.

    file = tomlkit.parse(text)
    if key in file:
        file[key] = tomlkit.value(format_value(value))
        return tomlkit.dumps(file)
    # The library would put it before empty lines at the end.
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}{key} = {format_value(value)}\n"
