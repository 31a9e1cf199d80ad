"""Transcripts of Gemini CLI: recorded ones, and unusual records."""

import json

import pytest
from tests.harness.transcript_samples import outline, sample_lines

from palaver.harness.gemini import output as gemini_transcript
from palaver.harness.gemini.output import GeminiTranscript, gemini_folders

READER = GeminiTranscript()


def record(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def user(key: str, text: str) -> dict[str, object]:
    return {"id": key, "type": "user", "content": [{"text": text}]}


def test_session_with_tools_resumed_twice_is_read() -> None:
    assert outline(READER, sample_lines("gemini")) == [
        "user: list the files",
        "assistant: I look at the files first. | run_shell_command = <untrusted_context> Output: notes.txt "
        "Process Group PGID: 76",
        "assistant: Two at once now. | run_shell_command = <untrusted_context> Output: one two Process Group "
        "PGID: 79 < | read_file ! File not found: /home/pat/demo/missing.txt",
        "assistant: There are two lines in notes.txt: eins, zwei, über alles ✓.",
        "user: is that all? really?",
        "assistant: Yes, that is all.",
        "user: /compress",
        "assistant: A summary: we looked at notes.txt.",
    ]


def test_hook_context_is_included() -> None:
    found = outline(READER, sample_lines("gemini-hooks"))

    assert found[0] == "user: <hook_context>[pal message from: luna] SessionStart</hook_co"
    assert found[4] == "user: [pal message from: luna] please look once more <hook_context"


@pytest.mark.parametrize("indent", [None, 2])
def test_document_of_an_older_version_is_read_as_a_whole(indent: int | None) -> None:
    answer = {"id": "2", "type": "gemini", "content": "ho", "timestamp": "2026-11-15T11:44:26Z"}
    whole = {"sessionId": "s", "projectHash": "p", "messages": [user("1", "hi"), answer, 5]}
    lines = (json.dumps(whole, indent=indent) + "\n").encode().splitlines(keepends=True)

    assert outline(READER, lines) == ["user: hi", "assistant: ho"]


def test_oversized_document_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemini_transcript, "LIMIT_DOCUMENT_BYTES", 10)

    assert outline(READER, [b"{\n", b'"messages": [\n', b"]}\n"]) == []


def test_rewritten_response_is_one_entry_with_the_newest_content() -> None:
    lines = [
        record(id="1", type="gemini", content="so"),
        record(id="i", type="info", content="a tool runs"),
        record(id="1", type="gemini", content="so far", toolCalls=[{"id": "c", "name": "ls", "args": {}}]),
        record(id="2", type="user", content=[{"functionResponse": {"id": "c", "response": {"output": "x"}}}]),
        record(id="3", type="warning", content=""),
        record(**user("4", "go on")),
        record(id="5", type="error", content="quota"),
    ]

    assert outline(READER, lines) == [
        "assistant: so far | ls = x",
        "system: a tool runs",
        "user: go on",
        "system: quota",
    ]


def test_calls_in_the_content_and_shown_results_are_read() -> None:
    content = [{"text": "look"}, {"functionCall": {"id": "c", "name": "ls", "args": {}}}]
    shown = [{"name": "cat", "status": "cancelled", "resultDisplay": "stopped"}]
    lines = [
        record(id="1", type="gemini", content=content),
        record(id="2", type="gemini", content="", toolCalls=shown),
    ]

    assert outline(READER, lines) == ["assistant: look | ls = -", "assistant:  | cat ! stopped"]


def test_rewritten_history_adds_only_new_messages() -> None:
    lines = [
        record(**user("1", "one")),
        record(**{"$set": {"messages": [user("1", "one"), user("2", "two"), "x"]}}),
        record(**{"$set": {"messages": [user("1", "one"), user("2", "two")]}}),
        record(**{"$set": {"messages": [user("9", "a summary")], "lastUpdated": "2026-11-15T11:44:26Z"}}),
        record(**{"$rewindTo": "2"}),
    ]

    assert outline(READER, lines) == [
        "user: one",
        "user: two",
        "system: The conversation was compressed.",
        "user: a summary",
        "system: The conversation was reset to an earlier point.",
    ]


@pytest.mark.parametrize(
    "line",
    [b"", b"5\n", b'{"id": 5}\n', b'{"$set": []}\n', b'{"id": "1", "type": "gem', b'{"messages": {}}\n'],
)
def test_invalid_record_is_skipped(line: bytes) -> None:
    assert outline(READER, [line]) == []


def test_sessions_are_searched_by_the_start_of_their_id() -> None:
    folders = gemini_folders("4fde1e98-be8c", {"HOME": "/home/pat", "GEMINI_CLI_HOME": "/home/pat"})

    assert list(map(str, folders)) == [
        "/home/pat/.gemini/tmp/*/chats/session-*-4fde1e98.jsonl",
        "/home/pat/.gemini/tmp/*/chats/session-*-4fde1e98.json",
    ]
