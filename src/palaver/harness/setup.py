"""Add to a user's settings of a harness, and remove the additions again. Pure: a text in, a text out."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.harness.claude import launch as claude_launch
from palaver.harness.codex import hooks as codex_hooks
from palaver.harness.codex import launch as codex_launch
from palaver.harness.gemini import hooks as gemini_hooks
from palaver.harness.gemini import launch as gemini_launch
from palaver.harness.json_edit import PLAIN, Dialect, Node, add_part, parse_json, remove_part
from palaver.harness.opencode import launch as opencode_launch

# --------------------
# Add to a user's JSON settings, and remove the additions again. Pure: a text in, a text out.
#
# Existing content keeps its position and form. Raises ValueError if the text cannot be parsed, or has
# something else where an addition belongs. Merging and unmerging restores a text to the last byte.

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
    # A copy, because `_put` below changes it.
    expected = json.loads(json.dumps(before.value))
    for addition in additions:
        # Each change moves the positions of all nodes after it, so the text is parsed again each time.
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
    # A text that does not have exactly the expected value is refused: a mistake of the editor must not
    # reach the settings of a user.
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
    # In reverse order, so that each removal finds the text as its addition left it.
    for addition in reversed(additions):
        holder = _at(parse_json(text, dialect), addition.path)
        index = None if holder is None else _find(holder, addition)
        if holder is None or index is None:
            missing.append(addition.shown)
            continue
        text = _without(text, holder, index, addition, insides)
    # Deepest first: a container may be empty only once the one inside it is removed.
    for path in sorted((path for path, inside in insides.items() if inside is None), key=len, reverse=True):
        above = _at(parse_json(text, dialect), path[:-1])
        part = above.get(path[-1]) if above is not None else None
        if above is None or part is None or part.node.parts != () or above.parts is None:
            continue
        # It has no parts but contains a comment of the user.
        if text[part.node.start + 1 : part.node.end - 1].strip():
            continue
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
    """Record the blanks and comments inside an empty container, which a later removal restores."""
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
        # A harness that rewrites its settings may add fields to an entry; the command stays the same.
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
    hooks = part.node.get("hooks") if addition.name is None else None
    # A user may have added other commands to our entry: then only our command is removed from it.
    if hooks is not None and _runs(part.node.value) - _runs(addition.value):
        ours = _runs(addition.value)
        for position, entry in reversed(list(enumerate(hooks.node.parts or ()))):
            value = entry.node.value
            if isinstance(value, Mapping) and value.get("command") in ours:
                return remove_part(text, hooks.node, position)
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
    # As JSON, because `True == 1` in Python, and they are different settings.
    return json.dumps(one) == json.dumps(other)


# --------------------
# Add our table to a user's TOML file, and remove it again. Pure: a text in, a text out.
#
# A program that rewrites the file moves lines, drops comments and adds its tables anywhere. So the table is
# identified by its name alone: only its own lines are removed, and comments that only Palaver writes. Raises
# ValueError if the text cannot be parsed or the table cannot be cut out.
#
# Why not tomlkit, which edits our own settings file: it does not keep every byte of a user's file (0.15.2).
#   [[a]] … [b] … [[a]]     It writes all parts of such an array together, and so moves [b], even if nothing
#                           is changed.
#   [ours] … # about b, [b] The comments and empty lines before a header are the end of the table above to it,
#                           and are removed with that table.

_NOTE: Final = "# Palaver: 'pal uninstall {}' removes this table"
_OLD_NOTES: Final = ("# Palaver begins: 'pal uninstall {}' removes this", "# Palaver ends")
"""Earlier versions wrote these around the table. Codex may add its own tables between them."""
_TOO_DEEP: Final = "it is nested too deeply"
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


class _TomlStatement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement, comment or empty line, with its line end. A value may span several lines."""

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
    before, names = _toml_text(text), table.split(".")
    if _has(before, names):
        raise ValueError(
            f"{table} already exists and was not written by Palaver; remove or rename it, and run this again"
        )
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    made = text + gap + newline.join((_NOTE.format(harness), f"[{table}]", *lines, ""))
    ours: object = tomllib.loads("\n".join(lines))
    for name in reversed(names):
        ours = {name: ours}
    # If the parent is an inline table, appending a table is invalid or would change another value.
    if not isinstance(ours, dict) or not _is_same_toml(made, _over(before, ours)):
        raise ValueError(
            f"{names[0]} is not a table, or is written in one line and cannot be extended; "
            f"write it as [{names[0]}.NAME] with its settings below, and run this again"
        )
    return Merged(text=made, made=(Made(path=(table,), inside=gap),))


