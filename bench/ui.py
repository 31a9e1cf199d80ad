"""Measure the dashboard, the page, and what they cost the daemon. A missed limit is reported, not a failure.

    python -m bench.ui --before PAL      PAL is an installed client of the version before the dashboard
    python -m bench.ui --quick           few rounds and small homes, to see whether all of it works

A part that fails or cannot be measured here is named in the remarks, and the rest is measured.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.browser import PageRounds, allow_page, open_page, page_amounts, why_no_browser
from bench.figures import Amount
from bench.filled import fill_home
from bench.news import flood_amounts
from bench.page import amount_table
from bench.palaver_home import PalaverHome
from bench.screens import ScreenRounds, dashboard_amounts
from bench.sender import PacedSender
from bench.starts import StartRounds, command_starts, first_screens
from bench.views import ViewRounds, lost_sends, stopped_view

_ROOT = Path(__file__).resolve().parents[1]
_BEGAN_S = time.monotonic()
_PARTS = ("starts", "views", "screens", "page", "news")


@dataclass(frozen=True, slots=True)
class DashboardRounds:
    """The number of rounds of each measurement, and the size of the home."""

    agents: int = 10_000
    events: int = 1_000_000
    flood_s: float = 30.0
    starts: StartRounds = field(default_factory=StartRounds)
    views: ViewRounds = field(default_factory=ViewRounds)
    screens: ScreenRounds = field(default_factory=ScreenRounds)
    page: PageRounds = field(default_factory=PageRounds)


QUICK = DashboardRounds(
    agents=1000,
    events=20_000,
    flood_s=5.0,
    starts=StartRounds(screens=2, commands=10, python=2),
    views=ViewRounds(pairs=2, sends=5000, stopped=1, flood=20_000),
    screens=ScreenRounds(keys=1, jumps=4, requests=3, messages=5, rest_s=2.0),
    page=PageRounds(requests=3, messages=5, jumps=5),
)


@dataclass(frozen=True, slots=True)
class Homes:
    """Homes for the measurements, and a folder for the programs in them."""

    now: PalaverHome
    """For starts; then it gets many agents and events."""
    views: PalaverHome
    """For messages with open views, of which there are many."""
    before: PalaverHome | None
    """With an earlier version."""
    folder: Path


@contextmanager
def open_homes(folder: Path, pal: Path, before: Path | None) -> Iterator[Homes]:
    """Open new homes in a folder. Their daemons end with the block."""
    with ExitStack() as opened:

        def home(name: str, program: Path) -> PalaverHome:
            (folder / name).mkdir()
            made = PalaverHome(folder / name, program)
            opened.callback(made.close)
            return made

        (folder / "work").mkdir()
        yield Homes(
            now=home("now", pal),
            views=home("views", pal),
            before=home("before", before) if before is not None else None,
            folder=folder / "work",
        )


@dataclass(frozen=True, slots=True)
class DashboardFindings:
    """The amounts with their limits, and remarks: further numbers, and what was not measured."""

    amounts: list[Amount] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def measure(self, name: str, part: Callable[[], tuple[list[Amount], list[str]]]) -> None:
        """Add the results of one part. If it fails, a remark says so."""
        _say(name)
        try:
            amounts, remarks = part()
        except Exception as error:  # The other parts take minutes, and must not be lost.
            self.note_failure(name, error)
            return
        self.amounts.extend(amounts)
        self.remarks.extend(remarks)

    def note_failure(self, name: str, error: Exception) -> None:
        """Add a remark about a part that failed, and print why."""
        traceback.print_exception(error)
        self.remarks.append(f"**Not measured: {name}**: {type(error).__name__}: {str(error)[:200]}")


def dashboard(homes: Homes, rounds: DashboardRounds, parts: Sequence[str] = _PARTS) -> DashboardFindings:
    """Measure the dashboard and the page, and what they cost."""
    found = DashboardFindings()
    home, before, folder = homes.now, homes.before, homes.folder
    if "starts" in parts:
        found.measure("first screens", lambda: (first_screens(home, before, folder, rounds.starts), []))
        if before is None:
            found.remarks.append("**Not measured: the start of other commands**: it needs `--before`.")
        else:
            found.measure("starts of commands", lambda: command_starts(home, before, rounds.starts))
    if "views" in parts:
        found.measure("sends with open views", lambda: lost_sends(homes.views, rounds.views))
        found.measure("a view that stops reading", lambda: (stopped_view(homes.views, rounds.views), []))
        homes.views.stop()
    if {"screens", "page", "news"} & set(parts):
        _say(f"filling a home with {rounds.agents:,} agents and {rounds.events:,} events")
        try:
            fill_home(home, agents=rounds.agents, events=rounds.events)
        except Exception as error:  # The numbers above took minutes.
            found.note_failure("everything in a full home", error)
            return found
        size = f"{rounds.agents:,} agents and {rounds.events:,} events"
        if "screens" in parts:
            found.measure("pal ui", lambda: _screens(home, folder, rounds, size))
        if {"page", "news"} & set(parts):
            _measure_page(home, folder, rounds, parts, found, size)
    return found


def _screens(
    home: PalaverHome, folder: Path, rounds: DashboardRounds, size: str
) -> tuple[list[Amount], list[str]]:
    with PacedSender(home.home) as sender:
        return dashboard_amounts(home, folder, sender, rounds.screens, size), []


def _measure_page(
    home: PalaverHome,
    folder: Path,
    rounds: DashboardRounds,
    parts: Sequence[str],
    found: DashboardFindings,
    size: str,
) -> None:
    """Measure the page, and then both views during a flood; without a browser only `pal ui`."""
    page = None
    with ExitStack() as opened:
        if missing := why_no_browser():
            found.remarks.append(f"**Not measured: the page**: {missing}.")
        else:
            try:
                allow_page(home)
                page = opened.enter_context(open_page(home, folder))
            except Exception as error:  # The dashboard can be measured without it.
                found.note_failure("the page", error)
        sender = opened.enter_context(PacedSender(home.home))
        if page is not None and "page" in parts:
            found.measure("the page", lambda: (page_amounts(page, sender, rounds.page, size), []))
        if "news" in parts:
            found.measure(
                "many events with both views open",
                lambda: flood_amounts(home, folder, sender, page, rounds.flood_s),
            )


def main(arguments: Sequence[str]) -> int:
    """Measure only the dashboard and the page, and print a table."""
    options = _options(arguments)
    rounds = QUICK if options.quick else DashboardRounds()
    if options.events:
        rounds = replace(rounds, events=options.events)
    with (
        tempfile.TemporaryDirectory(prefix="b", dir=options.dir) as folder,
        open_homes(Path(folder), options.pal, options.before) as homes,
    ):
        found = dashboard(homes, rounds, options.part or _PARTS)
    print(amount_table(found.amounts))
    print()
    for remark in found.remarks:
        print(f"- {remark}")
    missed = [amount.name for amount in found.amounts if amount.value > amount.limit]
    print(
        f"\n{len(found.amounts)} measured, {len(missed)} missed"
        + "".join(f"\nmissed: {one}" for one in missed)
    )
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ui", description="Measure the dashboard.")
    parser.add_argument(
        "--pal", type=Path, default=_ROOT / ".venv" / "bin" / "pal", help="the client to measure"
    )
    parser.add_argument("--before", type=Path, help="the client of an earlier version")
    parser.add_argument("--quick", action="store_true", help="few rounds and a small home")
    parser.add_argument("--events", type=int, help="events in the home (default: 1,000,000; quick: 20,000)")
    parser.add_argument("--part", action="append", choices=_PARTS, help="measure only this part; repeatable")
    parser.add_argument("--dir", type=Path, help="where the homes go, instead of the temporary folder")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(f"bench: {time.monotonic() - _BEGAN_S:4.0f} s: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
