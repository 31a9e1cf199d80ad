"""Measure the page in a real browser: news, rows in the document, and jumps in a long log.

A person signs in as usual: `pal web` at a terminal, its code typed into the page, a reply at the terminal.
"""

import json
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.drawn import open_program, p95
from bench.figures import Amount
from bench.filled import agent_name
from bench.palaver_home import PalaverHome
from bench.sender import PacedSender

if TYPE_CHECKING:
    from playwright.sync_api import Page

_VISIBLE_LIMIT_MS = 150.0
_ROWS_LIMIT = 300
_JUMP_LIMIT_MS = 500.0
_LIMIT_MS = 60_000
_PAUSE_MS = 50
_SETTLE_MS = 1000
_WIDTH, _HEIGHT = 1280, 1600
"""High enough for all requests of a run, which Now shows oldest first."""
_KEYS = {"Now": "1", "Agents": "2", "Talk": "3", "Rooms": "4", "Log": "5", "Past": "6"}

_EXPECT_TEXT = """
(text) => {
  window.benchSeen = new Promise((done, fail) => {
    setTimeout(() => fail(new Error(`never shown: ${text}`)), 60_000);
    const isVisible = (row) => {
      const box = row.getBoundingClientRect();
      return box.bottom > 0 && box.top < innerHeight && row.textContent.includes(text);
    };
    const look = () => {
      if (![...document.querySelectorAll("main [role=option]")].some(isVisible)) return;
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(Date.now())));  // it is painted then
    };
    const observer = new MutationObserver(look);
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
  });
}
"""
"""Begin to wait until a row with a text is painted. `window.benchSeen` is then the wall-clock time."""

_EXPECT_JUMP = """
(seq) => {
  window.benchJumped = new Promise((done, fail) => {
    setTimeout(() => fail(new Error(`never shown: #${seq}`)), 60_000);
    let began = 0;
    const look = () => {
      const row = document.querySelector(`main .row.cursor[data-key="${seq}"]`);
      if (!row) return;
      const box = row.getBoundingClientRect();
      if (box.bottom <= 0 || box.top >= innerHeight) return;
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
    };
    const observer = new MutationObserver(look);
    const begin = (event) => {
      if (event.key !== "Enter") return;
      began = event.timeStamp;
      removeEventListener("keydown", begin, true);
      observer.observe(document.body, { subtree: true, childList: true, attributes: true });
    };
    addEventListener("keydown", begin, true);
  });
}
"""
"""Begin to measure from Enter until the row of a seq has the cursor and is painted."""

COUNT_ROWS = "() => document.querySelectorAll('[role=option], [role=row], li, tr').length"
"""Return the number of rows of all lists in the document."""


@dataclass(frozen=True, slots=True)
class PageRounds:
    """How often each thing is measured on the page."""

    requests: int = 8
    """Requests to the person; all of them must fit into one screen."""
    messages: int = 30
    jumps: int = 40


def why_no_browser() -> str:
    """Return why the page cannot be measured here; empty if it can."""
    if shutil.which("chromium") is None:
        return "there is no program 'chromium'"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the package playwright is not installed"
    return ""


def allow_page(home: PalaverHome) -> None:
    """Open the HTTP door at any free port. The daemon is started again."""
    home.command("down").run()
    (home.home / "config.toml").write_text('http = "127.0.0.1:0"\n')
    home.command("up").run()


