"""Add our table to a user's TOML file, and remove it again. Pure: a text in, a text out.

A program that rewrites the file moves lines, drops comments and adds its tables anywhere. So the table is
identified by its name alone: only its own lines are removed, and comments that only Palaver writes. Raises
ValueError if the text cannot be parsed or the table cannot be cut out.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from palaver.harness.merging import Made, Merged, Unmerged

_NOTE: Final = "# Palaver: 'pal uninstall {}' removes this table"
_OLD_NOTES: Final = ("# Palaver begins: 'pal uninstall {}' removes this", "# Palaver ends")
"""Earlier versions wrote these around the table. Codex may add its own tables between them."""
_TOKEN: Final = re.compile(
    r"""
    \#[^\n]*                                    # a comment
    | \"{3}(?:\\.|[^\\])*?\"{3,5}               # strings of many lines; two quotes more may stand at the end
    | '{3}.*?'{3,5}
    | "(?:\\.|[^"\\\n])*" | '[^'\n]*'           # strings of one line
    | (?P<open>[\[{]) | (?P<close>[\]}])
    | (?P<end>\n)
    | [^\#"'\[\]{}\n]+
    """,
    re.DOTALL | re.VERBOSE,
)


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One statement with its line end; a value over several lines is still one statement."""

    text: str
    table: tuple[str, ...] | None = None
    """The table that it is the header of."""

    @property
    def word(self) -> str:
        return self.text.strip(" \t\r\n")

    @property
    def is_setting(self) -> bool:
        return bool(self.word) and self.table is None and not self.word.startswith("#")


def merged_toml(text: str, harness: str, table: str, lines: Sequence[str]) -> Merged:
    """Add a table at the end, after a comment that names its owner."""
    newline = "\r\n" if "\r\n" in text else "\n"
    before, names = _toml(text), table.split(".")
    if _has(before, names):
        raise ValueError(
            f"{table} already exists and was not written by Palaver; remove or rename it, and run this again"
        )
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    made = text + gap + newline.join((_NOTE.format(harness), f"[{table}]", *lines, ""))
    ours: object = tomllib.loads("\n".join(lines))
    for name in reversed(names):
        ours = {name: ours}
    if not isinstance(ours, dict) or not _is_same(made, _over(before, ours)):
        raise ValueError(
            f"{names[0]} is not a table, or is written in one line and cannot be extended; "
            f"write it as [{names[0]}.NAME] with its settings below, and run this again"
        )
    return Merged(text=made, made=(Made(path=(table,), inside=gap),))


def has_toml(text: str, table: str, lines: Sequence[str]) -> bool:
    """Whether a table exists and contains these settings, anywhere in the text; it may contain more."""
    found: object = _toml(text)
    for name in table.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    wanted = tomllib.loads("\n".join(lines))
    return isinstance(found, Mapping) and wanted.items() <= found.items()


def unmerged_toml(text: str, harness: str, table: str, made: Sequence[Made] = ()) -> Unmerged:
    """Remove the table and its sub-tables, wherever they are now. Every other table stays."""
    if not text.strip("\ufeff \t\r\n"):
        return Unmerged(text=text, missing=(table,))
    before, names = _toml(text), tuple(table.split("."))
    lines = list(_lines(text))
    notes = {note.format(harness) for note in (_NOTE, *_OLD_NOTES)}
    cut = _of_table(lines, names) | {index for index, line in enumerate(lines) if line.word in notes}
    left = _without(lines, cut, names, made[0].inside or "" if made else "")
    if not _is_same(left, _less(before, names, is_written=_is_header_left(lines, cut, names))):
        raise ValueError(f"{table} is no longer a separate table; remove it yourself and run this again")
    missing = () if _has(before, names) else (table,)
    return Unmerged(text=left if left or not made else None, missing=missing)


def _of_table(lines: Sequence[_Line], names: tuple[str, ...]) -> set[int]:
    """Return the lines of a table and its sub-tables.

    Comments after its last setting may belong to others.
    """
    found: set[int] = set()
    pending: list[int] | None = None
    for index, line in enumerate(lines):
        if line.table is not None:
            is_ours = line.table[: len(names)] == names
            found.update((*(pending or ()), index) if is_ours else ())
            pending = [] if is_ours else None
        elif pending is not None and line.is_setting:
            found.update((*pending, index))
            pending = []
        elif pending is not None:
            pending.append(index)
    return found


def _without(lines: Sequence[_Line], cut: set[int], names: tuple[str, ...], gap: str) -> str:
    """Join the remaining lines, without the empty line that was added before the table."""
    header = next((index for index in sorted(cut) if lines[index].table == names), min(cut, default=0))
    while header - 1 in cut:
        header -= 1
    head = "".join(line.text for index, line in enumerate(lines[:header]) if index not in cut)
    rest = "".join(line.text for index, line in enumerate(lines) if index >= header and index not in cut)
    if cut and gap and head.endswith(gap):
        head = head.removesuffix(gap)
        if rest and not head.endswith("\n"):
            head += "\r\n" if gap.startswith("\r") else "\n"
    return head + rest


def _lines(text: str) -> Iterator[_Line]:
    """Split valid TOML into its statements."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["end"] is not None and depth == 0:
            yield _line(text[start : token.end()])
            start = token.end()
    if start < len(text):
        yield _line(text[start:])


def _line(text: str) -> _Line:
    if not text.lstrip().startswith("["):
        return _Line(text=text)
    names, value = [], tomllib.loads(text)
    while isinstance(value, dict) and value:
        ((name, value),) = value.items()
        names.append(name)
        value = value[0] if isinstance(value, list) else value
    return _Line(text=text, table=tuple(names))


def _is_header_left(lines: Sequence[_Line], cut: set[int], names: tuple[str, ...]) -> bool:
    """Whether the parent table has its own header, and so stays when it is empty."""
    return any(line.table == names[:-1] for index, line in enumerate(lines) if index not in cut)


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML: {error}") from error


def _is_same(text: str, value: Mapping[str, object]) -> bool:
    """Whether a text has this value. Compared as JSON, because NaN does not equal itself."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    first, other = (json.dumps(one, sort_keys=True, default=repr) for one in (found, value))
    return first == other


def _over(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    found = dict(below)
    for name, value in above.items():
        old = found.get(name)
        is_both = isinstance(old, Mapping) and isinstance(value, Mapping)
        found[name] = _over(old, value) if is_both else value  # type: ignore[arg-type]  # both are
    return found


def _less(value: Mapping[str, object], names: Sequence[str], *, is_written: bool) -> dict[str, object]:
    """Return the value without this name. A parent that becomes empty is removed, unless it has a header."""
    found = dict(value)
    below = found.get(names[0])
    if len(names) == 1:
        found.pop(names[0], None)
    elif isinstance(below, Mapping) and names[1] in below:
        found[names[0]] = _less(below, names[1:], is_written=is_written)
        if not found[names[0]] and not is_written:
            del found[names[0]]
    return found


def _has(value: object, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True
