"""Checks that the door makes before any command runs."""

import pytest

from palaver.doors.cli.run import is_newer


@pytest.mark.parametrize(
    ("theirs", "ours", "newer"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1.1", "0.1.0", True),
        ("0.10.0", "0.9.9", True),
        ("1.0.0", "0.99.99", True),
        ("0.1.0", "0.2.0", False),
        ("0.2.0.dev1", "0.1.0", True),
        ("0+unknown", "0.1.0", False),
        ("", "0.1.0", False),
        ("2.0.0", "nonsense", False),
    ],
)
def test_versions_compare_by_their_numbers(theirs: str, ours: str, newer: bool) -> None:
    assert is_newer(theirs, ours) is newer
