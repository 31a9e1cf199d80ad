"""Add to a user's JSON settings, and remove the additions again. Pure: a text in, a text out.

Existing content keeps its position and form. Raises ValueError if the text cannot be parsed, or has something
else where an addition belongs. Merging and unmerging restores a text to the last byte.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from palaver.harness.json_text import PLAIN, Dialect, Node, add_part, parse_json, remove_part

_BLANK: Final = "\ufeff \t\r\n"


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """One addition: a member of the object at a path, or, without a name, an item of the list there."""

    path: tuple[str, ...]
    value: object
    name: str | None = None

    @property
    def shown(self) -> str:
        return ".".join(filter(None, (*self.path, self.name)))


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A container that had no content before: an empty object or list, or (None) one that did not exist."""

    path: tuple[str, ...]
    inside: str | None = None
    is_whole: bool = False
    """It is the document itself, and `inside` is the earlier content of its file."""


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A text with our additions, and what is needed to remove them."""

    text: str
    made: tuple[Made, ...] = ()


class Unmerged(msgspec.Struct, frozen=True, kw_only=True):
    """A text without our additions; None if its file was empty or missing before, and is again."""

    text: str | None
    missing: tuple[str, ...] = ()
    """Additions that were not found, or are not ours now."""


def merged_json(text: str, additions: Sequence[Addition], dialect: Dialect = PLAIN) -> Merged:
    """Add to a document. An addition that is already there, with the same value, is not added twice."""
    made: list[Made] = []
    if not text.strip(_BLANK):
        made.append(Made(path=(), inside=text, is_whole=True))
        text = "{}\n"
    before = parse_json(text, dialect)
    expected = json.loads(json.dumps(before.value))
    for addition in additions:
        text = _reached(text, addition, made, dialect)
        root = parse_json(text, dialect)
        holder = _at(root, addition.path)
        assert holder is not None  # it was just created
        if _is_there(holder, addition):
            continue
        _note_empty(text, holder, addition.path, made)
        text = add_part(text, root, holder, addition.name, addition.value)
    for addition in additions:
        _put(expected, addition)
    if not _is_same(parse_json(text, dialect).value, expected):
        raise ValueError("its format does not allow additions")
    return Merged(text=text, made=tuple(made))


def unmerged_json(
    text: str, additions: Sequence[Addition], made: Sequence[Made] = (), dialect: Dialect = PLAIN
) -> Unmerged:
    """Remove the additions, and the containers created for them if they are empty now."""
    if not text.strip(_BLANK):
        return Unmerged(text=text, missing=tuple(one.shown for one in reversed(additions)))
    insides = {one.path: one.inside for one in made if not one.is_whole}
    whole = next((one.inside for one in made if one.is_whole), None)
    missing: list[str] = []
    for addition in reversed(additions):
        holder = _at(parse_json(text, dialect), addition.path)
        index = None if holder is None else _find(holder, addition)
        if holder is None or index is None:
            missing.append(addition.shown)
            continue
        text = _without(text, holder, index, addition, insides)
    for path in sorted((path for path, inside in insides.items() if inside is None), key=len, reverse=True):
        above = _at(parse_json(text, dialect), path[:-1])
        part = above.get(path[-1]) if above is not None else None
        if above is None or part is None or part.node.parts != () or above.parts is None:
            continue
        if text[part.node.start + 1 : part.node.end - 1].strip():
            continue  # it contains a comment of the user
        text = remove_part(text, above, above.parts.index(part), insides.get(path[:-1]) or "")
    if whole is not None and text.strip() == "{}":
        return Unmerged(text=whole or None, missing=tuple(missing))
    return Unmerged(text=text, missing=tuple(missing))


def _reached(text: str, addition: Addition, made: list[Made], dialect: Dialect) -> str:
    """Create the objects, and the list, on the path of an addition."""
    for depth in range(len(addition.path)):
        root = parse_json(text, dialect)
        above, path = _at(root, addition.path[:depth]), addition.path[: depth + 1]
        if above is None or not isinstance(above.value, dict):
            raise ValueError(f"{'.'.join(addition.path[:depth]) or 'it'} is not an object")
        if above.get(path[-1]) is None:
            _note_empty(text, above, path[:-1], made)
            is_list = depth == len(addition.path) - 1 and addition.name is None
            made.append(Made(path=path))
            text = add_part(text, root, above, path[-1], [] if is_list else {})
    holder = _at(parse_json(text, dialect), addition.path)
    wanted, kind = (list, "a list") if addition.name is None else (dict, "an object")
    if holder is None or not isinstance(holder.value, wanted):
        raise ValueError(f"{'.'.join(addition.path) or 'it'} is not {kind}")
    return text


def _note_empty(text: str, holder: Node, path: tuple[str, ...], made: list[Made]) -> None:
    if holder.parts == () and all(one.path != path or one.is_whole for one in made):
        made.append(Made(path=path, inside=text[holder.start + 1 : holder.end - 1]))


def _at(root: Node, path: Sequence[str]) -> Node | None:
    for name in path:
        part = root.get(name)
        if part is None:
            return None
        root = part.node
    return root


def _is_there(holder: Node, addition: Addition) -> bool:
    if addition.name is None:
        return any(_is_same(part.node.value, addition.value) for part in holder.parts or ())
    part = holder.get(addition.name)
    if part is not None and not _is_same(part.node.value, addition.value):
        raise ValueError(
            f"{addition.shown} already exists and was not written by Palaver; remove or rename it, "
            "and run this again"
        )
    return part is not None


def _find(holder: Node, addition: Addition) -> int | None:
    """Find an addition: by name, whatever its value is now; in a list, by the commands it runs."""
    for index, part in reversed(list(enumerate(holder.parts or ()))):
        if addition.name is not None and part.name == addition.name:
            return index
        if addition.name is None and _runs(part.node.value) & _runs(addition.value):
            return index
    return None


def _runs(value: object) -> frozenset[str]:
    """Return the commands that a hook entry runs; an entry without commands is represented by its JSON."""
    entries = value.get("hooks") if isinstance(value, Mapping) else None
    found = [one.get("command") for one in entries or () if isinstance(one, Mapping)] if entries else []
    return frozenset(one for one in found if isinstance(one, str)) or frozenset({json.dumps(value)})


def _without(
    text: str,
    holder: Node,
    index: int,
    addition: Addition,
    insides: Mapping[tuple[str, ...], str | None],
) -> str:
    assert holder.parts is not None
    part = holder.parts[index]
    beside = part.node.get("hooks") if addition.name is None else None
    if beside is not None and _runs(part.node.value) - _runs(addition.value):
        ours = _runs(addition.value)
        for place, entry in reversed(list(enumerate(beside.node.parts or ()))):
            value = entry.node.value
            if isinstance(value, Mapping) and value.get("command") in ours:
                return remove_part(text, beside.node, place)
    return remove_part(text, holder, index, insides.get(addition.path) or "")


def _put(value: object, addition: Addition) -> None:
    for name in addition.path:
        assert isinstance(value, dict)
        value = value.setdefault(name, [] if name == addition.path[-1] and addition.name is None else {})
    if isinstance(value, dict) and addition.name is not None:
        value[addition.name] = addition.value
    elif isinstance(value, list) and not any(_is_same(one, addition.value) for one in value):
        value.append(addition.value)


def _is_same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)
