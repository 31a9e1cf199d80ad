"""Permission requests of Claude Code, decided from elsewhere."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import JsonLine, run_as_person, set_approvals
from tests.harness.real.claude_stage import ClaudeStage, claude_stage
from tests.harness.real.harness_stage import reply, send, tool
from tests.harness.real.install import installed

pytestmark = pytest.mark.harness

MANUAL = ("--permission-mode", "manual")


@pytest.fixture
def claude() -> Iterator[ClaudeStage]:
    """A bus on which agents wait for the decision of a person."""
    with claude_stage(installed("claude")) as stage:
        stage.home.ok("down")
        set_approvals(stage.home)
        stage.home.ok("up")
        yield stage


def asked(claude: ClaudeStage) -> JsonLine:
    """Have it request permission to create a file, and return the view of the request."""
    made = str(claude.project / "made.txt")
    claude.script.add(reply("may I?", tool("Write", file_path=made, content="x")), reply("so be it"))
    claude.start(*MANUAL)
    send(claude.friend(), "@nova", "--", "make it")
    claude.until(lambda: any(one["id"] for one in claude.home.ok("pending", "--json").lines))
    (shown,) = claude.home.ok("pending", "--json").lines
    return shown


def test_allowed_command_is_run(claude: ClaudeStage) -> None:
    shown = asked(claude)
    made = claude.project / "made.txt"
    assert (shown["agent"], shown["tool"]) == ("nova", "Write")
    assert shown["input"] == {"file_path": str(made), "content": "x"}
    assert not made.exists()

    result = run_as_person(claude.home, "approve", shown["id"])

    assert (result.status, result.err) == (0, "")
    claude.until(made.exists)
    claude.until(lambda: claude.state()[0] == "idle")
    assert claude.home.ok("pending", "--json").lines == []


def test_denied_command_is_not_run(claude: ClaudeStage) -> None:
    shown = asked(claude)

    result = run_as_person(claude.home, "deny", shown["id"])

    assert result.status == 0
    claude.until(lambda: any("a person denied it" in one.text for one in claude.script.main))
    assert not (claude.project / "made.txt").exists()


def test_request_decided_at_the_terminal_is_closed(claude: ClaudeStage) -> None:
    shown = asked(claude)
    person = claude.sit_down()

    claude.answer_dialog(person, "Do you want to create made.txt")

    claude.until((claude.project / "made.txt").exists)
    claude.until(lambda: claude.state()[0] == "idle")
    claude.until(lambda: claude.home.ok("pending", "--json").lines == [])
    late = run_as_person(claude.home, "deny", shown["id"], "--json")
    assert (late.status, late.error["error"]) == (1, "not_found")