def has_toml(text: str, table: str, lines: Sequence[str]) -> bool:
    """Whether a table exists and contains these settings, anywhere in the text; it may contain more."""
    found: object = _toml_text(text)
    for name in table.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    wanted = tomllib.loads("\n".join(lines))
    return isinstance(found, Mapping) and wanted.items() <= found.items()


def unmerged_toml(text: str, harness: str, table: str, made: Sequence[Made] = ()) -> Unmerged:
    """Remove the table and its sub-tables, wherever they are now. Every other table stays."""
    if not text.strip("\ufeff \t\r\n"):
        return Unmerged(text=text, missing=(table,))
    before, names = _toml_text(text), tuple(table.split("."))
    lines = list(_lines(text))
    notes = {note.format(harness) for note in (_NOTE, *_OLD_NOTES)}
    cut = _of_table(lines, names) | {index for index, line in enumerate(lines) if line.word in notes}
    left = _without_statements(lines, cut, names, made[0].inside or "" if made else "")
    # Refuse any result that would lose or change another setting of the user.
    if not _is_same_toml(left, _less(before, names, is_written=_is_header_left(lines, cut, names))):
        raise ValueError(f"{table} is no longer a separate table; remove it yourself and run this again")
    missing = () if _has(before, names) else (table,)
    return Unmerged(text=left if left or not made else None, missing=missing)


def _of_table(lines: Sequence[_TomlStatement], names: tuple[str, ...]) -> set[int]:
    """Return the lines of a table and its sub-tables.

    Comments between its settings are included. Comments after its last setting are not: they may belong to
    the table that follows.
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


def _without_statements(
    lines: Sequence[_TomlStatement], cut: set[int], names: tuple[str, ...], gap: str
) -> str:
    """Join the remaining lines, without the empty line that was added before the table."""
    # The comment that names the owner is cut too, and is above the header.
    header = next((index for index in sorted(cut) if lines[index].table == names), min(cut, default=0))
    while header - 1 in cut:
        header -= 1
    head = "".join(line.text for index, line in enumerate(lines[:header]) if index not in cut)
    rest = "".join(line.text for index, line in enumerate(lines) if index >= header and index not in cut)
    if cut and gap and head.endswith(gap):
        head = head.removesuffix(gap)
        # The file of the user had no line end at its end. A table that was added after ours still needs its
        # own line.
        if rest and not head.endswith("\n"):
            head += "\r\n" if gap.startswith("\r") else "\n"
    return head + rest


def _lines(text: str) -> Iterator[_TomlStatement]:
    """Split valid TOML into its statements."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["end"] is not None and depth == 0:
            yield _line(text[start : token.end()])
            start = token.end()
    if start < len(text):
        yield _line(text[start:])


def _line(text: str) -> _TomlStatement:
    if not text.lstrip().startswith("["):
        return _TomlStatement(text=text)
    # The parser reads the header too, because the names in it may be quoted or contain dots.
    names, value = [], tomllib.loads(text)
    while isinstance(value, dict) and value:
        ((name, value),) = value.items()
        names.append(name)
        value = value[0] if isinstance(value, list) else value
    return _TomlStatement(text=text, table=tuple(names))


def _is_header_left(lines: Sequence[_TomlStatement], cut: set[int], names: tuple[str, ...]) -> bool:
    """Whether the parent table has its own header, and so stays when it is empty."""
    return any(line.table == names[:-1] for index, line in enumerate(lines) if index not in cut)


