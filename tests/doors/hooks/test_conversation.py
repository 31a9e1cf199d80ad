"""The conversation of one agent as its hooks report it, and its end."""

import asyncio

import pytest
from tests.doors.hooks.conftest import Hooks
from tests.doors.hooks.test_handler import BASH, grade, pair
from tests.limits import LIMIT_S

from palaver.errors import Unavailable
from palaver.harness.hooks import HookNews, HookStep
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.requests import Leave, SetStatus
from palaver.services.evidence import Conversation, Wake, is_state_of


def unconfirmed(hooks: Hooks, event: Event) -> bool:
    entry = hooks.bus.entry(event, "nova")
    return entry is not None and entry.unconfirmed


async def until_unconfirmed(hooks: Hooks, event: Event) -> None:
    changed = asyncio.Event()
    unsubscribe = hooks.bus.log.subscribe(lambda _: changed.set())
    async with asyncio.timeout(LIMIT_S):
        while not unconfirmed(hooks, event):
            changed.clear()
            await changed.wait()
    unsubscribe()


async def given(hooks: Hooks, text: str = "look") -> tuple[Event, Caller]:
    """Deliver a message to nova with a tool result, without evidence that it was read."""
    luna, nova = await pair(hooks.bus)
    message = await hooks.bus.send(luna, text, "@nova")
    assert text in await hooks.hook(nova, "PostToolUse", **BASH)
    assert grade(hooks.bus, message) == ("submitted", "hook", "")
    return message, nova


async def opened(hooks: Hooks) -> Conversation:
    await pair(hooks.bus)
    return hooks.conversations.open("nova")


async def test_agent_has_one_conversation_until_it_ends(hooks: Hooks) -> None:
    await pair(hooks.bus)
    assert hooks.conversations.get("nova") is None

    made = hooks.conversations.open("nova")

    assert hooks.conversations.open("nova") is made
    assert hooks.conversations.get("nova") is made

    await hooks.conversations.end("nova")
    await hooks.conversations.end("nova")

    assert hooks.conversations.get("nova") is None
    assert not made.lane.is_open
    assert hooks.conversations.open("nova") is not made


def fail(conversation: Conversation, settles: list[bool]) -> None:
    """Serve a hook that fails while another one is served; record which of them settle earlier messages."""
    with conversation.recovering() as is_first:
        settles.append(is_first)
        with conversation.recovering() as is_second:
            settles.append(is_second)
        raise Unavailable("the disk is full")


async def test_next_hook_settles_earlier_messages_if_the_first_one_fails(hooks: Hooks) -> None:
    conversation = await opened(hooks)
    settles: list[bool] = []

    with pytest.raises(Unavailable):
        fail(conversation, settles)
    with conversation.recovering() as is_first:
        settles.append(is_first)
    with pytest.raises(Unavailable):
        fail(conversation, settles)

    assert settles == [True, False, True, False, False]


async def test_unproven_messages_are_unconfirmed_when_the_agent_leaves(hooks: Hooks) -> None:
    message, nova = await given(hooks)

    await hooks.bus.submit(nova, Leave())

    await until_unconfirmed(hooks, message)
    assert hooks.conversations.get("nova") is None


async def test_ending_a_missing_conversation_is_not_an_error(hooks: Hooks) -> None:
    await pair(hooks.bus)

    await hooks.conversations.end("nova")

    assert hooks.conversations.get("nova") is None


async def test_end_of_an_agent_is_ignored_after_close(hooks: Hooks) -> None:
    message, nova = await given(hooks)
    other = await hooks.bus.join("vera")

    hooks.conversations.close()
    await hooks.bus.submit(nova, Leave())
    await hooks.bus.submit(other, Leave())

    assert hooks.conversations.get("nova") is not None
    assert not unconfirmed(hooks, message)
    await hooks.conversations.end("nova")


