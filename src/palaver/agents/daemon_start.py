"""Start the daemon on behalf of holders: in a separate process, one at a time, and only if it is wanted.

    python -I -m palaver.agents.daemon_start HOME

A holder collects all of its ended descendants in one place, so it must not wait for a child anywhere else.
Holders reconnect automatically, so this must not start a daemon in a home that was removed or stopped.
"""

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from palaver.client.start import StartError, ensure_daemon, find_python

MODULE: Final = "palaver.agents.daemon_start"

Run = Callable[[list[str]], Awaitable[int]]
"""Runs a command and returns its exit status."""


async def start_daemon(home: str, run: Run) -> bool:
    """Start the daemon of a home. Return False if that fails, is not wanted, or is already under way."""
    if not _is_wanted(home):
        return False
    try:
        lock = os.open(Path(home) / "agents" / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return await run([find_python(), "-I", "-m", MODULE, home]) == 0
    except OSError:
        return False
    finally:
        os.close(lock)


def _is_wanted(home: str) -> bool:
    return os.path.isdir(home) and not os.path.lexists(f"{home}/down")  # noqa: PTH112 - the home as it was given


def main() -> int:
    """Start the daemon of the home given as the argument."""
    try:
        ensure_daemon(sys.argv[1], person=False)
    except StartError as error:
        sys.stderr.write(f"{error}\n")  # stderr is the log file of holders.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
