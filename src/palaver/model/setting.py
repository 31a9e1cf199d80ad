"""The validation of settings, and their lines in `config.toml`. Pure.

`with_setting` changes one line and leaves every other character as it was: comments, blank lines, order.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Final

from palaver.config import Settings, parse_file, settings_from
from palaver.model.text import check_text

LIMIT_HINTS_BYTES: Final = 1_000

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


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
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def with_setting(text: str, key: str, value: str | int) -> str:
    """Return a file of settings in which a key has a value, on its own line or on a new one at the end.

    The text must be TOML without tables, or TOMLDecodeError is raised. A comment after the old value is kept
    after the new one.
    """
    made = f"{key} = {format_value(value)}"
    statements = list(_statements(text))
    for index, statement in enumerate(statements):
        if key in tomllib.loads(statement):
            before, after = statements[:index], statements[index + 1 :]
            return "".join([*before, made + _behind(statement), *after])
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}{made}\n"


def _statements(text: str) -> Iterator[str]:
    """Split a text into statements of one line, or more for a long value; joined they are the text."""
    statement = ""
    for line in _LINE.findall(text):
        statement += line
        if _is_whole(statement):
            yield statement
            statement = ""
    if statement:
        yield statement


def _is_whole(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _behind(statement: str) -> str:
    """Return the text after the value of a statement: blanks, a comment, the line end."""
    found = tomllib.loads(statement)
    end = len(statement.rstrip("\r\n"))
    for place, char in enumerate(statement[:end]):
        if char == "#" and _reads_as(statement[:place], found):
            value = statement[:place].rstrip(" \t")
            return statement[len(value) :]
    value = statement[:end].rstrip(" \t")
    return statement[len(value) :]


def _reads_as(text: str, found: dict[str, object]) -> bool:
    try:
        return tomllib.loads(text) == found
    except tomllib.TOMLDecodeError:
        return False
