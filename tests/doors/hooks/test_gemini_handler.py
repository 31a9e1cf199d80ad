"""Hooks of Gemini CLI on a bus: its sub-agents and failed turns must not consume messages."""

from tests.delivery.terminals import take
from tests.doors.hooks.conftest import Hooks, text_of
from tests.fakes import Bus, seat

from palaver.harness.registry import read_hook
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.lanes import LaneKind, LaneLevel
from palaver.protocol.lanes import OfferOutcome as Sent
from palaver.protocol.requests import SetStatus

SHELL = {"tool_name": "run_shell_command", "tool_input": {"command": "ls"}}
AGENT = {"tool_name": "invoke_agent", "tool_input": {"agent_name": "generalist"}}
FAILED = {"prompt_response": "[no response text]"}


async def pair(bus: Bus) -> tuple[Caller, Caller]:
    return await bus.join("luna"), await bus.join("nova", harness="gemini", seat=seat(7))


async def hook(hooks: Hooks, caller: Caller, event: str, **fields: object) -> str:
    """Call a hook of Gemini CLI whose reply is sent, and return its text."""
    news = read_hook("gemini", event, {"session_id": "s1", **fields})
    assert news is not None
    answer = await hooks.handler.answer(caller, "gemini", news)
    await hooks.settle(answer)
    return text_of(answer)


def state(bus: Bus, event: Event) -> str:
    entry = bus.entry(event, "nova")
    return "queued" if entry is None else entry.state


