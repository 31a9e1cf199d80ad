"""A persistent shell: the processes it runs belong to its agent or, at a terminal, to the human."""

import asyncio
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.limits import LIMIT_S

# The shell leaves its parents: a person's shell is not started by the tests or by a harness that runs them.
_AT_TERMINAL = """
import fcntl, os, sys, termios
if os.fork():
    os._exit(0)
os.setsid()
terminal = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.execvp("sh", ["sh"])
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The output and exit status of a command."""

    status: int
    out: str
    err: str


class Shell:
    """One `sh` that runs one command after the other."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files = tempfile.TemporaryDirectory(prefix="pal-shell-")
        self._terminal: int | None = None
        self._out = Path(self._files.name) / "out"
        self._err = Path(self._files.name) / "err"

    async def open(self, *, at_terminal: bool = False) -> None:
        """Start the shell; with `at_terminal` it is the foreground process of a new one."""
        program = ["sh"]  # below the tests: a shell whose parents have ended may not act for others
        if at_terminal:
            self._terminal, theirs = os.openpty()
            program = [sys.executable, "-I", "-c", _AT_TERMINAL, os.ttyname(theirs)]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": path, "HOME": str(self._home), "PALAVER_HOME": str(self._home)},
        )
        if self._terminal is not None:
            await self.run("true")
            os.close(theirs)

    async def run(self, *words: str) -> Result:
        """Run one command to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = f"{shlex.join(words)} >{self._out} 2>{self._err} </dev/null; echo $?\n"
        self._process.stdin.write(line.encode())
        async with asyncio.timeout(LIMIT_S):
            status = await self._process.stdout.readline()
        return Result(int(status), self._out.read_bytes().decode(), self._err.read_bytes().decode())

    async def close(self) -> None:
        """End the shell and wait for its exit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        async with asyncio.timeout(LIMIT_S):
            await self._process.stdout.read()
            await self._process.wait()
        if self._terminal is not None:
            os.close(self._terminal)
        self._files.cleanup()
