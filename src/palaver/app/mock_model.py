"""A scripted model: its replies, their order, and the HTTP interfaces of the providers it stands in for."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import MappingProxyType
from typing import Final

# --------------------
# The replies of the scripted model, and their order. Knows no wire.
#
# A script is a list of replies, one per main request: a request that offers tools. Side requests, such as for
# titles, are answered separately. Rules are tried first.

HOLD_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedToolCall:
    """One call of a tool. `namespace` is for wires that have one."""

    tool: str
    input: Mapping[str, object] = field(default_factory=dict)
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply of the model: a text, then tools to call."""

    text: str = ""
    calls: tuple[ScriptedToolCall, ...] = ()
    gate: str = ""
    """Only the beginning is sent until this gate is opened: until then the model is busy."""
    awaits: str = ""
    """Held back until a request contains this text. Until then `pastime` replies."""
    status: int = 0
    """Reply with an HTTP error instead, and `body`."""
    body: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A reply for requests that match a pattern, up to `times` times."""

    pattern: str
    reply: ScriptedReply
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came in."""

    wire: str
    is_main: bool
    body: Mapping[str, object]
    text: str
    """The whole body as on the wire."""

    @property
    def conversation(self) -> str:
        """The input of the model, as JSON without escapes."""
        for name in ("messages", "input", "contents"):
            if name in self.body:
                return json.dumps(self.body[name], ensure_ascii=False)
        return ""


class Script:
    """The remaining replies, and every request so far. Thread-safe."""

    def __init__(self, replies: Sequence[ScriptedReply] = (), rules: Sequence[Rule] = ()) -> None:
        self._changed = threading.Condition()
        self._replies = list(replies)
        self._rules = [[rule, rule.times] for rule in rules]
        self._opened: set[str] = set()
        self._requests: list[Request] = []
        self._pastimes = 0
        self.default = ScriptedReply(text="done")
        self.pastime: Callable[[int], ScriptedReply] = lambda number: self.default
        """Replies while a reply awaits its text: a tool call, or the end of the turn."""
        self.aside = ScriptedReply(text="mock")

    def take(self, request: Request) -> ScriptedReply:
        """Choose the reply to a request."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
            for entry in self._rules:
                rule, left = entry
                assert isinstance(rule, Rule)
                assert isinstance(left, int)
                if left and re.search(rule.pattern, request.text):
                    entry[1] = left - 1
                    return rule.reply
            if not request.is_main:
                return self.aside
            if not self._replies:
                return self.default
            if self._replies[0].awaits not in request.text:
                self._pastimes += 1
                return self.pastime(self._pastimes)
            return self._replies.pop(0)

    def add(self, *replies: ScriptedReply) -> None:
        """Add replies after the remaining ones."""
        with self._changed:
            self._replies.extend(replies)

    def add_rules(self, *rules: Rule) -> None:
        """Add rules after the existing ones."""
        with self._changed:
            self._rules.extend([rule, rule.times] for rule in rules)

    def open(self, gate: str) -> None:
        """Release a reply that waits at a gate, now or later."""
        with self._changed:
            self._opened.add(gate)
            self._changed.notify_all()

    def wait_at(self, gate: str, limit_s: float) -> bool:
        """Wait until a gate is opened; False after a timeout. Passing an open gate closes it."""
        with self._changed:
            is_open = self._changed.wait_for(lambda: gate in self._opened, limit_s)
            self._opened.discard(gate)
            return is_open

    @property
    def main(self) -> list[Request]:
        """The main requests so far."""
        with self._changed:
            return [request for request in self._requests if request.is_main]

    def wait_for_main(self, count: int, limit_s: float) -> list[Request]:
        """Wait for this number of main requests; return the requests so far after a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: sum(one.is_main for one in self._requests) >= count, limit_s)
        return self.main


# --------------------
# The wires between harnesses and models, as far as needed: from a reply to the messages sent. Pure.
#
# Each returns the messages to send at once, and those that follow when the model continues. `ids` draws
# numbered ids instead of random ones.

