"""Which shell an OpenCode would take."""

import subprocess
from pathlib import Path

import pytest

from palaver.agents.opencode.shell import find_shell, write_shell
from palaver.harness.opencode_launch import CONTENT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an account, a project and some shells."""
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


def test_it_is_that_of_the_environment_or_bash(place: Path) -> None:
    assert found(place) == "bash"
    assert found(place, SHELL="zsh") == "zsh"
    assert found(place, SHELL=str(place / "bin" / "zsh")) == "zsh"
    assert found(place, SHELL="/no/such/shell") == "bash"
    assert found(place, SHELL="fish") == "bash"  # OpenCode runs nothing in it


def test_settings_count_more_and_nearer_ones_most(place: Path) -> None:
    (place / "account" / ".config" / "opencode" / "opencode.json").write_text('{"shell": "zsh"}')
    assert found(place, SHELL="bash") == "zsh"

    (place / "project" / "opencode.jsonc").write_text('{"shell": "mine"}')
    assert found(place) == "mine"

    assert found(place, **{CONTENT: '{"shell": "zsh"}'}) == "zsh"


def test_settings_that_the_environment_names_are_read(place: Path) -> None:
    (place / "own.json").write_text('{"shell": "zsh"}')
    assert found(place, OPENCODE_CONFIG=str(place / "own.json")) == "zsh"

    (place / "opencode.json").write_text('{"shell": "mine"}')
    assert found(place, OPENCODE_CONFIG_DIR=str(place)) == "mine"


def test_without_any_shell_it_is_the_one_that_every_system_has(tmp_path: Path) -> None:
    assert find_shell({"PATH": str(tmp_path), "HOME": str(tmp_path)}, str(tmp_path)) == "/bin/sh"


def test_what_is_written_runs_it_without_the_password(place: Path) -> None:
    path = Path(write_shell(place, environment(place, SHELL="zsh"), str(place)))

    done = subprocess.run(
        [path], env={"OPENCODE_SERVER_PASSWORD": "secret"}, capture_output=True, text=True, check=True
    )

    assert path == place / "zsh"
    assert path.stat().st_mode & 0o777 == 0o700
    assert done.stdout == f"{place}/bin/zsh []\n"
