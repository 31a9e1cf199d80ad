"""The shell that OpenCode would choose."""

import subprocess
from pathlib import Path

import pytest

from palaver.harness.opencode.launch import CONTENT
from palaver.holder.opencode import find_shell, write_shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an account, a project and some shells."""
    for name in ("account/.config/opencode", "project/below", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for shell in ("bash", "zsh", "fish", "mine"):
        path = tmp_path / "bin" / shell
        path.write_text('#!/bin/sh\necho "$0 [$OPENCODE_SERVER_PASSWORD]"\n')
        path.chmod(0o700)
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(folder / "account"), "PATH": str(folder / "bin"), **more}


def found(folder: Path, **more: str) -> str:
    return Path(find_shell(environment(folder, **more), str(folder / "project" / "below"))).name


def test_shell_comes_from_the_environment_or_is_bash(folder: Path) -> None:
    assert found(folder) == "bash"
    assert found(folder, SHELL="zsh") == "zsh"
    assert found(folder, SHELL=str(folder / "bin" / "zsh")) == "zsh"
    assert found(folder, SHELL="/no/such/shell") == "bash"
    assert found(folder, SHELL="fish") == "bash"  # OpenCode does not support fish


def test_settings_override_the_environment_and_nearer_settings_win(folder: Path) -> None:
    (folder / "account" / ".config" / "opencode" / "opencode.json").write_text('{"shell": "zsh"}')
    assert found(folder, SHELL="bash") == "zsh"

    (folder / "project" / "opencode.jsonc").write_text('{"shell": "mine"}')
    assert found(folder) == "mine"

    assert found(folder, **{CONTENT: '{"shell": "zsh"}'}) == "zsh"


def test_settings_named_in_the_environment_are_read(folder: Path) -> None:
    (folder / "own.json").write_text('{"shell": "zsh"}')
    assert found(folder, OPENCODE_CONFIG=str(folder / "own.json")) == "zsh"

    (folder / "opencode.json").write_text('{"shell": "mine"}')
    assert found(folder, OPENCODE_CONFIG_DIR=str(folder)) == "mine"


def test_fallback_is_the_shell_that_every_system_has(tmp_path: Path) -> None:
    assert find_shell({"PATH": str(tmp_path), "HOME": str(tmp_path)}, str(tmp_path)) == "/bin/sh"


def test_written_wrapper_runs_the_shell_without_the_password(folder: Path) -> None:
    path = Path(write_shell(folder, environment(folder, SHELL="zsh"), str(folder)))

    done = subprocess.run(
        [path], env={"OPENCODE_SERVER_PASSWORD": "secret"}, capture_output=True, text=True, check=True
    )

    assert path == folder / "zsh"
    assert path.stat().st_mode & 0o777 == 0o700
    assert done.stdout == f"{folder}/bin/zsh []\n"
