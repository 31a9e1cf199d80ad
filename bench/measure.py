"""Take measurements: both buses in turn, round by round, so that noise of the machine affects both.

Nothing here depends on a particular bus. A round that fails raises; it is never left out of a figure.
"""

import math
import statistics
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.home import Home
from bench.seat import Command, Seat

_BREATH_S = (
    0.003  # pause after each run, so that work that a bus does after its reply does not slow the other
)
_SETTLE_S = 0.08  # time for a newly started receiver to begin waiting
_NS_PER_MS = 1_000_000

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one column, without the warm-up rounds."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def median(self) -> float:
        """The median value."""
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        """The smallest value that at least 99 in 100 do not exceed."""
        return sorted(self.values)[math.ceil(0.99 * self.n) - 1]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The number of rounds of each measurement, and the size of the homes."""

    wall: int = 300
    latency: int = 500
    following: int = 200  # a round takes a quarter of a second, the polling interval of hcom
    flood: int = 400
    repeats: int = 3
    sdk: int = 20_000
    warm_up: int = 10
    events: int = 100_000
    receivers: int = 50
    typed: int = 30
    subscriptions: int = 1_000


QUICK = Rounds(
    wall=30,
    latency=40,
    following=20,
    flood=80,
    repeats=1,
    sdk=2_000,
    warm_up=3,
    events=2_000,
    receivers=10,
    typed=5,
    subscriptions=50,
)


@dataclass(frozen=True, slots=True)
class Reception:
    """A sender and a receiver of one home, for latency."""

    home: Home
    sender: Seat
    taker: Seat
    to: str


def in_turn(contestants: Mapping[Key, tuple[Seat, Command]], rounds: int, warm_up: int) -> dict[Key, Sample]:
    """Time each command once per round, in milliseconds. Each round starts with another contestant."""
    taken: dict[Key, list[float]] = {key: [] for key in contestants}
    order = list(contestants)
    for number in range(warm_up + rounds):
        for key in order:
            seat, command = contestants[key]
            wall_ms = seat.time(command).wall_ms
            if number >= warm_up:
                taken[key].append(wall_ms)
            time.sleep(_BREATH_S)
        order.append(order.pop(0))
    return {key: Sample(values=tuple(values)) for key, values in taken.items()}


def waiting_latency(receptions: Mapping[Key, Reception], rounds: int, warm_up: int) -> dict[Key, Sample]:
    """Measure from the spawn of a send to the line of a receiver that was started for this message."""
    taken: dict[Key, list[float]] = {key: [] for key in receptions}
    for number in range(warm_up + rounds):
        for key, reception in receptions.items():
            command = reception.home.wait(reception.to)
            reception.taker.open_receiver(command)
            time.sleep(_SETTLE_S)
            latency_ms = _one_latency(reception, command, f"wait-mark-{number}-end")
            reception.taker.close_receiver(end=False)
            if number >= warm_up:
                taken[key].append(latency_ms)
    return {key: Sample(values=tuple(values)) for key, values in taken.items()}


def following_latency(receptions: Mapping[Key, Reception], rounds: int, warm_up: int) -> dict[Key, Sample]:
    """Measure from the spawn of a send to the line of a receiver that follows all messages."""
    taken: dict[Key, list[float]] = {key: [] for key in receptions}
    commands = {key: reception.home.follow(reception.to) for key, reception in receptions.items()}
    for key, reception in receptions.items():
        reception.taker.open_receiver(commands[key])
    time.sleep(_SETTLE_S * 5)
    for number in range(warm_up + rounds):
        for key, reception in receptions.items():
            latency_ms = _one_latency(reception, commands[key], f"follow-mark-{number}-end")
            if number >= warm_up:
                taken[key].append(latency_ms)
            time.sleep(_BREATH_S)
    for reception in receptions.values():
        reception.taker.close_receiver(end=True)
    return {key: Sample(values=tuple(values)) for key, values in taken.items()}


def _one_latency(reception: Reception, command: Command, marker: str) -> float:
    reception.taker.expect(marker)
    sent = reception.sender.time(reception.home.send(reception.to, marker))
    return (reception.taker.arrived_ns(command) - sent.started_ns) / _NS_PER_MS


def flood_rate(seats: Sequence[Seat], command: Command, count: int) -> float:
    """Run the command `count` times in all seats concurrently. Return the runs per second."""
    each = max(1, count // len(seats))
    for seat in seats:
        seat.start_flood(command, each)
    timings = [seat.end_flood(command) for seat in seats]
    elapsed_ns = max(timing.ended_ns for timing in timings) - min(timing.started_ns for timing in timings)
    return each * len(seats) / (elapsed_ns / 1e9)
