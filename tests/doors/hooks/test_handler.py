"""Hooks on a bus: replies to the harness, evidence, and the stored state."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.doors.hooks.conftest import Hooks, text_of
from tests.fakes import Bus, FakeLane, seat

from palaver.harness.claude import hooks as claude_hooks
from palaver.harness.codex import hooks as codex_hooks
from palaver.harness.gemini import hooks as gemini_hooks
from palaver.harness.registry import HOOKED, read_hook
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.lanes import IDLE_WAIT_S, LaneKind, LaneLevel
from palaver.protocol.lanes import OfferOutcome as LaneAnswer
from palaver.protocol.paths import Content, CreateSession, SubscribePath
from palaver.protocol.requests import Leave, Send

BASH = {"tool_name": "Bash", "tool_input": {"command": "ls"}}


async def pair(bus: Bus) -> tuple[Caller, Caller]:
    return await bus.join("luna"), await bus.join("nova", harness="claude", seat=seat(7))


def grade(bus: Bus, event: Event) -> tuple[str, str, str]:
    """Return state, lane and grade of a message for nova."""
    entry = bus.entry(event, "nova")
    return ("queued", "", "") if entry is None else (entry.state, entry.lane, entry.grade)


def notice(bus: Bus, *events: Event) -> str:
    """Return the prompt that a harness makes of the lines of its monitor."""
    lines = "\n".join(f"[new message #{event.seq}] luna → nova: x" for event in events)
    return f"<task-notification>\n<event>{lines}</event>\n</task-notification>"


async def test_start_text_promises_a_wake_up_only_with_a_waking_lane(hooks: Hooks) -> None:
    nova = await hooks.bus.join("nova", harness="claude", seat=seat(7))
    news = read_hook("claude", "SessionStart", {"session_id": "s1", "source": "startup"})
    assert news is not None

    alone = await hooks.hook(nova, "SessionStart", source="startup")
    other = await hooks.handler.answer(nova, "claude", replace(news, is_woken=True))
    await hooks.settle(other)
    hooks.bus.open_lane("nova", LaneKind.TERMINAL)
    held = await hooks.hook(nova, "SessionStart", source="startup")

    assert "pal recv --wait" in alone
    assert "a message wakes you" not in alone
    assert text_of(other).endswith("and a message wakes you.")
    assert held.endswith("and a message wakes you.")


async def test_session_start_reports_the_name_of_the_agent(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)

    assert "You are nova on Palaver" in await hooks.hook(nova, "SessionStart", source="startup")
    assert hooks.bus.agent("nova").session == "s1"
    assert hooks.bus.agent("nova").state == "idle"


async def test_hook_shows_the_copy_of_the_current_session_and_no_handled_copy(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    await hooks.bus.submit(nova, CreateSession(agent="nova", session="mon", harness_session="s1"))
    for session in ("mon", "other"):
        await hooks.bus.submit(nova, SubscribePath(agent="nova", pattern="ci/*", session=session))
    request = Send(text="", to=("/ci/main",), content=Content(command="red", payload=[]))
    sent = await hooks.bus.submit(luna, request)
    assert sent is not None

    text = await hooks.hook(nova, "PostToolUse", **BASH)

    assert sent.payload["delivered_to"] == ["nova+mon", "nova+other", "nova"]
    assert text == f"<pal>[new message #{sent.seq}] luna → nova (session mon): red []</pal>"
    assert await hooks.hook(nova, "PostToolUse", **BASH) == ""


async def test_message_goes_with_a_tool_result_and_is_proven_by_the_next_call(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    message = await hooks.bus.send(luna, "look here", "@nova", intent="request")

    text = await hooks.hook(nova, "PostToolUse", **BASH)

    assert text == f"<pal>[request #{message.seq}] luna → nova: look here</pal>"
    assert grade(hooks.bus, message) == ("submitted", "hook", "")
    await hooks.hook(nova, "PostToolBatch")
    assert grade(hooks.bus, message) == ("submitted", "hook", "")
    await hooks.hook(nova, "PreToolUse", **BASH)
    assert grade(hooks.bus, message) == ("seen", "hook", "context")


async def test_reply_without_messages_is_empty_and_writes_nothing_first(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    before = hooks.bus.log.last()

    answer = await hooks.answer(nova, "PostToolUse", **BASH)

    assert answer.content == {}
    assert hooks.bus.log.last() == before
    await hooks.settle(answer)


async def test_messages_of_a_reply_that_was_not_sent_are_queued_again(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    lost = await hooks.answer(nova, "PostToolUse", **BASH)

    await hooks.settle(lost, has_left=False)

    assert grade(hooks.bus, message)[0] == "queued"
    assert "look" in await hooks.hook(nova, "PostToolBatch")


EVENTS = {"claude": claude_hooks.EVENTS, "codex": codex_hooks.EVENTS, "gemini": gemini_hooks.EVENTS}
EVERY_EVENT = [
    (harness, event)
    for harness in HOOKED
    for event in dict.fromkeys((*EVENTS[harness], *claude_hooks.EVENTS))
]
"""The hooks that are set up, and those that a user may have set up for a harness with the same names."""


@pytest.mark.parametrize(("harness", "event"), EVERY_EVENT)
async def test_every_hook_carries_a_message_or_leaves_it_queued(
    hooks: Hooks, harness: str, event: str
) -> None:
    luna, nova = await hooks.bus.join("luna"), await hooks.bus.join("nova", harness=harness, seat=seat(7))
    message = await hooks.bus.send(luna, "look", "@nova")
    news = read_hook(harness, event, {"session_id": "s1", **BASH})
    assert news is not None

    answer = await hooks.handler.answer(nova, harness, news)
    await hooks.settle(answer)

    is_carried = "look" in text_of(answer)
    assert (answer.offer is not None) == is_carried
    assert grade(hooks.bus, message) == (("submitted", "hook", "") if is_carried else ("queued", "", ""))


async def test_message_that_waits_at_a_failed_tool_goes_with_the_next_hook(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    message = await hooks.bus.send(luna, "look", "@nova")

    failed = await hooks.hook(nova, "PostToolUseFailure", **BASH)
    text = await hooks.hook(nova, "PostToolBatch")

    assert failed == ""
    assert "look" in text
    await hooks.hook(nova, "Stop")
    assert grade(hooks.bus, message) == ("seen", "hook", "context")


async def test_messages_of_an_empty_reply_are_queued_again(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    answer = await hooks.answer(nova, "PostToolUse", **BASH)

    await hooks.settle(replace(answer, content={}))

    assert grade(hooks.bus, message)[0] == "queued"
    assert "look" in await hooks.hook(nova, "PostToolBatch")


async def test_messages_extend_a_turn_but_not_twice_in_a_row(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "one more", "@nova")

    assert "one more" in await hooks.hook(nova, "Stop", stop_hook_active=False)
    assert hooks.bus.agent("nova").state == "active"
    message = await hooks.bus.send(luna, "and another", "@nova")
    assert await hooks.hook(nova, "Stop", stop_hook_active=True) == ""
    assert hooks.bus.agent("nova").state == "idle"
    assert grade(hooks.bus, message)[0] == "queued"


async def test_turn_ends_if_the_message_that_extends_it_does_not_leave(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    message = await hooks.bus.send(luna, "one more", "@nova")

    lost = await hooks.answer(nova, "Stop", stop_hook_active=False)
    await hooks.settle(lost, has_left=False)

    assert "one more" in text_of(lost)
    assert hooks.bus.agent("nova").state == "idle"
    assert grade(hooks.bus, message)[0] == "queued"


async def test_turn_end_is_blocked_three_times_at_most(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    found = []
    for number in range(5):
        await hooks.bus.send(luna, f"text {number}", "@nova")
        found.append(bool(await hooks.hook(nova, "Stop")))

    assert found == [True, True, True, False, False]

    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    await hooks.bus.send(luna, "again", "@nova")
    assert "again" in await hooks.hook(nova, "Stop")


async def test_sub_agent_hooks_get_no_parent_messages_and_prove_nothing(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")

    assert "look" not in await hooks.hook(nova, "PostToolUse", agent_id="a1", **BASH)
    assert "look" not in await hooks.hook(nova, "PostToolBatch", agent_id="a1")
    assert "look" in await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    await hooks.hook(nova, "PreToolUse", agent_id="a1", **BASH)
    assert grade(hooks.bus, message)[0] == "submitted"


async def test_start_delivers_no_messages_if_a_lane_can_wake_the_agent(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "look", "@nova")
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL, None)

    assert "look" not in await hooks.hook(nova, "SessionStart", source="startup")
    assert terminal.is_empty
    assert "look" not in await hooks.hook(nova, "SessionStart", source="compact")


async def test_start_delivers_messages_if_no_lane_can_wake_the_agent(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "look", "@nova")

    text = await hooks.hook(nova, "SessionStart", source="startup")

    assert text.startswith("You are nova")
    assert text.endswith("luna → nova: look</pal>")


async def carried(hooks: Hooks, native: FakeLane) -> Event:
    offer = await native.next()
    hooks.conversations.add_native(native.lane)
    return offer.events[0]


async def test_message_shown_by_a_monitor_is_proven_by_hooks(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    native = hooks.bus.open_lane("nova", LaneKind.NATIVE)
    await hooks.bus.send(luna, "look", "@nova")
    message = await carried(hooks, native)
    second = await hooks.bus.send(luna, "and then", "@nova")

    assert await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, message)) == ""

    assert (await native.next()).seqs == (second.seq,)
    assert grade(hooks.bus, message) == ("submitted", "native", "")
    await hooks.hook(nova, "Stop")
    assert grade(hooks.bus, message) == ("seen", "native", "context")
    assert grade(hooks.bus, second) == ("submitted", "native", "")


async def dropped(hooks: Hooks, luna: Caller) -> Event:
    """Have a monitor write a line that its harness drops, while a person uses the terminal."""
    native = hooks.bus.open_lane("nova", LaneKind.NATIVE)
    native.lane.silence = lambda offer: LaneAnswer.REFUSED
    hooks.bus.open_lane("nova", LaneKind.TERMINAL, LaneLevel(is_open=False, reason="draft"))
    await hooks.bus.send(luna, "look", "@nova")
    return await carried(hooks, native)


async def test_line_not_shown_in_a_whole_turn_goes_with_the_turn_end(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    message = await dropped(hooks, luna)

    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    early = await hooks.hook(nova, "Stop")
    await hooks.hook(nova, "UserPromptSubmit", prompt="go on")
    text = await hooks.hook(nova, "Stop")

    assert early == ""
    assert text.endswith(f"[new message #{message.seq}] luna → nova: look</pal>")
    await hooks.hook(nova, "Stop", stop_hook_active=True)
    assert grade(hooks.bus, message) == ("seen", "hook", "context")


async def test_withdrawn_line_that_appears_counts_as_seen_and_is_not_repeated(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    message = await dropped(hooks, luna)
    hooks.bus.clock.advance(IDLE_WAIT_S)
    await hooks.bus.delivery.catch_up()
    assert grade(hooks.bus, message)[0] == "queued"

    text = await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, message))
    more = await hooks.hook(nova, "PostToolBatch")
    end = await hooks.hook(nova, "Stop")

    assert (text, more, end) == ("", "", "")
    assert grade(hooks.bus, message) == ("seen", "hook", "context")


async def test_message_truncated_by_a_monitor_is_sent_in_full(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    native = hooks.bus.open_lane("nova", LaneKind.NATIVE)
    await hooks.bus.send(luna, "one\ntwo", "@nova")
    message = await carried(hooks, native)
    conversation = hooks.conversations.get("nova")
    assert conversation is not None
    conversation.cut.add(message.seq)

    text = await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, message))

    assert text == f"<pal>[new message #{message.seq}] luna → nova: one\ntwo</pal>"


async def test_prompt_with_messages_to_others_proves_nothing(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    kira = await hooks.bus.join("kira")
    other = await hooks.bus.send(luna, "secret", "@kira")
    waiting = await hooks.bus.send(kira, "not sent yet", "@luna")

    assert await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, other, waiting)) == ""
    await hooks.hook(nova, "Stop")
    assert [hooks.bus.state(other, "kira"), hooks.bus.state(waiting, "luna")] == ["queued", "queued"]


async def test_message_carried_by_an_earlier_daemon_is_proven_later(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    await hooks.bus.report("nova", "submitted", message.seq, lane="native")

    await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, message))
    await hooks.hook(nova, "Stop")

    assert grade(hooks.bus, message)[::2] == ("seen", "context")


async def test_unproven_message_is_unconfirmed_when_the_session_ends(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")

    await hooks.hook(nova, "SessionEnd", reason="other")

    entry = hooks.bus.entry(message, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed) == ("submitted", True)
    assert hooks.conversations.get("nova") is None
    start = await hooks.hook(nova, "SessionStart", source="resume")
    assert f"maybe not read: #{message.seq}" in start


async def test_agent_that_leaves_ends_its_conversation(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    answer = await hooks.answer(nova, "SessionStart", source="startup")
    await hooks.settle(answer)

    await hooks.bus.submit(nova, Leave())
    await hooks.rest(answer)

    assert hooks.conversations.get("nova") is None


async def test_hook_does_not_take_the_session_of_another_agent(hooks: Hooks) -> None:
    nova = await hooks.bus.join("nova", harness="claude", seat=seat(1))
    luna = await hooks.bus.join("luna", harness="claude", seat=seat(2))
    await hooks.hook(luna, "SessionStart", source="startup", session_id="s2")
    await hooks.hook(nova, "SessionStart", source="startup")

    await hooks.hook(nova, "UserPromptSubmit", prompt="x", session_id="s2")

    assert (hooks.bus.agent("nova").session, hooks.bus.agent("luna").session) == ("s1", "s2")

    await hooks.hook(luna, "SessionStart", source="clear", session_id="s3")
    await hooks.hook(nova, "UserPromptSubmit", prompt="x", session_id="s2")

    assert hooks.bus.agent("nova").session == "s2"


async def test_new_session_of_an_agent_is_stored_and_proves_nothing_earlier(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    message = await hooks.bus.send(luna, "look", "@nova")
    await hooks.hook(nova, "PostToolUse", **BASH)

    await hooks.hook(nova, "SessionStart", source="clear", session_id="s2")
    await hooks.hook(nova, "Stop", session_id="s2")

    assert hooks.bus.agent("nova").session == "s2"
    assert grade(hooks.bus, message)[0] == "submitted"


def statuses(events: Sequence[Event]) -> list[dict[str, object]]:
    return [dict(event.payload) for event in events if event.type == "status"]


async def test_status_is_stored_with_tool_command_and_file(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    seen: list[Event] = []
    hooks.bus.log.subscribe(seen.extend)

    await hooks.hook(nova, "PreToolUse", **BASH)
    await hooks.hook(nova, "PreToolUse", tool_name="Edit", tool_input={"file_path": "/a.py"})
    await hooks.hook(nova, "PermissionRequest", **BASH)
    await hooks.hook(nova, "Stop")
    await hooks.hook(nova, "Stop")

    assert statuses(seen) == [
        {"state": "active", "detail": "Bash: ls", "tool": "Bash", "command": "ls"},
        {"state": "active", "detail": "Edit: /a.py", "tool": "Edit", "file": "/a.py"},
        {"state": "blocked", "detail": "permission: Bash: ls"},
        {"state": "idle"},
    ]


async def test_concurrent_hooks_keep_the_newest_state_and_every_edit(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    seen: list[Event] = []
    hooks.bus.log.subscribe(seen.extend)
    await hooks.hook(nova, "SessionStart", source="startup")
    conversation = hooks.conversations.get("nova")
    assert conversation is not None
    async with conversation.writing:
        for event, fields in (
            ("PreToolUse", BASH),
            ("PreToolUse", {"tool_name": "Write", "tool_input": {"file_path": "/b.py"}}),
            ("Stop", {}),
        ):
            answer = await hooks.answer(nova, event, **fields)
            hooks.handler.settle(answer, has_left=True)
        await hooks_started()
    await hooks.rest(answer)

    assert [one.get("file", one["state"]) for one in statuses(seen)[1:]] == ["/b.py", "idle"]


async def hooks_started() -> None:
    """Let every task start and reach its wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_long_message_is_cut_with_a_hint_to_the_full_text(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "x" * 20_000, "@nova")

    text = text_of(await hooks.answer(nova, "UserPromptSubmit", prompt="go"))

    assert len(text) < 9000
    assert f"pal show {message.seq}" in text


