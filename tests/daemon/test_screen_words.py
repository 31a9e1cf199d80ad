"""The hooks and the holder of an agent both report its status: which report is used, and when."""

import json
from collections.abc import Iterator

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, wait_until

ASKED = "usage limit: flash; Keep trying / Stop?"
LEFT = "usage limit, resets Nov 16, 2126, 8:00am (UTC)"


@pytest.fixture
def luna(bus: Home) -> Iterator[FakeHolder]:
    """A Gemini CLI that a holder owns."""
    words = ("run", "--name", "luna", "--harness", "gemini", "--", "bash")
    with FakeHolder(bus) as holder:
        yield holder.hold(ticket_of(words_of(bus, *words)))


def hook(luna: FakeHolder, event: str, **fields: object) -> None:
    """Run a hook below the agent."""
    hook_input = json.dumps({"session_id": "s1", **fields})
    assert luna.run(f"echo '{hook_input}' | pal hook gemini {event}").status == 0


def is_known(bus: Home, state: str, detail: str = "") -> bool:
    (agent,) = [one for one in bus.ok("list", "--json").lines if one["name"] == "luna"]
    return (agent["state"], agent["detail"] or "") == (state, detail)


def test_dialog_detail_from_a_hook_is_not_replaced_by_that_of_the_screen(bus: Home, luna: FakeHolder) -> None:
    luna.ok("status", state="idle")
    details = {"type": "exec", "command": "touch x"}
    hook(luna, "Notification", notification_type="ToolPermission", details=details)
    wait_until(lambda: is_known(bus, "blocked", "permission: touch x"))

    luna.ok("status", state="blocked", detail="permission")

    assert is_known(bus, "blocked", "permission: touch x")


def test_status_that_only_the_screen_shows_is_used_step_by_step(bus: Home, luna: FakeHolder) -> None:
    luna.ok("status", state="idle")
    hook(luna, "BeforeAgent", prompt="go")
    wait_until(lambda: is_known(bus, "active", "thinking"))

    for state, detail in (("blocked", ASKED), ("blocked", LEFT), ("idle", "")):
        luna.ok("status", state=state, detail=detail)

        assert is_known(bus, state, detail)


def test_end_of_a_turn_does_not_end_a_usage_limit_on_the_screen(bus: Home, luna: FakeHolder) -> None:
    luna.ok("status", state="idle")
    hook(luna, "BeforeAgent", prompt="go")
    wait_until(lambda: is_known(bus, "active", "thinking"))
    luna.ok("status", state="blocked", detail=LEFT)

    hook(luna, "AfterAgent", prompt_response="well")
    hook(luna, "BeforeTool", tool_name="read_file")

    wait_until(lambda: is_known(bus, "active", "read_file"))
    states = [one["payload"]["state"] for one in bus.events("--type", "status")]
    assert states[-2:] == ["blocked", "active"]


def test_dialog_that_a_person_closes_at_once_does_not_stay_open(bus: Home) -> None:
    words = ("run", "--name", "luna", "--harness", "claude", "--", "claude")
    asked = {"session_id": "s1", "tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "make"}}
    with FakeHolder(bus) as holder:
        holder.hold(ticket_of(words_of(bus, *words))).ok("status", state="idle")
        for event in ("SessionStart", "PreToolUse", "PermissionRequest"):
            assert holder.run(f"echo '{json.dumps(asked)}' | pal hook claude {event}").status == 0
        wait_until(lambda: is_known(bus, "blocked", "permission: Bash: make"))

        holder.ok("status", state="idle")

        wait_until(lambda: is_known(bus, "idle"))


@pytest.mark.parametrize(("program", "is_heard"), [("claude", True), ("pal claude", False)])
def test_installed_hooks_are_used_if_the_session_has_no_others(
    bus: Home, program: str, is_heard: bool
) -> None:
    words = ("run", "--name", "luna", "--harness", "claude", "--", *program.split())
    with FakeHolder(bus) as holder:
        holder.hold(ticket_of(words_of(bus, *words))).ok("status", state="idle")

        bus.ok("send", "@luna", "--", "look here")

        result = holder.run("echo '{}' | pal hook claude UserPromptSubmit --installed")

        assert ("look here" in result.out) is is_heard
