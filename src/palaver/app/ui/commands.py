"""Run `pal` commands for the dashboard, as children in the foreground of its terminal.

Everything that a person does in the dashboard is a `pal` command, so it has the rights of that person.
"""

import asyncio
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from palaver.home import find_pal

_OUTPUT_BYTES: Final = 1 << 20
"""Output of a command that is kept; the rest is read and dropped."""
_SCREEN: Final = frozenset({"attach", "chat", "claude", "codex", "config edit", "gemini", "opencode", "web"})
"""Commands that need the whole terminal."""
_DETACHED: Final = "--detach"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a command: its status, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def is_done(self) -> bool:
        """Whether the command succeeded."""
        return self.status == 0

    @property
    def sentence(self) -> str:
        """The last thing that the command wrote, for one line of the screen."""
        text = (self.err if self.status else self.out or self.err).strip()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            return "done" if self.is_done else f"failed with status {self.status}"
        # An error begins with its sentence; details may follow.
        return (lines[0] if self.status else lines[-1]).removeprefix("pal: ")

    @property
    def hint(self) -> str:
        """The first line that a successful command wrote to standard error in addition to its result."""
        return self.err.strip().removeprefix("pal: ").partition("\n")[0] if self.is_done and self.out else ""


def pal_line(argv: Sequence[str]) -> str:
    """Return a command as a person would type it. `argv` starts with `pal`."""
    return shlex.join(argv)


def needs_terminal(argv: Sequence[str]) -> bool:
    """Whether a command reads keys and draws: it gets the terminal, and the dashboard waits."""
    words = list(argv[1:])
    if "--help" in words or "-h" in words:
        return False
    if words[:1] == ["run"]:
        # After `--` come the words of the started program, which may have an option with the same name.
        before = words[: words.index("--")] if "--" in words else words
        return _DETACHED not in before
    if words[:1] in (["claude"], ["codex"], ["gemini"], ["opencode"], ["start"], ["resume"], ["fork"]):
        return _DETACHED not in words
    return " ".join(words[:1]) in _SCREEN or " ".join(words[:2]) in _SCREEN


class PalCommand:
    """Starts `pal` for one bus."""

    def __init__(self, home: str, environ: Mapping[str, str], pal: str | None = None) -> None:
        self._environ = {**environ, "PALAVER_HOME": home}
        self._pal = pal or find_pal()

    async def run(self, argv: Sequence[str], stdin: str | None = None, cwd: str | None = None) -> Result:
        """Run a command that starts with `pal` and return its result. If this is cancelled, it is ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._pal,
                *argv[1:],
                # Never the terminal: a command that reads would take the keys from the dashboard.
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ,
                cwd=cwd,
            )
        # An argument with a NUL character is a ValueError.
        except (OSError, ValueError) as error:
            return Result(1, "", f"{error.strerror if isinstance(error, OSError) else error}")
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            out, err, _ = await asyncio.gather(
                _read(process.stdout), _read(process.stderr), _write(process, stdin)
            )
            return Result(await process.wait(), out, err)
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise

    def run_in_terminal(self, argv: Sequence[str], cwd: str | None = None) -> int:
        """Run a command on the terminal itself and wait for it. The caller has suspended the screen."""
        try:
            return subprocess.run([self._pal, *argv[1:]], env=self._environ, cwd=cwd, check=False).returncode
        except OSError as error:
            os.write(2, f"pal: {error}\n".encode())
            return 1


async def _read(stream: asyncio.StreamReader) -> str:
    kept = bytearray()
    # To the end, also without room for more: a command that cannot write its output would never end.
    while piece := await stream.read(65536):
        kept += piece[: _OUTPUT_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")


async def _write(process: asyncio.subprocess.Process, text: str | None) -> None:
    if text is None or process.stdin is None:
        return
    # A command may end without reading its input. Its status says why.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(text.encode())
        await process.stdin.drain()
    process.stdin.close()
