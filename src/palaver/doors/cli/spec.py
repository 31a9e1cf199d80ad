"""Commands as data, and the parsing of a command line by this data. Pure.

No command is run here: `run.py` has the function of each path. Help, completion and the documentation are
made from the same table as the parser, so they cannot differ from it.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Literal

from palaver.errors import UsageError, nearest
from palaver.protocol.agents import ROLES

# --------------------
# Define commands: path, options, arguments and help texts.

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
    checks itself how many of both there are. A group only has subcommands and cannot be run by itself.
    `exclusive` lists sets of options of which at most one can be given.

    Texts are plain: a command line or a word to type is in 'quotes', and the documentation shows it as code.
    """

    path: tuple[str, ...]
    summary: str
    group: str = ""
    description: str = ""
    notes: tuple[str, ...] = ()
    """Paragraphs about arguments and options that need more than one short sentence. Shown after them."""
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
        # The class is frozen, so a field that is computed from another one can be set only in this way.
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
        help="Act as this agent, if allowed. The log has the real caller.",
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
        # By path, because an alias is a second name of the same entry.
        found = {child.command.path: child.command for child in entry.children.values()}
        return tuple(command for command in found.values() if not command.is_hidden)


def build_table(program: Command, commands: Sequence[Command]) -> Table:
    """Build the table that parse, help and completion read. Called once, at start.

    Raises ValueError for an inconsistent table: a duplicate path, a path without its parent, a duplicate
    option, or an option with the name of a global one.
    """
    root = _entry(program)
    table = Table(root, tuple(commands))
    # Parents before their subcommands, in whatever order the modules list them.
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
    # False sorts before True: no required argument may follow an optional one.
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
    help="Group tag: with api, luna becomes api-luna, part of @api-.",
)
ROLE: Final = Option(
    name="--role",
    metavar="ROLE",
    help="Role (default: worker). A higher one: for a person only.",
    choices=ROLES,
)
COUNT: Final = Option(
    name="--count",
    metavar="N",
    help="Start N (at most 20) in the background, print their names.",
)
DETACH: Final = Option(name="--detach", help="Start it in the background and print its name.")
WINDOW: Final = Option(name="--window", help="Show it in a new window of your terminal.")


# --------------------
# Error texts for command lines that cannot be parsed. Each says the problem and the remedy. Pure.

_SHOWN: Final = 60


def typed(command: Command) -> str:
    """Return a command as the user types it."""
    return " ".join(("pal", *command.path))


def shown(word: str) -> str:
    """Quote and shorten typed text, without control characters."""
    return repr(word if len(word) <= _SHOWN else word[: _SHOWN - 1] + "…")


_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "agents": ("list",),
    "ask": ("send --intent request",),
    "exit": ("leave",),
    "log": ("events",),
    "logs": ("events",),
    "ls": ("list",),
    "mail": ("inbox",),
    "man": ("help",),
    "message": ("send",),
    "messages": ("inbox",),
    "msg": ("send",),
    "open": ("attach",),
    "ps": ("list",),
    "publish": ("route PATH",),
    "quit": ("leave",),
    "read": ("recv", "show ID"),
    "receive": ("recv",),
    "reply": ("send --reply-to ID",),
    "say": ("send",),
    "search": ("events --search WORDS",),
    "settings": ("config list",),
    "spawn": ("start", "run"),
    "subscribe": ("events sub", "sub add PATTERN"),
    "tail": ("events --follow",),
    "unsub": ("events unsub", "sub rm PATTERN"),
    "version": ("--version",),
    "wait": ("recv --wait",),
    "watch": ("events --follow",),
    "who": ("list",),
}
"""Other words for a command, as other programs have them. They are suggested, not run."""


_LEAST_BEGINNING: Final = 3
"""Letters. A shorter beginning fits too many names to be a useful suggestion."""


