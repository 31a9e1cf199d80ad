"""Permission requests of Codex: shown to people, and decided by a person from elsewhere."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import JsonLine, run_as_person, set_approvals
from tests.harness.real.codex_stage import CodexStage, ask_first, codex_stage, shell_call
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed

pytestmark = pytest.mark.harness

ASKING = ("-s", "read-only", "-a", "on-request")
"""Makes Codex ask a person before every change of a file."""


@pytest.fixture
def quiet() -> Iterator[CodexStage]:
    """A bus with approvals off, which is the default."""
    with codex_stage(installed("codex")) as stage:
        yield stage


@pytest.fixture
def codex(quiet: CodexStage) -> CodexStage:
    """A bus on which agents wait for the decision of a person."""
    quiet.home.ok("down")
    set_approvals(quiet.home)
    quiet.home.ok("up")
    return quiet


def pending(codex: CodexStage) -> JsonLine:
    """Wait until a request can be decided, and return its view."""
    codex.until(lambda: any(one["id"] for one in codex.home.ok("pending", "--json").lines))
    (shown,) = codex.home.ok("pending", "--json").lines
    return shown


def asked(codex: CodexStage, made: Path) -> JsonLine:
    """Have it request permission to run a command, and return the view of the request."""
    codex.script.add(reply("may I?", ask_first(f"touch {made}")), reply("so be it"))
    codex.start("make it")
    shown = pending(codex)
    codex.until(codex.dialog)
    return shown


def test_allowed_command_is_run(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    shown = asked(codex, made)
    assert (shown["agent"], shown["harness"], shown["tool"]) == ("nova", "codex", "Bash")
    assert shlex.split(shown["input"]["command"])[1:] == [
        "-lc",
        f"touch {made}",
    ]  # the first word is its shell
    assert shown["input"]["cwd"] == str(codex.project)
    assert shown["input"]["reason"] == "to see"
    codex.until(lambda: codex.state() == ("blocked", f"permission: touch {made}"))
    assert not made.exists()

    result = run_as_person(codex.home, "approve", shown["id"])

    assert (result.status, result.err) == (0, "")
    codex.until(made.exists)
    codex.until_idle()
    codex.until(lambda: codex.home.ok("pending", "--json").lines == [])
    codex.until(lambda: codex.question not in codex.screen())
    answered = codex.home.events("--type", "permission.answered")
    assert [(one["from"], one["payload"]["decision"]) for one in answered] == [("human", "allow")]


def test_denied_command_is_not_run_and_the_turn_continues(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    shown = asked(codex, made)

    result = run_as_person(codex.home, "deny", shown["id"])

    assert result.status == 0
    assert "rejected" in codex.requests(2)[1].conversation
    codex.until_idle()
    assert not made.exists()


def test_agent_cannot_decide_a_request(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    shown = asked(codex, made)
    luna = codex.friend()
    before = codex.until_drawn()

    result = luna.pal("approve", shown["id"], "--json")

    assert (result.status, result.error["error"]) == (1, "not_allowed")
    assert codex.until_drawn() == before
    assert not made.exists()


def test_request_decided_at_the_terminal_is_closed(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    shown = asked(codex, made)

    codex.answer_dialog(codex.sit_down())

    codex.until(made.exists)
    codex.until(lambda: codex.home.ok("pending", "--json").lines == [])
    late = run_as_person(codex.home, "deny", shown["id"], "--json")
    assert (late.status, late.error["error"]) == (1, "not_found")
    assert "answered elsewhere" in late.error["message"]


def test_file_change_is_shown_completely(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    patch = f"*** Begin Patch\n*** Add File: {made}\n+a line of it\n*** End Patch"
    codex.script.add(reply("", shell_call(f"apply_patch <<'EOF'\n{patch}\nEOF")), reply("done"))
    codex.start(*ASKING, "patch it")

    shown = pending(codex)

    assert (shown["tool"], shown["input"]["file_path"]) == ("apply_patch", str(made))
    (change,) = shown["input"]["changes"]
    assert (change["path"], change["diff"]) == (str(made), "a line of it\n")
    codex.until(lambda: codex.state() == ("blocked", f"permission: {made}"))
    assert "a line of it" in codex.home.ok("pending").out

    assert run_as_person(codex.home, "approve", shown["id"]).status == 0

    codex.until(made.exists)
    assert made.read_text() == "a line of it\n"


def test_request_without_a_decision_in_time_is_denied(quiet: CodexStage) -> None:
    quiet.home.ok("down")
    set_approvals(quiet.home, wait_s=1)
    quiet.home.ok("up")
    made = quiet.project / "made.txt"
    quiet.script.add(reply("may I?", ask_first(f"touch {made}")), reply("so be it"))

    quiet.start("make it")

    assert "rejected" in quiet.requests(2)[1].conversation
    assert not made.exists()
    (answered,) = quiet.home.events("--type", "permission.answered")
    assert (answered["payload"]["decision"], answered["payload"]["reason"]) == ("deny", "timeout")


def test_request_is_pending_again_after_a_restart_of_the_daemon(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    first = asked(codex, made)
    before = codex.until_drawn()

    codex.home.ok("down")
    set_approvals(codex.home)
    codex.home.ok("up")

    again = pending(codex)
    assert again["input"] == first["input"]
    assert codex.until_drawn() == before
    assert run_as_person(codex.home, "approve", again["id"]).status == 0
    codex.until(made.exists)


def test_bus_decides_nothing_when_approvals_are_off(quiet: CodexStage) -> None:
    made = quiet.project / "made.txt"
    quiet.script.add(reply("may I?", ask_first(f"touch {made}")))
    quiet.start("make it")
    quiet.until(quiet.dialog)
    quiet.until(lambda: quiet.state() == ("blocked", f"permission: touch {made}"))
    luna, before = quiet.friend(), quiet.screen()

    normal = send(luna, "@nova", "--", "y")
    urgent = send(luna, "@nova", "--interrupt", "--", "y\n")
    idle = send(luna, "@nova", "--priority", "idle", "--", "yes")
    quiet.until(lambda: quiet.receipt(urgent)["state"] == "held")
    (shown,) = quiet.home.ok("pending", "--json").lines
    result = run_as_person(quiet.home, "approve", "0", "--json")

    assert (shown["agent"], shown["id"], shown["answerable"]) == ("nova", None, False)
    assert shown["text"] == f"permission: touch {made}"
    assert result.error["error"] == "not_found"
    assert quiet.receipt(urgent)["reason"] == "dialog"
    assert {quiet.receipt(one)["state"] for one in (normal, idle)} == {"queued"}
    assert quiet.screen() == before
    assert not made.exists()
    assert quiet.home.events("--type", "permission.asked") == []

    quiet.answer_dialog(quiet.sit_down())

    quiet.until(made.exists)
    for seq in (normal, urgent, idle):
        assert quiet.until_seen(seq)["grade"] == "context"
