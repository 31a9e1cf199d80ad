"""The heap of a daemon in large pages of memory."""

import os
import re
import sys
from pathlib import Path

import pytest

from palaver.daemon.daemon import large_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def large_bytes() -> int:
    """Return how much memory of this process is in large pages."""
    found = re.search(r"AnonHugePages: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) * 1024


def has_large_pages() -> bool:
    """Return whether this is Linux 6.1 or later, with large pages."""
    if sys.platform != "linux" or not SETTING.exists():
        return False
    release = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
    return release >= (6, 1) and "[never]" not in SETTING.read_text()


@pytest.mark.skipif(not has_large_pages(), reason="this system has no large pages")
def test_heap_is_moved_page_by_page_and_keeps_its_content() -> None:
    # More than the allocator keeps in small blocks of other tests.
    words = [f"word {number}" for number in range(100_000)]
    before = large_bytes()

    pages = list(large_pages())

    assert len(pages) == len(set(pages)) > 0
    assert large_bytes() > before
    assert words == [f"word {number}" for number in range(100_000)]
