"""Transcripts of Claude Code: recorded ones, and unusual lines."""

import json

import pytest
from tests.harness.transcript_samples import outline, sample_lines

from palaver.harness.claude.output import (
    ClaudeTranscript,
    claude_folders,
    claude_registry,
    session_in_registry,
)

READER = ClaudeTranscript()


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_session_with_tools_and_a_compaction_is_read() -> None:
    assert outline(READER, sample_lines("claude")) == [
        "user: list the files",
        "assistant: I look at the files first. | Bash = notes.txt",
        "assistant: Two at once now. | Bash = one two | Read ! File does not exist. Note: your current "
        "working directory is",
        "assistant: There are two lines in notes.txt: eins, zwei, über alles ✓.",
        "user: is that all? really?",
        "assistant: Yes, that is all.",
        "system: Conversation compacted",
        "system: This session is being continued from a previous conversation",
        "system: <local-command-caveat>The command below was run directly in ",
        "system: <command-name>/compact</command-name> <command-message>compa",
        "system: <local-command-stdout>Compacted (ctrl+o to see full summary)",
        "user: and now?",
        "assistant: A summary: we looked at notes.txt.",
    ]


def test_hook_context_and_queued_prompts_are_included() -> None:
    assert outline(READER, sample_lines("claude-hooks")) == [
        "system: [pal message from: luna] SessionStart",
        "user: list the files",
        "system: [pal message from: luna] UserPromptSubmit",
        "assistant: I look at the files first. | Bash = notes.txt",
        "system: [pal message from: luna] PostToolUse",
        "assistant: Two at once now. | Bash = one two | Read ! File does not exist. Note: your current "
        "working directory is",
        "system: [pal message from: luna] PostToolUse",
        "user: a word while you work",
        "system: [pal message from: luna] UserPromptSubmit",
        "assistant: There are two lines in notes.txt: eins, zwei, über alles ✓.",
        "system: Stop hook feedback: [pal message from: luna] please look onc",
        "assistant: Yes, that is all.",
    ]


def test_entry_has_its_time_and_all_of_its_lines() -> None:
    second = list(READER.entries(sample_lines("claude")))[1]

    assert second.ts == 1794743066204
    lines = second.whole["lines"]
    assert isinstance(lines, list)
    assert [one["type"] for one in lines] == ["assistant", "assistant", "user"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (line(type="assistant", message={"content": [{"type": "thinking", "thinking": "hm"}]}), []),
        (line(type="assistant", message="x"), []),
        (line(type="assistant", uuid="u", message={"content": "x"}), ["assistant: x"]),
        (line(type="assistant", isApiErrorMessage=True, message={"content": "no"}), ["system: no"]),
        (line(type="user", isCompactSummary=True, message={"content": "so far"}), ["system: so far"]),
        (line(type="user", message={"content": "<task-notification>x"}), ["system: <task-notification>x"]),
        (line(type="user", message={"content": [{"type": "image"}]}), []),
        (line(type="system", subtype="turn_duration"), []),
        (line(type="attachment", attachment={"type": "queued_command", "prompt": "hi"}), ["user: hi"]),
        (
            line(
                type="attachment",
                attachment={"type": "queued_command", "prompt": "hi", "commandMode": "task-notification"},
            ),
            ["system: hi"],
        ),
        (line(type="attachment", attachment={"type": "date"}), []),
        (line(type="attachment", attachment=[5]), []),
        (line(type="something-new", text="x"), []),
        (b'{"type":"user","message":{"content":"half wri', []),
        (b"\n", []),
    ],
)
def test_each_kind_of_line_is_read(given: bytes, shown: list[str]) -> None:
    assert outline(READER, [given]) == shown


def test_sessions_are_searched_in_every_project() -> None:
    environment = {"HOME": "/home/pat", "CLAUDE_CONFIG_DIR": "/cfg"}

    assert list(map(str, claude_folders("s1", environment))) == [
        "/cfg/projects/*/s1.jsonl",
        "/home/pat/.claude/projects/*/s1.jsonl",
        "/cfg/projects/*/*/subagents/agent-s1.jsonl",
        "/home/pat/.claude/projects/*/*/subagents/agent-s1.jsonl",
    ]
    assert claude_folders("s1", {}) == ()


def test_running_session_is_read_from_the_session_file() -> None:
    assert claude_registry(7, {"HOME": "/home/pat"}) == ("/home/pat/.claude/sessions/7.json",)
    assert session_in_registry(b'{"pid": 7, "sessionId": "s2"}', 7) == "s2"
    assert session_in_registry(b'{"pid": 8, "sessionId": "s2"}', 7) == ""
    assert session_in_registry(b"", 7) == ""


def test_sub_agent_lines_are_skipped_except_in_their_own_file() -> None:
    own = line(type="user", isSidechain=False, message={"content": "go"})
    aside = line(type="assistant", isSidechain=True, message={"id": "m1", "content": "x"})

    assert outline(READER, [b"[]\n", own, aside]) == ["user: go"]
    assert outline(READER, [line(type="summary"), aside]) == ["assistant: x"]
