"""The agents of the source document: shells that joined, and what they say and hear through `pal`."""

import re

from tests.daemon.stage import Home, JsonLine, Result, Shell

Pair = tuple[Shell, Shell]

_TAIL = re.compile(r"(?: \| \(pal: [^|]*\))+(?=</pal>$)")


def meet(home: Home, *names: str) -> list[Shell]:
    """Let so many agents join, one after the other."""
    shells = [home.shell() for _ in names]
    for shell, name in zip(shells, names, strict=True):
        shell.ok("join", "--name", name)
    return shells


def say(shell: Shell, *words: str) -> JsonLine:
    """Send, and give what the sender is answered: `seq`, `to`, `delivered_to`."""
    return shell.ok("send", "--json", *words).json


def hear(shell: Shell, *options: str) -> str:
    """Give the fence that an agent reads, without the hints and tips at its end."""
    return _TAIL.sub("", shell.ok("recv", *options).out.removesuffix("\n"))


def hear_texts(shell: Shell) -> list[str]:
    """Give the texts of all that waits for an agent."""
    return [line["text"] for line in shell.ok("recv", "--json").lines]


def wait_for_texts(shell: Shell) -> list[str]:
    """Give the texts of what waits for an agent, or of what comes next."""
    lines = shell.ok("recv", "--wait", "--timeout", "30", "--json").lines
    return [line["text"] for line in lines]


def state_of(shell: Shell, seq: int, name: str) -> str:
    """Give what became of a message with one recipient."""
    lines = shell.ok("receipts", str(seq), "--json").json["receipts"]
    return {str(line["name"]): str(line["state"]) for line in lines}[name]


def why_refused(result: Result) -> tuple[str, str]:
    """Give code and sentence of a refusal."""
    assert result.status == 1, result
    return result.error["error"], result.error["message"]
