"""The processes of a test's folder are found by arguments, environment or directory, and ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import end_processes_of, parent_of, processes_of

WAIT = "import sys; print(flush=True); sys.stdin.read()"


@pytest.mark.parametrize("where", ["arguments", "environment", "directory"])
def test_process_of_a_folder_is_found_and_ended(tmp_path: Path, where: str) -> None:
    words = [str(tmp_path)] if where == "arguments" else []
    environment = {**os.environ, "FOLDER": str(tmp_path) if where == "environment" else ""}
    directory = tmp_path if where == "directory" else Path("/")
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=directory,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()

        found = processes_of(tmp_path)
        parent = parent_of(process.pid)
        end_processes_of(tmp_path)

    assert list(found) == [process.pid]
    assert parent == os.getpid()
    assert processes_of(tmp_path) == {}
