"""Starting Claude Code: the arguments of the user stay, and everything else is in a plugin."""

import json

import pytest

from palaver.harness.claude.hooks import EVENTS
from palaver.harness.claude.launch import ClaudeCall, claude_args, has_waker, plugin_files, read_claude_args


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ([], ClaudeCall()),
        (["fix it"], ClaudeCall()),
        (["-p", "fix it"], ClaudeCall(is_headless=True)),
        (["--print", "-c"], ClaudeCall(is_headless=True, is_last=True)),
        (["--continue"], ClaudeCall(is_last=True)),
        (["--resume", "s1"], ClaudeCall(session="s1")),
        (["-r", "s1", "--fork-session"], ClaudeCall(session="s1")),
        (["--resume=s1"], ClaudeCall(session="s1")),
        (["--resume"], ClaudeCall(is_chosen=True)),
        (["--resume", "--model", "opus"], ClaudeCall(is_chosen=True)),
        (["-r", "--continue"], ClaudeCall(is_last=True)),
        (["-r", "--session-id", "s1"], ClaudeCall(session="s1")),
        (["--session-id", "s2", "x"], ClaudeCall(session="s2")),
        (["--model", "-p"], ClaudeCall()),
        (["--append-system-prompt", "--continue", "x"], ClaudeCall()),
        (["--", "-p"], ClaudeCall()),
        (["mcp", "list"], ClaudeCall(is_conversation=False)),
        (["--version"], ClaudeCall(is_conversation=False)),
    ],
)
def test_command_line_is_read_as_claude_reads_it(args: list[str], asked: ClaudeCall) -> None:
    assert read_claude_args(args) == asked


def test_arguments_of_the_user_are_passed_unchanged() -> None:
    args = ["--plugin-dir", "mine", "--settings", "s.json", "do it"]

    assert claude_args(args, "/p") == ["--plugin-dir=/p", *args]


def test_known_session_is_resumed_unless_the_arguments_name_one() -> None:
    assert claude_args(["--model=m"], "/p", session="s1") == [
        "--plugin-dir=/p",
        "--resume",
        "s1",
        "--model=m",
    ]
    assert claude_args(["-c"], "/p", session="s1") == ["--plugin-dir=/p", "-c"]
    assert claude_args(["-r", "s2"], "/p", session="s1") == ["--plugin-dir=/p", "-r", "s2"]


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (["begin"], []),
        (["--verbose", "begin"], ["--verbose"]),
        (["--model", "opus", "begin"], ["--model", "opus"]),
        (["--model=opus", "begin", "--ide"], ["--model=opus", "--ide"]),
        (
            ["--allowedTools", "Bash", "Read", "--model", "opus"],
            ["--allowedTools", "Bash", "Read", "--model", "opus"],
        ),
        (["--verbose", "--", "--begin"], ["--verbose"]),
        (["--of-tomorrow", "value"], ["--of-tomorrow", "value"]),
    ],
)
def test_resumed_conversation_drops_the_first_prompt(args: list[str], kept: list[str]) -> None:
    assert claude_args(args, "/p", session="s1") == ["--plugin-dir=/p", "--resume", "s1", *kept]


def test_command_without_a_conversation_is_unchanged() -> None:
    assert claude_args(["mcp", "list"], "/p") == ["mcp", "list"]


def test_plugin_contains_every_hook_a_monitor_and_the_tools() -> None:
    files = {name: json.loads(text) for name, text in plugin_files("/opt/my pal").items()}

    hooks = files["hooks/hooks.json"]["hooks"]
    assert list(hooks) == list(EVENTS)
    assert hooks["PreCompact"] == [
        {
            "hooks": [
                {"type": "command", "command": "exec '/opt/my pal' hook claude PreCompact", "timeout": 10}
            ]
        }
    ]
    (monitor,) = files["monitors/monitors.json"]
    assert monitor["command"] == "exec '/opt/my pal' monitor"
    assert files[".mcp.json"] == {"mcpServers": {"palaver": {"command": "/opt/my pal", "args": ["mcp"]}}}
    assert files[".claude-plugin/plugin.json"]["name"] == "palaver"


def test_hooks_before_idle_time_start_a_wake_command() -> None:
    hooks = json.loads(plugin_files("/opt/my pal")["hooks/hooks.json"])["hooks"]

    waking = {
        event: [one["command"] for one in group["hooks"] if one.get("asyncRewake")]
        for event, (group,) in hooks.items()
    }
    assert {event: found for event, found in waking.items() if found} == {
        event: [f"exec '/opt/my pal' rewake {event}"]
        for event in ("SessionStart", "UserPromptSubmit", "Stop")
    }


def test_one_shot_session_has_no_wake() -> None:
    assert has_waker("claude", {"CLAUDE_CODE_ENTRYPOINT": "cli"})
    assert not has_waker("claude", {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"})
    assert not has_waker("claude", {})
    assert not has_waker("codex", {"CLAUDE_CODE_ENTRYPOINT": "cli"})
