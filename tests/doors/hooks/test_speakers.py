"""Hooks of sub-agents on a bus: they have their own messages, evidence and state."""

from dataclasses import replace

from tests.doors.hooks.conftest import Hooks, text_of
from tests.fakes import Bus, seat

from palaver.harness.registry import read_hook
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query

BASH = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}
EDIT = {"tool_name": "Edit", "tool_input": {"file_path": "/src/a.py"}, "tool_use_id": "t2"}
INSIDE = {"agent_id": "a1", "agent_type": "code-reviewer"}
CHILD = "nova_code_reviewer_1"


async def pair(bus: Bus) -> tuple[Caller, Caller]:
    return await bus.join("luna"), await bus.join("nova", harness="claude", seat=seat(7))


async def inside(hooks: Hooks, nova: Caller, event: str, **fields: object) -> str | None:
    """Call a hook of the sub-agent and return its reply text, or None if it has no agent."""
    news = read_hook("claude", event, {"session_id": "s1", **INSIDE, **fields})
    assert news is not None
    speaks = await hooks.handler.speakers.of(nova, news)
    if speaks is None:
        return None
    answer = await hooks.handler.answer(speaks[0], "claude", speaks[1])
    await hooks.settle(answer)
    return text_of(answer)


def entry(bus: Bus, message: Event) -> tuple[str, str]:
    found = bus.entry(message, CHILD)
    return ("queued", "") if found is None else (found.state, found.grade)


async def test_sub_agent_gets_its_name_and_how_to_use_it(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)

    text = await inside(hooks, nova, "SubagentStart")

    assert text is not None
    assert f"You are {CHILD} on Palaver" in text
    assert f"pal --as {CHILD} send" in text
    assert (hooks.bus.agent(CHILD).parent, hooks.bus.agent(CHILD).state) == ("nova", "active")


