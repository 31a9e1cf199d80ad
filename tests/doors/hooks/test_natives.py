"""Native lanes of a harness in addition to its hooks: monitors, and one-time wakes."""

import asyncio

from tests.doors.hooks.conftest import Hooks
from tests.doors.hooks.test_handler import BASH, grade, pair
from tests.fakes import Bus, FakeLane
from tests.limits import LIMIT_S

from palaver.delivery.lanes import lanes_in_order
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.lanes import LaneKind
from palaver.protocol.requests import Leave
from palaver.services.evidence import Natives, Wake


def woken(*events: Event) -> str:
    """Return the prompt that a harness makes of a wake."""
    lines = "\n".join(f"[new message #{event.seq}] luna → nova: x" for event in events)
    return (
        "<task-notification>\n<summary>messages from Palaver</summary>\n</task-notification>\n"
        f"<system-reminder>\nMessages from Palaver: New messages:\n{lines}\n</system-reminder>"
    )


async def leaving(hooks: Hooks, luna: Caller, text: str = "look") -> tuple[Event, FakeLane]:
    """Send a message by a wake."""
    lane = hooks.bus.open_lane("nova", LaneKind.NATIVE, reaches_busy=False)
    await hooks.bus.send(luna, text, "@nova")
    (message,) = (await lane.next()).events
    hooks.conversations.natives("nova").leave(Wake(lambda: None, lane.lane))
    return message, lane


def unconfirmed(bus: Bus, message: Event) -> bool:
    entry = bus.entry(message, "nova")
    assert entry is not None
    return entry.unconfirmed


def test_newer_wake_ends_the_previous_one() -> None:
    ended: list[str] = []
    natives = Natives()
    first, second = Wake(lambda: ended.append("first")), Wake(lambda: ended.append("second"))
    natives.wait(first)

    natives.wait(second)
    natives.forget(first)

    assert ended == ["first"]
    assert natives.wake is second
    natives.end_wake()
    natives.end_wake()
    assert ended == ["first", "second"]
    assert natives.is_empty


async def test_message_of_a_wake_is_proven_by_its_prompt_and_the_turn_end(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    message, lane = await leaving(hooks, luna)

    assert lane.lane.is_busy
    await hooks.hook(nova, "UserPromptSubmit", prompt=woken(message))
    assert lane.lane.is_spent
    assert grade(hooks.bus, message) == ("submitted", "native", "")
    await hooks.hook(nova, "Stop")

    assert grade(hooks.bus, message) == ("seen", "native", "context")
    assert not lane.lane.is_open
    assert hooks.conversations.natives("nova").is_empty


async def test_message_with_tool_results_is_proven_by_the_next_prompt(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    message, lane = await leaving(hooks, luna)
    for event in ("PreToolUse", "PostToolUse", "PostToolBatch"):
        await hooks.hook(nova, event, **BASH)
    await hooks.hook(nova, "PreToolUse", agent_id="a1", **BASH)
    assert lanes_in_order([lane.lane], idle=True) == [lane.lane]

    await hooks.hook(nova, "Stop")
    assert lanes_in_order([lane.lane], idle=True) == []
    assert grade(hooks.bus, message)[0] == "submitted"
    await hooks.hook(nova, "UserPromptSubmit", prompt="go on")

    assert grade(hooks.bus, message) == ("seen", "native", "context")


async def test_message_pending_at_turn_end_is_not_proven_by_another_prompt(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    message, lane = await leaving(hooks, luna)

    await hooks.hook(nova, "Stop")
    await hooks.hook(nova, "UserPromptSubmit", prompt="go on")

    assert lane.lane.is_spent
    assert grade(hooks.bus, message)[0] == "submitted"
    await hooks.hook(nova, "UserPromptSubmit", prompt=woken(message))
    await hooks.hook(nova, "Stop")
    assert grade(hooks.bus, message) == ("seen", "native", "context")


async def test_unproven_wake_message_is_unconfirmed_when_the_session_ends(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    ended: list[str] = []
    message, lane = await leaving(hooks, luna)
    hooks.conversations.natives("nova").wait(Wake(lambda: ended.append("waits")))

    await hooks.hook(nova, "SessionEnd", reason="clear")

    assert ended == ["waits"]
    assert unconfirmed(hooks.bus, message)
    assert not lane.lane.is_open


async def test_wake_message_is_unconfirmed_if_the_session_is_killed_at_once(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    message, lane = await leaving(hooks, luna)
    changed = asyncio.Event()
    unsubscribe = hooks.bus.log.subscribe(lambda _: changed.set())

    await hooks.bus.submit(nova, Leave())

    async with asyncio.timeout(LIMIT_S):
        while not unconfirmed(hooks.bus, message):
            changed.clear()
            await changed.wait()
    unsubscribe()
    assert not lane.lane.is_open
    assert hooks.conversations.natives("nova").is_empty


async def test_session_end_leaves_only_shown_monitor_lines_unconfirmed(hooks: Hooks) -> None:
    luna, nova = await pair(hooks.bus)
    await hooks.hook(nova, "SessionStart", source="startup")
    monitor = hooks.bus.open_lane("nova")
    hooks.conversations.add_native(monitor.lane)
    shown = await hooks.bus.send(luna, "one", "@nova")
    await monitor.next()
    lines = f"[new message #{shown.seq}] luna → nova: one"
    notice = f"<task-notification>\n<event>{lines}</event>\n</task-notification>"
    await hooks.hook(nova, "UserPromptSubmit", prompt=notice)
    under_way = await hooks.bus.send(luna, "two", "@nova")
    await monitor.next()

    await hooks.hook(nova, "SessionEnd", reason="clear")

    assert unconfirmed(hooks.bus, shown)
    assert not unconfirmed(hooks.bus, under_way)


async def test_monitor_ends_a_waiting_wake(hooks: Hooks) -> None:
    await pair(hooks.bus)
    ended: list[str] = []
    hooks.conversations.natives("nova").wait(Wake(lambda: ended.append("waits")))
    monitor = hooks.bus.open_lane("nova")

    hooks.conversations.add_native(monitor.lane)

    assert ended == ["waits"]
    hooks.conversations.remove_native(monitor.lane)
    assert hooks.conversations.natives("nova").is_empty
