"""An agent in its own process that sends messages, one or many, and reports when each was stored."""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_SCRIPT = Path(__file__).with_name("paced_sends.py")


class PacedSender:
    """One SDK connection in another process. Leaving the `with` block ends it."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def send(self, to: str, text: str, intent: str = "") -> float:
        """Send one message and wait for its receipt. Return the wall-clock time before the send."""
        self.start(to, text, intent=intent)
        return self.end()[0][0]

    def start(self, to: str, text: str, *, intent: str = "", count: int = 1, a_second: float = 1.0) -> None:
        """Start to send `count` messages at a rate; `{}` in the text is the number. `end` must follow."""
        assert self._process.stdin
        order = {"to": to, "text": text, "intent": intent, "count": count, "a_second": a_second}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def end(self) -> list[tuple[float, float]]:
        """Return for each message the wall-clock times before its send and after its receipt."""
        times: list[tuple[float, float]] = json.loads(self._hear())
        return times

    def _hear(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the sender ended early")
        return line
