"""Read the exit reports that are stored in a home."""

from pathlib import Path

import msgspec

from palaver.model.last_report import REPORT_END, Report


def read_reports(home: str) -> list[tuple[Path, Report]]:
    """Return the stored reports with their paths. A report that is removed meanwhile is left out."""
    found: list[tuple[Path, Report]] = []
    for path in sorted((Path(home) / "agents").glob(f"*{REPORT_END}")):
        try:
            found.append((path, msgspec.json.decode(path.read_bytes(), type=Report)))
        except FileNotFoundError:
            continue
    return found
