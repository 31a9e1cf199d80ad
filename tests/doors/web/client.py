"""A bus with the page, and a program that sends what the page sends."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
from tests.app.person import Person
from tests.daemon.stage import Home, new_home, write_settings
from tests.limits import LIMIT_S


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


def code_at(person: Person) -> str:
    """Return the code that `pal web` shows at a terminal."""
    person.until(b"reply here.")
    codes: list[str] = re.findall(r"code  (\w{8})\s", person.shown.decode())
    person.shown = b""
    assert len(codes) == 1, codes
    return codes[0]


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
