"""The last reports that lie in a home, for tests that look."""

from pathlib import Path

import msgspec

from palaver.model.last_report import REPORT_END, Report


def read_reports(home: str) -> list[tuple[Path, Report]]:
    """Give the reports that lie there, with their places. One that goes meanwhile is not among them."""
    found: list[tuple[Path, Report]] = []
    for path in sorted((Path(home) / "agents").glob(f"*{REPORT_END}")):
        try:
            found.append((path, msgspec.json.decode(path.read_bytes(), type=Report)))
        except FileNotFoundError:
            continue
    return found
