"""Hooks on a bus: what goes back to the harness, what is proven, what is written down and when."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tests.doors.hooks.conftest import Hooks, text_of
from tests.fakes import Bus, FakeLane, seat

from palaver.delivery.lane import IDLE_WAIT_S, LaneKind, Level
from palaver.delivery.lane import Answer as LaneAnswer
from palaver.harness.hooks import read_hook
from palaver.model.agent import Caller
from palaver.model.envelope import Event
from palaver.model.request import Leave

BASH = {"tool_name": "Bash", "tool_input": {"command": "ls"}}


async def pair(bus: Bus) -> tuple[Caller, Caller]:
    return await bus.join("luna"), await bus.join("nova", harness="claude", seat=seat(7))


def grade(bus: Bus, event: Event) -> tuple[str, str, str]:
    """State, lane and grade of a message for nova."""
    entry = bus.entry(event, "nova")
    return ("queued", "", "") if entry is None else (entry.state, entry.lane, entry.grade)


def notice(bus: Bus, *events: Event) -> str:
    """The prompt that a harness makes of lines of its monitor."""
    lines = "\n".join(f"[new message #{event.seq}] luna → nova: x" for event in events)
    return f"<task-notification>\n<event>{lines}</event>\n</task-notification>"


async def test_only_where_something_can_wake_it_a_session_is_told_that_it_is_woken(hooks: Hooks) -> None:
    nova = await hooks.bus.join("nova", harness="claude", seat=seat(7))
    news = read_hook("claude", "SessionStart", {"session_id": "s1", "source": "startup"})
    assert news is not None

    alone = await hooks.hook(nova, "SessionStart", source="startup")
    beside = await hooks.desk.answer(nova, "claude", replace(news, is_woken=True))
    await hooks.settle(beside)
    hooks.bus.open_lane("nova", LaneKind.TERMINAL)
    held = await hooks.hook(nova, "SessionStart", source="startup")

    assert "pal recv --wait" in alone
    assert "you are woken" not in alone
    assert text_of(beside).endswith("and you are woken.")
    assert held.endswith("and you are woken.")


async def test_a_session_that_starts_is_told_its_name(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)

    assert "You are nova on Palaver" in await hooks.hook(nova, "SessionStart", source="startup")
    assert hooks.bus.agent("nova").session == "s1"
    assert hooks.bus.agent("nova").state == "idle"


async def test_what_waits_goes_with_a_tool_result_and_is_proven_by_the_next_answer(hooks: Hooks) -> None:
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


async def test_with_nothing_waiting_the_answer_is_empty_and_nothing_is_written_before_it(
    hooks: Hooks,
) -> None:
    _, nova = await pair(hooks.bus)
    before = hooks.bus.log.last()

    answer = await hooks.answer(nova, "PostToolUse", **BASH)

    assert answer.said == {}
    assert hooks.bus.log.last() == before
    await hooks.settle(answer)


async def test_an_answer_that_never_left_puts_its_messages_in_line_again(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    lost = await hooks.answer(nova, "PostToolUse", **BASH)

    await hooks.settle(lost, has_left=False)

    assert grade(hooks.bus, message)[0] == "queued"
    assert "look" in await hooks.hook(nova, "PostToolBatch")


async def test_a_turn_goes_on_with_what_waits_and_not_twice_in_a_row(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "one more", "@nova")

    assert "one more" in await hooks.hook(nova, "Stop", stop_hook_active=False)
    assert hooks.bus.agent("nova").state == "active"
    message = await hooks.bus.send(luna, "and another", "@nova")
    assert await hooks.hook(nova, "Stop", stop_hook_active=True) == ""
    assert hooks.bus.agent("nova").state == "idle"
    assert grade(hooks.bus, message)[0] == "queued"


async def test_a_harness_that_forgets_to_say_so_is_kept_from_ending_three_times_at_most(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    found = []
    for number in range(5):
        await hooks.bus.send(luna, f"text {number}", "@nova")
        found.append(bool(await hooks.hook(nova, "Stop")))

    assert found == [True, True, True, False, False]

    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    await hooks.bus.send(luna, "again", "@nova")
    assert "again" in await hooks.hook(nova, "Stop")


async def test_mail_does_not_go_into_a_sub_agent_and_its_hooks_prove_nothing(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")

    assert await hooks.hook(nova, "PostToolUse", agent_id="a1", **BASH) == ""
    assert await hooks.hook(nova, "SessionStart", agent_id="a1") == ""
    assert "look" in await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    await hooks.hook(nova, "PreToolUse", agent_id="a1", **BASH)
    assert grade(hooks.bus, message)[0] == "submitted"


async def test_a_start_gives_no_mail_where_a_lane_can_wake_the_agent(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "look", "@nova")
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL, None)

    assert "look" not in await hooks.hook(nova, "SessionStart", source="startup")
    assert terminal.is_empty
    assert "look" not in await hooks.hook(nova, "SessionStart", source="compact")


async def test_a_start_gives_mail_where_nothing_else_could(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "look", "@nova")

    text = await hooks.hook(nova, "SessionStart", source="startup")

    assert text.startswith("You are nova")
    assert text.endswith("luna → nova: look</pal>")


async def carried(hooks: Hooks, native: FakeLane) -> Event:
    offer = await native.next()
    hooks.conversations.add_native(native.lane)
    return offer.events[0]


async def test_what_a_monitor_has_shown_is_proven_by_hooks(hooks: Hooks) -> None:
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
    """Have a monitor write a line that its harness drops; the agent's terminal is in use by a person."""
    native = hooks.bus.open_lane("nova", LaneKind.NATIVE)
    native.lane.silence = lambda offer: LaneAnswer.REFUSED
    hooks.bus.open_lane("nova", LaneKind.TERMINAL, Level(is_open=False, reason="draft"))
    await hooks.bus.send(luna, "look", "@nova")
    return await carried(hooks, native)