async def test_sub_agent_and_parent_each_get_their_own_messages(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    await inside(hooks, nova, "SubagentStart")
    own = await hooks.bus.send(luna, "for the child", f"@{CHILD}")
    others = await hooks.bus.send(luna, "for the parent", "@nova")

    to_child = await inside(hooks, nova, "PostToolUse", **BASH)
    to_parent = await hooks.hook(nova, "PostToolUse", **BASH)

    assert to_child == f"<pal>[new message #{own.seq}] luna → {CHILD}: for the child</pal>"
    assert to_parent == f"<pal>[new message #{others.seq}] luna → nova: for the parent</pal>"


async def test_only_later_hooks_of_the_sub_agent_prove_its_messages(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")
    message = await hooks.bus.send(luna, "look", f"@{CHILD}")
    await inside(hooks, nova, "PostToolUse", **BASH)

    for event in ("PostToolBatch", "PreToolUse", "Stop"):
        await hooks.hook(nova, event, **BASH)
    await inside(hooks, nova, "PostToolBatch")
    by_others = entry(hooks.bus, message)
    await inside(hooks, nova, "PreToolUse", **BASH)

    assert by_others == ("submitted", "")
    assert entry(hooks.bus, message) == ("seen", "context")


async def test_messages_waiting_at_its_start_are_included(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.subagents.begun("nova", "a1", "code-reviewer")
    await hooks.subagents.ended("nova", "a1")
    await hooks.bus.join("nova_code_reviewer_2", seat=seat(9))
    news = read_hook("claude", "SubagentStart", {"session_id": "s1", "agent_id": "b1", "agent_type": "x"})
    assert news is not None

    speaks = await hooks.handler.speakers.of(nova, replace(news, is_woken=True))
    assert speaks is not None
    message = await hooks.bus.send(luna, "look", "@nova_x_1")
    answer = await hooks.handler.answer(speaks[0], "claude", speaks[1])
    await hooks.settle(answer)

    assert "You are nova_x_1" in text_of(answer)
    assert f"#{message.seq}] luna → nova_x_1: look" in text_of(answer)


async def test_sub_agent_kept_running_by_messages_is_active_again(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")
    await inside(hooks, nova, "PermissionRequest", **BASH)
    before = hooks.bus.agent(CHILD).state
    await hooks.bus.send(luna, "one thing more", f"@{CHILD}")

    text = await inside(hooks, nova, "SubagentStop")

    assert text is not None
    assert "one thing more" in text
    known = hooks.bus.agent(CHILD)
    assert (before, known.state, known.detail, known.left) == ("blocked", "active", "thinking", False)


async def test_sub_agent_has_its_own_state(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    await hooks.hook(nova, "PreToolUse", tool_name="Agent", tool_input={"description": "review"})
    await inside(hooks, nova, "SubagentStart")

    await inside(hooks, nova, "PreToolUse", **EDIT)

    assert hooks.bus.agent("nova").detail == "Agent: review"
    assert hooks.bus.agent(CHILD).detail == "Edit: /src/a.py"
    status = (await hooks.bus.log.read(Query(types=("status",), senders=(CHILD,))))[-1]
    assert (status.payload["tool"], status.payload["file"]) == ("Edit", "/src/a.py")


async def test_hook_of_a_known_sub_agent_writes_nothing_before_its_reply(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")
    before = hooks.bus.log.last()
    news = read_hook("claude", "PostToolUse", {"session_id": "s1", **INSIDE, **BASH})
    assert news is not None

    speaks = await hooks.handler.speakers.of(nova, news)
    assert speaks is not None
    answer = await hooks.handler.answer(speaks[0], "claude", speaks[1])

    assert (answer.content, hooks.bus.log.last()) == ({}, before)
    await hooks.settle(answer)


async def test_sub_agent_ends_with_its_turn_unless_messages_extend_it(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")
    message = await hooks.bus.send(luna, "one more thing", f"@{CHILD}")

    kept = await inside(hooks, nova, "SubagentStop")
    is_there = not hooks.bus.agent(CHILD).left
    ended = await inside(hooks, nova, "SubagentStop", stop_hook_active=True)

    assert kept == f"<pal>[new message #{message.seq}] luna → {CHILD}: one more thing</pal>"
    assert (is_there, ended) == (True, "")
    assert entry(hooks.bus, message) == ("seen", "context")
    assert (hooks.bus.agent(CHILD).left, hooks.bus.agent(CHILD).detail) == (True, "done")
    assert hooks.bus.agent("nova").state == "idle"


async def test_sub_agent_ends_if_its_extending_reply_was_not_sent(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")
    message = await hooks.bus.send(luna, "one more thing", f"@{CHILD}")
    news = read_hook("claude", "SubagentStop", {"session_id": "s1", **INSIDE})
    assert news is not None
    speaks = await hooks.handler.speakers.of(nova, news)
    assert speaks is not None
    answer = await hooks.handler.answer(speaks[0], "claude", speaks[1])

    await hooks.settle(answer, has_left=False)

    assert hooks.bus.agent(CHILD).left
    assert entry(hooks.bus, message)[0] == "queued"


async def test_resumed_sub_agent_is_the_same_and_gets_no_second_start_text(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")
    await inside(hooks, nova, "SubagentStop")
    message = await hooks.bus.send(luna, "while you were away", f"@{CHILD}")

    at_start = await inside(hooks, nova, "SubagentStart")
    later = await inside(hooks, nova, "PostToolUse", **BASH)

    assert at_start == ""
    assert later == f"<pal>[new message #{message.seq}] luna → {CHILD}: while you were away</pal>"
    assert [agent.name for agent in hooks.subagents.of("nova")] == [CHILD]


async def test_late_hook_neither_begins_nor_revives_a_sub_agent(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)

    assert await inside(hooks, nova, "SubagentStop") is None
    assert await inside(hooks, nova, "Notification") is None
    assert f"You are {CHILD}" in (await inside(hooks, nova, "PostToolUse", **BASH) or "")
    assert await inside(hooks, nova, "PostToolUse", **BASH) == ""
    await inside(hooks, nova, "SubagentStop")
    assert await inside(hooks, nova, "PostToolUse", **BASH) is None
    assert await inside(hooks, nova, "PreToolUse", **BASH) == ""


async def test_hook_inside_an_unknown_agent_has_no_speaker(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    gone = Caller(name="nobody", standing=nova.standing, kind=nova.kind, harness="claude")

    assert await inside(hooks, gone, "SubagentStart") is None


async def test_turn_end_without_background_agents_ends_all_sub_agents(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    await inside(hooks, nova, "SubagentStart")

    await hooks.hook(nova, "Stop", background_tasks=[{"id": "a1", "type": "subagent"}, "?"])
    still_there = not hooks.bus.agent(CHILD).left
    await hooks.hook(nova, "Stop", background_tasks=[{"id": "b", "type": "shell"}])

    assert still_there
    assert hooks.bus.agent(CHILD).detail == "nova ended its turn without it"


async def test_caller_with_a_tool_call_id_is_matched_to_its_sub_agent(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)

    await inside(hooks, nova, "PreToolUse", **BASH)
    await hooks.hook(nova, "PreToolUse", **EDIT)

    assert hooks.subagents.caller_of("t1") == "a1"
    assert hooks.subagents.caller_of("t2") == ""