Ids = Callable[[str], str]
"""Returns a new id with this prefix."""
Message = tuple[str, Mapping[str, object] | str]
"""The name of an event (may be empty) and its content."""

_TOKENS_IN: Final = 100
_TOKENS_OUT: Final = 10


@dataclass(frozen=True, slots=True)
class ScriptedStream:
    """The messages to send at once, and those that follow."""

    first: tuple[Message, ...]
    rest: tuple[Message, ...]


def anthropic(body: Mapping[str, object], reply: ScriptedReply, ids: Ids) -> ScriptedStream:
    """Anthropic Messages, as a stream of events."""
    blocks: list[dict[str, object]] = []
    if reply.text or not reply.calls:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": ids("toolu_"), "name": call.tool, "input": dict(call.input)})
    message = {
        "id": ids("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "mock"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": _TOKENS_IN, "output_tokens": 1},
    }
    end = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": _TOKENS_IN, "output_tokens": _TOKENS_OUT}
    rest = [one for index, block in enumerate(blocks) for one in _anthropic_block(index, block)]
    rest.append({"type": "message_delta", "delta": end, "usage": usage})
    rest.append({"type": "message_stop"})
    first = {"type": "message_start", "message": message}
    return ScriptedStream((_typed(first),), tuple(map(_typed, rest)))


def _anthropic_block(index: int, block: Mapping[str, object]) -> Iterator[dict[str, object]]:
    empty, delta = {"text": ""}, {"type": "text_delta", "text": block.get("text", "")}
    if block["type"] == "tool_use":
        empty, delta = {}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        block = {**block, "input": {}}
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def responses(body: Mapping[str, object], reply: ScriptedReply, ids: Ids) -> ScriptedStream:
    """OpenAI Responses, as a stream of events."""
    items: list[dict[str, object]] = []
    if reply.text or not reply.calls:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        items.append(_item("message", ids("msg_"), role="assistant", content=content))
    for call in reply.calls:
        item = _item("function_call", ids("fc_"), call_id=ids("call_"), name=call.tool)
        item["arguments"] = json.dumps(dict(call.input))
        items.append({**item, "namespace": call.namespace} if call.namespace else item)
    base: dict[str, object] = {
        "id": ids("resp_"),
        "object": "response",
        "created_at": 0,
        "model": body.get("model", "mock"),
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tools": [],
        "usage": None,
    }
    usage = {
        "input_tokens": _TOKENS_IN,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": _TOKENS_OUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _TOKENS_IN + _TOKENS_OUT,
    }
    first: list[dict[str, object]] = [{"type": "response.created", "response": base}]
    first.append({"type": "response.in_progress", "response": base})
    rest = [one for index, item in enumerate(items) for one in _responses_item(index, item)]
    whole = {**base, "status": "completed", "output": items, "usage": usage}
    rest.append({"type": "response.completed", "response": whole})
    numbered = [{**one, "sequence_number": number} for number, one in enumerate((*first, *rest))]
    return ScriptedStream(
        tuple(map(_typed, numbered[: len(first)])),
        tuple(map(_typed, numbered[len(first) :])),
    )


def _item(kind: str, id: str, **fields: object) -> dict[str, object]:
    return {"type": kind, "id": id, "status": "completed", **fields}


def _responses_item(index: int, item: Mapping[str, object]) -> Iterator[dict[str, object]]:
    where = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        content = item["content"]
        assert isinstance(content, list)
        part = content[0]
        yield _event("output_item.added", output_index=index, item={**item, "content": []})
        empty = {**part, "text": ""}
        yield _event("content_part.added", **where, content_index=0, part=empty)
        yield _event("output_text.delta", **where, content_index=0, delta=part["text"])
        yield _event("output_text.done", **where, content_index=0, text=part["text"])
        yield _event("content_part.done", **where, content_index=0, part=part)
    else:
        yield _event("output_item.added", output_index=index, item={**item, "arguments": ""})
        yield _event("function_call_arguments.delta", **where, delta=item["arguments"])
        yield _event("function_call_arguments.done", **where, arguments=item["arguments"])
    yield _event("output_item.done", output_index=index, item=item)


