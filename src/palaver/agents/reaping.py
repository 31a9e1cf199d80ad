"""The descendants of a holder: it adopts the agent's orphans and collects ended processes."""

import ctypes
import os
import sys
from contextlib import suppress
from typing import Final

from palaver.agents.terminal.pty import Exit

_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its parent.

    Does nothing on systems other than Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def exit_of(child: int) -> Exit | None:
    """Return the exit of a child without collecting it; None while it runs.

    Until it is collected, its pid cannot be reused, and a lookup of its seat still finds it.
    """
    try:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return Exit(None, 0)  # Another process collected it, so its exit status is lost.
    if ended is None:
        return None
    return Exit(ended.si_status) if ended.si_code == os.CLD_EXITED else Exit(None, ended.si_status)


def collect_orphans(agent: int) -> dict[int, int]:
    """Collect every ended child except the agent itself; return exit codes by pid."""
    # Imported late, so that the start of a harness does not wait for it.
    from palaver.agents.terminal.foreground import children

    collected: dict[int, int] = {}
    for pid in children(os.getpid()):
        if pid != agent:
            with suppress(ChildProcessError):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    collected[found] = os.waitstatus_to_exitcode(status)
    return collected
