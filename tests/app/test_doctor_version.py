"""Asking programs for their version leaves no file and no process."""

import os
import select
import threading
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

from palaver.app.doctor import NoVersionError, Running, ask_version, end, look_at


def pretend(folder: Path, script: str) -> str:
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def is_held_by_nobody(reader: int) -> bool:
    """Whether all writers have closed a pipe, now or within the limit, and therefore ended."""
    try:
        return os.read(reader, 1) == b""
    except BlockingIOError:
        return bool(select.select([reader], [], [], LIMIT_S)[0])
    finally:
        os.close(reader)


def test_nothing_is_written_to_the_folders_of_the_user(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    variables = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "TMPDIR")
    touched = " ".join(f'"${name}/x"' for name in variables)
    program = pretend(tmp_path, f'touch {touched} x; echo "$HOME" > {tmp_path}/was; echo 1.2.3')
    environment = {"PATH": "/usr/bin:/bin", **dict.fromkeys(variables, str(home))}

    version = ask_version(program, environment, LIMIT_S)

    was = Path((tmp_path / "was").read_text().strip())
    assert version == "1.2.3"
    assert list(home.iterdir()) == []
    assert was != home
    assert not was.exists()


def test_shim_that_needs_the_real_home_is_run_there_once_more(tmp_path: Path) -> None:
    (tmp_path / ".tool-versions").write_text("1.2.3\n")
    program = pretend(tmp_path, 'exec cat "$HOME/.tool-versions"')

    assert ask_version(program, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, LIMIT_S) == "1.2.3"


@pytest.mark.parametrize(
    ("ending", "limit_s", "trouble"),
    [
        ("wait", 1, "no reply within 1 seconds"),
        ("echo 1.2.3", LIMIT_S, ""),
        ("exit 3", LIMIT_S, "'--version' ended with status 3"),
    ],
)
def test_processes_started_by_a_program_end_with_it(
    tmp_path: Path, ending: str, limit_s: float, trouble: str
) -> None:
    line = tmp_path / "line"
    os.mkfifo(line)
    reader = os.open(line, os.O_RDONLY | os.O_NONBLOCK)
    program = pretend(tmp_path, f"exec 3> {line}\nsleep 1000 &\n{ending}")

    found = look_at("claude", program, {"PATH": "/usr/bin:/bin"}, limit_s=limit_s)

    assert is_held_by_nobody(reader)
    assert found.trouble == trouble


def test_endless_output_is_read_in_part(tmp_path: Path) -> None:
    program = pretend(tmp_path, "echo 1.2.3; head -c 1000000 /dev/zero")

    assert ask_version(program, {"PATH": "/usr/bin:/bin"}, LIMIT_S) == "1.2.3"


def test_hanging_program_is_reported(tmp_path: Path) -> None:
    program = pretend(tmp_path, "exec sleep 1000")

    with pytest.raises(NoVersionError, match="no reply"):
        ask_version(program, {"PATH": "/usr/bin:/bin"}, 0.1)


class Started(list[Running]):
    """The started programs, with an event to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.has_one = threading.Event()

    def append(self, running: Running) -> None:
        super().append(running)
        self.has_one.set()


def test_interrupted_caller_can_end_the_running_program(tmp_path: Path) -> None:
    program = pretend(tmp_path, "exec sleep 1000")
    started, troubles = Started(), list[str]()

    def ask() -> None:
        troubles.append(look_at("claude", program, {"PATH": "/usr/bin:/bin"}, started).trouble)

    thread = threading.Thread(target=ask)
    thread.start()
    has_started = started.has_one.wait(LIMIT_S)
    end(started[0])
    thread.join(LIMIT_S)

    assert has_started
    assert troubles == ["'--version' ended with status -9"]
