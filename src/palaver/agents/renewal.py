"""A holder that becomes its own newer version, with the terminal, its watchers and its memory kept.

The process stays the same, so its child stays its child. The new version is tried out before: one that does
not even load must not take a terminal with it.
"""

import os
import signal
from typing import Final, NoReturn

import msgspec

from palaver.agents.bus import Held
from palaver.agents.launch import file_with
from palaver.agents.spawn import MODULE
from palaver.agents.terminal.remembered import Remembered
from palaver.agents.watching.viewer import KeptViewer
from palaver.client.start import find_python
from palaver.model.last_report import Outcome

_HEARD: Final = (signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP)
"""What a holder hears. Each would end a process that does not, and the agent with it."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """All that a holder knows and its newer version cannot find out."""

    home: str
    held: Held
    child: int
    command: tuple[str, ...]
    master: int
    listener: int
    cols: int
    rows: int
    painted: bytes
    remembered: Remembered | None = None
    """None: an older version knew nothing of it."""
    readers: tuple[tuple[int, int], ...] = ()
    """The processes that are the agent itself, each with its pid and start time."""
    prompt: str = ""
    """The rule of `pal run --prompt`."""
    unsent: bytes = b""
    awaiting: int | None = None
    """Where somebody waits to be told how the agent ends."""
    outcomes: tuple[Outcome, ...] = ()
    native: str = ""
    native_outcomes: tuple[Outcome, ...] = ()
    typed: tuple[str | int, ...] = ()
    """Lines that were typed and not reported yet; a number stands for a secret with as many characters."""
    viewers: tuple[KeptViewer, ...] = ()


def become_new(kept: Kept) -> NoReturn:
    """Run the newer version in this process; raises OSError when it cannot be run.

    Signals wait until it hears them: it takes a while to load.
    """
    descriptors = _descriptors(kept)
    state = file_with(msgspec.json.encode(kept))
    descriptors.append(state)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    python = find_python()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    try:
        words = [python, "-I", "-m", MODULE, "--resume-fd", str(state)]
        os.execv(python, words) if "/" in python else os.execvp(python, words)  # noqa: S606 - a shell has no part in it
    except OSError:
        hear_signals()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        os.close(state)
        raise
    raise AssertionError("exec returned")


def hear_signals() -> None:
    """Let signals in that have waited, now that somebody hears them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


def _descriptors(kept: Kept) -> list[int]:
    awaiting = [] if kept.awaiting is None else [kept.awaiting]
    return [kept.master, kept.listener, *awaiting, *(viewer.descriptor for viewer in kept.viewers)]


def take_up(descriptor: int) -> Kept:
    """In the newer version: read what the older one knew. Its descriptors are ours alone again."""
    with open(descriptor, "rb") as file:
        kept = msgspec.json.decode(file.read(), type=Kept)
    for kept_descriptor in _descriptors(kept):
        os.set_inheritable(kept_descriptor, False)
    return kept
