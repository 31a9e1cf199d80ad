"""Attacks on the page in the browser: with a session that has ended, and without one."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from tests.attacks.test_ended_tokens import dial, read_all
from tests.daemon.stage import Home, run_as_person
from tests.doors.web.client import PageClient, bus_with_page

from palaver.doors.http.app import LIMIT_READING


@pytest.fixture(scope="module")
def page_bus() -> Iterator[Home]:
    """A bus whose HTTP door is open."""
    with bus_with_page() as home:
        yield home


def head(client: PageClient, path: str, length: int) -> bytes:
    """Return the head of a request of the page."""
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    fields = {
        "Host": urlsplit(client.url).netloc,
        **client.headers,
        "Cookie": cookies,
        "Content-Type": "application/json",
        "Content-Length": str(length),
        "Connection": "close",
    }
    lines = (f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", "")
    return "\r\n".join(lines).encode()


def test_act_that_has_begun_ends_with_its_session(page_bus: Home) -> None:
    """Promise: a revoked session does nothing more, also with a body that comes after its end."""
    client = PageClient(page_bus)
    client.sign_in()
    id = client.get("/api/session").json()["id"]
    act = {"do": "send", "key": os.urandom(16).hex(), "to": ["@all"], "text": "too late"}
    body = json.dumps(act).encode()

    with dial(client.url) as slow:
        slow.sendall(head(client, "/api/act", len(body)) + body[:10])
        assert client.get("/api/session").status_code == 200  # the gate has seen the act before this
        run_as_person(page_bus, "web", "revoke", id)
        slow.sendall(body[10:])
        answer = read_all(slow)

    assert b" 401 " in answer.split(b"\r\n")[0]
    assert page_bus.texts() == []


def test_strangers_cannot_fill_the_daemon_with_bodies(page_bus: Home) -> None:
    """Promise: few requests without a session can be open at once, and the others are refused."""
    client = PageClient(page_bus)
    with ExitStack() as stack:
        slow: list[socket.socket] = []
        for _ in range(LIMIT_READING):
            slow.append(stack.enter_context(dial(client.url)))
            slow[-1].sendall(head(client, "/api/sign-in", 1000) + b"{")
            # A request that is refused before its body shows that the one before was seen.
            assert client.get("/api/session").status_code == 401

        refused = client.post("/api/sign-in", {"code": "x"})

    assert (refused.status_code, refused.json()["error"]) == (503, "unavailable")


def test_long_code_is_refused_and_costs_no_try(page_bus: Home) -> None:
    """Promise: a code of any length is a clear error."""
    answer = PageClient(page_bus).post("/api/sign-in", {"code": "x" * 500_000})

    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


@pytest.fixture(scope="module")
def reader(page_bus: Home) -> PageClient:
    """A browser that may only read."""
    client = PageClient(page_bus)
    client.sign_in("--read-only")
    return client


@pytest.mark.parametrize(
    "question",
    [
        {"what": "log", "search": "a " * 200_000},
        {"what": "log", "senders": [f"a{number}" for number in range(50_000)]},
        {"what": "log", "since": 2**63},
        {"what": "log", "until": -(2**70)},
        {"what": "seq", "ts": 2**64},
        {"what": "conversations", "find": "x" * 500_000},
        {"what": "messages", "conversation": "@" * 500_000},
    ],
    ids=lambda question: "-".join([*question]) + question["what"],
)
def test_huge_question_is_refused_before_it_is_read(reader: PageClient, question: dict[str, object]) -> None:
    """Promise: no question keeps the daemon busy or fails inside it."""
    answer = reader.post("/api/ask", question)

    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
