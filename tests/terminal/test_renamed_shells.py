"""A shell with another name, recognised by its file."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palaver.terminal.gates import shell_of


@contextmanager
def running(*command: str | Path) -> Iterator[int]:
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process.pid


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    return Path(shutil.copy(Path("/bin/cat").resolve(), tmp_path / "cat"))


def test_file_that_is_not_a_shell_is_not_recognised(cat: Path) -> None:
    with running(cat) as pid:
        assert shell_of(pid) == ""


def test_copies_and_links_are_recognised_by_their_content(cat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "zsh-5.9").write_bytes(cat.read_bytes())
    (folder / "zsh").symlink_to("zsh-5.9")
    os.link(cat, tmp_path / "mine")

    with running(tmp_path / "mine") as pid:
        assert shell_of(pid, (str(folder),)) == "zsh"


def test_file_of_the_same_size_with_other_content_is_not_recognised(cat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "fish").write_bytes(cat.read_bytes()[:-1] + b"\x07")

    with running(cat) as pid:
        assert shell_of(pid, (str(folder),)) == ""


def test_unreadable_shell_is_not_compared(cat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    with (folder / "fish").open("wb") as file:
        file.truncate(cat.stat().st_size)
    (folder / "fish").chmod(0)

    with running(cat) as pid:
        assert shell_of(pid, (str(folder),)) == ""


def test_ended_process_is_not_a_shell() -> None:
    assert shell_of(2**22 + 1) == ""
