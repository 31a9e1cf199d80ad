"""Hooks that `pal codex` adds for one session with the permission of a person, and sessions without them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import run_script_as_person
from tests.harness.real.codex_server import app_server
from tests.harness.real.codex_stage import CodexStage, codex_stage, shell_call
from tests.harness.real.harness_stage import NAME, reply, send
from tests.harness.real.install import installed

from palaver.harness.codex.hooks import TRUSTED_EVENTS, hook_settings

pytestmark = pytest.mark.harness

QUESTION = b"Trust these hooks?"
BY_HOOKS = "mcp__palaver__"
BY_SERVER = "palaver."


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home with a running bus in which Codex can be started."""
    with codex_stage(installed("codex")) as stage:
        yield stage


def has_hooks_of_its_own(codex: CodexStage) -> bool:
    """Return whether the user's settings contain a hook; Codex writes other things there."""
    folder = codex.account / ".codex"
    return "hook" in (folder / "config.toml").read_text() or (folder / "hooks.json").exists()


def launch_as_person(codex: CodexStage, answer: bytes, *words: str) -> None:
    """Have a person start it at a terminal and reply to the question about hooks."""
    person = codex.person(cols=120, rows=40)
    person.run(f"cd {codex.project} && pal codex --name {NAME} --detach {' '.join(words)}")
    person.until(QUESTION)
    person.press(answer)
    person.until(f"\n{NAME}\r\n".encode())
    person.press(b"exit\r")
    codex.until(lambda: codex.is_ready(NAME))


def tools_used(codex: CodexStage, prefix: str) -> list[str]:
    """Return the tools of the status events whose names begin so.

    Hooks and the app-server name one tool of the bus differently: `BY_HOOKS` and `BY_SERVER`.
    """
    found = [one["payload"].get("tool", "") for one in codex.home.events("--type", "status")]
    return [one for one in found if one.startswith(prefix)]


def use_a_tool(codex: CodexStage) -> None:
    """Have the model call a tool of the bus and end its turn."""
    codex.script.add(*codex.bus_replies("list_agents"), reply("done"))


def until_used_without_hooks(codex: CodexStage) -> None:
    """Wait for the end of a turn with a tool, and check that only the app-server has reported the tool."""
    codex.until(lambda: tools_used(codex, BY_SERVER))
    codex.until_idle()
    assert tools_used(codex, BY_HOOKS) == []


def test_codex_trusts_exactly_our_hooks(codex: CodexStage) -> None:
    asyncio.run(_look_at_hooks(codex))


async def _look_at_hooks(codex: CodexStage) -> None:
    settings = hook_settings(codex.pal, str(codex.home.path))
    other = settings[1].replace("UserPromptSubmit", "SessionStart")
    async with app_server(codex, "-c", other, *settings) as server:
        answer = await server.answer("hooks/list", cwds=[str(codex.project)])

    (found,) = json.loads(answer)["data"]
    trusted = {one["eventName"].lower() for one in found["hooks"] if one["trustStatus"] == "trusted"}
    assert trusted == {event.lower() for event in TRUSTED_EVENTS}
    assert [one["trustStatus"] for one in found["hooks"] if one["eventName"] == "sessionStart"] == [
        "untrusted"
    ]
    assert (found["warnings"], found["errors"]) == ([], [])


def test_person_is_asked_once_and_then_hooks_run(codex: CodexStage) -> None:
    use_a_tool(codex)

    launch_as_person(codex, b"y\r", "go")

    codex.until(lambda: tools_used(codex, BY_HOOKS) == [f"{BY_HOOKS}list_agents"])
    codex.until_idle()
    codex.end()

    use_a_tool(codex)
    codex.start("go", name="vega")

    codex.until(lambda: tools_used(codex, BY_HOOKS)[1:] == [f"{BY_HOOKS}list_agents"])
    assert not has_hooks_of_its_own(codex)


