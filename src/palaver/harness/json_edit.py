"""Edit JSON as text: order, blanks and comments of everything else stay. Pure.

A document is parsed with the position of each value. A part that was added can be removed again, which
restores the text. Raises ValueError for a text that is not JSON or is nested too deep.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

_LIMIT_DEPTH: Final = 200
"""Levels of nesting. Deeper text would end in a RecursionError of Python instead of a ValueError."""
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_SAME_LINE: Final = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/)")
_MARK: Final = "\ufeff"
"""A byte order mark, which editors on Windows write at the start. It stays in the text."""
_DECODER: Final = json.JSONDecoder()
_UNIT: Final = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Which extensions of JSON a document may use."""

    comments: bool = False
    trailing_commas: bool = False


PLAIN: Final = Dialect()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value and its position in the text."""

    value: object
    start: int
    end: int
    parts: tuple["Part", ...] | None = None
    """The members of an object or items of a list; None for any other value."""

    def get(self, name: str) -> "Part | None":
        """Return a member of an object; of two with the same name the last, as the JSON parser does."""
        found = [part for part in self.parts or () if part.name == name]
        return found[-1] if found and isinstance(self.value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A member of an object, or an item of a list, which has no name."""

    name: str | None
    start: int
    node: Node
    comma: int | None
    """The position of the comma after it."""

    @property
    def end(self) -> int:
        return self.node.end

    @property
    def whole_end(self) -> int:
        """Its end, including the comma."""
        return self.end if self.comma is None else self.comma + 1


def parse_json(text: str, dialect: Dialect = PLAIN) -> Node:
    """Parse a document."""
    reader = _Reader(text, dialect)
    node = reader.value(reader.skip(1 if text.startswith(_MARK) else 0), 0)
    if (end := reader.skip(node.end)) != len(text):
        raise reader.trouble(end)
    return node


class _Reader:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect

    def trouble(self, index: int) -> ValueError:
        return ValueError(f"line {self._text.count(chr(10), 0, index) + 1} is not valid JSON")

    def skip(self, index: int) -> int:
        while True:
            found = _BLANK.match(self._text, index)
            assert found is not None  # the pattern also matches an empty text
            index = found.end()
            comment = _COMMENT.match(self._text, index) if self._dialect.comments else None
            if comment is None:
                return index
            index = comment.end()

    def value(self, index: int, depth: int) -> Node:
        first = self._text[index : index + 1]
        if depth > _LIMIT_DEPTH:
            raise self.trouble(index)
        if first == '"':
            value, end = self._string(index)
            return Node(value=value, start=index, end=end)
        if first in ("{", "["):
            return self._holder(index, depth)
        scalar = _SCALAR.match(self._text, index)
        if scalar is None:
            raise self.trouble(index)
        return Node(value=json.loads(scalar[0]), start=index, end=scalar.end())

    def _string(self, index: int) -> tuple[str, int]:
        if self._text[index : index + 1] != '"':
            raise self.trouble(index)
        try:
            value, end = _DECODER.raw_decode(self._text, index)
        except ValueError as error:
            raise self.trouble(index) from error
        return str(value), end

    def _holder(self, start: int, depth: int) -> Node:
        is_object = self._text[start] == "{"
        close, parts, index = "}" if is_object else "]", list[Part](), self.skip(start + 1)
        can_end = True
        while self._text[index : index + 1] != close or not can_end:
            name, at = self._string(index) if is_object else (None, index)
            if is_object:
                at = self.skip(at)
                if self._text[at : at + 1] != ":":
                    raise self.trouble(at)
                at = self.skip(at + 1)
            node = self.value(at, depth + 1)
            next_index = self.skip(node.end)
            has_comma = self._text[next_index : next_index + 1] == ","
            parts.append(Part(name=name, start=index, node=node, comma=next_index if has_comma else None))
            index = self.skip(next_index + 1) if has_comma else next_index
            # Plain JSON must have another part after a comma.
            can_end = not has_comma or self._dialect.trailing_commas
            if not has_comma and self._text[index : index + 1] != close:
                raise self.trouble(index)
        value: object = [part.node.value for part in parts]
        if is_object:
            value = {str(part.name): part.node.value for part in parts}
        return Node(value=value, start=start, end=index + 1, parts=tuple(parts))


# Changing a text