async def test_sub_agent_gets_no_messages_but_its_result_carries_them(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hook(hooks, nova, "BeforeAgent", prompt="go")
    await hook(hooks, nova, "BeforeTool", **AGENT)
    message = await hooks.bus.send(luna, "look here", "@nova")

    inside = [
        await hook(hooks, nova, "BeforeTool", **SHELL),
        await hook(hooks, nova, "AfterTool", **SHELL),
    ]

    assert inside == ["", ""]
    assert state(hooks.bus, message) == "queued"
    assert "look here" in await hook(hooks, nova, "AfterTool", **AGENT)


async def test_result_of_the_last_of_two_sub_agents_carries_messages(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hook(hooks, nova, "BeforeTool", **AGENT)
    await hook(hooks, nova, "BeforeTool", **AGENT)
    await hooks.bus.send(luna, "look here", "@nova")

    first = await hook(hooks, nova, "AfterTool", **AGENT)

    assert first == ""
    assert "look here" in await hook(hooks, nova, "AfterTool", **AGENT)


async def test_restarted_daemon_sends_nothing_into_a_possible_sub_agent(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.submit(nova, SetStatus(state="idle"))
    await hooks.bus.submit(nova, SetStatus(state="active", detail="invoke_agent", tool="invoke_agent"))
    await hooks.bus.submit(nova, SetStatus(state="active"))
    await hooks.bus.send(luna, "look here", "@nova")

    inside = [await hook(hooks, nova, event, **SHELL) for event in ("AfterTool", "BeforeTool", "AfterTool")]

    assert inside == ["", "", ""]
    assert "look here" in await hook(hooks, nova, "AfterTool", **AGENT)


async def test_restarted_daemon_uses_the_next_result_without_sub_agents(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.submit(nova, SetStatus(state="active", detail="invoke_agent", tool="invoke_agent"))
    await hooks.bus.submit(nova, SetStatus(state="idle"))
    await hooks.bus.submit(nova, SetStatus(state="active"))
    await hooks.bus.send(luna, "look here", "@nova")

    assert "look here" in await hook(hooks, nova, "AfterTool", **SHELL)


async def test_interrupted_sub_agent_ends_with_its_turn(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hook(hooks, nova, "BeforeTool", **AGENT)
    await hook(hooks, nova, "BeforeAgent", prompt="something else")
    await hooks.bus.send(luna, "look here", "@nova")

    assert "look here" in await hook(hooks, nova, "AfterTool", **SHELL)


async def test_failed_turn_is_not_extended_and_proves_nothing(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    given = await hooks.bus.send(luna, "with the prompt", "@nova")
    assert "with the prompt" in await hook(hooks, nova, "BeforeAgent", prompt="go")
    waiting = await hooks.bus.send(luna, "at the end", "@nova")

    reply = await hook(hooks, nova, "AfterAgent", **FAILED)

    assert reply == ""
    assert state(hooks.bus, waiting) == "queued"
    assert hooks.bus.agent("nova").state == "idle"
    assert state(hooks.bus, given) == "queued"
    again = await hook(hooks, nova, "BeforeAgent", prompt="again")
    await hook(hooks, nova, "AfterAgent", prompt_response="well")
    assert (again.count("with the prompt"), again.count("at the end")) == (1, 1)
    assert (state(hooks.bus, given), state(hooks.bus, waiting)) == ("seen", "seen")


async def test_failed_turn_leaves_a_message_with_a_result_unconfirmed(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hook(hooks, nova, "BeforeAgent", prompt="go")
    message = await hooks.bus.send(luna, "with a result", "@nova")
    assert "with a result" in await hook(hooks, nova, "AfterTool", **SHELL)

    await hook(hooks, nova, "AfterAgent", **FAILED)

    entry = hooks.bus.entry(message, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed) == ("submitted", True)


async def test_message_is_queued_again_after_each_failed_turn(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "look here", "@nova")

    for _ in range(3):
        assert "look here" in await hook(hooks, nova, "BeforeAgent", prompt="go")
        await hook(hooks, nova, "AfterAgent", **FAILED)
        assert state(hooks.bus, message) == "queued"


async def test_prompt_carries_nothing_while_another_message_is_typed(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL, LaneLevel())
    first = await hooks.bus.send(luna, "typed first", "@nova")
    await take(hooks.bus, terminal)
    await hook(hooks, nova, "SessionStart", source="startup")
    second = await hooks.bus.send(luna, "typed second", "@nova")
    offer = await terminal.next()
    waiting = await hooks.bus.send(luna, "waits", "@nova")

    during = await hook(
        hooks, nova, "BeforeAgent", prompt=f"[pal message #{first.seq} from: luna] typed first"
    )
    await hooks.bus.delivery.answer(terminal.lane, offer.number, Sent.SEEN)
    after = await hook(hooks, nova, "BeforeAgent", prompt="by the user")
    own = await hook(
        hooks, nova, "BeforeAgent", prompt=f"[pal message #{second.seq} from: luna] typed second"
    )

    assert (during, after) == ("", "")
    assert "waits" in own
    assert state(hooks.bus, waiting) == "submitted"


async def test_message_typed_in_an_earlier_turn_keeps_nothing_back(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hook(hooks, nova, "SessionStart", source="startup")
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL, LaneLevel())
    await hooks.bus.send(luna, "typed", "@nova")
    await take(hooks.bus, terminal)
    await hook(hooks, nova, "BeforeAgent", prompt="go")
    await hook(hooks, nova, "AfterAgent", prompt_response="well")
    hooks.bus.delivery.set_level(terminal.lane, LaneLevel(is_open=False, reason="draft"))
    await hooks.bus.send(luna, "look here", "@nova")

    assert "look here" in await hook(hooks, nova, "BeforeAgent", prompt="go on")


async def test_turn_end_does_not_end_a_usage_limit_shown_on_the_terminal(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    held = await hooks.bus.join("kira", harness="gemini", seat=seat(8), holder="h")
    for agent in (nova, held):
        await hook(hooks, agent, "BeforeAgent", prompt="go")
        await hooks.bus.broker.submit(agent, SetStatus(state="blocked", detail="usage limit: x; Stop?"))

    for agent in (nova, held):
        await hook(hooks, agent, "AfterAgent", prompt_response="well")

    assert hooks.bus.agent("nova").state == "idle"
    assert hooks.bus.agent("kira").state == "blocked"


async def test_cleared_session_gets_its_name_and_messages_with_a_prompt(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.bus.send(luna, "look here", "@nova")

    cleared = await hook(hooks, nova, "SessionStart", source="clear")
    first = await hook(hooks, nova, "BeforeAgent", prompt="go")
    second = await hook(hooks, nova, "BeforeAgent", prompt="go on")

    assert cleared == ""
    assert "You are nova on Palaver" in first
    assert "look here" in first
    assert second == ""


async def test_late_hook_does_not_hide_a_dialog_on_the_terminal(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    await hook(hooks, nova, "BeforeAgent", prompt="go")
    terminal = hooks.bus.open_lane("nova", LaneKind.TERMINAL)
    await hooks.bus.broker.submit(nova, SetStatus(state="blocked", detail="dialog: a loop"))
    hooks.bus.delivery.set_level(terminal.lane, LaneLevel(is_open=False, reason="dialog"))

    await hook(hooks, nova, "AfterAgent", prompt_response="well")
    shown = hooks.bus.agent("nova").state
    hooks.bus.delivery.set_level(terminal.lane, LaneLevel())
    await hook(hooks, nova, "BeforeTool", **SHELL)

    assert shown == "blocked"
    assert hooks.bus.agent("nova").state == "active"
