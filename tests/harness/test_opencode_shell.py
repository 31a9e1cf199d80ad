"""The shell of OpenCode agents."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.opencode.launch import PASSWORD, shell_in_settings, shell_name, shell_wrapper


def test_shell_gets_the_environment_without_the_password(tmp_path: Path) -> None:
    wrapper = tmp_path / "bash"
    wrapper.write_text(shell_wrapper("/bin/bash"))
    wrapper.chmod(0o700)
    environment = {PASSWORD: "secret", "PATH": "/usr/bin:/bin", "KEPT": "it is"}

    command = [str(wrapper), "-c", 'echo "$1 $KEPT [$OPENCODE_SERVER_PASSWORD]"', "x", "a b"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "a b it is []\n"


@pytest.mark.parametrize(
    ("texts", "shell"),
    [
        ([], ""),
        (['{"shell": "/bin/zsh"}'], "/bin/zsh"),
        (['{"shell": "zsh"}', '{"model": "x"}', '// mine\n{"shell": "/bin/ksh",}'], "/bin/ksh"),
        (['{"shell": "zsh"}', "{", "[]", '{"shell": 7}', '{"shell": ""}'], "zsh"),
    ],
)
def test_last_settings_with_a_shell_win(texts: list[str], shell: str) -> None:
    assert shell_in_settings(texts) == shell


@given(st.lists(st.text(max_size=30), max_size=4))
def test_any_settings_can_be_read(texts: list[str]) -> None:
    assert isinstance(shell_in_settings(texts), str)


def test_wrapper_has_the_name_of_its_shell() -> None:
    assert shell_name("/usr/bin/zsh") == shell_name("zsh") == "zsh"
