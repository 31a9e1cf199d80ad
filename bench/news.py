"""Measure both views while many events arrive: the longest frames, and the processor time of `pal ui`.

A frame of the dashboard is the time between two writes to its terminal, and one of the page the time between
two animation frames. Both show the end of the log, so every record of news changes what they show.
"""

import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bench.browser import COUNT_ROWS, show_screen
from bench.drawn import cpu_s, p95, plain
from bench.figures import Amount
from bench.filled import agent_name
from bench.palaver_home import PalaverHome
from bench.screens import open_dashboard
from bench.sender import PacedSender

if TYPE_CHECKING:
    from playwright.sync_api import Page

A_SECOND = 1000
_FRAME_LIMIT_MS = 200.0
_CPU_LIMIT_PERCENT = 60.0
_SETTLE_S = 1.0
_SAME_FRAME_MS = 3.0
_NUMBER = re.compile(rb"news ([0-9]{6})")

_BEGIN_FRAMES = """
() => {
  window.benchFrames = [];
  window.benchNews = [];
  let last = performance.now();
  let newest = -1;
  const step = () => {
    const now = performance.now();
    window.benchFrames.push(now - last);
    last = now;
    const rows = document.querySelectorAll("main [role=option]");
    const number = Number(/news (\\d{6})/.exec(rows[rows.length - 1]?.textContent)?.[1] ?? -1);
    if (number > newest) {
      newest = number;
      window.benchNews.push([Date.now() / 1000, number]);
    }
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}
"""
"""Record the length of each frame, and with which frame the last row was a new message."""


def flood_amounts(
    home: PalaverHome, folder: Path, sender: PacedSender, page: "Page | None", for_s: float
) -> tuple[list[Amount], list[str]]:
    """Send 1,000 messages a second with both views open. Without a browser only the dashboard is measured."""
    if page is not None:
        show_screen(page, "Log")
    program = open_dashboard(home, folder)
    try:
        program.press(b"5")
        program.record(_SETTLE_S)
        if page is not None:
            page.evaluate(_BEGIN_FRAMES)
        before_s = cpu_s(program.pid)
        sender.start(f"@{agent_name(1)}", "news {:06}", count=int(A_SECOND * for_s), a_second=A_SECOND)
        drawn = program.record(for_s)
        percent = (cpu_s(program.pid) - before_s) / for_s * 100
        times = sender.end()
    finally:
        program.close()
    news = f"{A_SECOND:,} events a second for {for_s:g} s"
    begin_s, end_s = times[0][1], times[-1][0]
    frames = _frames_ms([at_s for at_s, _ in drawn if begin_s <= at_s <= end_s])
    amounts = [
        Amount(f"longest frame of `pal ui`, {news}", "ms", max(frames), _FRAME_LIMIT_MS),
        Amount(f"CPU of `pal ui`, {news}", "% of a core", percent, _CPU_LIMIT_PERCENT),
    ]
    lags_ms = _lags_ms(_drawn_news(drawn), times)
    remarks = [
        f"With {news} ({end_s - begin_s:.1f} s until the last one was sent): median frame of `pal ui` "
        f"{statistics.median(frames):.0f} ms; commit to visible there {_shown(lags_ms)}."
    ]
    if page is not None:
        page_frames: list[float] = page.evaluate("() => window.benchFrames")
        page_news: list[tuple[float, int]] = page.evaluate("() => window.benchNews")
        amounts.append(Amount(f"longest frame of the page, {news}", "ms", max(page_frames), _FRAME_LIMIT_MS))
        remarks.append(
            f"With {news}: commit to visible on the page {_shown(_lags_ms(page_news, times))}; "
            f"{page.evaluate(COUNT_ROWS)} rows in its document."
        )
    return amounts, remarks


def _frames_ms(times_s: Sequence[float]) -> list[float]:
    """Return the times between writes. Those of one frame follow each other at once."""
    gaps = [(after - before) * 1000 for before, after in pairwise(times_s)]
    return [gap for gap in gaps if gap > _SAME_FRAME_MS]


def _drawn_news(drawn: Sequence[tuple[float, bytes]]) -> list[tuple[float, int]]:
    """Return the number of the newest message of each write that has one, with its time."""
    found = [(at_s, _NUMBER.findall(plain(data))) for at_s, data in drawn]
    return [(at_s, max(map(int, numbers))) for at_s, numbers in found if numbers]


def _lags_ms(shown: Sequence[tuple[float, int]], times: Sequence[tuple[float, float]]) -> list[float]:
    """Return how long ago a message had been sent when it was first shown, for the newest ones."""
    found = []
    newest = -1
    for at_s, number in shown:
        if number > newest:
            newest = number
            found.append((at_s - times[number][0]) * 1000)
    if newest < len(times) // 2:
        raise RuntimeError(f"a view stopped to show new messages at {newest} of {len(times)}")
    return found


def _shown(values_ms: Sequence[float]) -> str:
    return f"p95 {p95(values_ms):.0f} ms, at most {max(values_ms):.0f} ms"
