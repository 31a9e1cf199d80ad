"""Set up the virtual environment of a checkout, and show which step runs. Uses the standard library only.

`make` calls it as `python3 tools/set_up.py .venv`. The steps: create the environment, install the locked
packages, build `pal`. On a terminal one line shows the progress; elsewhere each step is a few lines. The
output of pip is printed only if pip fails.
"""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

LOCK = "requirements.lock"
STEP = 20
"""Without a terminal, every twentieth package is shown."""
TICK_S = 1.0
"""Seconds between two updates of the line on a terminal: pip is silent while it unpacks."""


class Line:
    """The line that shows the progress of one step."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._began = time.monotonic()
        self._is_terminal = sys.stdout.isatty()
        self._is_done = Event()
        self._ticker = Thread(target=self._tick, daemon=True)
        self._detail = ""
        self._show("" if self._is_terminal else "\n")
        self._ticker.start()

    def tell(self, detail: str, *, is_step: bool = True) -> None:
        """Show a detail. Without a terminal, show it only if it is a step."""
        self._detail = detail
        if is_step and not self._is_terminal:
            self._show("\n")

    def end(self) -> None:
        """Replace the line by the title and the duration."""
        self._is_done.set()
        self._ticker.join()
        if self._is_terminal:
            self._detail = ""
            self._show("\n")

    def _tick(self) -> None:
        while not self._is_done.wait(TICK_S):
            if self._is_terminal:
                self._show("")

    def _show(self, end: str) -> None:
        seconds = int(time.monotonic() - self._began)
        text = (
            self._title
            + (f": {self._detail}" if self._detail else "")
            + (f" ({seconds} s)" if seconds else "")
        )
        # Cut to less than 80 columns: a line that wraps could not be replaced by the next one.
        sys.stdout.write(f"\r\033[K{text[:79]}{end}" if self._is_terminal else f"{text}{end}")
        sys.stdout.flush()


def run_pip(line: Line, python: Path, *arguments: str) -> None:
    """Run pip, and show the package that it fetches. Exits with its output and status if it fails."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    # Kept instead of printed: the output is long, and of interest only after a failure.
    said: list[str] = []
    fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for text in pip.stdout:
            said.append(text)
            if found := re.match(r"Collecting ([\w.-]+)", text):
                fetched += 1
                line.tell(f"{fetched} {found[1]}", is_step=fetched % STEP == 0)
            elif text.startswith(("Installing", "Building")):
                line.tell(text.split()[0].lower())
    line.end()
    if pip.returncode:
        sys.exit(f"{''.join(said)}\npip failed with status {pip.returncode}; the last lines above say why")


def main(arguments: Sequence[str]) -> None:
    """Run the three steps."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python runs this file too, to say so
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(
            f"Palaver needs Python 3.11 or later; {sys.executable} is {version}: make run PYTHON=python3.11"
        )
    folder = Path(arguments[0])
    python = folder / "bin" / "python"
    line = Line(f"[1/3] creating {folder}")
    made = (
        subprocess.run([sys.executable, "-m", "venv", folder], check=False) if not python.exists() else None
    )
    line.end()
    if made is not None and made.returncode:
        sys.exit(f"{sys.executable} cannot create {folder}; its message above says why")
    line = Line(f"[2/3] installing packages into {folder}")
    run_pip(line, python, "--require-hashes", "-r", LOCK)
    line = Line("[3/3] building pal")
    # The lock file includes the build tool, so the package is built with locked versions.
    run_pip(line, python, "--no-deps", "--no-build-isolation", "-e", ".")


if __name__ == "__main__":
    main(sys.argv[1:])
