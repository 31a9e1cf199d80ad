"""The client of an app-server: replies match their requests, and requests of the server get no reply."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.holder.codex_fake import FakeCodex, fake_codex, frame
from tests.limits import LIMIT_S

from palaver.errors import Disconnected
from palaver.harness.codex import threads as wire
from palaver.harness.codex.integration import CodexClient, Refused
from palaver.holder.integration import connect_codex

APPROVALS = (
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
    "applyPatchApproval",
    "execCommandApproval",
)


class Ear:
    """Collects the callbacks of a client."""

    def __init__(self, server: FakeCodex) -> None:
        self.news: asyncio.Queue[wire.CodexMessage] = asyncio.Queue()
        self.ends: asyncio.Queue[Disconnected] = asyncio.Queue()
        self.client = CodexClient(connect_codex(server.path), "1", self.news.put_nowait, self.ends.put_nowait)


class SilentSocket:
    """A connection to a server that never replies."""

    is_closed = False

    async def connect(
        self, on_text: Callable[[bytes], None], on_lost: Callable[[Disconnected], None]
    ) -> "SilentSocket":
        self.on_lost = on_lost
        return self

    def send(self, text: bytes) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


async def test_client_introduces_itself_first(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        await Ear(server).client.open()
        await server.heard("initialized")

        assert [one["method"] for one in server.said] == ["initialize", "initialized"]
        assert server.said[0]["params"]["clientInfo"]["name"] == "palaver"
        assert server.said[0]["params"]["capabilities"] == {"experimentalApi": True}


async def test_reply_matches_its_request(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        server.add_thread("one")
        ear = Ear(server)
        await ear.client.open()

        loaded, read = await asyncio.gather(
            ear.client.ask(*wire.list_loaded()), ear.client.ask(*wire.read_thread("one"))
        )

        assert wire.result_as(loaded, wire.LoadedThreads).data == ["one"]
        assert wire.result_as(read, wire.ThreadRead).thread.id == "one"


async def test_refusal_contains_the_reason(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        server.refusals["turn/steer"] = {"code": -32600, "message": "no active turn to steer"}
        server.refusals["turn/start"] = {"code": -32601, "message": ""}
        ear = Ear(server)
        await ear.client.open()

        with pytest.raises(Refused, match="no active turn") as steered:
            await ear.client.ask(*wire.steer_turn("one", "t", "x", "k"))
        with pytest.raises(Refused, match="without a reason") as started:
            await ear.client.ask(*wire.start_turn("one", "x", "k"))

        assert (steered.value.is_unknown, started.value.is_unknown) == (False, True)


@pytest.mark.parametrize("method", APPROVALS)
async def test_question_for_a_person_is_never_answered(tmp_path: Path, method: str) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear(server)
        await ear.client.open()

        server.ask(0, method, threadId="one", command="rm -r /")
        news = await ear.news.get()
        await ear.client.ask(*wire.list_loaded())  # a reply would have arrived before this request

        assert news.is_question
        assert server.answers == []


async def test_unreadable_message_is_skipped(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear(server)
        await ear.client.open()

        server.send_raw(frame(b"{not json"))
        server.send_raw(frame(b'{"id": 77, "result": {}}'))
        server.tell("thread/closed", threadId="one")

        assert (await ear.news.get()).method == "thread/closed"


async def test_requests_to_a_lost_server_fail(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        server.silent.add("turn/start")
        ear = Ear(server)
        await ear.client.open()
        asking = asyncio.create_task(ear.client.ask(*wire.start_turn("one", "x", "k")))
        await server.heard("turn/start")

        await server.close()

        with pytest.raises(Disconnected):
            await asking
        with pytest.raises(Disconnected):
            await ear.client.ask(*wire.list_loaded())
        assert isinstance(await ear.ends.get(), Disconnected)


async def test_request_without_a_reply_ends_the_connection_once() -> None:
    socket = SilentSocket()
    ends: list[Disconnected] = []
    client = CodexClient(socket.connect, "1", lambda news: None, ends.append, reply_limit_s=0.001)

    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Disconnected, match="did not reply to initialize"):
            await client.open()
    socket.on_lost(Disconnected("closed"))

    assert socket.is_closed
    assert [str(end) for end in ends] == ["the app-server did not reply to initialize within 0.001 s"]
    with pytest.raises(Disconnected, match="has ended"):
        await client.ask(*wire.list_loaded())
