"""The shell that OpenCode would choose."""

import subprocess
from pathlib import Path

import pytest

from palaver.harness.opencode.launch import CONTENT
from palaver.holder.opencode import find_shell, write_shell


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with an account, a project and some shells."""
    for name in ("account/.config/opencode", "project/below", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for shell in ("bash", "zsh", "fish", "mine"):
        path = tmp_path / "bin" / shell
        path.write_text('#!/bin/sh\necho "$0 [$OPENCODE_SERVER_PASSWORD]"\n')
        path.chmod(0o700)
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(place / "account"), "PATH": str(place / "bin"), **more}


def found(place: Path, **more: str) -> str:
    return Path(find_shell(environment(place, **more), str(place / "project" / "below"))).name


def test_shell_comes_from_the_environment_or_is_bash(place: Path) -> None:
    assert found(place) == "bash"
    assert found(place, SHELL="zsh") == "zsh"
    assert found(place, SHELL=str(place / "bin" / "zsh")) == "zsh"
    assert found(place, SHELL="/no/such/shell") == "bash"
    assert found(place, SHELL="fish") == "bash"  # OpenCode does not support fish


def test_settings_override_the_environment_and_nearer_settings_win(place: Path) -> None:
    (place / "account" / ".config" / "opencode" / "opencode.json").write_text('{"shell": "zsh"}')
    assert found(place, SHELL="bash") == "zsh"

    (place / "project" / "opencode.jsonc").write_text('{"shell": "mine"}')
    assert found(place) == "mine"

    assert found(place, **{CONTENT: '{"shell": "zsh"}'}) == "zsh"


def test_settings_named_in_the_environment_are_read(place: Path) -> None:
    (place / "own.json").write_text('{"shell": "zsh"}')
    assert found(place, OPENCODE_CONFIG=str(place / "own.json")) == "zsh"

    (place / "opencode.json").write_text('{"shell": "mine"}')
    assert found(place, OPENCODE_CONFIG_DIR=str(place)) == "mine"


def test_fallback_is_the_shell_that_every_system_has(tmp_path: Path) -> None:
    assert find_shell({"PATH": str(tmp_path), "HOME": str(tmp_path)}, str(tmp_path)) == "/bin/sh"


def test_written_wrapper_runs_the_shell_without_the_password(place: Path) -> None:
    path = Path(write_shell(place, environment(place, SHELL="zsh"), str(place)))

    done = subprocess.run(
        [path], env={"OPENCODE_SERVER_PASSWORD": "secret"}, capture_output=True, text=True, check=True
    )

    assert path == place / "zsh"
    assert path.stat().st_mode & 0o777 == 0o700
    assert done.stdout == f"{place}/bin/zsh []\n"