async def test_a_line_that_a_whole_turn_has_not_shown_goes_by_the_hook_that_ends_it(hooks: Hooks) -> None:
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


async def test_a_withdrawn_line_that_shows_up_counts_as_seen_and_is_not_repeated(hooks: Hooks) -> None:
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


async def test_what_a_monitor_could_only_show_in_part_is_added(hooks: Hooks) -> None:
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


async def test_a_prompt_that_claims_messages_of_others_proves_nothing(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    kira = await hooks.bus.join("kira")
    other = await hooks.bus.send(luna, "secret", "@kira")
    waiting = await hooks.bus.send(kira, "not sent yet", "@luna")

    assert await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, other, waiting)) == ""
    await hooks.hook(nova, "Stop")
    assert [hooks.bus.state(other, "kira"), hooks.bus.state(waiting, "luna")] == ["queued", "queued"]


async def test_what_an_earlier_daemon_carried_is_proven_when_it_shows_up(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    await hooks.bus.report("nova", "submitted", message.seq, lane="native")

    await hooks.hook(nova, "UserPromptSubmit", prompt=notice(hooks.bus, message))
    await hooks.hook(nova, "Stop")

    assert grade(hooks.bus, message)[::2] == ("seen", "context")


async def test_a_session_that_ends_leaves_what_is_not_proven_unconfirmed(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look", "@nova")
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")

    await hooks.hook(nova, "SessionEnd", reason="other")

    entry = hooks.bus.entry(message, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed) == ("submitted", True)
    assert hooks.conversations.get("nova") is None
    start = await hooks.hook(nova, "SessionStart", source="resume")
    assert f"maybe never read: #{message.seq}" in start


async def test_an_agent_that_leaves_ends_its_conversation(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    answer = await hooks.answer(nova, "SessionStart", source="startup")
    await hooks.settle(answer)

    await hooks.bus.submit(nova, Leave())
    await hooks.rest(answer)

    assert hooks.conversations.get("nova") is None


async def test_a_hook_does_not_take_the_session_of_another_agent(hooks: Hooks) -> None:
    nova = await hooks.bus.join("nova", harness="claude", seat=seat(1))
    luna = await hooks.bus.join("luna", harness="claude", seat=seat(2))
    await hooks.hook(luna, "SessionStart", source="startup", session_id="s2")
    await hooks.hook(nova, "SessionStart", source="startup")

    await hooks.hook(nova, "UserPromptSubmit", prompt="x", session_id="s2")

    assert (hooks.bus.agent("nova").session, hooks.bus.agent("luna").session) == ("s1", "s2")

    await hooks.hook(luna, "SessionStart", source="clear", session_id="s3")
    await hooks.hook(nova, "UserPromptSubmit", prompt="x", session_id="s2")

    assert hooks.bus.agent("nova").session == "s2"


async def test_another_session_of_the_same_agent_is_kept_and_nothing_of_before_is_proven(
    hooks: Hooks,
) -> None:
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


async def test_what_an_agent_does_is_written_with_tool_command_and_file(hooks: Hooks) -> None:
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


async def test_of_several_hooks_at_once_the_newest_state_holds_and_no_edit_is_lost(hooks: Hooks) -> None:
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
            hooks.desk.settle(answer, has_left=True)
        await hooks_started()
    await hooks.rest(answer)

    assert [one.get("file", one["state"]) for one in statuses(seen)[1:]] == ["/b.py", "idle"]


async def hooks_started() -> None:
    """Let every task begin and come to its wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_long_message_is_cut_and_says_where_all_of_it_is(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "x" * 20_000, "@nova")

    text = text_of(await hooks.answer(nova, "UserPromptSubmit", prompt="go"))

    assert len(text) < 9000
    assert f"pal show {message.seq}" in text


async def test_a_used_up_allowance_is_told_with_the_moment_at_which_it_ends(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL)
    said = "You've hit your session limit · resets 3pm (UTC)"

    await hooks.hook(nova, "StopFailure", error="rate_limit", last_assistant_message=said)
    await hooks.bus.send(luna, "when you can", "@nova", priority="interrupt")

    agent = hooks.bus.agent("nova")
    assert (agent.state, agent.detail) == ("blocked", "usage limit, resets 3pm (UTC)")
    assert terminal.is_empty
