"""Items of a Codex turn as a short status."""

import pytest

from palaver.harness.base import AgentReport
from palaver.harness.codex.threads import edits_of, paths_in, plain_command, work_of
from palaver.protocol.events import AgentState


@pytest.mark.parametrize(
    ("item", "tool", "command", "file"),
    [
        ({"type": "commandExecution", "command": "/bin/bash -lc 'ls -l'"}, "Bash", "ls -l", ""),
        ({"type": "fileChange", "changes": [{"path": "/a.py"}, 7]}, "apply_patch", "", "/a.py"),
        ({"type": "fileChange", "changes": "?"}, "apply_patch", "", ""),
        ({"type": "mcpToolCall", "server": "palaver", "tool": "send"}, "palaver.send", "", ""),
        ({"type": "collabAgentToolCall", "tool": "spawn_agent"}, "spawn_agent", "", ""),
        ({"type": "webSearch", "query": "weather"}, "web_search", "weather", ""),
        ({"type": "imageView"}, "imageView", "", ""),
    ],
)
def test_work_item_has_a_tool(item: dict[str, object], tool: str, command: str, file: str) -> None:
    work = work_of(item)

    assert work == AgentReport(
        state=AgentState.ACTIVE,
        detail=f"{tool}: {what}" if (what := command or file) else tool,
        tool=tool,
        command=command,
        file=file,
    )


@pytest.mark.parametrize("kind", ["contextCompaction", "enteredReviewMode"])
def test_item_that_accepts_no_text_counts_as_compacting(kind: str) -> None:
    work = work_of({"type": kind})

    assert work is not None
    assert work.detail == "compacting"


@pytest.mark.parametrize("kind", ["agentMessage", "reasoning", "plan", "userMessage", "", 7, None])
def test_text_items_are_not_work(kind: object) -> None:
    assert work_of({"type": kind}) is None


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ("/bin/zsh -lc 'echo \"a b\"'", 'echo "a b"'),
        ("/usr/bin/bash -c ls", "ls"),
        ("bash -c ls", "bash -c ls"),
        ("/tmp/bash -lc ls", "/tmp/bash -lc ls"),
        ("/tmp/evil -c ls", "/tmp/evil -c ls"),
        ("python3 -c ls", "python3 -c ls"),
        ("ls -l", "ls -l"),
        ("git commit -m", "git commit -m"),
        ("echo 'open", "echo 'open"),
    ],
)
def test_shell_around_a_command_is_removed(command: str, plain: str) -> None:
    assert plain_command(command) == plain


def test_every_file_of_a_change_is_named() -> None:
    item = {"type": "fileChange", "changes": [{"path": "/a.py"}, {"path": "/b.py"}, {"path": ""}, 7]}

    assert paths_in(item) == ["/a.py", "/b.py"]
    assert [word.file for word in edits_of(item)] == ["/b.py"]
    assert paths_in({**item, "type": "plan"}) == []