@contextmanager
def open_page(home: PalaverHome, folder: Path) -> Iterator["Page"]:
    """Start Chromium and sign its page in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            context = browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT})
            page = context.new_page()
            page.set_default_timeout(_LIMIT_MS)
            _sign_in(home, folder, page)
            page.get_by_text("bus up").wait_for()
            yield page
        finally:
            browser.close()


def _sign_in(home: PalaverHome, folder: Path, page: "Page") -> None:
    address = json.loads(home.command("status", "--json").run())["doors"]["http"]
    person = open_program(home, folder, ("web",))
    try:
        person.until(b"reply here.")
        found = re.search(r"code  (\w{8})\s", person.shown.decode())
        assert found is not None
        page.goto(address)
        page.get_by_label("Code").fill(found[1])
        page.get_by_role("button", name="Sign in").click()
        person.until(b"[y/N] ")
        person.press(b"y\r")
        person.until(b"signed in")
    finally:
        person.close()


def show_screen(page: "Page", screen: str) -> None:
    """Show one of the six screens, and let it read its content."""
    page.keyboard.press("Escape")
    page.keyboard.press(_KEYS[screen])
    page.wait_for_timeout(_SETTLE_MS)
    if screen == "Log":
        page.get_by_role("button", name="Newest").click()
        page.wait_for_timeout(_SETTLE_MS)


def page_amounts(page: "Page", sender: PacedSender, rounds: PageRounds, size: str) -> list[Amount]:
    """Measure the page. `size` names the content of the home."""
    visible_ms = _visible_ms(page, sender, rounds)
    rows = max(_most_rows(page, screen) for screen in _KEYS)
    jumps_ms = _jumps_ms(page, rounds.jumps)
    return [
        Amount("commit to visible on the page, p95", "ms", p95(visible_ms), _VISIBLE_LIMIT_MS),
        Amount(f"rows in the document of the page, {size}", "rows", rows, _ROWS_LIMIT),
        Amount(
            f"jump to any event on the page, slowest of {rounds.jumps}, {size}",
            "ms",
            max(jumps_ms),
            _JUMP_LIMIT_MS,
        ),
    ]


def _visible_ms(page: "Page", sender: PacedSender, rounds: PageRounds) -> list[float]:
    """Measure news in Log, and requests to the person in Now."""
    times = []
    show_screen(page, "Log")
    for number in range(rounds.messages):
        times.append(_painted_ms(page, sender, agent_name(number), f"painted in Log {number:03}", ""))
    show_screen(page, "Now")
    for number in range(rounds.requests):
        times.append(_painted_ms(page, sender, "human", f"painted in Now {number:03}?", "request"))
    return times


def _painted_ms(page: "Page", sender: PacedSender, to: str, text: str, intent: str) -> float:
    page.evaluate(_EXPECT_TEXT, text)
    began_s = sender.send(f"@{to}", text, intent)
    painted_ms: float = page.evaluate("() => window.benchSeen") - began_s * 1000
    page.wait_for_timeout(_PAUSE_MS)
    return painted_ms


def _most_rows(page: "Page", screen: str) -> int:
    """Scroll through a screen, and return the most rows that the document had."""
    show_screen(page, screen)
    counts: list[int] = [page.evaluate(COUNT_ROWS)]
    if screen == "Past":  # Keys there would show the bus of another time on all screens.
        return max(counts)
    page.keyboard.press("Tab")
    for key in ("End", "PageUp", "PageUp", "Home", "PageDown", "PageDown", "Enter"):
        page.keyboard.press(key)
        page.wait_for_timeout(_PAUSE_MS * 4)
        counts.append(page.evaluate(COUNT_ROWS))
    page.keyboard.press("Escape")
    return max(counts)


def _jumps_ms(page: "Page", count: int) -> list[float]:
    """Go to random events. A time begins with Enter after the typed seq."""
    show_screen(page, "Log")
    last = max(int(key) for key in page.evaluate(_KEYS_OF_ROWS))
    times = []
    field = page.get_by_label("Go to seq or time")
    for _ in range(count):
        seq = random.randint(1, last)
        field.fill(str(seq))
        page.evaluate(_EXPECT_JUMP, seq)
        field.press("Enter")
        times.append(page.evaluate("() => window.benchJumped"))
        page.wait_for_timeout(_PAUSE_MS)
    return times


_KEYS_OF_ROWS = "() => [...document.querySelectorAll('main .row[data-key]')].map((row) => row.dataset.key)"
