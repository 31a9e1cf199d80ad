"""Three clients of the WebSocket that know only the document of the path broker.

One uses Python's `websockets`, one Node's `ws`, and one is a page in Chromium. The last two run in another
process and are steered by the tests: each does what a command says and reports what happened.
"""

import json
import os
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, cast

import pytest
from tests.harness.real.install import CannotInstall, install_package, node_program
from tests.limits import LIMIT_S
from tests.processes import end_processes_of
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

WS_VERSION: Final = "8.22.2"
CONSOLE: Final = "console.test"
"""The host name of the page: that of a proxy, which the setting `http_hosts` of the bus contains."""
FOREIGN: Final = "foreign.test"
"""The host name of the same page on a server that the bus does not know."""

HERE: Final = Path(__file__).parent
Frame = dict[str, Any]


class Refused(Exception):
    """The upgrade was refused. A browser does not tell a page the status."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"refused with {status}")
        self.status = status


class Link(Protocol):
    """One open connection."""

    def send(self, text: str | bytes) -> None:
        """Send one text frame, or a binary frame."""

    def read(self) -> str:
        """Return the next text frame. Raises EOFError if the connection is closed instead."""

    def closed(self) -> tuple[int, str]:
        """Wait until the connection is closed by the server. Return the code and the reason."""

    def close(self) -> None:
        """Close the connection."""


class Client(Protocol):
    """A program that opens connections."""

    @property
    def url(self) -> str:
        """The URL of the WebSocket for this client. Another one after a restart of the daemon."""

    def open(self, url: str | None = None, **headers: str) -> Link:
        """Open a connection. Raises Refused. A page cannot set headers."""


# Python


class PythonLink:
    """A connection of `websockets`."""

    def __init__(self, connection: ClientConnection, close: Callable[[], None]) -> None:
        self._connection = connection
        self.close = close

    def send(self, text: str | bytes) -> None:
        self._connection.send(text)

    def read(self) -> str:
        try:
            return cast(str, self._connection.recv(LIMIT_S))
        except ConnectionClosed as closed:
            raise EOFError(str(closed)) from closed

    def closed(self) -> tuple[int, str]:
        with suppress(EOFError):
            while True:
                self.read()
        return self._connection.close_code or 0, self._connection.close_reason or ""


class PythonClient:
    """`websockets` in the process of the tests."""

    def __init__(self, find_url: Callable[[], str]) -> None:
        self._find_url = find_url

    @property
    def url(self) -> str:
        return self._find_url()

    def open(self, url: str | None = None, **headers: str) -> Link:
        stack = ExitStack()
        try:
            made = connect(
                url or self.url, additional_headers=headers, open_timeout=LIMIT_S, proxy=None, max_size=None
            )
            return PythonLink(stack.enter_context(made), stack.close)
        except InvalidStatus as refused:
            raise Refused(refused.response.status_code) from None


# Clients in another process


class SteeredLink:
    """A connection of a client that the tests steer."""

    def __init__(self, link_id: int, command: Callable[[Frame], None]) -> None:
        self._id = link_id
        self._command = command
        self.events: queue.Queue[Frame] = queue.Queue()

    def send(self, text: str | bytes) -> None:
        if isinstance(text, bytes):
            self._command({"do": "binary", "id": self._id, "text": text.decode()})
        else:
            self._command({"do": "text", "id": self._id, "text": text})

    def next(self) -> Frame:
        """Return the next event. Raises queue.Empty after the limit."""
        return self.events.get(timeout=LIMIT_S)

    def read(self) -> str:
        event = self.next()
        if event["event"] == "close":
            self.events.put(event)
            raise EOFError(f"closed with {event['code']} {event['reason']}")
        assert event["event"] == "text", event
        return cast(str, event["text"])

    def closed(self) -> tuple[int, str]:
        while (event := self.next())["event"] != "close":
            pass
        return event["code"], event["reason"]

    def close(self) -> None:
        self._command({"do": "close", "id": self._id})


class SteeredClient:
    """The part that Node and the page share: numbered links, and events that belong to one of them."""

    def __init__(self, find_url: Callable[[], str], command: Callable[[Frame], None]) -> None:
        self._find_url = find_url
        self._command = command
        self._ids = count(1)
        self._links: dict[int, SteeredLink] = {}

    @property
    def url(self) -> str:
        return self._find_url()

    def take(self, event: Frame) -> None:
        """Take an event of the other process."""
        self._links[event["id"]].events.put(event)

    def open(self, url: str | None = None, **headers: str) -> Link:
        link_id = next(self._ids)
        link = self._links[link_id] = SteeredLink(link_id, self._command)
        self._command({"do": "open", "id": link_id, "url": url or self.url, "headers": headers})
        event = link.next()
        if event["event"] == "open":
            return link
        raise Refused(event.get("status"))


@contextmanager
def node_client(find_url: Callable[[], str]) -> Iterator[Client]:
    """Start a client of Node's `ws`, or skip the test."""
    try:
        folder, node = install_package("ws", WS_VERSION), node_program()
    except CannotInstall as error:
        pytest.skip(f"NOT TESTED: THE WEBSOCKET WITH A CLIENT OF NODE: {error}")
    process = subprocess.Popen(
        [str(node), str(HERE / "client_node.mjs"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin as stdin, process.stdout as stdout:

        def command(frame: Frame) -> None:
            stdin.write(json.dumps(frame) + "\n")
            stdin.flush()

        client = SteeredClient(find_url, command)

        def read() -> None:
            for line in stdout:
                client.take(json.loads(line))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield client
        finally:
            stdin.close()
            reader.join(LIMIT_S)
            process.wait(LIMIT_S)


# The page


class _Site(ThreadingHTTPServer):
    """A server of the page, and a proxy that passes `/ws` on to the bus with the Host of the browser."""

    daemon_threads = True

    def __init__(self, find_door: Callable[[], tuple[str, int]]) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.find_door = find_door
        self.commands: queue.Queue[Frame] = queue.Queue()
        self.take: Callable[[Frame], None] = lambda _: None


class _Visit(BaseHTTPRequestHandler):
    server: _Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/ws":
            self._pass_on()
        elif self.path == "/command":
            self._reply(json.dumps(self.server.commands.get()).encode(), "application/json")
        elif self.path == "/":
            self._reply((HERE / "client_page.html").read_bytes(), "text/html")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.server.take(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._reply(b"{}", "application/json")

    def _reply(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _pass_on(self) -> None:
        """Connect the browser with the bus, as a proxy does: the head is passed on unchanged."""
        self.close_connection = True
        with suppress(OSError), socket.create_connection(self.server.find_door()) as bus:
            bus.sendall(
                f"{self.requestline}\r\n{str(self.headers).replace(chr(10), chr(13) + chr(10))}".encode()
            )
            back = threading.Thread(target=_pump, args=(bus, self.connection), daemon=True)
            back.start()
            _pump(self.connection, bus)
            back.join(LIMIT_S)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(1 << 16):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)


class Page:
    """A page that is open in a browser."""

    def __init__(self, site: _Site, host: str) -> None:
        self.port = site.server_address[1]
        self.host = host
        self.client = SteeredClient(lambda: f"ws://{host}:{self.port}/ws", site.commands.put)
        site.take = self.client.take


@contextmanager
def opened_page(find_door: Callable[[], tuple[str, int]], host: str = CONSOLE) -> Iterator[Page]:
    """Serve the page under a host name and open it in Chromium, or skip the test."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("NOT TESTED: THE WEBSOCKET WITH A PAGE IN A BROWSER: chromium is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pal-page-"))
    with _Site(find_door) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        page = Page(site, host)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    "--headless",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",  # small in a container
                    "--disable-background-networking",
                    "--disable-component-update",
                    "--no-first-run",
                    "--no-proxy-server",
                    *(["--no-sandbox"] if os.geteuid() == 0 else []),  # it refuses to run as root otherwise
                    f"--user-data-dir={folder}",
                    "--host-resolver-rules=MAP *.test 127.0.0.1",
                    f"http://{host}:{page.port}/",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield page
        finally:
            process.terminate()
            process.wait(LIMIT_S)
            end_processes_of(folder)
            site.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
