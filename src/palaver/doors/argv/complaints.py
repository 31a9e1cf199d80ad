"""What is said about a command line that cannot be read: one sentence each, which says what to do. Pure."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from palaver.doors.argv.spec import Command, Entry, Option, usage_line

_SHOWN: Final = 60


def typed(command: Command) -> str:
    """Write the words by which a command is called."""
    return " ".join(("pal", *command.path))


def shown(word: str) -> str:
    """Quote what was typed so that it cannot drive a terminal, and shorten it."""
    return repr(word if len(word) <= _SHOWN else word[: _SHOWN - 1] + "…")


def _nearest(word: str, known: Sequence[str]) -> str | None:
    near = get_close_matches(word[:_SHOWN].lower(), known, n=1)
    return near[0] if near else None


def unknown_command(entry: Entry, word: str) -> str:
    """A word where a command should stand."""
    before = typed(entry.command)
    known = [name for name, child in entry.children.items() if not child.command.is_hidden]
    near = _nearest(word, known)
    hint = f"did you mean '{before} {near}'?" if near else f"'{before} --help' lists the commands"
    return f"there is no command {shown(word)}; {hint}"


def unknown_option(entry: Entry, name: str) -> str:
    """An option that the command does not have."""
    before = typed(entry.command)
    if name == "--version":
        return "--version must stand alone: pal --version"
    if name == "--consumer" and entry.command.path == ("recv",):
        return (
            "--consumer belongs to 'pal events --follow', where it keeps a place in the log. "
            "'pal recv' needs none: it takes your mail, and the ledger knows what was flushed"
        )
    near = _nearest(name, [one for one in entry.options if one.startswith("--")])
    hint = f"did you mean {near}?" if near else f"'{before} --help' lists the options"
    if entry.command.rest is not None:
        hint += f"{'' if near else '.'} Text that begins with a dash goes after --"
    elif not entry.command.path and near is None:
        hint = "options of a command stand behind it, and 'pal --help' lists the commands"
    return f"{before} has no option {shown(name)}; {hint}"


def missing_value(option: Option, following: str | None) -> str:
    """An option at the end, or before another one."""
    sentence = f"{option.name} needs a value: {option.name} {option.metavar}"
    if following is None:
        return sentence
    return f"{sentence}. If {shown(following)} is the value, write it behind an equals sign: {option.name}=…"


def not_a_choice(name: str, choices: Sequence[str], value: str) -> str:
    """A value outside a fixed set."""
    near = _nearest(value, choices)
    hint = f"; did you mean {near}?" if near else ""
    return f"{name} cannot be {shown(value)}, it is one of: {', '.join(choices)}{hint}"


def too_many(entry: Entry, positionals: Sequence[str]) -> str:
    """More arguments than there are places."""
    command = entry.command
    near = _nearest(positionals[0], list(entry.children))
    if near:
        return f"there is no command {shown(positionals[0])}; did you mean '{typed(command)} {near}'?"
    extra = positionals[entry.most or 0]
    return f"{typed(command)} has no place for {shown(extra)}: {usage_line(command)}"