def _nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the name that begins with a word of at least three letters, or else the most similar one."""
    begins = [one for one in known if len(word) >= _LEAST_BEGINNING and one.startswith(word)]
    near = begins or nearest(word, known)
    return near[0] if near else None


def unknown_command(entry: CommandIndex, word: str) -> str:
    """Return the error for an unknown command or subcommand."""
    before = typed(entry.command)
    known = [name for name, child in entry.children.items() if not child.command.is_hidden]
    near: Sequence[str] = () if entry.command.path else _SYNONYMS.get(word.lower(), ())
    # `ls` has too few letters in common with `list` to be found as similar.
    near = near or nearest("list" if word == "ls" else word, known)
    kind = "subcommand" if entry.command.path else "command"
    meant = " or ".join(f"'{before} {one}'" for one in near)
    hint = f"did you mean {meant}?" if near else f"'{before} --help' lists the {kind}s"
    return f"unknown {kind} {shown(word)}; {hint}"


def unknown_option(entry: CommandIndex, name: str) -> str:
    """Return the error for an option that the command does not have."""
    before = typed(entry.command)
    if name == "--version":
        return "--version cannot be combined with other arguments; use: pal --version"
    if name == "--consumer" and entry.command.path == ("recv",):
        return (
            "--consumer works only with 'pal events', where it stores a position in the log. "
            "'pal recv' does not need it: the bus records which messages you have received"
        )
    # Without their dashes, which would make short names look similar, such as --nope and --home.
    known = [one.removeprefix("--") for one in entry.options if one.startswith("--")]
    near = _nearest(name.lstrip("-"), known)
    hint = f"did you mean --{near}?" if near else f"'{before} --help' lists the options"
    if entry.command.rest is not None:
        hint += f"{'' if near else '.'} Put text that starts with a dash after --"
    elif not entry.command.path and near is None:
        hint = "put the options of a command after its name; 'pal --help' lists the commands"
    return f"{before} has no option {shown(name)}; {hint}"


def missing_value(option: Option, following: str | None) -> str:
    """Return the error for an option without its value."""
    sentence = f"{option.name} requires a value: {option.name} {option.metavar}"
    if following is None:
        return sentence
    return f"{sentence}. If {shown(following)} is the value, use an equals sign: {option.name}=…"


def not_a_choice(name: str, choices: Sequence[str], value: str) -> str:
    """Return the error for a value that is not one of the choices."""
    near = _nearest(value, choices)
    hint = f"; did you mean {near}?" if near else ""
    return f"invalid value for {name}: {shown(value)}; expected one of: {', '.join(choices)}{hint}"


def too_many(entry: CommandIndex, positionals: Sequence[str]) -> str:
    """Return the error for too many arguments."""
    command = entry.command
    near = _nearest(positionals[0], list(entry.children))
    if near:
        return f"unknown subcommand {shown(positionals[0])}; did you mean '{typed(command)} {near}'?"
    extra = positionals[entry.most or 0]
    return f"unexpected argument {shown(extra)}; usage: {usage_line(command)}"


# --------------------
# A parsed command line and access to its values. Pure.

Value = str | bool | list[str]

# `\Z`, because `$` also matches before a final line end. With nine digits, even weeks fit into 64 bits as
# milliseconds.
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|[smhdw]?)\Z")
_SECONDS: Final = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _check_reference(name: str, given: str) -> None:
    # Most often an unset variable of a script: without its reference the command would do something else.
    if not given:
        raise UsageError(f"{name} requires a value, which is empty here; leave {name} out for none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A parsed command line.

    `positionals` are the arguments before `--`; for a command without `rest` they include those after it.
    `after` is the arguments after `--`, or None without `--`. With `is_help`, only show the help of `command`
    (its path is empty for the overview); then the other fields are empty, except `form`.
    """

    command: Command
    options: dict[str, Value] = field(default_factory=dict)
    positionals: list[str] = field(default_factory=list)
    after: list[str] | None = None
    home: str | None = None
    as_name: str | None = None
    form: str | None = None
    """`json` or `text` if the caller chose one."""
    is_help: bool = False

    def has(self, name: str) -> bool:
        """Return whether a flag or option was given."""
        return self._given(name) is not None

    def has_any(self, names: Set[str]) -> bool:
        """Return whether at least one of these flags or options was given."""
        assert names <= self.command.option_names, names  # As in `_given`.
        return not names.isdisjoint(self.options)

    def value(self, name: str) -> str | None:
        """Return the value of an option that can be given once, or None."""
        given = self._given(name)
        assert given is None or isinstance(given, str), f"{name} is not an option with one value"
        return given

    def reference(self, name: str) -> str:
        """Return the value of an option that names something, or an empty string if it was not given."""
        given = self.value(name)
        if given is not None:
            _check_reference(name, given)
        return given or ""

    def references(self, name: str) -> list[str]:
        """Return all values of an option that can be repeated and names something, or an empty list."""
        given = self.values(name)
        for one in given:
            _check_reference(name, one)
        return given

    def values(self, name: str) -> list[str]:
        """Return all values of an option that can be repeated, or an empty list."""
        given = self._given(name)
        assert given is None or isinstance(given, list), f"{name} is not an option with many values"
        return given or []

    def number(self, name: str, least: int = 0) -> int | None:
        """Return the value as a whole number of at least `least`, or None if it was not given."""
        given = self.value(name)
        if given is None:
            return None
        # `isdigit` alone accepts digits of other scripts. A number of 18 digits always fits into SQLite's 64
        # bits.
        is_number = given.isascii() and given.isdigit() and len(given) <= 18
        if not is_number or int(given) < least:
            at_least = f" of at least {least}" if least else ""
            raise UsageError(
                f"{name} requires a whole number{at_least}, not {shown(given)}; omit it for the default"
            )
        return int(given)

    def duration_s(self, name: str) -> float | None:
        """Return the value in seconds: `30`, `0.5`, `90s`, `10m`, `2h`, `1d`. None if it was not given."""
        given = self.value(name)
        if given is None:
            return None
        found = _DURATION.match(given)
        if found is None:
            raise UsageError(
                f"{name} requires a time such as 30 (seconds), 10m, 2h or 1d, not {shown(given)}"
            )
        return float(found[1]) * _SECONDS[found[2]]

    def _given(self, name: str) -> Value | None:
        given = self.options.get(name)
        # A handler that reads an option its command does not have is a bug: fail at once.
        assert given is not None or name in self.command.option_names, name
        return given


