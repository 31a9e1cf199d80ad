"""Attacks with a token that ends while a request of it is open."""

import json
import socket
from urllib.parse import urlsplit

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person, wait_until
from tests.limits import LIMIT_S


@pytest.fixture
def open_bus(bus: Home) -> Home:
    """A bus with an HTTP door."""
    check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0"))
    return bus


@pytest.fixture
def nova(open_bus: Home) -> Shell:
    """An agent that has registered `scout`."""
    shell = open_bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def head(url: str, token: str, body: bytes) -> bytes:
    lines = (
        "POST /mcp HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "Connection: close",
        f"Content-Length: {len(body)}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def call(tool: str, **arguments: object) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def read_all(connected: socket.socket) -> bytes:
    with connected.makefile("rb") as file:
        return file.read()


def dial(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 0), timeout=LIMIT_S)


def test_request_that_has_begun_ends_with_its_token(open_bus: Home, nova: Shell) -> None:
    """Promise: a token that has ended does nothing more, also with a body that comes after its end."""
    url = open_bus.ok("status", "--json").json["doors"]["http"]
    token = nova.ok("agent", "register", "scout", "--json").json["token"]
    body = call("send", to="@nova", text="too late")

    with dial(url) as slow:
        slow.sendall(head(url, token, body) + body[:10])
        with dial(url) as quick:  # the gate has seen the first request before this one is answered
            other = body.replace(b"too late", b"in time")
            quick.sendall(head(url, token, other) + other)
            read_all(quick)
        nova.ok("agent", "revoke", "scout")
        slow.sendall(body[10:])
        read_all(slow)

    assert open_bus.texts() == ["in time"]


def test_waiting_call_ends_with_its_token(open_bus: Home, nova: Shell) -> None:
    """Promise: `pal agent revoke` ends the open requests of a token at once."""
    url = open_bus.ok("status", "--json").json["doors"]["http"]
    token = nova.ok("agent", "register", "scout", "--json").json["token"]
    folder = open_bus.path.parent / "work"
    folder.mkdir()
    nova.ok("room", "join", str(folder))
    nova.ok("stick", "claim", "--room", "work")
    joining, waiting = call("join_path", context_path=str(folder)), call("wait_for_turn", room_id="work")
    with dial(url) as first:
        first.sendall(head(url, token, joining) + joining)
        read_all(first)

    def is_waiting() -> bool:
        members = nova.ok("room", "state", "work", "--json").json["members"]
        return any(member["waiting"] for member in members)

    with dial(url) as second:
        second.sendall(head(url, token, waiting) + waiting)
        wait_until(is_waiting)
        nova.ok("agent", "revoke", "scout")
        output = read_all(second)

    assert b"who_are_you" in output
    assert not is_waiting()
