"""A replacement for Claude Code in a terminal: it draws a composer and reports when bytes arrive.

    terminal_agent.py PIPE [HCOM]

For every read it writes a line to `PIPE`: the time, in nanoseconds of the monotonic clock, and `key` or
`enter`. `ready` means that it is idle again. With `HCOM` it runs the hooks of a session as Claude Code would.
"""

import json
import os
import subprocess
import sys
import time
import tty
import uuid

_RULE = "─" * 78


class Agent:
    """A program with a composer that is always idle."""

    def __init__(self, pipe: str, hcom: str = "") -> None:
        self._pipe = os.open(pipe, os.O_WRONLY)
        self._hcom = hcom
        self._common = {"session_id": str(uuid.uuid4()), "transcript_path": f"{pipe}.jsonl", "cwd": "/"}
        self._text = b""

    def run(self) -> None:
        """Read until standard input ends."""
        tty.setraw(0)
        os.write(1, b"\x1b[?2004h")
        self._draw()
        self._hook("sessionstart", "SessionStart", source="startup")
        self._rest()
        while data := os.read(0, 65536):
            at_ns = time.monotonic_ns()
            self._say(at_ns, "enter" if data == b"\r" else "key")
            self._text += data.replace(b"\x1b[200~", b"").replace(b"\x1b[201~", b"")
            if self._text.endswith(b"\r"):
                prompt, self._text = self._text, b""
                self._draw()
                self._hook("userpromptsubmit", "UserPromptSubmit", prompt=prompt.decode())
                self._rest()
            else:
                self._draw()

    def _rest(self) -> None:
        self._hook("poll", "Stop")
        self._say(time.monotonic_ns(), "ready")

    def _draw(self) -> None:
        text = self._text.decode(errors="replace")
        drawn = f"\x1b]7501;state=idle\x1b\\\x1b[2J\x1b[H{_RULE}\r\n❯ {text}\r\n{_RULE}\r\n  ? for shortcuts"
        os.write(1, f"{drawn}\x1b[2;{len(text) + 3}H".encode())

    def _hook(self, verb: str, event: str, **fields: str) -> None:
        if self._hcom:
            given = json.dumps({**self._common, "hook_event_name": event, **fields})
            subprocess.run([self._hcom, verb], input=given, capture_output=True, text=True, check=True)

    def _say(self, at_ns: int, word: str) -> None:
        os.write(self._pipe, f"{at_ns} {word}\n".encode())


if __name__ == "__main__":
    Agent(*sys.argv[1:]).run()
