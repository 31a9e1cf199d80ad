"""Programs that would execute typed text, under all of their names."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.gates import HANDING_ON, SHELLS, ProgramNames, is_shell, reads_commands


@pytest.mark.parametrize(
    "argv",
    [
        ["bash"],
        ["-bash"],
        ["rbash"],
        ["/bin/zsh", "-l"],
        ["sh", "-i"],
        ["bash", "-ic", "true"],
        ["bash", "-c"],
        ["bash", "-c", "-l"],
        ["bash", "-c", "--"],
        ["bash", "--rcfile", "/x", "-o", "vi"],
        ["bash", "-s", "argument"],
        ["bash", "-xO", "extglob"],
        ["bash", "-eo", "pipefail"],
        ["bash", "-oO", "pipefail", "extglob"],
        ["bash", "--unheard-of", "agent.sh"],
        ["bash", "-Q", "agent.sh"],
        ["bash", "--"],
        ["bash", "/dev/stdin"],
        ["bash", "--", "/proc/self/fd/0"],
        ["busybox", "sh"],
        ["fish", "--login"],
        ["fish", "-C", "true"],
        ["pwsh", "-NoExit", "-File", "x.ps1"],
        ["nu", "-c", "ls", "-i"],
        ["dash", "-es"],
        ["yash"],
        ["ksh93", "+o", "vi"],
        ["bash-static"],
        ["/opt/bin/bash-5.2", "-l"],
        ["zsh5"],
        ["pwsh-preview"],
        ["zsh5-static"],
        ["bash-5.2-static", "-i"],
    ],
)
def test_shell_that_waits_for_commands_is_a_plain_shell(argv: list[str]) -> None:
    assert is_shell(ProgramNames(argv=tuple(argv)))


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["bash", "agent.sh"],
        ["bash", "--norc", "agent.sh"],
        ["bash", "--", "agent.sh"],
        ["bash", "-eo", "pipefail", "agent.sh"],
        ["sh", "-c", "while read l; do echo $l; done"],
        ["bash", "-euc", "agent"],
        ["zsh", "-c", "-l", "agent"],
        ["bash", "-c", "--", "/dev/stdin"],
        ["bash", "-o", "errexit", "agent.sh"],
        ["fish", "-c", "agent"],
        ["nu", "agent.nu"],
        ["node", "claude"],
        ["busybox"],
        ["busybox", "cat"],
        ["python3", "-i"],
        ["bash-static", "agent.sh"],
        ["zsh-5.9", "-c", "agent"],
        ["bash-agent"],
    ],
)
def test_script_or_other_program_is_not_a_plain_shell(argv: list[str]) -> None:
    assert not is_shell(ProgramNames(argv=tuple(argv)))


@pytest.mark.parametrize(
    "process",
    [
        ProgramNames(argv=("claude",), name="claude", program="/usr/bin/bash"),
        ProgramNames(argv=("claude",), name="bash", program="/opt/own"),
        ProgramNames(argv=("claude",), program="/usr/bin/bash (deleted)"),
        ProgramNames(argv=("python3", "/usr/bin/xonsh"), name="xonsh", program="/usr/bin/python3.11"),
        ProgramNames(argv=("python3", "/usr/bin/xonsh-0.14"), name="xonsh-0.14", program="/usr/bin/python3"),
        ProgramNames(argv=("sh",), name="sh", program="/bin/busybox"),
        ProgramNames(argv=("mysh", "--norc"), name="mysh", program="/opt/mysh", shell="bash"),
        ProgramNames(argv=(), name="bash"),
    ],
)
def test_shell_with_another_name_is_a_shell(process: ProgramNames) -> None:
    assert is_shell(process)


def test_script_is_not_a_shell_under_any_name() -> None:
    script = ProgramNames(argv=("/bin/bash", "./agent"), name="agent", program="/usr/bin/bash")
    other = ProgramNames(
        argv=("python3", "/usr/bin/xonsh", "x.xsh"), name="xonsh", program="/usr/bin/python3"
    )

    assert not is_shell(script)
    assert not is_shell(other)


@pytest.mark.parametrize("program", sorted(HANDING_ON))
def test_program_that_forwards_input_counts_as_a_shell(program: str) -> None:
    assert is_shell(ProgramNames(argv=(program, "claude")))
    assert is_shell(ProgramNames(argv=("agent",), name=f"{program}: client", program="/x"))
    assert program not in SHELLS


@given(st.lists(st.text(max_size=8), max_size=6), st.text(max_size=8), st.sampled_from(sorted(SHELLS)))
def test_any_arguments_are_accepted_and_a_bare_shell_is_always_a_shell(
    argv: Sequence[str], name: str, shell: str
) -> None:
    assert is_shell(ProgramNames(argv=tuple(argv), name=name)) in (True, False)
    assert is_shell(ProgramNames(argv=(name,), program=f"/bin/{shell}"))


@given(st.lists(st.from_regex(r"[-+][a-zA-Z]{1,3}", fullmatch=True), max_size=4))
def test_options_alone_never_make_a_script(options: list[str]) -> None:
    assert is_shell(ProgramNames(argv=("bash", *options)))


def test_copy_of_a_shell_with_a_command_is_not_a_plain_shell() -> None:
    process = ProgramNames(argv=("mysh", "-c", "bash", "-x"), name="mysh", program="/opt/mysh", shell="bash")

    versioned = ProgramNames(argv=("bash-5.2", "-c", "bash", "-x"), program="/opt/bin/bash-5.2")

    assert not is_shell(process)
    assert not is_shell(versioned)


def test_program_that_forwards_input_does_not_read_commands_itself() -> None:
    docker = ProgramNames(argv=("docker", "build"))

    assert (is_shell(docker), reads_commands(docker)) == (True, False)
    assert reads_commands(ProgramNames(argv=("bash",)))
