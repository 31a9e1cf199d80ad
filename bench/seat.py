"""The seat of an agent in a benchmark: a spawner process that runs its commands. It evaluates nothing."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

_SPAWNER = Path(__file__).with_name("spawner.py")
_NS_PER_MS = 1_000_000


class CommandError(Exception):
    """A measured command failed, so its time would mean nothing."""

    def __init__(self, command: "Command", why: str) -> None:
        super().__init__(command, why)
        self.command = command
        self.why = why

    def __str__(self) -> str:
        return f"{' '.join(self.command.argv)}: {self.why}"


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, its input and its complete environment (`env -i`)."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(hash=False)
    stdin: Path | None = None

    def order(self, do: str, **more: object) -> dict[str, object]:
        """Return the command as an order to a spawner."""
        stdin = str(self.stdin) if self.stdin else None
        return {"do": do, "argv": list(self.argv), "env": self.env, "stdin": stdin, **more}

    def run(self, accepted: tuple[int, ...] = (0,)) -> str:
        """Run the command untimed and return its output. Raises `CommandError` for other exit statuses."""
        given = self.stdin.read_text() if self.stdin else ""
        done = subprocess.run(
            self.argv, env=self.env, input=given, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode not in accepted:
            raise CommandError(self, f"exit status {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class Timing:
    """One run of a command, in nanoseconds of the machine's monotonic clock."""

    started_ns: int
    ended_ns: int

    @property
    def wall_ms(self) -> float:
        """The time from before the spawn until the process was waited for."""
        return (self.ended_ns - self.started_ns) / _NS_PER_MS


class Seat:
    """A separate process that runs commands as its children. Leaving the `with` block ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SPAWNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the spawner. The output of a receiver that is still open is no longer read."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        if self._process.stdout:
            self._process.stdout.close()
        self._process.wait(timeout=10)

    def time(self, command: Command) -> Timing:
        """Run the command once and time it. A failure raises, because the time of a refusal means nothing."""
        answer = self._ask(command.order("time"))
        if answer["status"]:
            raise CommandError(command, f"exit status {answer['status']}")
        return Timing(started_ns=answer["started_ns"], ended_ns=answer["ended_ns"])

    def start_flood(self, command: Command, count: int) -> None:
        """Start to run the command `count` times. `end_flood` must follow."""
        self._tell(command.order("flood", count=count))

    def end_flood(self, command: Command) -> Timing:
        """Wait for the end of a flood. A single failure in it raises."""
        answer = self._hear()
        if answer["failed"]:
            raise CommandError(command, f"{answer['failed']} of a flood failed")
        return Timing(started_ns=answer["started_ns"], ended_ns=answer["ended_ns"])

    def open_receiver(self, command: Command) -> int:
        """Start the one receiver of this seat and return its process id."""
        return self._ask(command.order("open"))["pid"]

    def expect(self, marker: str) -> None:
        """Read the receiver's output up to a line with the marker. `arrived_ns` must follow."""
        self._tell({"do": "next", "marker": marker})

    def arrived_ns(self, command: Command) -> int:
        """Wait for the line of `expect` and return the time at which it was complete."""
        at_ns = self._hear()["at_ns"]
        if not at_ns:
            raise CommandError(command, "ended without saying what it should")
        return at_ns

    def close_receiver(self, *, end: bool) -> int:
        """Wait for the receiver to exit, after a SIGTERM if `end` is set. Return the unread byte count."""
        return self._ask({"do": "close", "end": end})["unread_bytes"]

    def prove(self, command: Command, marker: str) -> None:
        """Run the command untimed. Raises if the marker is missing, or if it is empty and there is output."""
        self.open_receiver(command)
        if marker:
            self.expect(marker)
            self.arrived_ns(command)
        if self.close_receiver(end=False) and not marker:
            raise CommandError(command, "had something to say")

    def _ask(self, order: dict[str, object]) -> dict[str, int]:
        self._tell(order)
        return self._hear()

    def _tell(self, order: dict[str, object]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, int]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a spawner ended early")
        answer: dict[str, int] = json.loads(line)
        return answer
