"""The operations of a bus that are measured, as a protocol. Each bus implements them with its commands."""

import contextlib
import subprocess
from collections.abc import Iterable, Sequence
from typing import Protocol

from bench.seat import Command, Seat

RARE_WORD = "zanzibar"
SEEDED = 20
CHECKER = "vega"  # has a hook, and never has messages
TAKER = "nova"  # the waiting receiver of the latency figures
SINK = "miro"  # receives messages that are only stored
SENDER = "luna"
OTHERS = ("pako", "rilu", "sote", "tuma")  # recipients of the messages that fill a home
WAITER = "wemo"  # one more receiver that always waits, as in a real room


def body(number: int) -> str:
    """Return a text of typical length without the rare word."""
    return f"message {number}: the parser now keeps the last token, please run the tests again when you can"


class Home(Protocol):
    """One bus with one store. A command of an agent must run in the seat that `seat` returned for it."""

    @property
    def bus(self) -> str:
        """The name of the bus."""

    def seat(self, name: str) -> Seat:
        """Let an agent join, and return the seat in which its commands must run."""

    def checker(self, name: str) -> Seat:
        """Let an agent join whose messages are checked between two tool calls."""

    def version(self) -> Command:
        """Print the version."""

    def send(self, to: str, text: str) -> Command:
        """Store a message for one agent, durably."""

    def check(self, name: str) -> Command:
        """Check for messages as a hook does between two tool calls, without finding any."""

    def wait(self, name: str) -> Command:
        """Wait for one message, print it, exit."""

    def follow(self, name: str) -> Command:
        """Print messages as they arrive, and keep running."""

    def list_agents(self) -> Command:
        """List the agents."""

    def last_events(self) -> Command:
        """Print the last 20 events."""

    def search(self) -> Command:
        """Print the messages with the rare word."""

    def idle(self, names: Iterable[str]) -> list[subprocess.Popen[bytes]]:
        """Start receivers that wait for messages to themselves."""

    def fill(self, count: int) -> None:
        """Store messages to other agents until there are `count` events."""

    def run_in_terminal(self, argv: Sequence[str]) -> str:
        """Start a program in a terminal of the bus, in the background. Return the name of its agent."""

    def subscribe(self, name: str, count: int) -> None:
        """Create `count` subscriptions of an agent that never match an event."""

    def close(self) -> None:
        """Stop all processes of this home and remove it."""


def end_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Terminate receivers and wait until they have exited."""
    waiting = list(processes)
    for process in waiting:
        process.terminate()
    for process in waiting:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        if process.poll() is None:
            process.kill()
            process.wait()


def seed(home: Home, seat: Seat) -> None:
    """Store the messages that listings print, so that an empty home prints as much as a full one."""
    for number in range(SEEDED):
        seat.time(home.send(SINK, f"{RARE_WORD} {body(number)}"))
