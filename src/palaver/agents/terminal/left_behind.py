"""Find the processes that an exited agent left running below its holder. Changes nothing."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

from palaver.agents.terminal.foreground import children

_OWN: Final = (b"palaver.daemon", b"palaver.agents.")
"""Modules of Palaver's own processes. These and their descendants do not belong to the agent."""


def left_behind(agent: int) -> list[int]:
    """Return every running process below us that the agent started, without the agent itself.

    The daemon, another agent's holder and our own subprocesses may also run below us. They and their
    descendants are not part of the agent.
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
    """Return whether a process still runs. A zombie has ended."""
    return _read(pid, "stat").rpartition(b") ")[2][:1] not in (b"Z", b"X", b"x", b"")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
