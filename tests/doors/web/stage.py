"""A bus with the page, and a browser that a person signs in."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.app.person import Person
from tests.daemon.stage import Home, new_home, write_settings
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


@contextmanager
def bus_with_page(**settings: str | int) -> Iterator[Home]:
    """Start a bus whose HTTP door is open, at the same address also after the next start."""
    with new_home() as home:
        write_settings(home, http="127.0.0.1:0", **settings)
        home.start_daemon()
        write_settings(home, http=address_of(home).removeprefix("http://"), **settings)
        yield home


def address_of(home: Home) -> str:
    """Return the address of the HTTP door."""
    found: str = home.ok("status", "--json").json["doors"]["http"]
    return found


class Watched:
    """A page whose errors are recorded."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("console", lambda message: message.type in ("error", "warning") and self._note(message.text))
        page.on("pageerror", lambda error: self._note(str(error)))

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


def code_at(person: Person) -> str:
    """Return the code that `pal web` shows at a terminal."""
    person.until(b"reply here.")
    (code,) = re.findall(r"code  (\w{8})\s", person.shown.decode())
    person.shown = b""
    return code


def axe_source() -> str:
    """Return the program that finds problems of accessibility."""
    import axe_playwright_python

    folder = Path(axe_playwright_python.__file__).parent
    return next(folder.rglob("axe.min.js")).read_text()


class PageClient:
    """A program that sends what the page sends. It is signed in like a browser."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.url = address_of(home)
        self.cookies: dict[str, str] = {}
        self.key = "1"
        self.set_cookie = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request of the page."""
        return {"X-Palaver": self.key, "Origin": self.url, "Sec-Fetch-Site": "same-origin"}

    def sign_in(self, *options: str, reply: str = "y") -> httpx2.Response:
        """Sign in with a person's code and reply."""
        person = Person(self.home)
        try:
            person.run(" ".join(["pal", "web", *options]))
            code = code_at(person)
            with ThreadPoolExecutor(1) as threads:
                posting = threads.submit(self.post, "/api/sign-in", {"code": code})
                person.until(b"[y/N] ")
                person.press(f"{reply}\r".encode())
                answer = posting.result(LIMIT_S)
            person.until(b"status ")
        finally:
            person.close()
        self.set_cookie = answer.headers.get("set-cookie", "")
        self.cookies = dict(answer.cookies)
        self.key = answer.json().get("key", "1")
        return answer

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return httpx2.get(
            self.url + path, headers={**self.headers, **headers}, cookies=self.cookies, timeout=LIMIT_S
        )

    def post(self, path: str, body: object, **headers: str) -> httpx2.Response:
        return httpx2.post(
            self.url + path,
            headers={**self.headers, "Content-Type": "application/json", **headers},
            content=json.dumps(body),
            cookies=self.cookies,
            timeout=LIMIT_S,
        )

    def act(self, **fields: object) -> httpx2.Response:
        return self.post("/api/act", {"key": os.urandom(16).hex(), **fields})

    def ask(self, **fields: object) -> dict[str, Any]:
        answer = self.post("/api/ask", fields)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    @contextmanager
    def events(self, **headers: str) -> Iterator[Iterator[tuple[int, str, dict[str, Any]]]]:
        """Yield the records of the stream: id, event and data."""
        with httpx2.stream(
            "GET",
            f"{self.url}/events",
            headers={**self.headers, **headers},
            cookies=self.cookies,
            timeout=LIMIT_S,
        ) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"] == "text/event-stream"
            yield records_in(answer.iter_lines())


def records_in(lines: Iterable[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the records of a stream: id, event and data."""
    found: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif "data" in found:
            yield int(found["id"]), found["event"], json.loads(found["data"])
            found = {}
