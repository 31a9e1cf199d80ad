"""Measure what open views cost the daemon: sends a second, processor time, and memory if one does not read.

The views read what a dashboard reads, and draw nothing: on a small machine drawing would take processor time
from the daemon and the sender, which is another measure.
"""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from bench.drawn import cpu_s, forget_peak, memory_bytes
from bench.figures import Amount
from bench.home import OTHERS
from bench.obeying import ObeyingScript
from bench.palaver_home import PalaverHome

_VIEWS = 5
_LOST_PERCENT = 5.0
_STOPPED_MIB = 1.0
_MIB = 1024 * 1024
_SETTLE_S = 0.3


@dataclass(frozen=True, slots=True)
class ViewRounds:
    """How often the cost of views is measured, and with how many messages each time."""

    pairs: int = 20
    sends: int = 20_000
    stopped: int = 7
    flood: int = 30_000


class ViewReaders(ObeyingScript):
    """A process that opens views and reads them. Leaving the `with` block ends it."""

    def __init__(self, home: Path) -> None:
        super().__init__("view_readers.py", home)

    def tell(self, order: str) -> int:
        """Give an order and wait until it is done. Return the bytes that were read during it."""
        self.give(order)
        return int(self.hear())


def lost_sends(home: PalaverHome, rounds: ViewRounds) -> tuple[list[Amount], list[str]]:
    """Measure the sends that five views cost: rounds with and without them take turns in one home."""
    pid = home.daemon_pid()
    rates: dict[int, list[float]] = {0: [], _VIEWS: []}
    costs: dict[int, list[float]] = {0: [], _VIEWS: []}
    with home.seat(OTHERS[1]), ViewReaders(home.home) as readers:
        home.sdk_sends(rounds.sends, OTHERS[1:2])
        for number in range(rounds.pairs):
            for views in (0, _VIEWS) if number % 2 else (_VIEWS, 0):
                if views:
                    readers.tell(f"open {views}")
                began_s = cpu_s(pid)
                seconds = home.sdk_sends(rounds.sends, OTHERS[1:2])
                costs[views].append((cpu_s(pid) - began_s) / rounds.sends * 1e6)
                rates[views].append(rounds.sends / seconds)
                readers.tell("close")
                time.sleep(_SETTLE_S)
    ratios = [seen / alone for seen, alone in zip(rates[_VIEWS], rates[0], strict=True)]
    alone, seen = (statistics.median(rates[views]) for views in (0, _VIEWS))
    cost_alone, cost_seen = (statistics.median(costs[views]) for views in (0, _VIEWS))
    return (
        [
            Amount(
                f"sends a second lost by {_VIEWS} open views ({alone:,.0f} and {seen:,.0f} a second)",
                "%",
                (1 - statistics.median(ratios)) * 100,
                _LOST_PERCENT,
            )
        ],
        [
            f"Processor time of the daemon for one send: {cost_alone:.0f} µs without a view, "
            f"{cost_seen:.0f} µs with {_VIEWS}."
        ],
    )


def stopped_view(home: PalaverHome, rounds: ViewRounds) -> list[Amount]:
    """Measure the peak memory of a daemon with a view that stops reading, against one with a view that reads.

    Every round has a new daemon, because memory that was used once is used again. At the end the view reads
    again, and must get a new snapshot; otherwise this never returns.
    """
    peaks: dict[str, list[int]] = {"open": [], "stop": []}
    with home.seat(OTHERS[0]):
        for number in range(rounds.stopped):
            for kind in ("open", "stop") if number % 2 else ("stop", "open"):
                home.command("down").run()
                home.command("up").run()
                peaks[kind].append(_peak_bytes(home, kind, rounds.flood))
    grown = (statistics.median(peaks["stop"]) - statistics.median(peaks["open"])) / _MIB
    return [
        Amount(
            "memory of the daemon for a view that stopped reading, then got a new snapshot",
            "MiB",
            max(grown, 0.0),
            _STOPPED_MIB,
        )
    ]


def _peak_bytes(home: PalaverHome, kind: str, count: int) -> int:
    """Return the peak memory of the daemon during a flood with one view, which reads or not."""
    pid = home.daemon_pid()
    with ViewReaders(home.home) as readers:
        readers.tell(f"{kind} 1")
        forget_peak(pid)
        home.sdk_sends(count, OTHERS[:1])
        peak = memory_bytes(pid, "VmHWM")
        if kind == "stop":
            readers.tell("resume")
        readers.tell("close")
    return peak
