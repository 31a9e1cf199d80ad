"""Upgrade a holder to its newer version in the same process; the terminal, viewers and state are kept.

The pid stays the same, so the agent stays its child. The newer version must be checked before this: if it
does not load, the terminal is lost.
"""

import os
import signal
from typing import Final, NoReturn

import msgspec

from palaver.client.start import find_python
from palaver.holder.connection import Held
from palaver.holder.launch import file_with
from palaver.holder.spawn import MODULE
from palaver.protocol.events import Outcome
from palaver.terminal.screen import Remembered
from palaver.terminal.viewers import KeptViewer

_HEARD: Final = (signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP)
"""The signals that a holder handles. Unhandled, each would end the process and the agent with it."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a holder that its newer version cannot find out."""

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
    """None if the older version did not store it."""
    readers: tuple[tuple[int, int], ...] = ()
    """The processes that are the agent itself, each with its pid and start time."""
    prompt: str = ""
    """The rule of `pal run --prompt`."""
    unsent: bytes = b""
    awaiting: int | None = None
    """The pipe to a caller that waits for the exit status."""
    outcomes: tuple[Outcome, ...] = ()
    native: str = ""
    native_outcomes: tuple[Outcome, ...] = ()
    typed: tuple[str | int, ...] = ()
    """Typed lines that were not reported yet; a number is the length of a secret."""
    viewers: tuple[KeptViewer, ...] = ()


def become_new(kept: Kept) -> NoReturn:
    """Execute the newer version in this process; raise OSError if that fails.

    Signals are blocked until the newer version handles them, because it takes time to load.
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
        os.execv(python, words) if "/" in python else os.execvp(python, words)  # noqa: S606 - no shell is involved
    except OSError:
        hear_signals()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        os.close(state)
        raise
    raise AssertionError("exec returned")


def hear_signals() -> None:
    """Unblock the signals, now that they are handled."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


def _descriptors(kept: Kept) -> list[int]:
    awaiting = [] if kept.awaiting is None else [kept.awaiting]
    return [kept.master, kept.listener, *awaiting, *(viewer.descriptor for viewer in kept.viewers)]


def take_up(descriptor: int) -> Kept:
    """In the newer version: read the state of the older one. Its descriptors become non-inheritable again."""
    with open(descriptor, "rb") as file:
        kept = msgspec.json.decode(file.read(), type=Kept)
    for kept_descriptor in _descriptors(kept):
        os.set_inheritable(kept_descriptor, False)
    return kept
