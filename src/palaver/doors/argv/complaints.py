"""Error texts for command lines that cannot be parsed. Each says the problem and the remedy. Pure."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from palaver.doors.argv.spec import Command, Entry, Option, usage_line

_SHOWN: Final = 60


def typed(command: Command) -> str:
    """Return a command as the user types it."""
    return " ".join(("pal", *command.path))


def shown(word: str) -> str:
    """Quote and shorten typed text, without control characters."""
    return repr(word if len(word) <= _SHOWN else word[: _SHOWN - 1] + "…")


def _nearest(word: str, known: Sequence[str]) -> str | None:
    near = get_close_matches(word[:_SHOWN].lower(), known, n=1)
    return near[0] if near else None


def unknown_command(entry: Entry, word: str) -> str:
    """Return the error for an unknown command or subcommand."""
    before = typed(entry.command)
    known = [name for name, child in entry.children.items() if not child.command.is_hidden]
    near = _nearest(word, known)
    kind = "subcommand" if entry.command.path else "command"
    hint = f"did you mean '{before} {near}'?" if near else f"'{before} --help' lists the {kind}s"
    return f"unknown {kind} {shown(word)}; {hint}"


def unknown_option(entry: Entry, name: str) -> str:
    """Return the error for an option that the command does not have."""
    before = typed(entry.command)
    if name == "--version":
        return "--version cannot be combined with other arguments; use: pal --version"
    if name == "--consumer" and entry.command.path == ("recv",):
        return (
            "--consumer works only with 'pal events', where it stores a position in the log. "
            "'pal recv' does not need it: the bus records which messages you have received"
        )
    near = _nearest(name, [one for one in entry.options if one.startswith("--")])
    hint = f"did you mean {near}?" if near else f"'{before} --help' lists the options"
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


def too_many(entry: Entry, positionals: Sequence[str]) -> str:
    """Return the error for too many arguments."""
    command = entry.command
    near = _nearest(positionals[0], list(entry.children))
    if near:
        return f"unknown subcommand {shown(positionals[0])}; did you mean '{typed(command)} {near}'?"
    extra = positionals[entry.most or 0]
    return f"unexpected argument {shown(extra)}; usage: {usage_line(command)}"
