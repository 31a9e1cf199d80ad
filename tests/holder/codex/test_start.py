"""Starting Codex: first a server, then the screen in the same process; both are cleaned up."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.daemon.stage import wait_until
from tests.holder.stage import PROGRAMS
from tests.limits import LIMIT_S

from palaver.errors import Disconnected
from palaver.holder import codex_start
from palaver.holder.codex_start import MODULE, make_server_folder
from palaver.holder.integration import connect_codex


class Beginner:
    """Starts a fake Codex in the way a holder's child does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "record.json"
        self.program = folder / "codex"
        words = shlex.join([sys.executable, "-I", str(PROGRAMS / "codex.py")])
        self.program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.program.chmod(0o755)
        self.started: list[subprocess.Popen[bytes]] = []

    def place(self, name: str) -> Path:
        return self.folder / "native" / f"codex-{name}" / "server.sock"

    def start(self, address: str, *words: str) -> subprocess.Popen[bytes]:
        source = str(Path(__file__).parents[3] / "src")
        code = f"import sys; sys.path.insert(0, {source!r}); from {MODULE} import main; main(sys.argv[1:])"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PALAVER_HOME": str(self.folder / "home"),
            "PALAVER_SEAT": "seat-mark",
            "RECORD": str(self.record),
        }
        self.started.append(
            subprocess.Popen(
                [sys.executable, "-c", code, address, "--", str(self.program), *words],
                env=environment,
                stderr=subprocess.PIPE,
            )
        )
        return self.started[-1]

    def shown(self) -> dict[str, Any]:
        wait_until(lambda: self.record.exists() and self.record.read_text())
        found: dict[str, Any] = json.loads(self.record.read_text())
        return found

    def server(self, path: Path) -> int:
        wait_until(lambda: path.with_name("pid").exists() and path.with_name("pid").read_text())
        return int(path.with_name("pid").read_text())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parents(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


@pytest.fixture
def beginner(tmp_path: Path) -> Iterator[Beginner]:
    found = Beginner(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def test_screen_is_the_started_process_and_the_server_its_descendant(beginner: Beginner) -> None:
    path = beginner.place("a")
    screen = beginner.start(str(path), "wait")

    shown = beginner.shown()

    assert shown["pid"] == screen.pid
    assert shown["words"] == ["--remote", f"unix://{path}", "wait"]
    assert shown["seat"] == "seat-mark"
    assert screen.pid in parents(beginner.server(path))
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["plain", "stubborn"])
def test_server_ends_with_its_screen_however_that_ends(beginner: Beginner, name: str) -> None:
    path = beginner.place(name)
    screen = beginner.start(str(path), "wait")
    beginner.shown()
    server = beginner.server(path)

    screen.send_signal(signal.SIGKILL)
    screen.wait()

    wait_until(lambda: not is_alive(server))
    wait_until(lambda: not path.parent.exists())


def test_failed_server_falls_back_to_typed_messages(beginner: Beginner) -> None:
    screen = beginner.start(str(beginner.place("broken")))

    _, errors = screen.communicate(timeout=LIMIT_S)

    assert b"messages are typed: I cannot start" in errors
    shown = beginner.shown()
    assert shown["words"][0] == "--no-daemon"
    assert "-c" in shown["words"]


def test_without_an_address_there_is_no_server(beginner: Beginner) -> None:
    beginner.start("", "exec", "go").wait(timeout=LIMIT_S)

    words = beginner.shown()["words"]
    assert words[-2:] == ["exec", "go"]
    assert not (beginner.folder / "native").exists()
    assert any("You are an agent on Palaver" in word for word in words)


def test_instructions_of_the_user_come_first(beginner: Beginner) -> None:
    (beginner.folder / ".codex").mkdir()
    (beginner.folder / ".codex" / "config.toml").write_text('developer_instructions = "Be kind"\n')

    beginner.start("", "exec", "go").wait(timeout=LIMIT_S)

    (notice,) = [word for word in beginner.shown()["words"] if word.startswith("developer_instructions")]
    assert notice.startswith('developer_instructions="Be kind\\n\\nYou are')
    assert "pal recv --wait" in notice  # `exec` prints its reply and exits: no message can wake it


def test_program_that_cannot_run_is_reported(beginner: Beginner) -> None:
    beginner.program.unlink()

    screen = beginner.start("", "exec", "go")

    _, errors = screen.communicate(timeout=LIMIT_S)
    assert screen.returncode == 126
    assert b"cannot be run" in errors


def test_folders_of_ended_servers_are_removed(tmp_path: Path) -> None:
    old, fresh, other = (tmp_path / "native" / name for name in ("codex-old", "codex-fresh", "keep"))
    for folder in (old, fresh, other):
        folder.mkdir(parents=True)
        (folder / "server.log").touch()
    for folder in (old, other):
        os.utime(folder, (1, 1))

    make_server_folder(tmp_path / "native" / "codex-new" / "server.sock")

    assert sorted(path.name for path in (tmp_path / "native").iterdir()) == [
        "codex-fresh",
        "codex-new",
        "keep",
    ]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp, in which every user can create files."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_server_folder_in_a_shared_directory_is_private(shared: Path) -> None:
    path = shared / "palaver-1" / "codex-a" / "server.sock"

    make_server_folder(path)
    make_server_folder(path)

    assert [folder.stat().st_mode & 0o777 for folder in (path.parent.parent, path.parent)] == [0o700, 0o700]


def test_server_folder_that_others_can_write_is_refused(shared: Path) -> None:
    path = shared / "palaver-1" / "codex-a" / "server.sock"
    path.parent.parent.mkdir()
    path.parent.parent.chmod(0o777)

    with pytest.raises(PermissionError, match="palaver-1 is not a private directory of this user: remove it"):
        make_server_folder(path)

    assert not path.parent.exists()


def test_server_folder_that_is_a_link_is_refused(shared: Path, tmp_path: Path) -> None:
    path = shared / "palaver-1" / "codex-a" / "server.sock"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.parent.parent.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionError, match="not a private directory"):
        make_server_folder(path)

    assert not path.parent.exists()


def test_server_folder_of_another_user_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "palaver-1" / "codex-a" / "server.sock"
    make_server_folder(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(PermissionError, match="not a private directory"):
        make_server_folder(path)


async def test_holder_connects_to_no_server_in_a_folder_that_others_can_write(shared: Path) -> None:
    path = shared / "palaver-1" / "codex-a" / "server.sock"
    path.parent.mkdir(parents=True)
    path.parent.parent.chmod(0o777)

    with pytest.raises(Disconnected, match="not a private directory"):
        await connect_codex(path, is_own=True)(lambda text: None, lambda error: None)


def test_server_that_is_still_starting_ends_with_its_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "native" / "codex-slow" / "server.sock"
    path.parent.mkdir(parents=True)
    pid = tmp_path / "pid"

    def start_slowly(words: list[str], log: int) -> NoReturn:
        pid.write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:  # It has not reached its own process group.
            signal.pause()

    monkeypatch.setattr(codex_start, "_become_server", start_slowly)
    supervisor = os.fork()
    if supervisor == 0:
        try:
            codex_start._supervise(["codex"], os.open(os.devnull, os.O_WRONLY), 0, path)
        finally:
            os._exit(0)

    os.waitpid(supervisor, 0)
    wait_until(lambda: pid.exists() and pid.read_text())
    was_alive = is_alive(int(pid.read_text()))
    if was_alive:
        os.kill(int(pid.read_text()), signal.SIGKILL)

    assert not was_alive
