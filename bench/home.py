"""What both buses must be able to do to be measured: the same acts, each in its own commands."""

import contextlib
import subprocess
from collections.abc import Iterable, Sequence
from typing import Protocol

from bench.seat import Command, Seat

RARE_WORD = "zanzibar"
SEEDED = 20
CHECKER = "vega"  # has a hook, and never any mail
TAKER = "nova"  # the waiting receiver of the latency figures
SINK = "miro"  # gets what is only sent to be stored
SENDER = "luna"
OTHERS = ("pako", "rilu", "sote", "tuma")  # own the messages that are nobody's business
WAITER = "wemo"  # one more receiver, waiting all the time, as in any real room


def body(number: int) -> str:
    """Text of the length agents write to each other, none of it the rare word."""
    return f"message {number}: the parser now keeps the last token, please run the tests again when you can"


class Home(Protocol):
    """One bus with one store. Commands name an agent, and run in the seat that `seat` gave for it."""

    @property
    def bus(self) -> str:
        """Which of the two it is."""

    def seat(self, name: str) -> Seat:
        """Let an agent join and return the place its commands must run in."""

    def checker(self, name: str) -> Seat:
        """Let an agent join that is checked for mail between two tool calls."""

    def version(self) -> Command:
        """Print the version."""

    def send(self, to: str, text: str) -> Command:
        """Store a message for one agent, durably."""

    def check(self, name: str) -> Command:
        """Look for mail as a hook does between two tool calls, and find none."""

    def wait(self, name: str) -> Command:
        """Wait for one message, print it, exit."""

    def follow(self, name: str) -> Command:
        """Print messages as they come, and stay."""

    def list_agents(self) -> Command:
        """Print who is there."""

    def last_events(self) -> Command:
        """Print the last 20 events."""

    def search(self) -> Command:
        """Print the messages with the rare word."""

    def idle(self, names: Iterable[str]) -> list[subprocess.Popen[bytes]]:
        """Start receivers that wait for mail of their own."""

    def fill(self, count: int) -> None:
        """Store messages between others, up to `count`."""

    def run_in_terminal(self, argv: Sequence[str]) -> str:
        """Start a program in a terminal of the bus, in the background; return its agent's name."""

    def subscribe(self, name: str, count: int) -> None:
        """Have an agent subscribe to events, so many times, none of which ever comes."""

    def close(self) -> None:
        """Stop everything of this home."""


def end_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Terminate receivers and wait until they are gone."""
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
    """Store the messages that the listings print, so that an empty home prints as much as a full one."""
    for number in range(SEEDED):
        seat.time(home.send(SINK, f"{RARE_WORD} {body(number)}"))
