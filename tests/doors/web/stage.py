"""A browser that a person signs in to the page."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from tests.app.person import Person
from tests.daemon.stage import Home, Shell
from tests.daemon.test_permissions import session
from tests.doors.web.client import address_of, code_at
from tests.limits import LIMIT_S

_PROGRAM: Final = shutil.which("chromium")
SCREENS: Final = ("Now", "Agents", "Talk", "Rooms", "Log", "Past")
PHONE: Final = (360, 740)
DESK: Final = (1280, 800)

expect.set_options(timeout=LIMIT_S * 1000)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Start the system's Chromium. Without it the tests are skipped, and say so."""
    if _PROGRAM is None:
        pytest.skip("THE PAGE IS NOT TESTED: there is no program 'chromium' on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PROGRAM, args=["--no-sandbox", *arguments])
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


def keep_picture(page: Page, name: str) -> None:
    """Keep a picture of the page, if the variable PALAVER_PICTURES names a folder for them."""
    if folder := os.environ.get("PALAVER_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def axe_source() -> str:
    """Return the program that finds problems of accessibility."""
    found = find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.rglob("axe.min.js")).read_text()


class PageStage:
    """A bus with four agents, and a page that is signed in to it."""

    def __init__(self, home: Home, browser: Browser) -> None:
        self.home = home
        self.agents: dict[str, Shell] = {}
        for name in ("luna", "nova", "mira", "kilo"):
            self.agents[name] = session(home, name)
        self.context: BrowserContext = browser.new_context(viewport={"width": DESK[0], "height": DESK[1]})
        self.watched = Watched(self.context.new_page())
        self.page: Page = self.watched.page
        sign_in(home, self.page)
        expect(self.page.get_by_text("bus up")).to_be_visible()

    def open(self, screen: str) -> None:
        self.page.keyboard.press(str(SCREENS.index(screen) + 1))
        link = self.page.get_by_role("link", name=screen)
        expect(link).to_have_attribute("aria-current", "page")

    def rows(self) -> int:
        """Return the number of rows in the document."""
        return self.page.locator("[role=option]").count()


def problems(page: Page) -> list[Any]:
    """Return the violations that axe finds. The policy of the page does not apply to it."""
    page.evaluate(axe_source())
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


def open_by_keyboard(page: Page, text: str) -> None:
    """Move to the entry with a text, and open it, without a mouse."""
    entry = page.get_by_role("option").filter(has_text=text).first
    expect(entry).to_be_visible()
    page.keyboard.press("Home")
    for _ in range(20):
        if "cursor" in (entry.get_attribute("class") or ""):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".detail h2").first).to_be_visible()
