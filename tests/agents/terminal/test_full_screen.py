"""Programs that take every key as a command, under all of their names."""

import pytest

from palaver.agents.terminal.full_screen import takes_commands
from palaver.agents.terminal.shells import Process


@pytest.mark.parametrize(
    "process",
    [
        Process(argv=("less", "notes")),
        Process(argv=("vi",), name="vi", program="/usr/bin/vim.basic"),
        Process(argv=("/opt/nvim/bin/nvim", "--embed")),
        Process(argv=("agent",), name="agent", program="/usr/bin/less"),
        Process(argv=("agent",), name="top", program=""),
        Process(argv=("emacs-nox", "-nw")),
        Process(argv=("/usr/bin/python3", "/usr/bin/ranger"), name="ranger", program="/usr/bin/python3.11"),
    ],
)
def test_editor_pager_and_monitor_take_keys_as_commands(process: Process) -> None:
    assert takes_commands(process)


@pytest.mark.parametrize(
    "process",
    [
        Process(argv=()),
        Process(argv=("cat", "vi")),
        Process(argv=("topper",)),
        Process(argv=("more-agent",)),
        Process(argv=("node", "less"), name="node", program="/usr/bin/node"),
    ],
)
def test_program_with_another_name_does_not_take_commands(process: Process) -> None:
    assert not takes_commands(process)
