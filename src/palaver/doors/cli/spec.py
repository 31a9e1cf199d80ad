"""Define commands as data: path, options, arguments and help texts. Pure.

No command is run here. Handlers are kept separately, by path, so that help, completion and the documentation
can read the same table without loading them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from palaver.protocol.agents import ROLES

Completes = Literal[
    "agents",
    "all agents",
    "targets",
    "tags",
    "threads",
    "files",
    "directories",
    "ids",
    "harnesses",
    "launchable",
    "commands",
    "settings",
    "rooms",
    "notes",
    "bundles",
    "tokens",
    "webhooks",
    "registered",
    "subscriptions",
    "sessions",
    "path subscriptions",
    "tasks",
    "permissions",
]
"""The kind of values that completion offers. `agents` have not left; `targets` are agents and groups.

`launchable` are the harnesses that have their own command, such as `pal claude`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. Without a metavar it is a flag. With `many` it may be repeated, which means "or".

    With a default, its value may be omitted.
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
    """Replaces the global flag of that name, which then works only before the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positional:
    """One positional argument. Only the last may be `many`; after an optional one all are optional."""

    name: str
    help: str
    many: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()
    completes: Completes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. Its path is the words to type: ("send",) or ("status", "set").

    `rest` names the arguments after `--`. Such a command gets them separately from its other arguments, and
    counts them itself. A group only has subcommands and cannot be run by itself.
    `exclusive` lists sets of options of which at most one can be given.

    Texts are plain: a command line or a word to type is in 'quotes', and the documentation shows it as code.
    """

    path: tuple[str, ...]
    summary: str
    group: str = ""
    description: str = ""
    options: tuple[Option, ...] = ()
    positionals: tuple[Positional, ...] = ()
    exclusive: tuple[tuple[str, ...], ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    json: str = ""
    """An explanation of the JSON output, where its fields need one. Shown after `With --json:`."""
    statuses: tuple[tuple[int, str], ...] = ()
    """Exit statuses that mean something special, such as 3 after a wait."""
    see: tuple[tuple[str, str], ...] = ()
    """Links of docs/cli.md to other pages in `docs`: a text and its target."""
    aliases: tuple[str, ...] = ()
    rest: str | None = None
    hands_on: bool = False
    """Arguments after its own options are for another program and are not parsed."""
    is_group: bool = False
    is_hidden: bool = False
    option_names: frozenset[str] = field(init=False, repr=False, compare=False)
    """The names of `options`: a handler checks every option that it reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "option_names", frozenset(option.name for option in self.options))


GLOBAL_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="--home",
        metavar="DIR",
        help="Folder of the bus (default: $PALAVER_HOME, or ~/.palaver).",
        completes="directories",
    ),
    Option(
        name="--as",
        metavar="NAME",
        help="Act as this agent, if you may. The log records the real caller.",
        completes="agents",
    ),
    Option(name="--json", help="Print JSON, one object per line."),
    Option(name="--text", help="Print text, even if JSON would be the default."),
    Option(name="--help", short="-h", help="Show help and exit."),
)
"""Accepted by every command, before it or after it."""

GLOBAL_EXCLUSIVE: Final[tuple[str, ...]] = ("--json", "--text")


@dataclass(frozen=True, slots=True)
class CommandIndex:
    """One command, prepared for parsing: options and children by name. Created only by `build_table`."""

    command: Command
    options: Mapping[str, Option]
    children: dict[str, "CommandIndex"]
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """All commands. The root is `pal` itself; its children are the commands of one word."""

    root: CommandIndex
    commands: tuple[Command, ...] = field(repr=False)

    def find(self, path: Sequence[str]) -> CommandIndex | None:
        """Return the entry with exactly this path (or an alias in its last word), or None."""
        entry = self.root
        for word in path:
            child = entry.children.get(word)
            if child is None:
                return None
            entry = child
        return entry

    def children_of(self, entry: CommandIndex) -> tuple[Command, ...]:
        """Return the direct subcommands in table order, without aliases and hidden ones."""
        found = {child.command.path: child.command for child in entry.children.values()}
        return tuple(command for command in found.values() if not command.is_hidden)


def build_table(program: Command, commands: Sequence[Command]) -> Table:
    """Build the table that parse, help and completion read. Called once, at start.

    Raises ValueError for an inconsistent table: a duplicate path, a path without its parent, a duplicate
    option, or an option with the name of a global one.
    """
    root = _entry(program)
    table = Table(root, tuple(commands))
    for command in sorted(commands, key=lambda one: len(one.path)):
        parent = table.find(command.path[:-1])
        if parent is None or not command.path:
            raise ValueError(f"{command.path} has no parent command")
        entry = _entry(command)
        for word in (command.path[-1], *command.aliases):
            if word in parent.children:
                raise ValueError(f"{word!r} names two subcommands of {command.path[:-1]}")
            parent.children[word] = entry
    return table


def _entry(command: Command) -> CommandIndex:
    options: dict[str, Option] = {}
    for option in (*GLOBAL_OPTIONS, *command.options):
        for name in (option.name, option.short):
            if name is None:
                continue
            if name in options and not (option.shadows_global and options[name] in GLOBAL_OPTIONS):
                raise ValueError(f"{command.path} has the option {name} twice")
            options[name] = option
    for name in (name for names in command.exclusive for name in names):
        if name not in options:
            raise ValueError(f"{command.path} excludes {name}, which it does not have")
    _check_positionals(command)
    is_open = command.rest is not None or any(one.many for one in command.positionals)
    return CommandIndex(
        command=command,
        options=options,
        children={},
        least=sum(not one.optional for one in command.positionals),
        most=None if is_open else len(command.positionals),
    )


def _check_positionals(command: Command) -> None:
    if any(one.many for one in command.positionals[:-1]):
        raise ValueError(f"only the last argument of {command.path} may be repeated")
    optional = [one.optional for one in command.positionals]
    if optional != sorted(optional):
        raise ValueError(f"{command.path} has a required argument after an optional one")


def usage_line(command: Command) -> str:
    """Return the usage of a command, without its individual options: `pal show ID`."""
    words = ["pal", *command.path]
    if command.is_group:
        words.append("COMMAND")
    words += [positional_usage(one) for one in command.positionals]
    if command.options:
        words.append("[OPTIONS]")
    if command.rest is not None:
        words.append(f"[--] {command.rest}")
    return " ".join(words)


def positional_usage(one: Positional) -> str:
    """Return an argument as help and documentation show it: `ID...` or `[NAME]`."""
    name = one.name + ("..." if one.many else "")
    return f"[{name}]" if one.optional else name


def option_usage(option: Option) -> str:
    """Return an option as help and documentation show it: `-v, --verbose` or `--thread T`."""
    name = f"{option.short}, {option.name}" if option.short else option.name
    if option.metavar is None:
        return name
    return f"{name} {option.metavar}" if option.default is None else f"{name} [{option.metavar}]"


# --------------------
# Options that several commands share.

NAME: Final = Option(name="--name", metavar="NAME", help="Name of the agent (default: a free name).")
TAG: Final = Option(
    name="--tag",
    metavar="TAG",
    help="Add it to a group: with tag api, luna is api-luna, and @api- is the group.",
)
ROLE: Final = Option(
    name="--role",
    metavar="ROLE",
    help="Role of the agent (default: worker). Only a person can give a higher role.",
    choices=ROLES,
)
COUNT: Final = Option(
    name="--count",
    metavar="N",
    help="Start N agents in the background, at most 20, and print their names.",
)
DETACH: Final = Option(name="--detach", help="Start it in the background and print its name.")
WINDOW: Final = Option(name="--window", help="Show it in a new window of your terminal.")
