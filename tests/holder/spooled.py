"""Read the exit reports that are stored in a home."""

from pathlib import Path

import msgspec

from palaver.protocol.events import REPORT_END, ExitReport


def read_reports(home: str) -> list[tuple[Path, ExitReport]]:
    """Return the stored reports with their paths. A report that is removed meanwhile is left out."""
    found: list[tuple[Path, ExitReport]] = []
    for path in sorted((Path(home) / "agents").glob(f"*{REPORT_END}")):
        try:
            found.append((path, msgspec.json.decode(path.read_bytes(), type=ExitReport)))
        except FileNotFoundError:
            continue
    return found
