"""A setting as it is checked and written down: what its text may hold, and its line in `config.toml`. Pure.

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
    """Refuse what no agent may be given to read; the settings themselves come back."""
    check_text(settings.hints, "the setting 'hints'", LIMIT_HINTS_BYTES)
    return settings


def parse_settings(content: bytes, name: str) -> Settings:
    """Read a file of settings as the bus does when it starts; raises what it would refuse to start with."""
    return check_settings(settings_from(parse_file(content, name)))


def format_value(value: str | int) -> str:
    """Write a value as TOML reads it back."""
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def with_setting(text: str, key: str, value: str | int) -> str:
    """Give a file of settings in which a key has a value, on its own line or on a new one at the end.

    The text must be TOML without tables, or TOMLDecodeError is raised. A comment behind the old value stays
    behind the new one.
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
    """Cut a text into lines, or several where a value runs over them; together they are the text."""
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
    """Give what stands behind the value of a statement: blanks, a comment, the line's end."""
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
