"""The processes below a holder: it adopts what its agent leaves behind, and collects what has ended."""

import ctypes
import os
import sys
from contextlib import suppress
from typing import Final

from palaver.agents.terminal.pty import Exit

_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of every process below us that loses its own. Where the system has no such thing,
    nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def exit_of(child: int) -> Exit | None:
    """Say how a child ended, and leave it uncollected; None while it runs.

    Until it is collected its number belongs to nobody else, and who asks for its seat finds it.
    """
    try:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return Exit(None, 0)  # somebody else has collected it: how it ended is lost
    if ended is None:
        return None
    return Exit(ended.si_status) if ended.si_code == os.CLD_EXITED else Exit(None, ended.si_status)


def collect_orphans(agent: int) -> dict[int, int]:
    """Collect every child that has ended, but not the agent itself; give their exit codes by number."""
    from palaver.agents.terminal.foreground import children  # a start of a harness does not wait for it

    collected: dict[int, int] = {}
    for pid in children(os.getpid()):
        if pid != agent:
            with suppress(ChildProcessError):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    collected[found] = os.waitstatus_to_exitcode(status)
    return collected
