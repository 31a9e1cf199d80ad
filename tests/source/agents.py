"""The agents of the source document: shells that joined, and their messages through `pal`."""

import re

from tests.daemon.stage import Home, JsonLine, Result, Shell

Pair = tuple[Shell, Shell]

_TAIL = re.compile(r"(?: \| \(pal: [^|]*\))+(?=</pal>$)")


def meet(home: Home, *names: str) -> list[Shell]:
    """Join these agents one after the other."""
    shells = [home.shell() for _ in names]
    for shell, name in zip(shells, names, strict=True):
        shell.ok("join", "--name", name)
    return shells


def say(shell: Shell, *words: str) -> JsonLine:
    """Send a message and return the JSON result: `seq`, `to`, `delivered_to`."""
    return shell.ok("send", "--json", *words).json


def hear(shell: Shell, *options: str) -> str:
    """Return the fence that an agent reads, without the hints at its end."""
    return _TAIL.sub("", shell.ok("recv", *options).out.removesuffix("\n"))


def hear_texts(shell: Shell) -> list[str]:
    """Return the texts of all waiting messages of an agent."""
    return [line["text"] for line in shell.ok("recv", "--json").lines]


def wait_for_texts(shell: Shell) -> list[str]:
    """Return the texts of waiting messages of an agent, or of the next one."""
    lines = shell.ok("recv", "--wait", "--timeout", "30", "--json").lines
    return [line["text"] for line in lines]


def state_of(shell: Shell, seq: int, name: str) -> str:
    """Return the state of a message for one recipient."""
    lines = shell.ok("receipts", str(seq), "--json").json["receipts"]
    return {str(line["name"]): str(line["state"]) for line in lines}[name]


def why_refused(result: Result) -> tuple[str, str]:
    """Return code and text of an error."""
    assert result.status == 1, result
    return result.error["error"], result.error["message"]
