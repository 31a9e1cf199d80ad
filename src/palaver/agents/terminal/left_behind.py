"""What an agent started and has not taken along: all that runs below its holder. Looks only."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

from palaver.agents.terminal.foreground import children

_OWN: Final = (b"palaver.daemon", b"palaver.agents.")
"""Modules that run in processes of Palaver's own: they stay, and so does what is below them."""


def left_behind(agent: int) -> list[int]:
    """Give every process below us that the agent started and that still runs, without the agent itself.

    The daemon, another agent's holder and our own errands may have been started below us too. They are no
    part of the agent, nor is anything that they run.
    """
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for pid in children(waiting.pop()):
            if pid == agent or not _is_own(pid):
                waiting.append(pid)
                found += [pid] if pid != agent and _runs(pid) else []
    return found


def _is_own(pid: int) -> bool:
    words = _read(pid, "cmdline").split(b"\0")
    return any(word == b"-m" and module.startswith(_OWN) for word, module in pairwise(words))


def _runs(pid: int) -> bool:
    """Whether a process has not ended; one that waits to be collected has."""
    return _read(pid, "stat").rpartition(b") ")[2][:1] not in (b"Z", b"X", b"x", b"")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
