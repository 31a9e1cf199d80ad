"""Parsing of lines as messages or errors, and clients that disconnect early."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from mcp_types import CallToolRequestParams, CallToolResult
from tests.limits import LIMIT_S

from palaver.daemon.daemon import GuardedTasks
from palaver.doors.mcp.server import LIMIT_UNREAD, Call, McpSession, make_server
from palaver.doors.tools import TOOLS, ToolResult
from palaver.protocol.thin import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, BadLine


@pytest.mark.parametrize("id", ["1", '"a"', "123456789012345678901234567890"])
def test_request_id_is_text_or_a_whole_number(id: str) -> None:
    message = McpSession.read(f'{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}'.encode())

    assert getattr(message, "method", "") == "tools/list"


@pytest.mark.parametrize("id", ["1.5", "null", "true", "[]", '{"a":1}'])
def test_request_with_another_id_is_refused_and_not_a_notification(id: str) -> None:
    message = McpSession.read(f'{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}'.encode())

    assert isinstance(message, BadLine)
    assert message.code == INVALID_REQUEST
    assert "a whole number" in message.sentence


def test_message_without_an_id_is_a_notification() -> None:
    message = McpSession.read(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    assert not isinstance(message, BadLine)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (b"{", PARSE_ERROR, "is not JSON"),
        (b'{"jsonrpc":"2.0","method":"x","params":{"a":NaN}}', PARSE_ERROR, "is not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":-Infinity}}', PARSE_ERROR, "is not JSON"),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"x"}', PARSE_ERROR, "is not JSON"),
        (b"[]", INVALID_REQUEST, "is not a JSON-RPC"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', INVALID_REQUEST, "is not a JSON-RPC"),
        (b'{"jsonrpc":"2.0","id":1,"params":' + b"[" * 999 + b"]" * 999 + b"}", INVALID_REQUEST, "deeply"),
        (rb'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\ud800b"}}', INVALID_PARAMS, "bad_text"),
        (rb'{"jsonrpc":"2.0","id":1,"method":"x","params":{"\udc00":[]}}', INVALID_PARAMS, "bad_text"),
        (rb'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\ud800b"}', PARSE_ERROR, "is not JSON"),
        (rb'{"a":"\ud800b","b":' + b"[" * 99_000 + b"]" * 99_000 + b"}", PARSE_ERROR, "is not JSON"),
    ],
    ids=[
        "half",
        "NaN in a notification",
        "infinity",
        "NaN as the id",
        "list",
        "method",
        "deep",
        "half pair",
        "half pair in a name",
        "half of both",
        "deep pair",
    ],
)
def test_invalid_message_is_refused_with_the_reason(line: bytes, code: int, words: str) -> None:
    message = McpSession.read(line)

    assert isinstance(message, BadLine)
    assert message.code == code
    assert words in message.sentence


def test_surrogate_pair_and_escaped_backslash_are_normal_text() -> None:
    for text in (rb"\ud83d\ude00", rb"\\ud800"):
        message = McpSession.read(rb'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"' + text + rb'"}}')

        assert not isinstance(message, BadLine)


HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "nova", "version": "1"},
}


@pytest.mark.parametrize("steps", range(12))
async def test_client_that_disconnects_early_causes_no_error(
    steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def call(context: object, params: object) -> ToolResult:
        raise AssertionError("no tool is called here")

    async with GuardedTasks() as tasks:
        session = McpSession("1", (), call, lambda line, id: None, tasks)
        session.restore(HANDSHAKE)
        for _ in range(steps):
            await asyncio.sleep(0)

        session.close()

    assert caplog.text == ""


async def test_session_has_no_room_until_its_server_has_read_the_messages() -> None:
    async def call(context: object, params: object) -> ToolResult:
        raise AssertionError("no tool is called here")

    has_read, seen = asyncio.Event(), 0

    def on_room() -> None:
        nonlocal seen
        seen += 1
        if seen == LIMIT_UNREAD + 2:
            has_read.set()

    async with GuardedTasks() as tasks:
        session = McpSession("1", (), call, lambda line, id: None, tasks, on_room)
        session.restore(HANDSHAKE)  # these are two messages
        message = McpSession.read(b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
        assert not isinstance(message, BadLine)

        rooms = []
        for _ in range(LIMIT_UNREAD):
            rooms.append(session.has_room)
            session.take(message)
        async with asyncio.timeout(LIMIT_S):
            await has_read.wait()

        assert rooms == [True] * (LIMIT_UNREAD - 2) + [False] * 2
        assert session.has_room
        session.close()


class FakeCalls:
    """The session of a call, which records its reports."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def report_progress(self, progress: float, message: str) -> None:
        self.reports.put_nowait((progress, message))


@dataclass
class FakeContext:
    session: FakeCalls
    meta: dict[str, object] | None


def handler_of(call: Call) -> Callable[[FakeContext, CallToolRequestParams], Awaitable[CallToolResult]]:
    entry = make_server("1", TOOLS, call, progress_s=0.001).get_request_handler("tools/call")
    assert entry is not None
    return entry.handler  # type: ignore[return-value]  # the fake has what is used


async def test_waiting_call_reports_until_it_ends() -> None:
    calls, is_over = FakeCalls(), asyncio.Event()

    async def call(context: object, params: object) -> ToolResult:
        await is_over.wait()
        return ToolResult({"status": "your_turn"})

    context = FakeContext(calls, {"progress_token": 7})
    waiting = asyncio.create_task(
        _as_coroutine(handler_of(call)(context, CallToolRequestParams(name="wait_for_turn")))
    )
    async with asyncio.timeout(LIMIT_S):
        first, second, third = [await calls.reports.get() for _ in range(3)]
    is_over.set()
    result = await waiting

    assert list(first) == [0, "wait_for_turn has waited for 0 s"]
    assert 0 < second[0] < third[0]
    assert "your_turn" in str(result.content)


@pytest.mark.parametrize(
    ("tool", "meta"),
    [("wait_for_turn", None), ("wait_for_turn", {"threadId": "t"}), ("inbox", {"progress_token": 7})],
)
async def test_call_without_a_token_or_a_wait_reports_nothing(
    tool: str, meta: dict[str, object] | None
) -> None:
    async def call(context: object, params: object) -> ToolResult:
        return ToolResult({})

    calls = FakeCalls()
    await handler_of(call)(FakeContext(calls, meta), CallToolRequestParams(name=tool))

    assert calls.reports.empty()


async def test_cancelled_wait_stops_its_reports() -> None:
    calls = FakeCalls()

    async def call(context: object, params: object) -> ToolResult:
        await asyncio.Event().wait()
        return ToolResult({})

    before = asyncio.all_tasks()
    context = FakeContext(calls, {"progress_token": 7})
    waiting = asyncio.create_task(
        _as_coroutine(handler_of(call)(context, CallToolRequestParams(name="wait_for_events")))
    )
    async with asyncio.timeout(LIMIT_S):
        await calls.reports.get()
        waiting.cancel()
        await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert asyncio.all_tasks() == before


async def _as_coroutine(result: Awaitable[CallToolResult]) -> CallToolResult:
    return await result