def test_person_that_says_no_is_not_asked_again(codex: CodexStage) -> None:
    use_a_tool(codex)
    launch_as_person(codex, b"n\r", "go")
    until_used_without_hooks(codex)
    codex.end()

    person = codex.person(cols=120, rows=40)
    person.run(f"cd {codex.project} && pal codex --name vega --detach")
    person.until(b"\nvega\r\n")

    assert QUESTION not in person.shown


def test_without_a_terminal_there_is_no_question_and_no_hooks(codex: CodexStage) -> None:
    use_a_tool(codex)

    codex.start("go")

    until_used_without_hooks(codex)


def agree(codex: CodexStage) -> None:
    """Have a person agree, and end the session."""
    launch_as_person(codex, b"y\r")
    codex.end()


def test_headless_session_gets_messages_from_its_hooks(codex: CodexStage) -> None:
    agree(codex)
    waiting, there = codex.project / "go", codex.project / "there"
    command = f"touch {there}; while [ ! -e {waiting} ]; do sleep 0.05; done"
    codex.script.add(reply("working", shell_call(command)), reply("after"))
    words = ("--name", "vega", "exec", "--skip-git-repo-check", "-s", "danger-full-access", "go")
    running = codex.begin_headless(*words)
    codex.until(there.exists)

    seq = send(codex.friend(), "@vega", "--", "stop at the second test")
    waiting.touch()

    assert running.wait(60) == 0
    assert "stop at the second test" in codex.script.main[-1].conversation
    receipt = codex.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_session_can_be_started_without_the_agreed_hooks(codex: CodexStage) -> None:
    agree(codex)
    use_a_tool(codex)

    script = f"cd {codex.project} && pal codex --name {NAME} --no-hooks --detach go"
    assert run_script_as_person(codex.home, script).out == f"{NAME}\n"

    until_used_without_hooks(codex)


def test_with_hooks_messages_come_once_and_files_are_reported(codex: CodexStage) -> None:
    agree(codex)
    one, two = (codex.project / name for name in ("one.txt", "two.txt"))
    patch = f"*** Begin Patch\n*** Add File: {one}\n+x\n*** Add File: {two}\n+y\n*** End Patch"
    waiting, there = codex.project / "go", codex.project / "there"
    command = f"touch {there}; while [ ! -e {waiting} ]; do sleep 0.05; done"
    codex.script.add(
        reply("", shell_call("sleep 1"))
    )  # a new thread does not report all of its events at once
    codex.script.add(reply("", shell_call(f"apply_patch <<'EOF'\n{patch}\nEOF")))
    codex.script.add(reply("working", shell_call(command)), reply("done"))
    codex.start("-s", "danger-full-access", "-a", "never", "go")
    codex.until(there.exists)

    seq = send(codex.friend(), "@nova", "--", "nonce-4711")
    codex.until(lambda: codex.receipt(seq)["state"] == "submitted")
    waiting.touch()

    assert codex.until_seen(seq)["grade"] == "context"
    codex.until_idle()
    assert two.exists()
    assert codex.script.main[-1].conversation.count("nonce-4711") == 1
    assert codex.script.main[-1].conversation.count("You are nova on Palaver") == 1
    found = [one["payload"].get("file") for one in codex.home.events("--type", "status")]
    assert {Path(file).name for file in found if file} == {"one.txt", "two.txt"}


def test_hook_review_is_shown_as_blocked_and_messages_come_later(codex: CodexStage) -> None:
    codex.home.ok("install", "codex", "--yes")
    friend = codex.friend()
    codex.script.add(reply("done"), reply("read"))
    codex.launch("pal", "codex", "--name", NAME, "--detach", *codex.words("go", asks=False))
    codex.until(lambda: codex.state() == ("blocked", "hooks need review"))

    message = send(friend, f"@{NAME}", "--interrupt", "--", "hello")

    codex.until(lambda: codex.receipt(message)["state"] == "held")
    assert codex.receipt(message)["reason"] == "dialog"
    person = codex.sit_down(last=b"Hooks")
    person.press(b"2")
    codex.until(lambda: "› 2. Trust all" in codex.screen())
    person.press(b"\r")
    codex.until(lambda: codex.receipt(message)["state"] == "seen")
    assert codex.receipt(message)["lane"] == "native"