async def test_offer_is_seen_only_when_all_its_messages_are_proven(hooks: Hooks) -> None:
    luna, _ = await pair(hooks.bus)
    messages = [await hooks.bus.send(luna, text, "@nova") for text in ("one", "two")]
    conversation = hooks.conversations.open("nova")
    monitor = hooks.bus.open_lane("nova")
    hooks.conversations.add_native(monitor.lane)
    offer = await monitor.next()
    assert offer.seqs == tuple(message.seq for message in messages)

    await conversation.prove(frozenset({messages[0].seq}))
    assert grade(hooks.bus, messages[0])[0] == "submitted"
    await conversation.prove(frozenset({messages[1].seq}))

    assert [grade(hooks.bus, one) for one in messages] == [("seen", "native", "context")] * 2
    hooks.conversations.remove_native(monitor.lane)


async def test_message_without_an_open_offer_is_proven_alone(hooks: Hooks) -> None:
    luna, _ = await pair(hooks.bus)
    message = await hooks.bus.send(luna, "one", "@nova")
    await hooks.bus.report("nova", "submitted", message.seq, lane="native")
    conversation = hooks.conversations.open("nova")

    await conversation.prove(frozenset({message.seq}))

    assert grade(hooks.bus, message)[0] == "seen"


async def test_native_lanes_are_kept_while_one_is_in_use(hooks: Hooks) -> None:
    await pair(hooks.bus)
    natives = hooks.conversations.natives("nova")
    wake = Wake(lambda: None)
    natives.wait(wake)

    hooks.conversations.let_go("nova")
    assert hooks.conversations.natives("nova") is natives

    natives.forget(wake)
    hooks.conversations.let_go("nova")
    hooks.conversations.let_go("nobody")
    assert hooks.conversations.natives("nova") is not natives


async def test_own_prompt_resets_the_count_of_blocked_turn_ends(hooks: Hooks) -> None:
    conversation = await opened(hooks)
    conversation.blocks = 2

    conversation.hear(HookNews(event="x", step=HookStep.CALL))
    assert conversation.blocks == 2
    conversation.hear(HookNews(event="x", step=HookStep.PROMPT))

    assert conversation.blocks == 0
    assert conversation.heard == 2


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ([(HookStep.CALL, 1), (HookStep.CALL, 1), (HookStep.RESULT, -1)], 1),
        ([(HookStep.RESULT, -1), (HookStep.CALL, 1)], 1),
        ([(HookStep.CALL, 1), (HookStep.ASIDE, 0)], 1),
        ([(HookStep.CALL, 1), (HookStep.TURN_END, 0)], 0),
    ],
)
async def test_unmarked_sub_agents_are_counted_within_a_turn(
    hooks: Hooks, steps: list[tuple[HookStep, int]], count: int
) -> None:
    conversation = await opened(hooks)

    for step, delegates in steps:
        conversation.hear(HookNews(event="x", step=step, delegates=delegates))

    assert conversation.delegated == count


@pytest.mark.parametrize(
    ("steps", "is_possible"),
    [
        ([(HookStep.RESULT, 0)], True),
        ([(HookStep.ASIDE, 0), (HookStep.CALL, 0), (HookStep.RESULT, 0)], True),
        ([(HookStep.RESULT, 0), (HookStep.RESULT, -1)], False),
        ([(HookStep.RESULT, -1)], False),
        ([(HookStep.CALL, 1)], False),
        ([(HookStep.RESULT, 0), (HookStep.TURN_END, 0)], False),
        ([(HookStep.PROMPT, 0), (HookStep.RESULT, 0)], False),
    ],
)
async def test_unmarked_turn_may_be_a_sub_agents_until_it_ends(
    hooks: Hooks, steps: list[tuple[HookStep, int]], is_possible: bool
) -> None:
    conversation = await opened(hooks)

    for step, delegates in steps:
        conversation.hear(HookNews(event="x", step=step, delegates=delegates, is_unmarked=True))

    assert conversation.may_be_delegated == is_possible


async def test_only_a_state_from_a_hook_counts_as_reported_by_one(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    conversation = hooks.conversations.open("nova")
    assert not is_state_of(conversation.reported, hooks.bus.agent("nova"))

    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    assert is_state_of(conversation.reported, hooks.bus.agent("nova"))

    await hooks.bus.submit(nova, SetStatus(state="blocked", detail="dialog"))
    assert not is_state_of(conversation.reported, hooks.bus.agent("nova"))