def _toml_text(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML: {error}") from error
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _is_same_toml(text: str, value: Mapping[str, object]) -> bool:
    """Whether a text has this value. Compared as JSON, because NaN does not equal itself."""
    try:
        found = tomllib.loads(text)
        first, other = (json.dumps(one, sort_keys=True, default=repr) for one in (found, value))
    except tomllib.TOMLDecodeError:
        return False
    # The parser reads a name with thousands of dots, and only the comparison fails.
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
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


# --------------------
# The changes of `pal install` to each harness, so that sessions started without `pal` join the bus. Pure.
#
# Files are values here; nothing is written, because writing needs the user's consent. Hooks run this client,
# never Python. In a session that `pal` has started, they mark themselves as the second set and are ignored.

INSTALLABLE: Final = ("claude", "codex", "opencode", "gemini")
INSTALLED: Final = "--installed"
"""Tells the daemon that a hook was set up by `pal install`, not by `pal` for one session."""
_SERVER: Final = "palaver"
_TABLE: Final = "mcp_servers.palaver"
_HOOK_LIMIT_S: Final = 10
_END_LIMIT_S: Final = 3
"""Seconds. Codex allows a hook no more at the end of a session."""
_COMPANION_LIMIT_S: Final = 30 * 24 * 3600
"""Seconds. A session that runs longer is not woken any more when it is idle."""
_MARKETPLACE: Final = "palaver"

DIALECTS: Final[Mapping[str, Dialect]] = {
    "claude": PLAIN,
    "codex": PLAIN,
    "opencode": Dialect(comments=True, trailing_commas=True),
    "gemini": Dialect(comments=True),
}
"""The extensions of JSON that each harness accepts in its own settings."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change to one file of a harness: additions to JSON, a TOML table, or a whole file of ours."""

    file: str
    """Its name among the files of the harness."""
    additions: tuple[Addition, ...] = ()
    lines: tuple[str, ...] = ()
    whole: str = ""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """All changes to a harness."""

    changes: tuple[Change, ...]
    own: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Our own files, by name, in a folder that only we use."""
    advice: tuple[str, ...] = ()
    """Next steps and facts for the user."""


def setup_for(
    harness: str,
    pal: Sequence[str],
    own_folder: str,
    companion: Sequence[str] = (),
    *,
    may_use_bus: bool = False,
) -> Setup:
    """Return the setup of a harness; `pal` is the client, with its home if that is not the default.

    `companion` is the command that a plugin or hook of the harness runs; without it there is no companion.
    `may_use_bus`: the harness runs the safe commands and tools of the bus without a prompt.
    """
    if harness == "codex":
        return _codex(pal, companion, may_use_bus=may_use_bus)
    if harness == "opencode":
        return _opencode_with_plugin(pal, own_folder, companion) if companion else _opencode(pal)
    if harness == "claude":
        return _claude(pal, own_folder, may_use_bus=may_use_bus)
    return _gemini(pal, may_use_bus=may_use_bus)


def merge_change(harness: str, change: Change, text: str) -> Merged:
    """Add a change to the text of its file. Raises ValueError."""
    if change.whole:
        if text not in ("", change.whole):
            raise ValueError("it has other content, and only Palaver may write to it; rename your file")
        return Merged(text=change.whole)
    if change.lines:
        return merged_toml(text, harness, _TABLE, change.lines)
    if harness == "codex":
        _check_codex_hooks(text)
    return merged_json(text, change.additions, DIALECTS[harness])


def has_change(harness: str, change: Change, text: str) -> bool:
    """Whether a whole change is in the text of its file already, at any position. Raises ValueError."""
    if change.whole:
        return text == change.whole
    if change.lines:
        return has_toml(text, _TABLE, change.lines)
    return merged_json(text, change.additions, DIALECTS[harness]).text == text


def unmerge_change(harness: str, change: Change, text: str, made: Sequence[Made]) -> Unmerged:
    """Remove a change from the text of its file. Raises ValueError."""
    if change.whole:
        is_ours = text == change.whole
        return Unmerged(text=None if is_ours else text, missing=() if is_ours else (change.file,))
    if change.lines:
        return unmerged_toml(text, harness, _TABLE, made)
    return unmerged_json(text, change.additions, made, DIALECTS[harness])


def _claude(pal: Sequence[str], own_folder: str, *, may_use_bus: bool) -> Setup:
    marketplace = {"source": {"source": "directory", "path": own_folder}}
    plugin = f"{claude_launch.PLUGIN}@{_MARKETPLACE}"
    listed = {
        "name": _MARKETPLACE,
        "owner": {"name": "Palaver"},
        "plugins": [{"name": claude_launch.PLUGIN, "source": "./plugin"}],
    }
    files = claude_launch.plugin_files(_SLOT)
    own = {f"plugin/{name}": _filled(text, pal) for name, text in files.items()}
    rules = claude_launch.allow_rules() if may_use_bus else ()
    return Setup(
        changes=(
            Change(
                file="settings.json",
                additions=(
                    Addition(path=("extraKnownMarketplaces",), name=_MARKETPLACE, value=marketplace),
                    Addition(path=("enabledPlugins",), name=plugin, value=True),
                    *(Addition(path=("permissions", "allow"), value=rule) for rule in rules),
                ),
            ),
        ),
        own={".claude-plugin/marketplace.json": json.dumps(listed, indent=2) + "\n", **own},
        advice=("Sessions that start from now on are on the bus; running sessions do not change.",),
    )


# It needs no quotes in a shell: `plugin_files` quotes it, and it must still be found afterwards.
_SLOT: Final = "pal-goes-here"


def _filled(text: str, pal: Sequence[str]) -> str:
    """Insert the client with its home into the plugin, and mark its hooks as installed."""
    content = json.loads(text)
    _fill(content, pal)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _fill(value: object, pal: Sequence[str]) -> None:
    if isinstance(value, dict):
        command = value.get("command")
        # The MCP server is a program with a list of arguments. Hooks and the monitor are one line for a
        # shell.
        if command == _SLOT:
            value["command"], value["args"] = pal[0], [*pal[1:], *value.get("args", [])]
        elif isinstance(command, str):
            filled = command.replace(_SLOT, shlex.join(pal))
            is_hook = " hook " in command or " rewake " in command
            value["command"] = f"{filled} {INSTALLED}" if is_hook else filled
        for one in value.values():
            _fill(one, pal)
    elif isinstance(value, list):
        for one in value:
            _fill(one, pal)


def _codex(pal: Sequence[str], companion: Sequence[str], *, may_use_bus: bool) -> Setup:
    approvals = codex_launch.approved_tools() if may_use_bus else {}
    server = (
        f"command = {_toml(pal[0])}",
        f"args = [{', '.join(map(_toml, (*pal[1:], 'mcp')))}]",
        *(f"{key} = {_toml(value)}" for key, value in approvals.items()),
    )
    hooks = tuple(
        Addition(path=("hooks", event), value={"hooks": [_hook("codex", pal, event, _codex_limit_s(event))]})
        for event in codex_hooks.EVENTS
    )
    if companion:
        # It runs as long as the session, and Codex ends it together with the session.
        command = {"type": "command", "command": f"exec {shlex.join(companion)}", "async": True}
        # Not at `compact`: the session goes on after that, and its companion with it.
        entry = {"matcher": "startup|resume|clear", "hooks": [{**command, "timeout": _COMPANION_LIMIT_S}]}
        hooks = (*hooks, Addition(path=("hooks", "SessionStart"), value=entry))
    return Setup(
        changes=(Change(file="config.toml", lines=server), Change(file="hooks.json", additions=hooks)),
        advice=(
            "Codex runs no hook that you have not trusted: it asks at its next start (Hooks need review). "
            "Until then it has the tools only.",
        ),
    )


def _opencode(pal: Sequence[str]) -> Setup:
    server = {"type": "local", "command": [*pal, "mcp"], "enabled": True}
    return Setup(
        changes=(
            Change(file="opencode.json", additions=(Addition(path=("mcp",), name=_SERVER, value=server),)),
        ),
        advice=(
            "OpenCode started without 'pal' has the tools and reads its messages with them; 'pal opencode' "
            "receives messages automatically.",
        ),
    )


def _opencode_with_plugin(pal: Sequence[str], own_folder: str, companion: Sequence[str]) -> Setup:
    (tools,) = _opencode(pal).changes
    address = f"file://{quote(f'{own_folder}/{opencode_launch.FILE}')}"
    plugin = Addition(path=("plugin",), value=address)
    return Setup(
        changes=(Change(file=tools.file, additions=(*tools.additions, plugin)),),
        own={opencode_launch.FILE: opencode_launch.plugin_source(companion)},
        advice=(
            "OpenCode sessions that start from now on join the bus at their first prompt. Once, OpenCode "
            "downloads its package for plugins at its start; without a network that takes long.",
        ),
    )


def _gemini(pal: Sequence[str], *, may_use_bus: bool) -> Setup:
    hooks = tuple(
        # Gemini CLI counts the limit of a hook in milliseconds, Claude Code and Codex in seconds.
        Addition(path=("hooks", event), value={"hooks": [_hook("gemini", pal, event, _HOOK_LIMIT_S * 1000)]})
        for event in gemini_hooks.EVENTS
    )
    server = {"command": pal[0], "args": [*pal[1:], "mcp"]}
    policy = f"{gemini_launch.POLICIES}/{gemini_launch.POLICY_FILE}"
    return Setup(
        changes=(
            Change(
                file="settings.json",
                additions=(*hooks, Addition(path=("mcpServers",), name=_SERVER, value=server)),
            ),
            *((Change(file=policy, whole=gemini_launch.policy_text()),) if may_use_bus else ()),
        ),
        advice=("Sessions that start from now on are on the bus, and receive messages while they work.",),
    )


def _hook(harness: str, pal: Sequence[str], event: str, timeout: int) -> dict[str, object]:
    # `exec` replaces the shell that the harness starts: one process less for each hook.
    command = f"exec {shlex.join(pal)} hook {harness} {event} {INSTALLED}"
    named = {"name": "palaver"} if harness == "gemini" else {}
    return {**named, "type": "command", "command": command, "timeout": timeout}


def _codex_limit_s(event: str) -> int:
    return _END_LIMIT_S if event == "SessionEnd" else _HOOK_LIMIT_S


def _toml(value: str) -> str:
    # A string of JSON is one of TOML, except that TOML forbids the plain character DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_codex_hooks(text: str) -> None:
    """Refuse a file that Codex cannot read: one entry of type http turns off every hook in it."""
    if text.strip() and _has_http(parse_json(text).value):
        raise ValueError(
            "it contains a hook of type http, so Codex ignores the whole file; remove that hook first"
        )


def _has_http(value: object) -> bool:
    if isinstance(value, dict):
        return value.get("type") == "http" or any(map(_has_http, value.values()))
    return isinstance(value, list) and any(map(_has_http, value))
