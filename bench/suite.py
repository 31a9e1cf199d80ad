"""Run all benchmarks and write the page. Missed goals are reported, but are not a failure."""

import argparse
import contextlib
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import contests, page, terminals, ui
from bench.contests import Pair
from bench.figures import Findings
from bench.hcom_home import install_hcom
from bench.measure import QUICK, Rounds
from bench.stage import open_hcom, open_palaver
from bench.syncs import sync_remarks

_ROOT = Path(__file__).resolve().parents[1]
_CROWD_SETTLE_S = 2.0
_BEGAN_S = time.monotonic()


@dataclass(frozen=True, slots=True)
class Programs:
    """The measured programs, and the folder for their homes."""

    pal: Path
    hcom: Path
    folder: Path
    before: Path | None = None
    """The client of an earlier version, whose starts are measured too."""

    def open_pair(self) -> Pair:
        """Set up both buses in new homes."""
        return Pair(palaver=open_palaver(self.folder, self.pal), hcom=open_hcom(self.folder, self.hcom))


def run(programs: Programs, rounds: Rounds) -> Findings:
    """Run all measurements and return the results. All homes are removed afterwards."""
    with contextlib.ExitStack() as homes:
        small = programs.open_pair()
        homes.callback(small.close)
        findings = Findings(machine=_machine(programs.folder), subjects=_subjects(programs.pal, small))
        empty_mb = small.palaver.home.daemon_mb()
        findings.figures.append(contests.version_wall(small, rounds))
        _say("hooks")
        findings.figures.append(contests.hook_wall(small, rounds))
        _say("sync calls")
        findings.remarks.extend(sync_remarks(small.palaver.home, small.palaver.sender, small.hcom.home))
        _measure_full(programs, small, empty_mb, rounds, findings)
        _measure_crowd(programs, small, rounds, findings)
        _measure_subscribed(programs, small, rounds, findings)
        _say("terminals")
        findings.figures.extend(terminals.typing(small, programs.folder, rounds))
        findings.amounts.extend(terminals.holder_memory(small))
        findings.amounts.extend(terminals.starts(small.palaver.home, programs.folder))
        findings.amounts.extend(terminals.flood(small.palaver.home, programs.folder))
        _measure_dashboard(programs, rounds, findings)
        _say("latency")
        findings.figures.extend(contests.latencies(small, rounds))
        _say("rates")
        findings.figures.extend(contests.rates(small, rounds))
    return findings


def _measure_dashboard(programs: Programs, rounds: Rounds, findings: Findings) -> None:
    _say("dashboard")
    with ui.open_homes(programs.folder, programs.pal, programs.before) as homes:
        found = ui.dashboard(homes, ui.QUICK if rounds == QUICK else ui.DashboardRounds())
    findings.amounts.extend(found.amounts)
    findings.remarks.extend(found.remarks)


def _measure_full(
    programs: Programs, small: Pair, empty_mb: float, rounds: Rounds, findings: Findings
) -> None:
    with contextlib.ExitStack() as homes:
        _say(f"filling two homes with {rounds.events:,} events")
        big = programs.open_pair()
        homes.callback(big.close)
        big.palaver.home.fill(rounds.events)
        big.hcom.home.fill(rounds.events)
        amount, growth = contests.memory(empty_mb, big.palaver.home.daemon_mb(), rounds)
        _say("wall times")
        figures, growths = contests.walls(small, big, rounds)
        findings.amounts.append(amount)
        findings.figures.extend(figures)
        findings.growths.extend([*growths, growth])


def _measure_crowd(programs: Programs, small: Pair, rounds: Rounds, findings: Findings) -> None:
    with contextlib.ExitStack() as homes:
        _say(f"{rounds.receivers} idle receivers")
        crowd = programs.open_pair()
        homes.callback(crowd.close)
        names = [f"idle{number}" for number in range(rounds.receivers)]
        crowd.palaver.home.idle(names)
        crowd.hcom.home.idle(names)
        time.sleep(_CROWD_SETTLE_S)
        findings.growths.append(contests.crowd_wall(small, crowd, rounds))


def _measure_subscribed(programs: Programs, small: Pair, rounds: Rounds, findings: Findings) -> None:
    with contextlib.ExitStack() as homes:
        _say(f"{rounds.subscriptions:,} subscriptions")
        watched = programs.open_pair()
        homes.callback(watched.close)
        for stage in (watched.palaver, watched.hcom):
            stage.home.subscribe("kiro", rounds.subscriptions)
        findings.growths.append(contests.watched_wall(small, watched, rounds))


def main(arguments: Sequence[str]) -> int:
    """Parse the options, run, print the tables and write them to the page (not with `--quick`)."""
    options = _options(arguments)
    runs = _ROOT / ".run"
    runs.mkdir(exist_ok=True)
    hcom = options.hcom or install_hcom(runs / "hcom-venv")
    folder = Path(tempfile.mkdtemp(prefix="b", dir=options.dir or runs))
    try:
        findings = run(
            Programs(pal=options.pal, hcom=hcom, folder=folder, before=options.before),
            QUICK if options.quick else Rounds(),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = page.render(findings)
    print(text)
    if not options.quick:
        page.write_between_marks(_ROOT / "docs" / "performance.md", text)
    for name in findings.missed():
        _say(f"goal missed: {name}")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.py", description="Measure Palaver and hcom in the same run."
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and small homes; the page stays as it is"
    )
    parser.add_argument(
        "--pal", type=Path, default=_ROOT / ".venv" / "bin" / "pal", help="the client to measure"
    )
    parser.add_argument("--before", type=Path, help="the client of an earlier version, to compare starts")
    parser.add_argument("--hcom", type=Path, help="an installed hcom, instead of the one in .run/hcom-venv")
    parser.add_argument(
        "--dir", type=Path, help="where the homes go, instead of .run; it decides what a sync costs"
    )
    return parser.parse_args(arguments)


def _machine(folder: Path) -> str:
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.system()} {platform.release()} "
        f"({platform.machine()}), {os.cpu_count()} processors, file system {_file_system(folder)}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}."
    )


def _file_system(folder: Path) -> str:
    findmnt = shutil.which("findmnt")
    if not findmnt:
        return "unknown"
    argv = (findmnt, "--noheadings", "--output", "FSTYPE", "--target", str(folder))
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _subjects(pal: Path, pair: Pair) -> str:
    client = "the Python client" if pal.read_bytes()[:2] == b"#!" else "the C client"
    ours, theirs = (stage.home.version().run().strip() for stage in (pair.palaver, pair.hcom))
    return f"Palaver: {ours}, with {client}. hcom: {theirs}."


def _say(text: str) -> None:
    elapsed_s = time.monotonic() - _BEGAN_S
    print(f"bench: {elapsed_s:4.0f} s: {text}", file=sys.stderr, flush=True)
