"""hcom in a temporary home, driven only through its own commands. Nothing here depends on its source.

If hcom offers two methods, the faster one is measured: an external sender (`--from`) instead of an agent,
which would write a status event too, and its full-text table instead of a LIKE.
"""

import json
import shlex
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.home import OTHERS, RARE_WORD, SEEDED, body, end_all
from bench.seat import Command, Seat

HCOM_VERSION = "0.7.31"
_LONG_S = "86400"


def install_hcom(venv: Path) -> Path:
    """Return the hcom program. It is installed into its own venv if necessary."""
    program = venv / "bin" / "hcom"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"hcom=={HCOM_VERSION}"], check=True)
    return program


class HcomHome:
    """One HCOM_DIR. It has no daemon: every command opens the database by itself."""

    bus = "hcom"

    def __init__(self, root: Path, program: Path) -> None:
        self._root = root
        self._program = str(program)
        self._dir = root / "hcom"
        flags = self._dir / ".tmp" / "flags"
        flags.mkdir(parents=True)
        # Marks a recent update check: without it the first command would access the network.
        (flags / "update_check.attempt").touch()
        temporary = root / "tmp"
        temporary.mkdir()
        self._env = {
            "HOME": str(root),
            "HCOM_DIR": str(self._dir),
            "TMPDIR": str(temporary),
            "PATH": f"{program.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        self._hooked: dict[str, tuple[dict[str, str], Path]] = {}
        self._idle: list[subprocess.Popen[bytes]] = []
        self._has_terminals = False

    @property
    def database(self) -> Path:
        """The database with the events of hcom."""
        return self._dir / "hcom.db"

    def seat(self, name: str) -> Seat:
        """Register the agent. hcom identifies it by the name in each command; the seat only runs commands."""
        self._register(name)
        return Seat()

    def checker(self, name: str) -> Seat:
        """Register the agent as `hcom claude` would: with its environment and a SessionStart hook."""
        session = str(uuid.uuid4())
        env = {
            **self._env,
            "HCOM_LAUNCHED": "1",
            "HCOM_PROCESS_ID": str(uuid.uuid4()),
            "HCOM_TOOL": "claude",
            "HCOM_INSTANCE_NAME": name,
            "CLAUDECODE": "1",
        }
        common = {
            "session_id": session,
            "transcript_path": str(self._root / "transcript.jsonl"),
            "cwd": str(self._root),
        }
        start = self._input(name, "start", {**common, "hook_event_name": "SessionStart", "source": "startup"})
        post = self._input(
            name,
            "post",
            {
                **common,
                "hook_event_name": "PostToolUse",
                "permission_mode": "default",
                "tool_name": "Read",
                "tool_use_id": "toolu_1",
                "tool_input": {"file_path": str(self._root / "x")},
                "tool_response": {"ok": True},
            },
        )
        Command((self._program, "start", "--as", name), env).run()
        Command((self._program, "sessionstart"), env, start).run()
        self._hooked[name] = (env, post)
        return Seat()

    def version(self) -> Command:
        """Print the version."""
        return self._command("--version")

    def send(self, to: str, text: str) -> Command:
        """Store a message from an external sender."""
        return self._command("send", f"@{to}", "--from", "bench", "--", text)

    def check(self, name: str) -> Command:
        """Run the PostToolUse hook of the agent's Claude Code session."""
        env, post = self._hooked[name]
        return Command((self._program, "post"), env, post)

    def wait(self, name: str) -> Command:
        """Wait for one message."""
        return self._command("listen", "--timeout", _LONG_S, "--name", name)

    def follow(self, name: str) -> Command:
        """Stream the messages that mention the agent. `hcom listen` would end after the first one."""
        return self._command("events", "--follow", "--type", "message", "--mention", name)

    def list_agents(self) -> Command:
        """List the agents."""
        return self._command("list")

    def last_events(self) -> Command:
        """Print the last 20 events."""
        return self._command("events", "--last", "20")

    def search(self) -> Command:
        """Search the full-text table of hcom. It has no option for that, only a WHERE clause."""
        found = f"id IN (SELECT rowid FROM events_fts WHERE events_fts MATCH '{RARE_WORD}')"
        return self._command("events", "--last", str(SEEDED), "--sql", found)

    def idle(self, names: Iterable[str]) -> list[subprocess.Popen[bytes]]:
        """Start listeners that wait for messages to themselves."""
        started = []
        for name in names:
            self._register(name)
            process = subprocess.Popen(
                self.wait(name).argv,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            started.append(process)
        self._idle += started
        return started

    def fill(self, count: int) -> None:
        """Insert rows as `hcom send` writes them. Sending 100,000 messages would take most of an hour."""
        with sqlite3.connect(self.database) as connection:
            (stored,) = connection.execute("SELECT count(*) FROM events").fetchone()
            rows = (self._row(number) for number in range(count - stored))
            connection.executemany(
                "INSERT INTO events (timestamp, type, instance, data) VALUES (?, ?, ?, ?)", rows
            )
        connection.close()

    def run_in_terminal(self, argv: Sequence[str]) -> str:
        """Launch the program as Claude Code, with delivery by typing, which is not the default of hcom."""
        programs = self._root / "bin"
        programs.mkdir()
        claude = programs / "claude"
        claude.write_text(f"#!/bin/sh\nexec {shlex.join([*argv, self._program])}\n")
        claude.chmod(0o755)
        env = {
            **self._env,
            "PATH": f"{programs}:{self._env['PATH']}",
            "HCOM_CLAUDE_DELIVERY": "inject",
            "TERM": "xterm-256color",
        }
        launched = Command((self._program, "claude", "--headless", "--json"), env).run()
        self._has_terminals = True
        return str(json.loads(launched)["names"][0])

    def subscribe(self, name: str, count: int) -> None:
        """Subscribe to threads that never get a message."""
        self._register(name)
        for number in range(count):
            self._command("events", "sub", "--thread", f"silent-{number}", "--for", name, "--as", name).run()

    def close(self) -> None:
        """End the listeners and the terminals, and remove the home."""
        end_all(self._idle)
        if self._has_terminals:
            self._command("kill", "all").run(accepted=(0, 1))
        shutil.rmtree(self._root, ignore_errors=True)

    def _register(self, name: str) -> None:
        self._command("start", "--as", name).run()
        # An agent without any activity is removed by the first `list` after two minutes.
        self._command("listen", "1", "--name", name).run(accepted=(0, 1))

    @staticmethod
    def _row(number: int) -> tuple[str, str, str, str]:
        to = OTHERS[number % len(OTHERS)]
        data = {
            "delivered_to": [to],
            "from": "bench",
            "mentions": [to],
            "scope": "mentions",
            "sender_kind": "external",
            "text": body(number),
        }
        return datetime.now(UTC).isoformat(), "message", "ext_bench", json.dumps(data, separators=(",", ":"))

    def _command(self, *arguments: str) -> Command:
        return Command((self._program, *arguments), self._env)

    def _input(self, name: str, event: str, fields: dict[str, object]) -> Path:
        path = self._root / f"{name}.{event}.json"
        path.write_text(json.dumps(fields))
        return path
