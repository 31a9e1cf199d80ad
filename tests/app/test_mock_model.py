"""The scripted model: every wire format is readable by its clients, and a gate keeps it busy."""

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.limits import LIMIT_S

from palaver.app.mock_model import (
    MockModel,
    Request,
    Rule,
    Script,
    ScriptedReply,
    ScriptedToolCall,
    mock_model,
)

PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse",
}
CALL = ScriptedToolCall(tool="Bash", input={"command": "ls"})


def post(model: MockModel, path: str, body: object) -> tuple[int, str]:
    request = urllib.request.Request(model.url + path, json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def events(stream: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("wire", PATHS)
def test_every_wire_format_carries_text_and_tool_calls(wire: str) -> None:
    script = Script([ScriptedReply(text="hello there", calls=(CALL,)), ScriptedReply(text="done")])
    with mock_model(script) as model:
        first = post(model, PATHS[wire], {"tools": [{}], "messages": [{"content": "hi"}]})[1]
        second = post(model, PATHS[wire], {"tools": [{}]})[1]

    assert all(events(first))
    assert "hello there" in first
    assert "Bash" in first
    assert "done" in second
    assert "Bash" not in second


def test_reply_waits_for_a_request_with_the_awaited_text() -> None:
    script = Script([ScriptedReply(text="now I know", awaits="the news"), ScriptedReply(text="after")])
    script.pastime = lambda number: ScriptedReply(text=f"waiting {number}")

    replies = [
        script.take(Request(wire="chat", is_main=True, body={}, text=text)).text
        for text in ("nothing", "still nothing", "here is the news", "and so on")
    ]

    assert replies == ["waiting 1", "waiting 2", "now I know", "after"]


def test_side_requests_use_no_reply_and_rules_have_precedence() -> None:
    script = Script(
        [ScriptedReply(text="main")], [Rule(pattern="special", reply=ScriptedReply(text="by a rule"))]
    )

    def ask(text: str, *, is_main: bool) -> str:
        return script.take(Request(wire="chat", is_main=is_main, body={}, text=text)).text

    assert ask("a title", is_main=False) == "mock"
    assert ask("special", is_main=True) == "by a rule"
    assert [ask("special", is_main=True), ask("x", is_main=True)] == ["main", "done"]


def test_reply_waits_at_its_gate() -> None:
    script = Script([ScriptedReply(text="later", gate="g")])
    found: list[str] = []
    with mock_model(script) as model:
        asking = threading.Thread(
            target=lambda: found.append(post(model, PATHS["anthropic"], {"tools": [{}]})[1])
        )
        asking.start()
        assert len(script.wait_for_main(1, LIMIT_S)) == 1
        assert found == []

        script.open("g")
        asking.join(LIMIT_S)

    assert "later" in found[0]


def test_errors_counts_and_unknown_paths_are_answered() -> None:
    script = Script([ScriptedReply(status=529, body={"error": "busy"})])
    with mock_model(script) as model:
        assert post(model, PATHS["anthropic"], {"tools": [{}]}) == (529, '{"error": "busy"}')
        assert post(model, "/v1/messages/count_tokens", {"x": "y"})[0] == 200
        assert post(model, "/nowhere", {})[0] == 404
        with urllib.request.urlopen(f"{model.url}/v1/models", timeout=LIMIT_S) as answer:
            assert b"mock-model" in answer.read()


def test_conversation_of_a_request_can_be_searched() -> None:
    request = Request(wire="responses", is_main=True, body={"input": [{"text": "luna → nova"}]}, text="")

    assert "luna → nova" in request.conversation
    assert Request(wire="chat", is_main=True, body={}, text="").conversation == ""


def test_gemini_gets_a_single_response_when_it_requests_one() -> None:
    script = Script()
    script.aside = ScriptedReply(text="all of it", calls=(CALL,))
    with mock_model(script) as model:
        status, result = post(model, "/v1beta/models/m:generateContent", {"contents": []})

    (candidate,) = json.loads(result)["candidates"]
    assert (status, candidate["finishReason"]) == (200, "STOP")
    parts = candidate["content"]["parts"]
    assert "".join(part.get("text", "") for part in parts) == "all of it"
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == ["Bash"]
