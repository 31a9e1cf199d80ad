"""Be a holder that loads its main part only when its program has started, or has ended.

    python late_holder.py started|ended PIDFILE HOLDER_ARGUMENTS...

The program writes its process id into the file. If it does not come, the holder fails.
"""

import os
import runpy
import sys
import time
from pathlib import Path

MODULE = "palaver.holder.main"
MAIN_PART = "palaver.holder.agent"
LIMIT_S = 20.0


class Gate:
    """Holds up the import of one module."""

    def __init__(self, event: str, path: Path) -> None:
        self._has_ended = event == "ended"
        self._path = path

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Wait if it is that module; another finder loads it."""
        if name == MAIN_PART:
            end = time.monotonic() + LIMIT_S
            while not self._is_open():
                if time.monotonic() > end:
                    os._exit(1)
                time.sleep(0.005)

    def _is_open(self) -> bool:
        try:
            pid = int(self._path.read_text())
        except (OSError, ValueError):
            return False
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" or not self._has_ended


sys.meta_path.insert(0, Gate(sys.argv[1], Path(sys.argv[2])))
sys.argv[1:] = sys.argv[3:]
runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
