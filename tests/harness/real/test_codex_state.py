"""States that the app-server reports without hooks: tool, command, files, compaction, usage limit, end."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.daemon.stage import JsonLine
from tests.harness.real.codex_stage import CodexStage, codex_stage, shell_call
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed
from tests.processes import processes_of

from palaver.app.mock_model import ScriptedReply
from palaver.holder.codex_start import MODULE as START

pytestmark = pytest.mark.harness

FREE = ("-s", "danger-full-access", "-a", "never")


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home with a running bus in which Codex can be started."""
    with codex_stage(installed("codex")) as stage:
        yield stage


def reported_states(codex: CodexStage) -> list[JsonLine]:
    """Return its reported statuses in order."""
    found = codex.home.events("--type", "status", "--agent", "nova")
    return [one["payload"] for one in found]


def test_tools_commands_and_every_file_are_reported(codex: CodexStage) -> None:
    one, two = (codex.project / name for name in ("one.txt", "two.txt"))
    patch = f"*** Begin Patch\n*** Add File: {one}\n+x\n*** Add File: {two}\n+y\n*** End Patch"
    codex.script.add(reply("", shell_call("echo a-command")))
    codex.script.add(reply("", shell_call(f"apply_patch <<'EOF'\n{patch}\nEOF")), reply("done"))

    codex.start(*FREE, "go")

    codex.requests(3)
    codex.until_idle()
    assert [(one["tool"], one["command"]) for one in reported_states(codex) if "command" in one] == [
        ("Bash", "echo a-command")
    ]
    edits = [(one["tool"], one["file"]) for one in reported_states(codex) if "file" in one]
    assert sorted(edits) == [("apply_patch", str(one)), ("apply_patch", str(two))]
    assert one.exists()
    assert two.exists()


def test_compaction_is_reported_and_messages_wait_for_its_end(codex: CodexStage) -> None:
    codex.script.add(reply("first"))
    codex.start(*FREE, "go")
    codex.requests(1)
    codex.until_idle()
    codex.script.aside = reply("a summary", gate="summary")  # this request offers no tools
    person = codex.sit_down()

    codex.type_keys(person, "/compact")
    person.press(b"\r")
    codex.until(lambda: codex.state() == ("active", "compacting"))
    seq = send(codex.friend(), "@nova", "--", "are you there?")
    codex.until(lambda: codex.gates()["native"] == "compacting")

    assert codex.receipt(seq)["state"] == "queued"
    codex.script.aside = reply("a title")
    codex.script.open("summary")
    assert codex.until_seen(seq)["grade"] == "context"


def test_usage_limit_is_reported_with_its_end(codex: CodexStage) -> None:
    ends = int(time.time()) + 3600
    error = {"type": "usage_limit_reached", "message": "No more.", "plan_type": "plus", "resets_at": ends}
    codex.script.add(ScriptedReply(status=429, body={"error": error}))

    codex.start(*FREE, "go")

    codex.until(lambda: codex.state()[0] == "blocked")
    seq = send(codex.friend(), "@nova", "--", "are you there?")
    codex.until(lambda: codex.receipt(seq)["state"] == "held")
    reason = str(codex.receipt(seq)["reason"])
    until = datetime.strptime(reason, "usage limit until %Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    assert abs(until.timestamp() - ends) <= 60
    assert len(codex.script.main) == 1


def test_no_files_are_left_when_its_server_is_killed(codex: CodexStage) -> None:
    codex.begin_asking("")
    codex.until(codex.dialog)

    for pid, line in processes_of(codex.home.path).items():
        if "app-server" in line and START not in line:
            os.kill(pid, signal.SIGKILL)
    codex.end()

    codex.until_clean()
    assert not codex.has_leave()


def test_killed_holder_leaves_nothing_after_the_next_daemon_start(codex: CodexStage) -> None:
    codex.begin_asking("")
    codex.until(codex.dialog)
    holder = codex.holder()

    codex.home.kill(signal.SIGKILL)
    os.kill(holder, signal.SIGKILL)

    codex.until_gone()
    codex.until(lambda: codex.home.pal("up").status == 0)  # its holder may have started one already
    codex.until_clean()
    assert not codex.has_leave()
