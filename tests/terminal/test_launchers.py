"""Which processes are the program that was started: by their names and arguments."""

import pytest

from palaver.terminal.gates import ProgramNames
from palaver.terminal.processes import is_launcher, is_same_program, is_shell_command

NODE = "/usr/bin/node"
PYTHON = "/usr/bin/python3.11"


@pytest.mark.parametrize(
    "process",
    [
        ProgramNames(argv=("npm exec chat",), name="npm exec chat", program=NODE),
        ProgramNames(argv=("npm run chat",), name="npm run chat", program=NODE),
        ProgramNames(argv=("node", "/usr/bin/npx", "chat"), name="node", program=NODE),
        ProgramNames(argv=("node", "/lib/npm/bin/npm-cli.js", "run"), name="node", program=NODE),
        ProgramNames(argv=("uv", "run", "chat.py"), name="uv", program="/bin/uv"),
        ProgramNames(argv=("/venv/bin/python", "/venv/bin/poetry", "run"), name="poetry", program=PYTHON),
        ProgramNames(argv=("/bin/sh", "/usr/bin/xvfb-run", "chat"), name="xvfb-run", program="/bin/dash"),
    ],
)
def test_a_launcher_is_recognised(process: ProgramNames) -> None:
    assert is_launcher(process)


@pytest.mark.parametrize(
    "process",
    [
        ProgramNames(argv=("node", "/home/me/agent.js", "npx"), name="node", program=NODE),
        ProgramNames(argv=("python3", "go.py"), name="python3", program=PYTHON),
        ProgramNames(argv=("python3", "-c", "uv"), name="python3", program=PYTHON),
        ProgramNames(argv=("agent", "npm"), name="agent", program="/bin/agent"),
        ProgramNames(argv=("bash", "start"), name="start", program="/bin/bash"),
        ProgramNames(argv=("bun", "agent.ts"), name="bun", program="/bin/bun"),
    ],
)
def test_a_program_that_may_be_an_agent_is_not_a_launcher(process: ProgramNames) -> None:
    assert not is_launcher(process)


def test_a_program_that_starts_itself_again_has_the_same_last_arguments() -> None:
    first = ProgramNames(argv=("node", "/x/agent.js", "--chat"), program=NODE)
    again = ProgramNames(argv=("node", "--max-old-space-size=1", "/x/agent.js", "--chat"), program=NODE)
    other = ProgramNames(argv=("node", "/x/tool.js", "--chat"), program=NODE)
    bare = ProgramNames(argv=("node",), program=NODE)

    assert is_same_program(again, first)
    assert not is_same_program(other, first)
    assert not is_same_program(again, bare)
    assert not is_same_program(ProgramNames(argv=again.argv), ProgramNames(argv=first.argv))


def test_a_shell_is_recognised_by_its_name() -> None:
    assert is_shell_command(ProgramNames(argv=("sh", "-c", "chat"), name="sh", program="/bin/dash"))
    assert not is_shell_command(ProgramNames(argv=("node", "agent.js"), name="node", program=NODE))
