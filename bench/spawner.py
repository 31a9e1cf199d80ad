"""A process that starts commands and times them. It runs as a script and depends on neither bus.

Every agent of a benchmark has its own, because a bus may identify agents by their processes. Orders and
replies are lines of JSON. Times are CLOCK_MONOTONIC, which is the same in every process of a machine, so
times of different spawners can be compared.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TypedDict

Answer = dict[str, int]


class Order(TypedDict, total=False):
    """One line from the suite. Its fields depend on `do`."""

    do: str
    argv: list[str]
    env: dict[str, str]
    stdin: str | None
    count: int
    marker: str
    end: bool


_DEV_NULL = "/dev/null"
_READ_BYTES = 65536


def _spawn(order: Order, output: int | None = None) -> int:
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, order.get("stdin") or _DEV_NULL, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, _DEV_NULL, os.O_WRONLY, 0),
    ]
    if output is None:
        actions.append((os.POSIX_SPAWN_OPEN, 1, _DEV_NULL, os.O_WRONLY, 0))
    else:
        actions.append((os.POSIX_SPAWN_DUP2, output, 1))
    return os.posix_spawn(order["argv"][0], order["argv"], order["env"], file_actions=actions)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _time(order: Order) -> Answer:
    """Run the command once. The time is from before the spawn until the process was waited for."""
    started = time.monotonic_ns()
    status = _wait(_spawn(order))
    ended = time.monotonic_ns()
    return {"started_ns": started, "ended_ns": ended, "status": status}


def _flood(order: Order) -> Answer:
    """Run the command `count` times in sequence. `failed` counts the runs that did not exit with 0."""
    failed = 0
    started = time.monotonic_ns()
    for _ in range(order["count"]):
        failed += _wait(_spawn(order)) != 0
    return {"started_ns": started, "ended_ns": time.monotonic_ns(), "failed": failed}


class _Reader:
    """The one open receiver of this spawner: its process, and the incomplete last line of its output."""

    def __init__(self) -> None:
        self.pid = 0
        self.fd = -1
        self.pending = b""

    def open(self, order: Order) -> Answer:
        self.fd, output = os.pipe()
        os.set_inheritable(output, False)
        self.pid = _spawn(order, output)
        os.close(output)
        self.pending = b""
        return {"pid": self.pid}

    def next(self, order: Order) -> Answer:
        """Wait for a line with the marker. `at_ns` is the time at which its last byte had been read."""
        marker = order["marker"].encode()
        while True:
            *lines, self.pending = self.pending.split(b"\n")
            if any(marker in line for line in lines):
                return {"at_ns": time.monotonic_ns()}
            data = os.read(self.fd, _READ_BYTES)
            if not data:
                # A receiver may omit the last line end. Output before its exit still counts.
                return {"at_ns": time.monotonic_ns() if marker in self.pending else 0}
            self.pending += data

    def close(self, order: Order) -> Answer:
        if order["end"]:
            os.kill(self.pid, signal.SIGTERM)
        unread = len(self.pending)
        while data := os.read(self.fd, _READ_BYTES):
            unread += len(data)
        os.close(self.fd)
        return {"status": _wait(self.pid), "unread_bytes": unread}


def main() -> None:
    """Carry out orders until standard input ends."""
    reader = _Reader()
    doings: dict[str, Callable[[Order], Answer]] = {
        "time": _time,
        "flood": _flood,
        "open": reader.open,
        "next": reader.next,
        "close": reader.close,
    }
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.write(json.dumps(doings[order["do"]](order)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