def _event(kind: str, **fields: object) -> dict[str, object]:
    return {"type": f"response.{kind}", **fields}


def chat(body: Mapping[str, object], reply: ScriptedReply, ids: Ids) -> ScriptedStream:
    """OpenAI Chat Completions, as a stream of chunks."""
    base = {
        "id": ids("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body.get("model", "mock"),
    }
    usage = {
        "prompt_tokens": _TOKENS_IN,
        "completion_tokens": _TOKENS_OUT,
        "total_tokens": _TOKENS_IN + _TOKENS_OUT,
    }

    def chunk(delta: Mapping[str, object], finish: str | None = None) -> Message:
        return "", {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    rest = [chunk({"content": reply.text})] if reply.text or not reply.calls else []
    for index, call in enumerate(reply.calls):
        function = {"name": call.tool, "arguments": json.dumps(dict(call.input))}
        called = {"index": index, "id": ids("call_"), "type": "function", "function": function}
        rest.append(chunk({"tool_calls": [called]}))
    rest.append(chunk({}, "tool_calls" if reply.calls else "stop"))
    rest.append(("", {**base, "choices": [], "usage": usage}))
    return ScriptedStream((chunk({"role": "assistant", "content": ""}),), (*rest, ("", "[DONE]")))


def gemini(body: Mapping[str, object], reply: ScriptedReply, ids: Ids) -> ScriptedStream:
    """Gemini streamGenerateContent, as a stream of chunks."""
    usage = {
        "promptTokenCount": _TOKENS_IN,
        "candidatesTokenCount": _TOKENS_OUT,
        "totalTokenCount": _TOKENS_IN + _TOKENS_OUT,
    }

    def chunk(part: Mapping[str, object], finish: str = "") -> Message:
        candidate: dict[str, object] = {"index": 0, "content": {"role": "model", "parts": [part]}}
        if finish:
            candidate["finishReason"] = finish
        return "", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "mock"}

    rest = [chunk({"text": reply.text})] if reply.text or not reply.calls else []
    for call in reply.calls:
        called = {"id": ids("fc_"), "name": call.tool, "args": dict(call.input)}
        rest.append(chunk({"functionCall": called, "thoughtSignature": "bW9jaw=="}))
    return ScriptedStream((), (*rest, chunk({"text": ""}, "STOP")))


def gemini_whole(stream: ScriptedStream) -> Mapping[str, object]:
    """The same as one reply of Gemini generateContent."""
    parts: list[object] = []
    whole: dict[str, object] = {}
    for _, chunk in (*stream.first, *stream.rest):
        assert isinstance(chunk, dict)  # as they are built above
        parts += chunk["candidates"][0]["content"]["parts"]
        whole = dict(chunk)
    answer = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {**whole, "candidates": [answer]}


def _typed(event: Mapping[str, object]) -> Message:
    return str(event["type"]), event


WIRES: Final[Mapping[str, Callable[[Mapping[str, object], ScriptedReply, Ids], ScriptedStream]]] = {
    "anthropic": anthropic,
    "responses": responses,
    "chat": chat,
    "gemini": gemini,
}

# --------------------
# The scripted model as a server on loopback: one port, four wires. Decides nothing.

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
        # The server makes a new handler for each connection, so the shared parts are in its class.
        handler = type("_Handler", (_Caller,), {"script": self.script, "numbers": count(1)})
        self._server = _ModelServer(("127.0.0.1", 0), handler)
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


class _ModelServer(ThreadingHTTPServer):
    # A harness may keep a connection open indefinitely, and its thread must not delay the end of the process.
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a harness that disconnects early."""


class _Caller(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # A reply in chunks needs it.
    # Otherwise a small chunk could wait until the one before it is acknowledged.
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

    def _reply(self, request: Request, reply: ScriptedReply) -> None:
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
