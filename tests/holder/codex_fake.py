"""A fake Codex app-server: it speaks the real protocol and is controlled by the test."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.limits import LIMIT_S
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

Fields = dict[str, Any]


def frame(data: bytes, kind: Opcode = Opcode.TEXT, *, is_last: bool = True) -> bytes:
    """Encode one frame as a server sends it."""
    return Frame(kind, data, is_last).serialize(mask=False)


class FakeCodex:
    """Answer clients, record their messages, and send them messages that the test chooses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.threads: dict[str, Fields] = {}
        self.said: list[Fields] = []
        """Every message of every client, in order."""
        self.pongs: asyncio.Queue[bytes] = asyncio.Queue()
        """The content of every reply to a ping."""
        self.refusals: dict[str, Fields] = {}
        """The error that each method is refused with."""
        self.silent: set[str] = set()
        """Methods that get no reply."""
        self.turns: dict[str, Fields] = {}
        """The newest turn of each thread, as a subscription shows it."""
        self.on_turn: Callable[[Fields], None] = self.begin_turn
        self._news = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._numbers = 0

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def close(self) -> None:
        """Close like a server that dies: every connection breaks."""
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            self._server = None

    def add_thread(self, name: str, **fields: object) -> None:
        """Add a thread that a person works in."""
        self.threads[name] = {"id": name, "ephemeral": False, "status": {"type": "idle"}, **fields}

    def release(self, method: str, **answer: object) -> None:
        """Reply to the newest unanswered request of a method: with a result, or with `error`."""
        asked = [one for one in self.said if one.get("method") == method][-1]
        self._send({"id": asked["id"], **(answer if "error" in answer else {"result": answer})})

    # Messages to the clients

    def tell(self, method: str, **params: object) -> None:
        """Send a notification, which needs no reply."""
        self._send({"method": method, "params": params})

    def ask(self, number: int, method: str, **params: object) -> None:
        """Send the clients a request that a person should answer."""
        self._send({"id": number, "method": method, "params": params})

    def set_status(self, thread: str, kind: str, *flags: str) -> None:
        """Change the status of a thread and notify the clients."""
        status: Fields = {"type": kind, **({"activeFlags": list(flags)} if kind == "active" else {})}
        self.threads[thread]["status"] = status
        self.tell("thread/status/changed", threadId=thread, status=status)

    def begin_turn(self, asked: Fields) -> None:
        """Begin a turn for a submitted text, and show the text in the thread."""
        thread = asked["threadId"]
        self.set_status(thread, "active")
        self.tell("turn/started", threadId=thread, turn={"id": self.turns[thread]["id"]})
        self.show(thread, asked["clientUserMessageId"])

    def show(self, thread: str, key: str) -> None:
        """Notify the clients that a client's text is now in a thread."""
        item = {"type": "userMessage", "id": f"item-{key}", "clientId": key, "content": []}
        self.tell("item/started", threadId=thread, item=item)

    def end_turn(self, thread: str, **turn: object) -> None:
        """End the running turn."""
        self.set_status(thread, "idle")
        self.tell("turn/completed", threadId=thread, turn={"id": self.turns[thread]["id"], **turn})

    def _send(self, message: Fields) -> None:
        for writer in self._writers:
            writer.write(frame(json.dumps(message).encode()))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        for writer in self._writers:
            writer.write(data)

    # Messages from the clients

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol()
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                protocol.receive_data(data)
                for event in protocol.events_received():
                    if isinstance(event, Request):
                        protocol.send_response(protocol.accept(event))
                        self._writers.append(writer)
                    elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                        self._hear(json.loads(bytes(event.data)), writer)
                    elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
                        self.pongs.put_nowait(bytes(event.data))
                for piece in protocol.data_to_send():
                    writer.write(piece)
        if writer in self._writers:
            self._writers.remove(writer)
        writer.transport.abort()

    def _hear(self, request: Fields, writer: asyncio.StreamWriter) -> None:
        self.said.append(request)
        self._news.set()
        if "id" not in request or "method" not in request or request["method"] in self.silent:
            return
        refusal = self.refusals.get(request["method"])
        params = request["params"]
        if refusal is None and request["method"] in ("turn/start", "turn/steer"):
            answer: Fields = {"result": self._take(request["method"], params)}
        else:
            answer = {"error": refusal} if refusal else {"result": self._answer(request["method"], params)}
        writer.write(frame(json.dumps({"id": request["id"], **answer}).encode()))
        if refusal is None and request["method"] == "turn/start":
            self.on_turn(params)

    def _take(self, method: str, params: Fields) -> Fields:
        if method == "turn/steer":
            return {"turnId": params["expectedTurnId"]}
        self._numbers += 1
        turn = {"id": f"turn-{self._numbers}", "status": "inProgress", "items": []}
        self.turns[params["threadId"]] = turn
        return {"turn": turn}

    def _answer(self, method: str, params: Fields) -> Fields:
        match method:
            case "thread/loaded/list":
                return {"data": list(self.threads)}
            case "thread/read":
                return {"thread": self.threads[params["threadId"]]}
            case "thread/resume":
                turn = self.turns.get(params["threadId"])
                page = {"data": [turn] if turn else []}
                return {"thread": self.threads[params["threadId"]], "initialTurnsPage": page}
        return {}

    async def heard(self, method: str, count: int = 1) -> Fields:
        """Wait for the `count`th message of a method and return its parameters."""
        await self.until(lambda: self.count(method) >= count)
        found = [one for one in self.said if one.get("method") == method]
        params: Fields = found[count - 1].get("params", {})
        return params

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until a condition is true; check it whenever a client sends something."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    def count(self, method: str) -> int:
        """Return how many messages of a method were received."""
        return sum(one.get("method") == method for one in self.said)

    @property
    def answers(self) -> list[Fields]:
        """Replies of the clients to requests of the server."""
        return [one for one in self.said if "method" not in one]


@asynccontextmanager
async def fake_codex(folder: Path) -> AsyncIterator[FakeCodex]:
    """Run a server for the length of a block."""
    server = FakeCodex(folder / f"codex-{os.getpid()}.sock")
    await server.open()
    try:
        yield server
    finally:
        await server.close()
