"""The scripted model as a server on loopback: one port, four wires. Decides nothing."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import MappingProxyType
from typing import Final

from palaver.cli.mock_model.script import HOLD_LIMIT_S, Reply, Request, Script
from palaver.cli.mock_model.wires import WIRES, Message, gemini_whole

_ROUTES: Final = (
    (re.compile(r"/messages\Z"), "anthropic"),
    (re.compile(r"/responses\Z"), "responses"),
    (re.compile(r"/chat/completions\Z"), "chat"),
    (re.compile(r":(?:streamG|g)enerateContent\Z"), "gemini"),
)
_WHOLE: Final = ":generateContent"
"""Requests a reply in one piece."""
_COUNTS: Final = {"/count_tokens": "input_tokens", ":countTokens": "totalTokens"}
_MODELS: Final = {
    "object": "list",
    "data": [{"id": "mock-model", "object": "model", "type": "model", "display_name": "mock"}],
    "models": [],
    "has_more": False,
}
_BREATH_S: Final = 0.5
"""Seconds between signs of life while a reply waits: harnesses take silence as a broken connection."""


class MockModel:
    """A model that follows its script."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        handler = type("_Handler", (_Caller,), {"script": self.script, "numbers": count(1)})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL at which it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def mock_model(script: Script | None = None) -> Iterator[MockModel]:
    """Run a model for the length of a block."""
    model = MockModel(script)
    try:
        yield model
    finally:
        model.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a harness that disconnects early."""


class _Caller(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    script: Script
    numbers: Iterator[int]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing to standard error."""

    def do_GET(self) -> None:
        self._json(_MODELS if self._path.rstrip("/").endswith("models") else {}, 200)

    def do_HEAD(self) -> None:
        self._json({}, 200)

    def do_POST(self) -> None:
        text = self._body()
        for end, name in _COUNTS.items():
            if self._path.endswith(end):
                self._json({name: max(1, len(text) // 4)}, 200)
                return
        wire = next((wire for pattern, wire in _ROUTES if pattern.search(self._path)), "")
        if not wire:
            self._json({"error": {"type": "not_found_error", "message": f"no route {self._path}"}}, 404)
            return
        try:
            body = json.loads(text)
        except ValueError:
            body = {}
        request = Request(wire=wire, is_main=bool(body.get("tools")), body=body, text=text)
        self._reply(request, self.script.take(request))

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _body(self) -> str:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            parts = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts).decode("utf-8", "replace")
        return self.rfile.read(int(self.headers.get("content-length") or 0)).decode("utf-8", "replace")

    def _reply(self, request: Request, reply: Reply) -> None:
        if reply.status:
            self._json(reply.body, reply.status, reply.headers)
            return
        stream = WIRES[request.wire](request.body, reply, lambda prefix: f"{prefix}{next(self.numbers):024d}")
        if self._path.endswith(_WHOLE):
            self.script.wait_at(reply.gate, HOLD_LIMIT_S if reply.gate else 0)
            self._json(gemini_whole(stream), 200)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for message in stream.first:
            self._event(message)
        if reply.gate:
            self._hold(request.wire, reply.gate)
        for message in stream.rest:
            self._event(message)
        self._chunk("")

    def _hold(self, wire: str, gate: str) -> None:
        for _ in range(int(HOLD_LIMIT_S / _BREATH_S)):
            if self.script.wait_at(gate, _BREATH_S):
                return
            if wire == "anthropic":
                self._event(("ping", {"type": "ping"}))
            elif wire != "gemini":  # its reader fails on a comment
                self._chunk(": \n\n")

    def _event(self, message: Message) -> None:
        name, content = message
        head = f"event: {name}\n" if name else ""
        data = content if isinstance(content, str) else json.dumps(content)
        self._chunk(f"{head}data: {data}\n\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(
        self, content: Mapping[str, object], status: int, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
