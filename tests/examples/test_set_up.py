"""The set-up of a checkout: each step is shown, and a failure shows the output of pip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.limits import LIMIT_S
from tools.set_up import Line, run_pip

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.executable)


def test_step_without_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run_pip(Line("[2/3] installing"), PYTHON, "--no-index", "--dry-run", "pip")

    assert capsys.readouterr().out == "[2/3] installing\n"


def test_failure_ends_with_the_output_of_pip() -> None:
    with pytest.raises(SystemExit) as failed:
        run_pip(Line("[2/3] installing"), PYTHON, "--no-index", "no-such-package-of-ours")

    assert "No matching distribution found for no-such-package-of-ours" in str(failed.value)
    assert "pip failed with status 1" in str(failed.value)


def test_terminal_shows_one_line_that_is_rewritten() -> None:
    script = "from tools.set_up import Line; line = Line('[1/3] one'); line.tell('7 attrs'); line.end()"
    ours, theirs = os.openpty()

    subprocess.run([PYTHON, "-c", script], cwd=ROOT, stdout=theirs, check=True, timeout=LIMIT_S)
    shown = os.read(ours, 65536)
    os.close(theirs)
    os.close(ours)

    assert shown.startswith(b"\r\x1b[K[1/3] one")
    assert shown.endswith(b"\r\n")
    assert shown.count(b"\n") == 1
