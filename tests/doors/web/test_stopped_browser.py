"""A real browser that is stopped: senders go on, the bus keeps little for it, and it catches up."""

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from playwright.sync_api import expect
from tests.daemon.stage import Home
from tests.daemon.test_metrics import stats
from tests.doors.web.client import bus_with_page
from tests.doors.web.stage import Watched, chromium, sign_in

import palaver

_ROUND: Final = 500
_MOST: Final = 100
"""Rounds of messages, at most, until the buffers of the kernel and those of the bus are full."""
_TEXT: Final = "\N{SPEECH BALLOON}" * 290


def _children(pid: int) -> Iterator[int]:
    """Yield a process and everything below it."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield from _children(int(child))


def _browser_pids(mark: str) -> list[int]:
    """Return the processes of the browser that was started with a mark in its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words and not any(word.startswith(b"--type=") for word in words):
            return list(_children(int(path.parent.name)))
    raise AssertionError(f"no browser has the argument {mark}")


async def _send(home: Home, texts: list[str]) -> None:
    async with palaver.connect("loud", home=home.path) as loud:
        await asyncio.gather(*(loud.send("@loud", text) for text in texts))


def _slow_views(home: Home) -> float:
    return stats(home)["palaver_slow_followers"].get((("door", "view"),), 0.0)


def test_stopped_browser_slows_no_sender_and_gets_a_new_snapshot() -> None:
    mark = f"--palaver-test-{os.getpid()}"
    with bus_with_page(brake_per_minute=0) as home, chromium(mark) as browser:
        watched = Watched(browser.new_page())
        sign_in(home, watched.page)
        expect(watched.page.get_by_text("bus up")).to_be_visible()
        pids = _browser_pids(mark)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(1) as threads:  # Playwright has a loop in this thread.
                for _ in range(_MOST):
                    threads.submit(lambda: asyncio.run(_send(home, [_TEXT] * _ROUND))).result()
                    if _slow_views(home):
                        break
            assert _slow_views(home) >= 1
            home.ok("send", "@human", "--intent", "request", "--", "while you were stopped")
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

        expect(watched.page.get_by_role("option", name="while you were stopped")).to_be_visible()
        home.ok("send", "@human", "--intent", "request", "--", "and after that")
        expect(watched.page.get_by_role("option", name="and after that")).to_be_visible()
        assert watched.errors == []
