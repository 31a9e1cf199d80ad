"""One turn of a harness without a terminal: its command line, and the reply in its output."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.base import NO_REPLY, TurnReply
from palaver.harness.claude.launch import read_claude_args
from palaver.harness.registry import TURNS

SESSION = "2862c6aa-b57d-454f-81a9-bb9f0dad10dc"


def lines(*events: object) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def codex_message(text: str) -> dict[str, object]:
    return {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": text}}


def opencode_text(text: str, message: str = "msg_1") -> dict[str, object]:
    part = {"type": "text", "messageID": message, "sessionID": "ses_1", "text": text}
    return {"type": "text", "timestamp": 1, "sessionID": "ses_1", "part": part}


@pytest.mark.parametrize(
    ("harness", "before", "session", "after"),
    [
        ("claude", [], "", ["-p", "--output-format", "json"]),
        ("claude", ["say hello"], SESSION, ["-p", "--output-format", "json", "--resume", SESSION]),
        (
            "claude",
            ["--model", "opus", "--allowedTools", "Bash", "Read", "--verbose", "--resume", "s1", "--", "x"],
            SESSION,
            [
                *("-p", "--output-format", "json", "--resume", SESSION),
                *("--model", "opus", "--allowedTools", "Bash", "Read"),
            ],
        ),
        (
            "claude",
            ["-p", "go", "--output-format", "stream-json", "--permission-mode=manual", "-c", "--brief", "hi"],
            "",
            ["-p", "--output-format", "json", "--permission-mode=manual", "--brief"],
        ),
        ("codex", [], "", ["exec", "--json", "--skip-git-repo-check", "-"]),
        (
            "codex",
            ["-s", "read-only", "-a", "never", "-m", "o3", "-i", "a.png", "b.png", "--search", "say hello"],
            SESSION,
            [
                *("exec", "--json", "--skip-git-repo-check"),
                *("-c", 'sandbox_mode="read-only"', "-c", 'approval_policy="never"', "-m", "o3"),
                *("resume", SESSION, "-"),
            ],
        ),
        (
            "codex",
            ["resume", "--last", "--no-daemon", "--remote", "unix://x", "-c", "a=1", "--yolo"],
            "",
            [
                *("exec", "--json", "--skip-git-repo-check"),
                *("-c", 'sandbox_mode="danger-full-access"', "-c", 'approval_policy="never"'),
                *("-c", "a=1", "-"),
            ],
        ),
        ("gemini", ["-i", "hello", "--resume", "latest"], "", ["--output-format", "json"]),
        (
            "gemini",
            ["-m", "flash", "--yolo", "--acp", "-p", "hello", "-o", "text", "--session-id=x", "more"],
            SESSION,
            ["--output-format", "json", "--resume", SESSION, "-m", "flash", "--yolo"],
        ),
        ("opencode", ["./project", "--port", "1", "--prompt", "hi"], "", ["run", "--format", "json"]),
        (
            "opencode",
            ["-m", "a/b", "-c", "--agent=plan", "--auto", "--session", "ses_0", "--hostname=::", "--model"],
            "ses_1",
            ["run", "--format", "json", "--session", "ses_1", "-m", "a/b", "--agent=plan", "--auto"],
        ),
    ],
)
def test_turn_keeps_options_but_no_prompt_and_no_session(
    harness: str, before: Sequence[str], session: str, after: Sequence[str]
) -> None:
    assert list(TURNS[harness].arguments(before, session)) == after


@given(st.lists(st.sampled_from(["-p", "--model", "x", "-r", "--resume=a", "--add-dir", "-c", "--", "--bg"])))
def test_claude_turn_is_headless_and_resumes_one_session(args: list[str]) -> None:
    made = TURNS["claude"].arguments(args, SESSION)

    asked = read_claude_args(made)
    assert (asked.is_headless, asked.session, asked.is_last) == (True, SESSION, False)
    assert list(TURNS["claude"].arguments(made, SESSION)) == list(made)


@pytest.mark.parametrize(
    ("harness", "output", "reply"),
    [
        (
            "claude",
            lines({"type": "result", "is_error": False, "result": "a é reply", "session_id": SESSION}),
            TurnReply(text="a é reply", session=SESSION),
        ),
        (
            "claude",
            json.dumps(
                [{"type": "system"}, {"type": "result", "result": "", "session_id": SESSION}, "no object"]
            ),
            TurnReply(session=SESSION),
        ),
        (
            "claude",
            lines({"type": "result", "is_error": True, "result": "API Error: 529", "session_id": SESSION}),
            TurnReply(session=SESSION, error="API Error: 529"),
        ),
        (
            "claude",
            lines({"type": "result", "subtype": "error_max_turns", "session_id": SESSION}),
            TurnReply(session=SESSION, error="error_max_turns"),
        ),
        ("claude", "Credit balance is too low", NO_REPLY),
        (
            "codex",
            lines(
                {"type": "thread.started", "thread_id": SESSION},
                codex_message("first"),
                {"type": "item.completed", "item": {"type": "error", "message": "a warning"}},
                codex_message("last"),
                {"type": "turn.completed", "usage": {}},
            ),
            TurnReply(text="last", session=SESSION),
        ),
        (
            "codex",
            lines({"type": "thread.started", "thread_id": SESSION}, codex_message("x"))
            + '{"type":"item.completed","item":{"type":"agent_mess'
            + "\n"
            + lines({"type": "turn.failed", "error": {"message": "stream closed"}}),
            TurnReply(session=SESSION, error="stream closed"),
        ),
        (
            "codex",
            lines({"type": "error", "message": "retry"}, codex_message("x"), {"type": "turn.completed"}),
            TurnReply(text="x"),
        ),
        ("codex", "", NO_REPLY),
        (
            "gemini",
            "Loaded cached credentials.\n"
            + json.dumps({"session_id": SESSION, "response": "two\nlines", "stats": {}}, indent=2),
            TurnReply(text="two\nlines", session=SESSION),
        ),
        (
            "gemini",
            json.dumps({"session_id": SESSION, "error": {"type": "Error", "message": "quota", "code": 1}}),
            TurnReply(session=SESSION, error="quota"),
        ),
        ("gemini", "{", NO_REPLY),
        (
            "opencode",
            lines(
                {"type": "step_start", "sessionID": "ses_1", "part": {"messageID": "msg_0"}},
                opencode_text("before the tool", "msg_0"),
                opencode_text("one"),
                opencode_text("two"),
                {"type": "step_finish", "sessionID": "ses_1", "part": {"messageID": "msg_1"}},
            ),
            TurnReply(text="one\ntwo", session="ses_1"),
        ),
        (
            "opencode",
            lines(
                opencode_text("one"),
                {"type": "error", "sessionID": "ses_1", "error": {"name": "APIError", "data": {}}},
            ),
            TurnReply(session="ses_1", error="APIError"),
        ),
        ("opencode", lines({"type": "error"}), NO_REPLY),
        ("opencode", "no events", NO_REPLY),
    ],
)
def test_reply_and_session_are_read_from_the_output(harness: str, output: str, reply: TurnReply) -> None:
    assert TURNS[harness].read(output) == reply


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["result", "error", "text"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["type", "result", "part", "item", "error", "response", "text", "messageID"]),
            inner,
        )
    ),
)


@pytest.mark.parametrize("harness", TURNS)
@given(output=st.text() | JSON.map(json.dumps) | st.lists(JSON).map(lambda events: lines(*events)))
def test_any_output_has_a_reply_or_an_error(harness: str, output: str) -> None:
    reply = TURNS[harness].read(output)

    assert not (reply.text and reply.error)
