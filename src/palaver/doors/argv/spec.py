"""What a command is, as data: its words, options, arguments and help texts. Pure.

A command is never run here: handlers are kept apart, by path, so that help, completion and the documentation
can read the same table without loading what the commands do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Completes = Literal[
    "agents",
    "targets",
    "threads",
    "files",
    "directories",
    "ids",
    "harnesses",
    "commands",
    "settings",
    "rooms",
    "notes",
    "tasks",
    "permissions",
]
"""What a value can be completed with. `targets` are agents and groups, written with an @."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. Without a metavar it is a flag; `many` may be given several times, and then means or.

    With a default its value may be left out, and then is that.
    """

    name: str
    help: str
    metavar: str | None = None
    default: str | None = None
    many: bool = False
    choices: tuple[str, ...] = ()
    short: str | None = None
    completes: Completes | None = None
    shadows_global: bool = False
    """It takes the place of a global flag of that name, which then stands only before the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positional:
    """One argument by its place. Only the last may be `many`; after an optional one all are optional."""

    name: str
    help: str
    many: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()
    completes: Completes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. Its path is what is typed: ("send",) or ("status", "set").

    `rest` names what may stand behind `--`; such a command gets it apart from its other arguments, and counts
    them itself. A group is only a word before other words, and cannot be run by itself.
    `exclusive` lists sets of options of which at most one can be given.
    """

    path: tuple[str, ...]
    summary: str
    group: str = ""
    description: str = ""
    options: tuple[Option, ...] = ()
    positionals: tuple[Positional, ...] = ()
    exclusive: tuple[tuple[str, ...], ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    aliases: tuple[str, ...] = ()
    rest: str | None = None
    hands_on: bool = False
    """What stands behind it, but for its own options in front, is for another program and is not read."""
    is_group: bool = False
    is_hidden: bool = False


GLOBAL_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="--home",
        metavar="DIR",
        help="Where the bus lives; otherwise $PALAVER_HOME, or ~/.palaver.",
        completes="directories",
    ),
    Option(
        name="--as",
        metavar="NAME",
        help="Act as this agent. It is checked, and it is kept in the log who really asked.",
        completes="agents",
    ),
    Option(name="--json", help="Answer in JSON, one object a line."),
    Option(name="--text", help="Answer in text, also where JSON would be the default."),
    Option(name="--help", short="-h", help="Show help and do nothing else."),
)
"""Understood by every command, before it or after it."""

GLOBAL_EXCLUSIVE: Final[tuple[str, ...]] = ("--json", "--text")


@dataclass(frozen=True, slots=True)
class Entry:
    """One command made ready for reading: everything looked up by word. Made by `build_table` only."""

    command: Command
    options: Mapping[str, Option]
    children: dict[str, "Entry"]
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """All commands. The root stands for `pal` itself and has the commands of one word as its children."""

    root: Entry
    commands: tuple[Command, ...] = field(repr=False)

    def find(self, path: Sequence[str]) -> Entry | None:
        """Give the entry with exactly this path (or an alias in its last word), or None."""
        entry = self.root
        for word in path:
            child = entry.children.get(word)
            if child is None:
                return None
            entry = child
        return entry

    def children_of(self, entry: Entry) -> tuple[Command, ...]:
        """Give the commands one word below, in table order, without aliases and hidden ones."""
        found = {child.command.path: child.command for child in entry.children.values()}
        return tuple(command for command in found.values() if not command.is_hidden)


def build_table(program: Command, commands: Sequence[Command]) -> Table:
    """Make the table that parse, help and completion read. Done once, at start.

    A table that contradicts itself (a path twice, a path without the one before it, an option twice or named
    like a global one) is a mistake of the programmer and raises ValueError.
    """
    root = _entry(program)
    table = Table(root, tuple(commands))
    for command in sorted(commands, key=lambda one: len(one.path)):
        parent = table.find(command.path[:-1])
        if parent is None or not command.path:
            raise ValueError(f"{command.path} has no command before it")
        entry = _entry(command)
        for word in (command.path[-1], *command.aliases):
            if word in parent.children:
                raise ValueError(f"{word!r} means two commands behind {command.path[:-1]}")
            parent.children[word] = entry
    return table


def _entry(command: Command) -> Entry:
    options: dict[str, Option] = {}
    for option in (*GLOBAL_OPTIONS, *command.options):
        for name in (option.name, option.short):
            if name is None:
                continue
            if name in options and not (option.shadows_global and options[name] in GLOBAL_OPTIONS):
                raise ValueError(f"{name} stands twice in {command.path}")
            options[name] = option
    for name in (name for names in command.exclusive for name in names):
        if name not in options:
            raise ValueError(f"{command.path} excludes {name}, which it does not have")
    _check_positionals(command)
    is_open = command.rest is not None or any(one.many for one in command.positionals)
    return Entry(
        command=command,
        options=options,
        children={},
        least=sum(not one.optional for one in command.positionals),
        most=None if is_open else len(command.positionals),
    )


def _check_positionals(command: Command) -> None:
    if any(one.many for one in command.positionals[:-1]):
        raise ValueError(f"only the last argument of {command.path} may be many")
    optional = [one.optional for one in command.positionals]
    if optional != sorted(optional):
        raise ValueError(f"{command.path} needs an argument after one that it does not need")


def usage_line(command: Command) -> str:
    """Write how the command is typed, without its options one by one: `pal show ID`."""
    words = ["pal", *command.path]
    if command.is_group:
        words.append("COMMAND")
    for one in command.positionals:
        name = one.name + ("..." if one.many else "")
        words.append(f"[{name}]" if one.optional else name)
    if command.options:
        words.append("[OPTIONS]")
    if command.rest is not None:
        words.append(f"[--] {command.rest}")
    return " ".join(words)


def option_usage(option: Option) -> str:
    """Write an option as help and documentation show it: `-v, --verbose` or `--thread T`."""
    name = f"{option.short}, {option.name}" if option.short else option.name
    if option.metavar is None:
        return name
    return f"{name} {option.metavar}" if option.default is None else f"{name} [{option.metavar}]"