async def test_usage_limit_is_reported_with_its_reset_time(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL)
    content = "You've hit your session limit · resets 3pm (UTC)"

    await hooks.hook(nova, "StopFailure", error="rate_limit", last_assistant_message=content)
    await hooks.bus.send(luna, "when you can", "@nova", priority="interrupt")

    agent = hooks.bus.agent("nova")
    assert (agent.state, agent.detail) == ("blocked", "usage limit, resets 3pm (UTC)")
    assert terminal.is_empty


async def test_start_keeps_the_outcomes_of_open_messages_however_old(hooks: Hooks, tmp_path: Path) -> None:
    luna, _ = await pair(hooks.bus)
    lost, written, unsure, seen = [await hooks.bus.send(luna, text, "@nova") for text in "abcd"]
    for key, message in (("k1", lost), ("k2", written), ("k3", unsure), ("k4", seen)):
        await hooks.bus.report("nova", "submitted", message.seq, lane="hook", request=f"prompt {key}")
    await hooks.bus.report("nova", "submitted", unsure.seq, lane="hook", unconfirmed=True)
    await hooks.bus.report("nova", "seen", seen.seq, lane="hook", grade="context")
    folder = tmp_path / "hooks"
    folder.mkdir()
    for name in ("k1.lost", "k2.said", "k3.said", "k4.said", "k5.said"):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))

    await hooks.handler.outcomes.start(7 * 24 * 3600)

    assert hooks.bus.state(lost, "nova") == "queued"
    assert {path.name for path in folder.iterdir()} == {"k2.said", "k3.said"}
