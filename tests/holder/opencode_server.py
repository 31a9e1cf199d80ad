"""A fake OpenCode server: sessions in memory, and a model that replies when the test says so."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.limits import LIMIT_S

from palaver.holder.opencode import basic_auth

PASSWORD = "a secret"


class FakeOpenCode:
    """Sessions, messages and events. Every request is recorded."""

    def __init__(self) -> None:
        self.sessions: list[dict[str, object]] = []
        self.messages: dict[str, list[dict[str, object]]] = {}
        self.statuses: dict[str, object] = {}
        self.permissions: list[dict[str, object]] = []
        self.asked: list[tuple[str, str, object]] = []
        self.prompt_status = 204
        self.messages_status = 200
        self.is_cut = False
        """Accept a text, then cut the connection instead of replying."""
        self._streams: list[asyncio.StreamWriter] = []
        self._changed = asyncio.Condition()
        self._count = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and cut every event stream."""
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        """Cut every event stream."""
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()

    def say(self, kind: str, **about: object) -> None:
        """Send an event to every listener."""
        line = f"data: {json.dumps({'type': kind, 'properties': about})}\n\n".encode()
        for stream in self._streams:
            stream.write(b"%x\r\n%b\r\n" % (len(line), line))

    def begin(self, name: str, **more: object) -> None:
        """Begin a session."""
        info = {"id": name, "time": {"created": 1, "updated": 1}, **more}
        self.sessions.append(info)
        self.messages[name] = []
        self.say("session.created", info=info)

    def answer(self, session: str) -> None:
        """Have the model reply to the newest user message of a session."""
        user = [one for one in self.messages[session] if _info(one)["role"] == "user"][-1]
        name = self._next()
        info = {"id": name, "role": "assistant", "sessionID": session, "parentID": _info(user)["id"]}
        part = {"type": "step-start", "messageID": name, "id": f"prt_{name}"}
        self.messages[session].append({"info": info, "parts": [part]})
        self.say("message.updated", sessionID=session, info=info)
        self.say("message.part.updated", sessionID=session, part=part)

    async def until_asked(self, path: str, times: int = 1) -> object:
        """Wait until a path was requested `times` times, and return the last request body."""
        async with asyncio.timeout(LIMIT_S), self._changed:
            found: list[object] = []
            while len(found) < times:
                found = [body for _, asked, body in self.asked if asked == path]
                if len(found) < times:
                    await self._changed.wait()
        return found[-1]

    def _next(self) -> str:
        self._count += 1
        return f"msg_{self._count:04}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers.get("Content-Length", 0)))
            if headers["Authorization"] != basic_auth("opencode", PASSWORD):
                await self._reply(writer, 401, None)
                return
            given = json.loads(body) if body else None
            async with self._changed:
                self.asked.append((method, path, given))
                self._changed.notify_all()
            if path == "/event":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                self._streams.append(writer)
                self.say("server.connected")
                return
            await self._reply(writer, *self._do(method, path, given))

    def _do(self, method: str, path: str, given: object) -> tuple[int, object]:
        if method == "POST" and path == "/session":
            self.begin("ses_new")
            return 200, self.sessions[-1]
        if path.endswith("/prompt_async"):
            return self._prompt(path.split("/")[2], given), None
        known: dict[str, object] = {
            "/session": self.sessions,
            "/session/status": self.statuses,
            "/permission": self.permissions,
            "/question": [],
        }
        if path.startswith("/session/") and "/message" in path:
            return self.messages_status, self.messages.get(path.split("/")[2], [])
        return 200, known.get(path, {})

    def _prompt(self, session: str, given: object) -> int:
        if self.prompt_status != 204 or session not in self.messages:
            return self.prompt_status if self.prompt_status != 204 else 404
        assert isinstance(given, dict)
        name = self._next()
        info = {"id": name, "role": "user", "sessionID": session, "agent": given.get("agent", "build")}
        parts = [{**part, "messageID": name} for part in given["parts"]]
        self.messages[session].append({"info": info, "parts": parts})
        self.say("message.updated", sessionID=session, info=info)
        for part in parts:
            self.say("message.part.updated", sessionID=session, part=part)
        return 0 if self.is_cut else 204

    async def _reply(self, writer: asyncio.StreamWriter, status: int, answer: object) -> None:
        if status:
            body = b"" if answer is None else json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            await writer.drain()
        writer.close()


def _info(message: dict[str, object]) -> dict[str, object]:
    info = message["info"]
    assert isinstance(info, dict)
    return info


@asynccontextmanager
async def fake_opencode() -> AsyncIterator[FakeOpenCode]:
    """Yield a listening server; close it with the block."""
    server = FakeOpenCode()
    await server.listen()
    try:
        yield server
    finally:
        await server.close()
