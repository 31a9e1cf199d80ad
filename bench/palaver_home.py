"""Palaver in a temporary home with its own daemon, driven through `pal` and the SDK."""

import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.home import OTHERS, RARE_WORD, end_all
from bench.seat import Command, Seat

_SDK_SENDS = Path(__file__).with_name("sdk_sends.py")
_LONG_S = "86400"
_WINDOW = 512
_LIMIT_S = 30.0
_PAUSE_S = 1.0


class PalaverHome:
    """One PALAVER_HOME. The process identifies the caller, so each agent has one seat, and vice versa."""

    bus = "Palaver"

    def __init__(self, root: Path, program: Path) -> None:
        self._root = root
        self._program = str(program)
        self.home = root / "p"
        temporary = root / "tmp"
        temporary.mkdir(exist_ok=True)  # A kept home is opened again.
        self._env = {
            "HOME": str(root),
            "PALAVER_HOME": str(self.home),
            "TMPDIR": str(temporary),
            "PATH": f"{program.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        self._waiting: list[subprocess.Popen[bytes]] = []
        self._terminals = itertools.count(1)
        self._held: list[str] = []
        self._command("up").run()

    def seat(self, name: str) -> Seat:
        """Let the agent join from its seat. The anchor of `pal join` is its parent, the spawner."""
        seat = Seat()
        seat.time(self._command("join", "--name", name))
        return seat

    def checker(self, name: str) -> Seat:
        """Let the agent join. A check needs no other setup."""
        return self.seat(name)

    def hooked(self, name: str) -> tuple[Seat, Command]:
        """Let the agent join as Claude Code. Return its seat, for the caller to close, and its hook."""
        seat = Seat()
        seat.time(self._command("join", "--name", name, "--harness", "claude"))
        path = self._root / f"{name}.post.json"
        path.write_text(
            json.dumps(
                {
                    "session_id": name,
                    "transcript_path": str(self._root / "transcript.jsonl"),
                    "cwd": str(self._root),
                    "hook_event_name": "PostToolUse",
                    "permission_mode": "default",
                    "tool_name": "Read",
                    "tool_use_id": "toolu_1",
                    "tool_input": {"file_path": str(self._root / "x")},
                    "tool_response": {"ok": True},
                }
            )
        )
        return seat, Command((self._program, "hook", "claude", "PostToolUse"), self._env, path)

    def attach(self, name: str) -> Sequence[str]:
        """Return the command that attaches a terminal to an agent, preceded by its environment."""
        environment = {**self._env, "TERM": "tmux-256color"}
        return (*(f"{key}={value}" for key, value in environment.items()), self._program, "attach", name)

    def version(self) -> Command:
        """Print the version."""
        return self._command("--version")

    def send(self, to: str, text: str) -> Command:
        """Store a message."""
        return self._command("send", f"@{to}", "--", text)

    def check(self, name: str) -> Command:
        """Check for messages without waiting."""
        return self._command("recv")

    def wait(self, name: str) -> Command:
        """Wait for one message."""
        return self._command("recv", "--wait", "--timeout", _LONG_S)

    def follow(self, name: str) -> Command:
        """Print messages as they arrive."""
        return self._command("recv", "--follow")

    def list_agents(self) -> Command:
        """List the agents."""
        return self._command("list")

    def last_events(self) -> Command:
        """Print the last 20 events."""
        return self._command("events", "--last", "20")

    def search(self) -> Command:
        """Search the log."""
        return self._command("events", "--search", RARE_WORD)

    def idle(self, names: Iterable[str]) -> list[subprocess.Popen[bytes]]:
        """Start receivers. A shell joins and then execs the receiver, so it stays the agent's anchor."""
        script = '"$0" join --name "$1" && exec "$0" recv --wait --timeout "$2"'
        started = [
            subprocess.Popen(
                ["/bin/sh", "-c", script, self._program, name, _LONG_S],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name in names
        ]
        self._waiting += started
        return started

    def fill(self, count: int) -> None:
        """Send with the SDK to agents that read nothing, until the log has about `count` events."""
        self.sdk_sends(count - self._stored(), OTHERS)

    def sdk_sends(self, count: int, to: Sequence[str]) -> float:
        """Send durably on one connection, pipelined, from another process. Return the time in seconds."""
        argv = (sys.executable, str(_SDK_SENDS), str(self.home), str(count), str(_WINDOW), *to)
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the SDK sends failed: {done.stderr.strip()[-2000:]}")
        return float(json.loads(done.stdout)["seconds"])

    def run_in_terminal(self, argv: Sequence[str]) -> str:
        """Start a program in a holder. Its screen is read like that of Claude Code."""
        name = f"typed{next(self._terminals)}"
        self._command("run", "--detach", "--name", name, "--harness", "claude", "--", *argv).run()
        self._held.append(name)
        return name

    def subscribe(self, name: str, count: int) -> None:
        """Subscribe to threads that never get a message, from a separate seat of the agent."""
        with self.seat(name) as seat:
            for number in range(count):
                seat.time(self._command("events", "sub", "--thread", f"silent-{number}"))

    def holder_mb(self, name: str, shown: str) -> tuple[float, float]:
        """Return the resident memory and the PSS of an agent's holder once its terminal shows a text."""
        end = time.monotonic() + _LIMIT_S
        while shown not in self._command("peek", name).run():
            if time.monotonic() > end:
                raise RuntimeError(f"{name} never showed {shown!r}")
            time.sleep(_PAUSE_S)
        time.sleep(_PAUSE_S)
        holder = json.loads(self._command("status", name, "--json").run())["holder"]
        lines = Path(f"/proc/{holder}/smaps_rollup").read_text().splitlines()[1:]
        found = {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines}
        return found["Rss"], found["Pss"]

    def daemon_pid(self) -> int:
        """Return the process id of the daemon."""
        return int(json.loads(self._command("status", "--json").run())["pid"])

    def daemon_mb(self) -> float:
        """Return the resident memory of the daemon, in MB of 1,000,000 bytes."""
        argv = ("ps", "-o", "rss=", "-p", str(self.daemon_pid()))
        resident_kib = int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
        return resident_kib * 1024 / 1e6

    def command(self, *arguments: str) -> Command:
        """Return any command of `pal`."""
        return self._command(*arguments)

    def stop(self) -> None:
        """End the receivers and the daemon, and keep the home."""
        end_all(self._waiting)
        for name in self._held:
            _end_holder(json.loads(self._command("status", name, "--json").run())["holder"])
        self._command("down").run()

    def close(self) -> None:
        """End the receivers and the daemon, and remove the home."""
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def _stored(self) -> int:
        last = self._command("events", "--last", "1", "--json").run().strip()
        return int(json.loads(last)["seq"]) if last else 0

    def _command(self, *arguments: str) -> Command:
        return Command((self._program, *arguments), self._env)


def _end_holder(pid: int) -> None:
    """Kill a holder and wait until it has exited: a live holder would start a daemon."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], _LIMIT_S)
    finally:
        os.close(pidfd)
