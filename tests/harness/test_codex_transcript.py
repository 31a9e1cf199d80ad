"""Transcripts of Codex: recorded ones, and unusual lines."""

import json

import pytest
from tests.harness.transcript_samples import outline, sample_lines

from palaver.harness.codex.output import CodexTranscript, codex_folders
from palaver.protocol.transcript import ToolCall

READER = CodexTranscript()


def item(**fields: object) -> bytes:
    return json.dumps({"type": "response_item", "payload": fields}).encode() + b"\n"


def message(role: str, text: str, **fields: object) -> bytes:
    return item(type="message", role=role, content=[{"type": "input_text", "text": text}], **fields)


def test_resumed_thread_with_tools_is_read() -> None:
    assert outline(READER, sample_lines("codex")) == [
        "user: list the files",
        "assistant: I look at the files first. | exec_command = notes.txt",
        "assistant: Two at once now. | exec_command = one two | exec_command ! cat: missing.txt: No such "
        "file or directory",
        "assistant: There are two lines in notes.txt: eins, zwei, über alles ✓.",
        "user: is that all? really?",
        "assistant: Yes, that is all.",
    ]


def test_hook_context_and_compactions_are_included() -> None:
    found = outline(READER, sample_lines("codex-hooks"))

    assert found[:10] == [
        "system: [pal message from: luna] SessionStart",
        "user: list the files",
        "system: [pal message from: luna] UserPromptSubmit",
        "assistant: I look at the files first. | exec_command = notes.txt",
        "system: [pal message from: luna] PostToolUse",
        "assistant: demo title",
        "system: Another language model started to solve this problem and pro",
        "system: [pal message from: luna] SessionStart",
        "assistant: Two at once now. | exec_command = one two | exec_command ! cat: missing.txt: No such "
        "file or directory",
        "system: [pal message from: luna] PostToolUse",
    ]
    assert "assistant:  | apply_patch = unsupported custom tool call: apply_patch" in found
    assert found[-2:] == [
        "system: [pal message from: luna] please look once more",
        "assistant: A summary: we looked at notes.txt.",
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (message("user", "<environment_context>\n</environment_context>"), []),
        (message("user", "# AGENTS.md instructions for /x"), []),
        (message("developer", "be kind"), ["system: be kind"]),
        (
            message(
                "developer",
                "x",
                internal_chat_message_metadata_passthrough={"content_item_kinds": ["a.instructions"]},
            ),
            [],
        ),
        (message("user", ""), []),
        (item(type="reasoning", summary=[]), []),
        (item(type="web_search_call", action={"query": "x"}), ["assistant:  | web_search = -"]),
        (
            item(type="function_call_output", call_id="c", output={"content": "no", "success": False}),
            ["tool:  |  ! no"],
        ),
        (item(type=5), []),
        (b'{"type":"compacted","payload":{}}\n', ["system: The conversation was compacted."]),
        (
            b'{"type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}\n',
            ["system: The turn was ended: interrupted."],
        ),
        (b'{"type":"event_msg","payload":{"type":"agent_message","message":"again"}}\n', []),
        (b'{"type":"response_item","payload":{"type":"message","role":"us', []),
    ],
)
def test_each_kind_of_line_is_read(given: bytes, shown: list[str]) -> None:
    assert outline(READER, [given]) == shown


def test_arguments_are_parsed_and_incomplete_ones_stay_text() -> None:
    lines = [
        item(
            type="function_call", name="send", namespace="mcp__bus", arguments='{"to": "luna"}', call_id="1"
        ),
        item(type="function_call", name="exec_command", arguments='{"cmd": "l', call_id="2"),
    ]

    (entry,) = READER.entries(lines)

    assert entry.tools == (
        ToolCall(name="mcp__bus.send", input={"to": "luna"}),
        ToolCall(name="exec_command", input='{"cmd": "l'),
    )


def test_threads_are_searched_by_day_and_in_the_archive() -> None:
    folders = codex_folders("t1", {"HOME": "/home/pat", "CODEX_HOME": "/cx"})

    assert list(map(str, folders)) == [
        "/cx/sessions/*/*/*/rollout-*-t1.jsonl",
        "/cx/archived_sessions/rollout-*-t1.jsonl",
        "/home/pat/.codex/sessions/*/*/*/rollout-*-t1.jsonl",
        "/home/pat/.codex/archived_sessions/rollout-*-t1.jsonl",
    ]
    assert codex_folders("t1", {}) == ()
