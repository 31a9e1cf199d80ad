"""Render the table of commands. Pure.

As help for a terminal of any width, as JSON, as the page docs/cli.md, and as the manual page docs/pal.1.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from palaver.doors.cli.spec import (
    GLOBAL_OPTIONS,
    Command,
    Option,
    Positional,
    Table,
    option_usage,
    positional_usage,
    usage_line,
)
from palaver.protocol.display import Paint

# --------------------
# Row of the command `pal help`, which the client and the door run without a function in the map of commands.

HELP_COMMANDS: Final = (
    Command(
        path=("help",),
        group="Help",
        summary="Show all commands, or help for one command.",
        positionals=(
            Positional(
                name="COMMAND",
                help="The command to explain (default: list all commands).",
                many=True,
                optional=True,
                completes="commands",
            ),
        ),
        examples=(
            ("pal help send", "the same as pal send --help"),
            ("pal help --json", "all commands and options, for programs"),
        ),
        json=(
            "one object for each command: 'command', 'usage', 'summary', 'group', and where they apply "
            "'description', 'arguments', 'options', 'statuses', 'examples' and 'json'."
        ),
    ),
)

# --------------------
# Help for a terminal.

_NARROWEST: Final = 30
_WIDEST: Final = 100
_SIDE_BY_SIDE: Final = 60
"""From this width on, names and their explanations are in two columns."""
# Columns. A longer name is on a separate line, so that it does not push all explanations to the right.
_NAME_COLUMNS: Final = 24
_INDENT: Final = "  "
# A quoted part is never divided: a backslash inside quotes would be a part of the text.
_SHELL_WORD: Final = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")


def render_help(table: Table, command: Command | None, width: int, colour: bool) -> str:
    """Return the help of one command; None or the program itself returns the overview.

    No line is wider than `width`, unless that is under 30. Without colour there are no escape sequences.
    """
    page = _Page(min(max(width, _NARROWEST), _WIDEST), Paint(colour))
    if command is None or not command.path:
        return page.overview(table)
    return page.command(table, command)


class _Page:
    """Renders one help text with a width and colours."""

    def __init__(self, width: int, paint: Paint) -> None:
        self._width = width
        self._paint = paint

    def overview(self, table: Table) -> str:
        program = table.root.command
        parts = [self._prose(f"pal: {_lower(program.summary)}"), self._usage("pal COMMAND [OPTIONS]")]
        parts.append(self._section("Start here", self._examples(program.examples)))
        rows: dict[str, list[tuple[str, str]]] = {}
        for command in table.commands:
            if not command.is_hidden:
                row = (" ".join(command.path), command.summary.rstrip("."))
                rows.setdefault(command.group, []).append(row)
        names = max((len(name) for group in rows.values() for name, _ in group), default=0)
        parts += [self._section(title, self._pairs(group, names)) for title, group in rows.items()]
        parts.append(self._section("Global options", self._pairs(_option_rows(GLOBAL_OPTIONS), names)))
        parts.append(
            self._prose(
                "Run 'pal help COMMAND' for help on one command, and 'pal --version' for the version. "
                "Arguments after -- are never options."
            )
        )
        return "\n".join(parts)

    def command(self, table: Table, command: Command) -> str:
        parts = [self._usage(usage_line(command)), self._prose(command.summary)]
        if command.description:
            parts.append(self._prose(command.description))
        entry = table.find(command.path)
        children = table.children_of(entry) if entry is not None else ()
        if children:
            rows = [(" ".join(one.path), one.summary.rstrip(".")) for one in children]
            parts.append(self._section("Subcommands", self._pairs(rows)))
        arguments = [(positional_usage(one), _explained(one)) for one in command.positionals]
        options = _option_rows(command.options)
        names = max((len(name) for name, _ in arguments + options), default=0)
        if arguments:
            parts.append(self._section("Arguments", self._pairs(arguments, names)))
        if options:
            parts.append(self._section("Options", self._pairs(options, names)))
        parts += map(self._prose, command.notes)
        if command.statuses:
            rows = [(str(status), meaning) for status, meaning in command.statuses]
            parts.append(self._section("Exit status", self._pairs(rows)))
        if command.json:
            parts.append(self._prose(f"With --json: {command.json}"))
        if command.examples:
            parts.append(self._section("Examples", self._examples(command.examples)))
        if command.aliases:
            parts.append(self._prose("Aliases: " + ", ".join(command.aliases)))
        everywhere = ", ".join(one.name for one in GLOBAL_OPTIONS)
        parts.append(self._prose(f"Global options: {everywhere} (see 'pal --help')."))
        return "\n".join(parts)

    def _usage(self, line: str) -> str:
        lines = textwrap.wrap(
            f"Usage: {line}", self._width, subsequent_indent=" " * 9, break_on_hyphens=False
        )
        # After the wrapping, which would count the escape sequence as columns.
        lines[0] = lines[0].replace("Usage:", self._paint.bold("Usage:"), 1)
        return "\n".join(lines) + "\n"

    def _prose(self, text: str) -> str:
        # Options contain hyphens, and a reader must be able to copy them.
        return "\n".join(textwrap.wrap(text, self._width, break_on_hyphens=False)) + "\n"

    def _section(self, title: str, lines: Iterator[str]) -> str:
        return "\n".join((self._paint.bold(title), *lines)) + "\n"

    def _pairs(self, rows: Sequence[tuple[str, str]], names: int | None = None) -> Iterator[str]:
        """Put names and explanations in two columns, or below each other in a narrow terminal."""
        longest = max(len(name) for name, _ in rows) if names is None else names
        is_wide = self._width >= _SIDE_BY_SIDE
        column = min(longest, _NAME_COLUMNS) if is_wide else longest
        if not is_wide and column > self._width // 3:
            column = 0
        # In a narrow terminal long names would leave no room, so the explanations are below them.
        margin = len(_INDENT) + column + 2 if column else 2 * len(_INDENT)
        for name, text in rows:
            lines = textwrap.wrap(text, self._width - margin, break_on_hyphens=False)
            if len(name) <= column:
                # There is a first line: a test requires a text for every option and argument.
                first = " " * (column - len(name) + 2) + lines.pop(0)
                yield _INDENT + self._paint.cyan(name) + first
            else:
                yield _INDENT + self._paint.cyan(name)
            for line in lines:
                yield " " * margin + line

    def _examples(self, examples: Sequence[tuple[str, str]]) -> Iterator[str]:
        for line, meaning in examples:
            for text in textwrap.wrap(f"# {meaning}", self._width - 2, subsequent_indent="# "):
                yield _INDENT + self._paint.dim(text)
            for text in _continued(line, self._width - 2):
                yield _INDENT + text


def _continued(line: str, width: int) -> Iterator[str]:
    """Wrap a command line with backslashes outside quotes, so that a shell still reads one line."""
    current = ""
    for word in _SHELL_WORD.findall(line):
        # The last 2 is for the space and the backslash.
        if current and len(current) + 1 + len(word) + 2 > width:
            yield current + " \\"
            current = "    " + word
        else:
            current = f"{current} {word}" if current else word
    yield current


def _option_rows(options: Sequence[Option]) -> list[tuple[str, str]]:
    return [(option_usage(one), _explained(one)) for one in options]


def _explained(one: Option | Positional) -> str:
    """Return the help text, followed by the choices if the text does not name them."""
    return one.help if _names_choices(one) else f"{one.help} One of: {', '.join(one.choices)}."


def _names_choices(one: Option | Positional) -> bool:
    return all(choice in one.help for choice in one.choices)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


# --------------------
# The table of commands as JSON: `pal help --json`.


def command_view(command: Command) -> dict[str, object]:
    """Return a command as `pal help --json` prints it; empty fields are left out."""
    view = {
        "command": " ".join(command.path),
        "usage": usage_line(command),
        "summary": command.summary,
        "description": " ".join(filter(None, (command.description, *command.notes))),
        "group": command.group,
        "is_group": command.is_group,
        "arguments": [
            _named(one.name, one, {"optional": one.optional, "many": one.many}) for one in command.positionals
        ],
        "options": [
            _named(one.name, one, {"short": one.short, "value": one.metavar, "many": one.many})
            for one in command.options
        ],
        "statuses": {str(status): meaning for status, meaning in command.statuses},
        "examples": [{"line": line, "meaning": meaning} for line, meaning in command.examples],
        "json": command.json,
    }
    return {name: value for name, value in view.items() if value}


def _named(name: str, one: Option | Positional, rest: dict[str, object]) -> dict[str, object]:
    view = {"name": name, **rest, "help": one.help, "choices": list(one.choices)}
    return {key: value for key, value in view.items() if value}


def render_json(table: Table, command: Command | None) -> str:
    """Return one line of JSON for a command; without one, a line for each command that is not hidden."""
    wanted = [command] if command is not None and command.path else table.commands
    return "".join(
        f"{json.dumps(command_view(one), ensure_ascii=False)}\n" for one in wanted if not one.is_hidden
    )


# --------------------
# The page docs/cli.md. `make docs` writes it, and a test compares the file with it.

_PAGE_WIDTH: Final = 120
_EXAMPLE_COLUMNS: Final = 70
"""Comments of examples are aligned, except after a line that is longer than this."""

# An apostrophe next to a letter, as in "agent's", begins and ends no quotation.
_CODE: Final = re.compile(
    r"""(?<![\w'])'(?P<quoted>[^']*)'(?![\w'])      # 'pal down', 'room'
    |(?<![\w-])(?P<option>--(?:[a-z][a-z-]*[a-z])?)(?![\w-])  # --json, --
    |(?<![\w.])(?P<name>!?@[a-z]+(?:-[a-z]+)*-?)    # @luna, @api-
    |(?P<variable>\$[A-Z_]+|~/[.\w/]+)              # $EDITOR, ~/.palaver
    """,
    re.VERBOSE,
)
"""The parts of a plain text that the page shows as code."""

_INTRODUCTION: Final = """\
# The command line

<!-- `make docs` writes this page. Change the texts in src/palaver/doors/cli instead. -->

People, scripts and agents use the bus with `pal`. Starting an agent or sending a
message starts it; no setup is needed.
"""

_READING: Final = """\
`pal help COMMAND` and `pal COMMAND --help` show the help of one command and do nothing else, whatever other
arguments are given; with `--json` they print objects for programs. `man pal` shows the same as this page.
`pal --version` prints the version; with `--json` as one object, `{"version": …}`.

## How a line is read

Options and arguments may be mixed. A value follows its option, `--thread pr-123` or `--thread=pr-123`; a
value that begins with a dash needs the second form. Options cannot be abbreviated, and an option that takes
one value is refused when it is given twice. `--` ends the options: after it everything is an argument. A
lone `-` and a negative number are arguments too.

These options may be given before or after any command:
"""

_NOTATION: Final = """\
A person may act as any agent with `--as`, a script as a worker, an agent only as agents that it opened.

**Recipients.** `@luna` is every agent with the base name luna, `@api-luna` the one with that full name,
`@luna:BOXE` the one on the device BOXE, `@api-` all with the tag api, `@claude-*` all whose name begins
with `claude-` (quote it, because `*` is special in a shell). `@all`, `@workers`, `@operators`,
`@orchestrators` and `@observers` are groups, `@human` is the person. The `@` may be left out. A word with a
slash is a path. See [addresses](addresses.md).

**Messages.** `42` or `#42`, `42:BOXE` for one from another device, or the end of its long id, at least four
characters, if no other id ends with them.

**Bundles.** `bundle:` and eight characters, or only these eight, in upper or lower case.

**Durations.** `30` is seconds; `90s`, `10m`, `2h`, `1d` have a unit.

**Exit status.** 0 done, 1 refused or failed, 2 the line could not be read, 3 waited and nothing came. An
error is a sentence on standard error, or with `--json` an object with `error`, a code that never changes,
and `message`. [JSON](json.md) says what each command prints with `--json`.
"""


def render_page(table: Table) -> str:
    """Return the text of docs/cli.md: all commands that are not hidden, in the groups and order of help."""
    program = table.root.command
    options = [(option_usage(one), _meaning(one)) for one in GLOBAL_OPTIONS]
    parts = [_INTRODUCTION, _shell_block(program.examples), _READING, _table("option", options), _NOTATION]
    group = ""
    for command in table.commands:
        if command.is_hidden:
            continue
        if command.group != group:
            group = command.group
            parts.append(f"## {group}\n")
        parts += _section_of(table, command)
    return "\n".join(parts)


def _section_of(table: Table, command: Command) -> Iterator[str]:
    yield f"### `pal {' '.join(command.path)}`\n"
    yield f"```text\n{usage_line(command)}\n```\n"
    words = [_marked(command.summary), _marked(command.description)]
    if command.see:
        words.append(f"See {_listed([f'[{text}]({target})' for text, target in command.see])}.")
    yield _paragraph(" ".join(filter(None, words)))
    entry = table.find(command.path)
    children = table.children_of(entry) if entry is not None else ()
    if children:
        names = [f"pal {' '.join(child.path)}" for child in children]
        links = [f"[`{name}`](#{name.replace(' ', '-')})" for name in names]
        yield _paragraph(f"Subcommands: {_listed(links)}.")
    arguments = [(positional_usage(one), _meaning(one)) for one in command.positionals]
    options = [(option_usage(one), _meaning(one) + _excluded(command, one)) for one in command.options]
    if arguments or options:
        kinds = [kind for kind, rows in (("argument", arguments), ("option", options)) if rows]
        yield _table(" or ".join(kinds), arguments + options)
    yield from (_paragraph(_marked(note)) for note in command.notes)
    if command.statuses:
        yield _table("exit status", [(str(one), _marked(meaning)) for one, meaning in command.statuses])
    if command.json:
        yield _paragraph(f"With `--json`: {_marked(command.json)}")
    if command.examples:
        yield _shell_block(command.examples)
    if command.aliases:
        yield f"Aliases: {_listed(_as_code(command.aliases))}.\n"


def _meaning(one: Option | Positional) -> str:
    """Return the help text as Markdown, followed by the choices if the text does not name them."""
    text = _marked(one.help)
    return text if _names_choices(one) else f"{text} One of: {_listed(_as_code(one.choices), 'or')}."


def _excluded(command: Command, option: Option) -> str:
    """Return a sentence with the options that this one excludes; empty without such options."""
    sets = [names for names in command.exclusive if option.name in names]
    others = dict.fromkeys(name for names in sets for name in names if name != option.name)
    return f" Not together with {_listed(_as_code(others), 'or')}." if others else ""


def _as_code(words: Iterable[str]) -> list[str]:
    return [f"`{word}`" for word in words]


def _marked(text: str) -> str:
    """Return a plain text as Markdown, with the parts to type as code."""
    return _CODE.sub(lambda found: f"`{found['quoted'] if found['quoted'] else found[0]}`", text)


def _paragraph(text: str) -> str:
    # A line break inside code would be hard to read, so spaces there do not count as spaces.
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(whole, _PAGE_WIDTH, break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace("\0", " ") + "\n"


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {title} | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in rows]
    return "\n".join(lines) + "\n"


def _shell_block(examples: Sequence[tuple[str, str]]) -> str:
    column = max((len(line) for line, _ in examples if len(line) <= _EXAMPLE_COLUMNS), default=0)
    lines = [f"{line:<{column}}  # {meaning}" for line, meaning in examples]
    return "\n".join(("```sh", *lines, "```")) + "\n"


def _listed(words: Sequence[str], last: str = "and") -> str:
    """Return words as a list in a sentence: `a, b and c`."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


# --------------------
# The manual page docs/pal.1, for `man pal`. `make docs` writes it, and a test compares the file with it.


def render_manual(table: Table) -> str:
    """Return the text of docs/pal.1: all commands that are not hidden, in the groups and order of help."""
    program = table.root.command
    lines = [
        '.\\" `make docs` writes this page. Change the texts in src/palaver/doors/cli instead.',
        # Without a date, with which the page would differ from the file in the repository.
        '.TH PAL 1 "" Palaver',
        ".SH NAME",
        _roff(f"pal - {_lower(program.summary).rstrip('.')}"),
        ".SH SYNOPSIS",
        ".B pal",
        _roff("COMMAND [OPTIONS]"),
        ".SH GLOBAL OPTIONS",
        *_roff_pairs(_option_rows(GLOBAL_OPTIONS)),
    ]
    group = ""
    for command in table.commands:
        if command.is_hidden:
            continue
        if command.group != group:
            group = command.group
            lines.append(_roff_macro("SH", group.upper()))
        lines += _roff_section(command)
    lines += [".SH EXAMPLES", *_roff_examples(program.examples)]
    lines += [".SH EXIT STATUS", *_roff_pairs([(str(status), text) for status, text in _STATUSES])]
    return "\n".join(lines) + "\n"


_STATUSES: Final = (
    (0, "Done."),
    (1, "Refused or failed; standard error says why."),
    (2, "The command line could not be read."),
    (3, "Waited, and nothing came."),
)


def _roff_section(command: Command) -> Iterator[str]:
    yield _roff_macro("SS", usage_line(command))
    yield _roff(" ".join(filter(None, (command.summary, command.description))))
    rows = [(positional_usage(one), _explained(one)) for one in command.positionals]
    yield from _roff_pairs(rows + _option_rows(command.options))
    for note in command.notes:
        yield ".PP"
        yield _roff(note)
    if command.json:
        yield ".PP"
        yield _roff(f"With --json: {command.json}")
    yield from _roff_examples(command.examples)


def _roff_pairs(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield ".TP"
        yield f"\\fB{_roff(name)}\\fR"
        yield _roff(text)


def _roff_examples(examples: Sequence[tuple[str, str]]) -> Iterator[str]:
    for line, meaning in examples:
        yield ".PP"
        yield _roff(f"{meaning[:1].upper()}{meaning[1:]}:")
        yield ".PP"
        yield f".nf\n    {_roff(line)}\n.fi"


def _roff_macro(name: str, text: str) -> str:
    # In quotes, because a macro takes each word for a separate argument; a quotation mark inside would end
    # the text.
    quoted = _roff(text).replace('"', "\\(dq")
    return f'.{name} "{quoted}"'


def _roff(text: str) -> str:
    """Return a text in which roff finds no requests and keeps every dash, quote and backslash."""
    # roff prints these as typographic characters, with which a copied command fails.
    signs = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
    plain = "".join(signs.get(one, one if one.isascii() else f"\\[u{ord(one):04X}]") for one in text)
    # roff takes a line that starts with a dot for a request; `\&` is a sign without width before it.
    return f"\\&{plain}" if plain.startswith(".") else plain
