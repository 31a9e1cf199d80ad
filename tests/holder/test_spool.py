"""The exit report of a holder: written atomically and read back."""

import stat
from pathlib import Path

from tests.holder.spooled import read_reports

from palaver.holder.agent import write_report
from palaver.protocol.events import ExitReport, Outcome


def test_report_round_trips(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    report = ExitReport(
        name="api-luna",
        secret="s",
        reason="exited with 3",
        outcomes=(Outcome(messages=(1, 2), answer="seen", grade="handed"),),
        ts=7,
    )

    path = write_report(str(tmp_path), report)

    assert read_reports(str(tmp_path)) == [(path, report)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_later_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    for reason in ("exited with 1", "exited with 2"):
        write_report(str(tmp_path), ExitReport(name="luna", secret="s", reason=reason))

    ((_, report),) = read_reports(str(tmp_path))

    assert report.reason == "exited with 2"
