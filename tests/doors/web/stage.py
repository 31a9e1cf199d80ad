"""A browser that a person signs in to the page."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from tests.app.person import Person
from tests.daemon.stage import Home
from tests.doors.web.client import address_of, code_at
from tests.limits import LIMIT_S

_PROGRAM: Final = shutil.which("chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium. Without it the tests are skipped, and say so."""
    if _PROGRAM is None:
        pytest.skip("THE PAGE IS NOT TESTED: there is no program 'chromium' on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PROGRAM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page whose errors are recorded."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self._note(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(message.text)

    def _note(self, text: str) -> None:
        # The browser itself reports failed connections and refused requests.
        if not re.search(r"net::ERR_|Failed to load resource", text):
            self.errors.append(text)


def sign_in(home: Home, page: Page, *options: str, reply: str = "y") -> None:
    """Sign a page in: a person runs `pal web`, types the code into the page, and replies at the terminal."""
    person = Person(home)
    try:
        person.run(" ".join(["pal", "web", *options]))
        code = code_at(person)
        page.goto(address_of(home))
        page.get_by_label("Code").fill(code)
        page.get_by_role("button", name="Sign in").click()
        person.until(b"[y/N] ")
        person.press(f"{reply}\r".encode())
        person.until(b"status ")
    finally:
        person.close()


def axe_source() -> str:
    """Return the program that finds problems of accessibility."""
    found = find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.rglob("axe.min.js")).read_text()
