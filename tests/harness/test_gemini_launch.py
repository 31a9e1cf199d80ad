"""Starting Gemini CLI."""

import json

import pytest

from palaver.harness.gemini.hooks import EVENTS
from palaver.harness.gemini.launch import GeminiCall, extension_files, gemini_args, read_gemini_args


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("", GeminiCall()),
        ("hello there", GeminiCall()),
        ("-i hello", GeminiCall()),
        ("-p hello", GeminiCall(is_headless=True)),
        ("--prompt=hello", GeminiCall(is_headless=True)),
        ("--acp", GeminiCall(is_headless=True)),
        ("-m -p", GeminiCall()),
        ("--resume", GeminiCall(is_last=True)),
        ("-r latest", GeminiCall(is_last=True)),
        ("-r --yolo", GeminiCall(is_last=True)),
        ("-r 5", GeminiCall()),
        ("-r aecf54a5-095e", GeminiCall(session="aecf54a5-095e")),
        ("--session-id=abc", GeminiCall(session="abc")),
        ("--version", GeminiCall(is_conversation=False)),
        ("mcp list", GeminiCall(is_conversation=False)),
        ("--list-sessions", GeminiCall(is_conversation=False)),
        ("-- -p", GeminiCall()),
    ],
)
def test_arguments_are_read_as_gemini_reads_them(words: str, call: GeminiCall) -> None:
    assert read_gemini_args(words.split()) == call


def test_session_is_resumed_unless_another_is_named() -> None:
    assert gemini_args(["--yolo"], session="abc") == ["--resume", "abc", "--yolo"]
    assert gemini_args(["-r", "latest"], session="abc") == ["-r", "latest"]
    assert gemini_args(["--session-id", "x"], session="abc") == ["--session-id", "x"]
    assert gemini_args(["mcp"], session="abc") == ["mcp"]


@pytest.mark.parametrize("numbered", [["--resume", "3"], ["-r", "3"], ["--resume=3"]])
def test_resume_replaces_the_number_of_a_session_by_its_id(numbered: list[str]) -> None:
    assert gemini_args([*numbered, "--yolo"], session="abc") == ["--resume", "abc", "--yolo"]
    assert gemini_args(numbered) == numbered
    assert gemini_args([]) == []


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--approval-mode yolo -i hello", "--approval-mode yolo"),
        ("-i -m -y", "-y"),
        ("--prompt-interactive=hello -m flash", "-m flash"),
        ("--yolo hello there", "--yolo"),
        ("--sandbox=false hello --debug", "--sandbox=false --debug"),
        ("--future hello", "--future hello"),
        ("-p hello", "-p hello"),
        ("-m", "-m"),
        ("-y -- hello", "-y"),
    ],
)
def test_resumed_conversation_drops_the_first_prompt(words: str, kept: str) -> None:
    assert gemini_args(words.split(), session="abc") == ["--resume", "abc", *kept.split()]
    assert gemini_args(words.split()) == words.split()


def test_extension_contains_every_hook_and_our_tools() -> None:
    files = extension_files("/a b/pal")

    hooks = json.loads(files["hooks/hooks.json"])["hooks"]
    assert tuple(hooks) == EVENTS
    (hook,) = hooks["AfterTool"][0]["hooks"]
    assert hook["command"] == "exec '/a b/pal' hook gemini AfterTool"
    server = json.loads(files["gemini-extension.json"])["mcpServers"]["palaver"]
    assert (server["command"], server["args"]) == ("/a b/pal", ["mcp"])
