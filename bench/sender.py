"""An agent in its own process that sends messages, one or many, and reports when each was stored."""

import json
from pathlib import Path

from bench.obeying import ObeyingScript


class PacedSender(ObeyingScript):
    """One SDK connection in another process. Leaving the `with` block ends it."""

    def __init__(self, home: Path) -> None:
        super().__init__("paced_sends.py", home)
        self.hear()  # It is connected.

    def send(self, to: str, text: str, intent: str = "") -> float:
        """Send one message and wait for its receipt. Return the wall-clock time before the send."""
        self.start(to, text, intent=intent)
        return self.end()[0][0]

    def start(self, to: str, text: str, *, intent: str = "", count: int = 1, a_second: float = 1.0) -> None:
        """Start to send `count` messages at a rate; `{}` in the text is the number. `end` must follow."""
        order = {"to": to, "text": text, "intent": intent, "count": count, "a_second": a_second}
        self.give(json.dumps(order))

    def end(self) -> list[tuple[float, float]]:
        """Return for each message the wall-clock times before its send and after its receipt."""
        times: list[tuple[float, float]] = json.loads(self.hear())
        return times
