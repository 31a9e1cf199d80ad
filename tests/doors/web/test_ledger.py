"""The ledger that the browser draws, compared with `pal receipts` for many random messages."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect
from tests.daemon.stage import Home, JsonLine
from tests.daemon.test_views import MESSAGES, send_some
from tests.doors.web.client import bus_with_page
from tests.doors.web.stage import Watched, chromium, sign_in

_AT_ONCE: Final = 50
_DRAW: Final = """
    async (seqs) => {
      const { ledger } = await import("/parts.js");
      const { ask } = await import("/api.js");
      const drawn = {};
      for (const seq of seqs) {
        ledger({ ask }, seq);
        const dialog = document.querySelector("dialog");
        while (!dialog.querySelector("h3")) await new Promise((done) => setTimeout(done));
        const [receipts] = dialog.querySelectorAll("tbody");
        drawn[seq] = [...receipts.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
        dialog.close();
        dialog.remove();
      }
      return drawn;
    }
"""
"""Opens each ledger as a click does it, and reads the cells of its receipts."""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with bus_with_page(brake_per_minute=150) as made:
        yield made


@pytest.fixture
def page(home: Home) -> Iterator[Page]:
    with chromium() as browser:
        watched = Watched(browser.new_page())
        sign_in(home, watched.page)
        expect(watched.page.get_by_text("bus up")).to_be_visible()
        yield watched.page
        assert watched.errors == []


def _expected(printed: JsonLine) -> list[list[str]]:
    """Return the cells that the receipts of a command must have on the page."""
    rows = []
    for receipt in printed["receipts"]:
        session = f" (session {receipt['session']})" if receipt.get("session") else ""
        evidence = ", ".join(filter(None, (receipt.get("lane"), receipt.get("grade"))))
        wait: dict[str, Any] = receipt.get("wait") or {}
        why = wait.get("text", receipt.get("reason", ""))
        rows.append([receipt["name"] + session, receipt["state"], evidence, why, wait.get("moves", "")])
    return rows


def test_drawn_ledgers_equal_the_receipts_of_the_command(home: Home, page: Page) -> None:
    with ThreadPoolExecutor(4) as threads:  # Playwright has a loop in this thread.
        seqs = threads.submit(lambda: asyncio.run(send_some(home, random.Random(61)))).result()

        def print_receipts(seq: int) -> list[list[str]]:
            return _expected(home.ok("receipts", str(seq), "--json").json)

        left = list(seqs)
        while left:
            some = left[:_AT_ONCE]
            before = page.evaluate(_DRAW, some)
            printed = dict(zip(some, threads.map(print_receipts, some), strict=True))
            after = page.evaluate(_DRAW, some)
            # A reason can contain a duration: those that have changed meanwhile are compared again.
            same = [seq for seq in some if before[str(seq)] == after[str(seq)]]
            assert {seq: after[str(seq)] for seq in same} == {seq: printed[seq] for seq in same}
            left = [seq for seq in left if seq not in same]

    assert len(seqs) >= MESSAGES