# --------------------
# Parse timeouts and format relative times for the room commands. Pure.

# Twelve digits: even as hours they fit into 64 bits as milliseconds.
_TIMEOUT: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|)", re.ASCII)
_MS: Final = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def timeout_ms(parsed: Parsed, name: str) -> int | None:
    """Return the value of an option in milliseconds: `30`, `250ms`, `90s`, `5m`, `1h`. None if not given."""
    given = parsed.value(name)
    if given is None:
        return None
    found = _TIMEOUT.fullmatch(given)
    if found is None:
        raise UsageError(
            f"{name} requires a time such as 30 (seconds), 250ms, 90s, 5m or 1h, not {shown(given)}"
        )
    return int(found[1]) * _MS[found[2]]


def relative_time(delta_ms: int) -> str:
    """Format a time relative to now: `59s ago`, `in 2m`. Now is `in 1s`."""
    seconds = max(1, _rounded(abs(delta_ms), 1000))
    span = f"{seconds}s"
    for unit, size in _UNITS:
        if seconds >= size:
            span = f"{_rounded(seconds, size)}{unit}"
            break
    return f"{span} ago" if delta_ms < 0 else f"in {span}"


def _rounded(value: int, size: int) -> int:
    return (value + size // 2) // size


# --------------------
# Parse command lines with the table of commands, and format them again. Pure.
#
# The result for any arguments is a `Parsed` or a `UsageError` whose text says what to do. Values are checked
# only against their choices: an argument may contain surrogate escapes (bytes that are not UTF-8), and text
# that cannot be sent is refused when it is sent.

_NUMBER: Final = re.compile(r"-(?:[0-9]+\.?[0-9]*|\.[0-9]+)\Z")


def parse(table: Table, argv: Sequence[str]) -> Parsed:
    """Parse the arguments after `pal`.

    `--help` before any `--` takes precedence over every error. No arguments, and `pal help COMMAND`, also
    return a request for help: the result is never the command `help` itself.
    """
    words = list(argv)
    after: list[str] | None = None
    if "--" in words:
        end = words.index("--")
        after = words[end + 1 :]
        del words[end:]
    # Before the arguments for another program are split off: `pal claude --help` explains the command of pal,
    # and only `pal claude -- --help` reaches Claude Code.
    if "--help" in words or "-h" in words:
        plain = [one for one in words if one not in _HELP]
        form = "json" if "--json" in plain else None
        # `trace` and not `_read`, because help is shown for a line with errors too.
        return Parsed(command=trace(table, plain).entry.command, form=form, is_help=True)
    if not argv:
        return Parsed(command=table.root.command, is_help=True)
    words, handed_on = _split_handed_on(table, words)
    if handed_on is not None:
        # A `--` after arguments for the other program belongs to that program, so it is put back. A `--`
        # directly after the options of pal only ends these.
        after = handed_on if after is None else [*handed_on, *(["--"] if handed_on else []), *after]

    entry, given, positionals = _read(table.root, words)
    command = entry.command
    if command.rest is None and after:
        positionals += after
    if command.path == ("help",):
        form = "json" if "--json" in given else None
        return Parsed(command=_topic(table, positionals), form=form, is_help=True)
    _check(table, entry, given, positionals)
    home, as_name = given.pop("--home", None), given.pop("--as", None)
    is_json, is_text = given.pop("--json", False), given.get("--text") is True
    if is_text:  # with a value it is an option of the command
        del given["--text"]
    return Parsed(
        command=command,
        options=given,
        positionals=positionals,
        after=after,
        home=home if isinstance(home, str) else None,
        as_name=as_name if isinstance(as_name, str) else None,
        form="json" if is_json else "text" if is_text else None,
    )


_HELP: Final = frozenset({"--help", "-h"})


def _split_handed_on(table: Table, words: list[str]) -> tuple[list[str], list[str] | None]:
    """Split off arguments for another program; None if the command does not forward arguments."""
    entry, index = table.root, 0
    while index < len(words):
        name, equals, _ = words[index].partition("=")
        option = entry.options.get(name) if is_option(words[index]) else None
        if option is not None:
            # This may pass the end if the value is missing. The slices below allow that, and `_read` reports
            # it.
            index += 2 if option.metavar is not None and not equals else 1
        elif entry is table.root and words[index] in entry.children:
            entry = entry.children[words[index]]
            if not entry.command.hands_on:
                return words, None
            index += 1
        else:
            # An option that pal does not have belongs to the other program, and so does everything after it.
            break
    return (words[:index], words[index:]) if entry.command.hands_on else (words, None)


def format_argv(parsed: Parsed) -> list[str]:
    """Return arguments that parse to the same result. A request for help becomes `--help`."""
    argv = list(parsed.command.path)
    if parsed.is_help:
        return [*argv, "--help", *(["--json"] if parsed.form else [])]
    if parsed.home is not None:
        argv.append(f"--home={parsed.home}")
    if parsed.as_name is not None:
        argv.append(f"--as={parsed.as_name}")
    if parsed.form is not None:
        argv.append(f"--{parsed.form}")
    for name, value in parsed.options.items():
        if isinstance(value, list):
            argv += [f"{name}={one}" for one in value]
        else:
            # With an equals sign, because a value may look like an option.
            argv.append(name if isinstance(value, bool) else f"{name}={value}")
    if parsed.after is None:
        return argv + parsed.positionals
    before = parsed.positionals
    if parsed.command.rest is None:
        # These positionals end with the words after `--`, which are added again below.
        before = before[: len(before) - len(parsed.after)]
    return [*argv, *before, "--", *parsed.after]


def option_words(name: str, value: str) -> list[str]:
    """Return an option with its value as arguments: two, or one if the value looks like an option itself."""
    return [f"{name}={value}"] if is_option(value) else [name, value]


def is_option(word: str) -> bool:
    """Return whether a word is an option.

    A single dash (standard input), a negative number and "- x" (a text that is a list) are arguments.
    """
    return word[:1] == "-" and len(word) > 1 and not word[1].isspace() and _NUMBER.match(word) is None


@dataclass(frozen=True, slots=True)
class Trace:
    """The part of an unfinished or wrong line that could be parsed."""

    entry: CommandIndex
    given: frozenset[str]
    positionals: tuple[str, ...]
    pending: Option | None
    """The option whose value is missing at the end of the line."""
    is_after: bool
    """Whether `--` was among the words."""


def trace(table: Table, words: Sequence[str]) -> Trace:
    """Parse the valid words and skip the others. Never raises."""
    entry, pending, can_descend = table.root, None, True
    given: set[str] = set()
    positionals: list[str] = []
    for index, word in enumerate(words):
        # A word that looks like an option is never a value, as in `_read`: then the value is still missing.
        if pending is not None and not is_option(word):
            pending = None
        elif word == "--":
            positionals += words[index + 1 :]
            return Trace(entry, frozenset(given), tuple(positionals), None, True)
        elif is_option(word):
            name, equals, _ = word.partition("=")
            option = entry.options.get(name)
            pending = option if option is not None and option.metavar and not equals else None
            given.add(option.name if option is not None else name)
        elif can_descend and word in entry.children:
            entry = entry.children[word]
        else:
            # From the first argument on, a word like `set` is an argument and no subcommand.
            can_descend = False
            positionals.append(word)
    return Trace(entry, frozenset(given), tuple(positionals), pending, False)


def _read(entry: CommandIndex, words: list[str]) -> tuple[CommandIndex, dict[str, Value], list[str]]:
    """Parse the words from left to right; the first plain words select the command."""
    given: dict[str, Value] = {}
    positionals: list[str] = []
    can_descend = True
    index, count = 0, len(words)
    while index < count:
        word = words[index]
        index += 1
        # The first test decides for most words without a call.
        if word[:1] != "-" or not is_option(word):
            child = entry.children.get(word) if can_descend else None
            if child is None:
                if entry.command.is_group:
                    raise UsageError(unknown_command(entry, word))
                can_descend = False
                positionals.append(word)
                continue
            entry = child
            # Options before this word were read by the table of the level above.
            for name in given:
                if name not in entry.options:
                    raise UsageError(unknown_option(entry, name))
            continue
        name, equals, value = word.partition("=")
        option = entry.options.get(name)
        if option is None:
            raise UsageError(unknown_option(entry, name))
        if option.metavar is None:
            if equals:
                raise UsageError(f"{name} takes no value; use {name} alone")
            _put_flag(given, option)
            continue
        # A word that looks like an option is never a value: then the value was left out or forgotten.
        if not equals and option.default is not None and (index == count or is_option(words[index])):
            value = option.default
        elif not equals:
            if index == count or is_option(words[index]):
                raise UsageError(missing_value(option, words[index] if index < count else None))
            value = words[index]
            index += 1
        _put(given, option, value)
    return entry, given, positionals


def _put_flag(given: dict[str, Value], option: Option) -> None:
    if option.name in given:
        raise UsageError(f"{option.name} can be given only once")
    given[option.name] = True


def _put(given: dict[str, Value], option: Option, value: str) -> None:
    if option.choices and value not in option.choices:
        raise UsageError(not_a_choice(option.name, option.choices, value))
    if option.many:
        found = given.setdefault(option.name, [])
        assert isinstance(found, list)
        found.append(value)
    elif option.name in given:
        raise UsageError(f"{option.name} can be given only once")
    else:
        given[option.name] = value


def _check(table: Table, entry: CommandIndex, given: dict[str, Value], positionals: list[str]) -> None:
    command = entry.command
    if command.is_group:
        kind = "subcommand" if command.path else "command"
        words = ", ".join(one.path[-1] for one in table.children_of(entry))
        raise UsageError(f"{typed(command)} requires a {kind}: {words}")
    if given:
        # `--text` with a value is an option of the command, and excludes nothing.
        forms = [name for name in GLOBAL_EXCLUSIVE if given.get(name) is True]
        for both in (forms, *([name for name in names if name in given] for names in command.exclusive)):
            if len(both) > 1:
                raise UsageError(f"{' and '.join(both)} cannot be used together; choose one")
    if command.rest is not None:
        return
    if len(positionals) < entry.least:
        missing = command.positionals[len(positionals)]
        raise UsageError(f"missing argument {missing.name}; usage: {usage_line(command)}")
    if entry.most is not None and len(positionals) > entry.most:
        raise UsageError(too_many(entry, positionals))
    for index, word in enumerate(positionals):
        positional = _positional(command, index)
        if positional.choices and word not in positional.choices:
            raise UsageError(not_a_choice(positional.name, positional.choices, word))


def _positional(command: Command, index: int) -> Positional:
    return command.positionals[min(index, len(command.positionals) - 1)]


def _topic(table: Table, path: Sequence[str]) -> Command:
    entry = table.root
    for word in path:
        if word not in entry.children:
            raise UsageError(unknown_command(entry, word))
        entry = entry.children[word]
    return entry.command
