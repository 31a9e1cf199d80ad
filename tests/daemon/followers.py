"""Clients that follow events, for tests of the receive contract."""

import json
import signal

from tests.daemon.stage import Home, JsonLine, wait_until
from tests.daemon.wires import LinesWire
from tests.limits import LIMIT_S

FOLLOW = ("events", "--follow", "--type", "message", "--json")
CI = (*FOLLOW, "--consumer", "ci")


class Follower:
    """A client that follows events, and its output line by line."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.process = home.start(*arguments)

    def line(self) -> JsonLine:
        assert self.process.stdout is not None
        line: JsonLine = json.loads(self.process.stdout.readline())
        return line

    def texts(self, count: int) -> list[str]:
        return [self.line()["payload"]["text"] for _ in range(count)]

    def kill(self) -> list[str]:
        """Kill it and return the complete lines of its remaining output."""
        self.process.kill()
        out, _ = self.process.communicate(timeout=LIMIT_S)
        return [line for line in out.decode().splitlines(keepends=True) if line.endswith("\n")]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, bytes, bytes]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err


def send(home: Home, *texts: str) -> list[int]:
    with LinesWire(home.path) as program:
        return [program.ask("send", text=text)["ok"]["seq"] for text in texts]


def kept(home: Home, name: str = "ci", owner: str = "script") -> int:
    return int((home.path / "consumers" / owner / name).read_text())


def begun(home: Home, name: str = "ci") -> None:
    """Wait until a consumer has its first cursor: from then on it misses nothing."""
    wait_until((home.path / "consumers" / "script" / name).exists)
