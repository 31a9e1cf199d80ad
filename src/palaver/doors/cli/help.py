"""Render help texts for a terminal of any width. Pure."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from palaver.doors.cli.spec import (
    GLOBAL_OPTIONS,
    Command,
    Option,
    Positional,
    Table,
    option_usage,
    usage_line,
)
from palaver.protocol.display import Paint

_NARROWEST: Final = 30
_WIDEST: Final = 100
_SIDE_BY_SIDE: Final = 60
"""From this width on, names and their explanations are in two columns."""
_NAME_COLUMNS: Final = 24
_INDENT: Final = "  "
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
        rows: dict[str, list[tuple[str, str]]] = {}
        for command in table.commands:
            if not command.is_hidden:
                row = (" ".join(command.path), command.summary.rstrip("."))
                rows.setdefault(command.group, []).append(row)
        names = max((len(name) for group in rows.values() for name, _ in group), default=0)
        parts += [self._section(title, self._pairs(group, names)) for title, group in rows.items()]
        parts.append(self._section("Global options", self._pairs(_option_rows(GLOBAL_OPTIONS), names)))
        parts.append(self._section("Getting started", self._examples(program.examples)))
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
        arguments = [(_positional_name(one), _explained(one)) for one in command.positionals]
        options = _option_rows(command.options)
        names = max((len(name) for name, _ in arguments + options), default=0)
        if arguments:
            parts.append(self._section("Arguments", self._pairs(arguments, names)))
        if options:
            parts.append(self._section("Options", self._pairs(options, names)))
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
        lines[0] = lines[0].replace("Usage:", self._paint.bold("Usage:"), 1)
        return "\n".join(lines) + "\n"

    def _prose(self, text: str) -> str:
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
        margin = len(_INDENT) + column + 2 if column else 2 * len(_INDENT)
        for name, text in rows:
            lines = textwrap.wrap(text, self._width - margin, break_on_hyphens=False)
            if len(name) <= column:
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
    if all(choice in one.help for choice in one.choices):
        return one.help
    return f"{one.help} One of: {', '.join(one.choices)}."


def _positional_name(one: Positional) -> str:
    name = one.name + ("..." if one.many else "")
    return f"[{name}]" if one.optional else name


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
