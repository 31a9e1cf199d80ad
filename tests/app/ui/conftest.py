"""Where a failed comparison of pictures is reported."""

from pathlib import Path

import pytest

REPORT = Path(__file__).resolve().parents[3] / "build" / "pictures.html"


def pytest_configure(config: pytest.Config) -> None:
    """Write the report of changed pictures to the folder for build results."""
    if getattr(config.option, "snapshot_report", None) == "snapshot_report.html":
        config.option.snapshot_report = str(REPORT)
