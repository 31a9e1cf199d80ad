"""Programs that take every key as a command, under all of their names."""

import pytest

from palaver.terminal.gates import ProgramNames, takes_commands


@pytest.mark.parametrize(
    "process",
    [
        ProgramNames(argv=("less", "notes")),
        ProgramNames(argv=("vi",), name="vi", program="/usr/bin/vim.basic"),
        ProgramNames(argv=("/opt/nvim/bin/nvim", "--embed")),
        ProgramNames(argv=("agent",), name="agent", program="/usr/bin/less"),
        ProgramNames(argv=("agent",), name="top", program=""),
        ProgramNames(argv=("emacs-nox", "-nw")),
        ProgramNames(
            argv=("/usr/bin/python3", "/usr/bin/ranger"), name="ranger", program="/usr/bin/python3.11"
        ),
    ],
)
def test_editor_pager_and_monitor_take_keys_as_commands(process: ProgramNames) -> None:
    assert takes_commands(process)


@pytest.mark.parametrize(
    "process",
    [
        ProgramNames(argv=()),
        ProgramNames(argv=("cat", "vi")),
        ProgramNames(argv=("topper",)),
        ProgramNames(argv=("more-agent",)),
        ProgramNames(argv=("node", "less"), name="node", program="/usr/bin/node"),
    ],
)
def test_program_with_another_name_does_not_take_commands(process: ProgramNames) -> None:
    assert not takes_commands(process)
