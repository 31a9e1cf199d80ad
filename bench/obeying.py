"""A script of this folder in its own process, which obeys orders: each is a line, and so is its answer."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self


class ObeyingScript:
    """The process of a script. Leaving the `with` block ends it."""

    def __init__(self, script: str, home: Path) -> None:
        self._script = script
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def give(self, order: str) -> None:
        """Give an order. `hear` must follow."""
        assert self._process.stdin
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Wait for the next line of the script."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._script} ended early")
        return line