def add_part(text: str, root: Node, holder: Node, name: str | None, value: object) -> str:
    """Add a member or an item after the last one of an object or a list."""
    parts = holder.parts or ()
    is_spread = "\n" in text[root.start : root.end] or not root.parts
    if not parts:
        return _add_first(text, root, holder, name, value, is_spread=is_spread)
    last = parts[-1]
    # Follow the form around it: in a document of many lines, a list may still be written on one.
    if is_spread and "\n" in text[holder.start : last.start]:
        indent = _indent_at(text, last.start)
        piece = f"\n{indent}{_written(text, root, name, value, indent)}"
    else:
        piece = f" {_written(text, root, name, value, None)}"
    # A comment on the same line belongs to the last part: the addition comes after it, and the comma before
    # it.
    comment = _SAME_LINE.match(text, last.whole_end)
    index = comment.end() if comment and comment.end() < holder.end else last.whole_end
    # Without a new line the addition would become a part of the line comment.
    if comment and "//" in comment[0] and "\n" not in piece:
        piece = f"\n{piece}"
    # Where the last part had a trailing comma, the new last part has one too. So a removal restores every
    # byte.
    if last.comma is not None:
        return f"{text[:index]}{piece},{text[index:]}"
    return f"{text[: last.end]},{text[last.end : index]}{piece}{text[index:]}"


def _add_first(
    text: str, root: Node, holder: Node, name: str | None, value: object, *, is_spread: bool
) -> str:
    inside = text[holder.start + 1 : holder.end - 1]
    if not is_spread:
        # The object has no parts but may contain a comment, which would hide the addition on its line.
        has_line = "//" in inside
        piece = ("\n" if has_line else "") + _written(text, root, name, value, None)
        return f"{text[: holder.start + 1]}{inside}{piece}{text[holder.end - 1 :]}"
    outer = _line_indent(text, holder.start)
    indent = outer + _unit(text, root)
    piece = f"\n{indent}{_written(text, root, name, value, indent)}\n{outer}"
    return f"{text[: holder.start + 1]}{inside.rstrip()}{piece}{text[holder.end - 1 :]}"


def remove_part(text: str, holder: Node, index: int, inside: str = "") -> str:
    """Remove a member or an item; `inside` is the content of the holder if nothing else is left."""
    parts = holder.parts or ()
    part = parts[index]
    # The blanks before a part were added with it and are removed with it, so that no empty line is left.
    begin = len(text[: part.start].rstrip(" \t\r\n"))
    before_part = text[parts[index - 1].whole_end if index else holder.start + 1 : begin]
    if len(parts) == 1:
        rest = before_part + text[part.whole_end : holder.end - 1]
        kept = inside if rest.strip() == inside.strip() else rest
        head = text[: holder.start + 1] + kept
        return head + _line_end_after(kept, text[holder.end - 1 :]) + text[holder.end - 1 :]
    if index < len(parts) - 1 or part.comma is not None:
        rest = text[part.whole_end :]
        return text[:begin] + _line_end_after(before_part, rest) + rest
    # The last part without a trailing comma: the comma before it must go, or the rest is not valid JSON.
    # Comments between the two are the user's.
    before = parts[index - 1]
    assert before.comma is not None  # another part follows it
    head = text[: before.comma] + before_part
    return head + _line_end_after(before_part, text[part.end :]) + text[part.end :]


def _line_end_after(blanks: str, rest: str) -> str:
    """Return the line end that is needed between blanks with comments and the rest of a text, if any."""
    comments = list(_COMMENT.finditer(blanks))
    is_open = bool(comments) and comments[-1][0].startswith("//") and comments[-1].end() == len(blanks)
    # Without a new line, what follows a removed part would become a part of the user's line comment.
    return "\n" if is_open and rest.lstrip(" \t")[:1] not in ("\r", "\n") else ""


def _written(text: str, root: Node, name: str | None, value: object, indent: str | None) -> str:
    key = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
    if indent is None:
        return key + json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=_unit(text, root), ensure_ascii=False).split("\n")
    return key + f"\n{indent}".join(lines)


def _unit(text: str, root: Node) -> str:
    """Return the indentation of one level in a document."""
    for part in root.parts or ():
        if "\n" in text[root.start : part.start] and (found := _indent_at(text, part.start)):
            return found
    return _UNIT


def _indent_at(text: str, index: int) -> str:
    """Return the blanks between the start of a line and its first character."""
    indent = text[text.rfind("\n", 0, index) + 1 : index]
    return indent if not indent.strip(" \t") else ""


def _line_indent(text: str, index: int) -> str:
    line = text[text.rfind("\n", 0, index) + 1 : index]
    return line[: len(line) - len(line.lstrip(" \t"))]
