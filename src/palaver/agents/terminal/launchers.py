"""Rules that tell the started program from the tools that it runs. Pure.

A process is the started program if each step from the started process down to it is one of these: a fork
without exec, a launcher that starts the program named in its arguments and waits (`npx`, `uv run`), or a
program that starts itself again with the same arguments. Any other child is a tool.
"""

import re
from typing import Final

from palaver.agents.terminal.shells import SHELLS, Process, names_of
from palaver.harness.profiles import PACKAGE_RUNNERS

_LAUNCHERS: Final = PACKAGE_RUNNERS | {
    *("pnpx", "yarn", "yarnpkg", "volta-shim", "npm-cli.js", "npx-cli.js", "pnpm.cjs", "pnpx.cjs", "yarn.js"),
    *("pipenv", "poetry", "pdm", "hatch", "rye", "conda", "mamba", "micromamba"),
    *("pixi", "mise", "go", "timeout", "dbus-run-session", "xvfb-run"),
}
"""Programs that are never an agent themselves: they start the program that their arguments name."""
_INTERPRETER: Final = re.compile(r"node|nodejs|python[\d.]*")


def is_launcher(process: Process) -> bool:
    """Return whether a process only starts another program and waits for it."""
    names = names_of(process)
    if len(process.argv) > 1 and any(map(_INTERPRETER.fullmatch, names)):
        names.add(process.argv[1].rpartition("/")[2])
    # npm shows "npm exec NAME" as the name of its process.
    return any(name.partition(" ")[0] in _LAUNCHERS for name in names)


def is_shell_command(process: Process) -> bool:
    """Return whether a process is a shell. Below a launcher, a shell only starts the program."""
    return bool(names_of(process) & SHELLS)


def is_same_program(process: Process, parent: Process) -> bool:
    """Return whether a program started itself again: same file, and its arguments end with the parent's."""
    given = parent.argv[1:]
    is_same_file = bool(process.program) and process.program == parent.program
    return is_same_file and bool(given) and process.argv[-len(given) :] == given
