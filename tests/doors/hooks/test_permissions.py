"""Permission hooks: which ones wait, and which later hooks show that they are settled."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.doors.parts import Parts, opened_parts

from palaver.doors.hooks import HookPermissions, HookReply
from palaver.harness.hooks import HookNews
from palaver.harness.registry import read_hook
from palaver.protocol.agents import Caller, Standing
from palaver.services.permissions import Pending

NOVA = Caller(name="nova", standing=Standing.WORKER, kind="instance", harness="claude")
CALL = {"tool_name": "Bash", "tool_input": {"command": "ls"}}


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with opened_parts(tmp_path, approvals=1, approvals_wait_s=600) as made:
        await made.bus.join("nova", harness="claude")
        yield made


def news(event: str, **fields: object) -> HookNews:
    found = read_hook("claude", event, {"session_id": "s1", **fields})
    assert found is not None
    return found


def answer(parts: Parts, asked: HookNews, caller: Caller = NOVA) -> HookReply:
    conversation = parts.conversations.open("nova")
    return HookReply({}, asked, conversation, caller, None, frozenset(), is_first=False)


async def waiting(parts: Parts) -> tuple[HookPermissions, HookReply, Pending]:
    permissions = HookPermissions(parts.services)
    asked = answer(parts, news("PermissionRequest", **CALL))
    pending = await permissions.open(asked)
    assert pending is not None
    return permissions, asked, pending


async def test_only_a_hook_that_can_carry_a_decision_waits(parts: Parts) -> None:
    permissions = HookPermissions(parts.services)
    gemini = Caller(name="nova", standing=Standing.WORKER, kind="instance", harness="gemini")

    assert await permissions.open(answer(parts, news("PreToolUse", **CALL))) is None
    assert await permissions.open(answer(parts, news("PermissionRequest", **CALL), gemini)) is None

    assert parts.permissions.all() == ()


async def test_hook_of_an_agent_with_too_many_requests_does_not_wait(parts: Parts) -> None:
    permissions = HookPermissions(parts.services)
    asked = answer(parts, news("PermissionRequest", **CALL))
    while len(parts.permissions.all()) < 20:
        assert await permissions.open(asked) is not None

    assert await permissions.open(asked) is None


@pytest.mark.parametrize(
    ("is_allowed", "expected"),
    [(True, {"behavior": "allow"}), (False, {"behavior": "deny", "message": "a person denied it"})],
)
async def test_decision_of_a_person_is_returned_by_the_hook(
    parts: Parts, is_allowed: bool, expected: dict[str, str]
) -> None:
    permissions, asked, pending = await waiting(parts)
    pending.decided.set_result(is_allowed)

    found = await permissions.decision(asked, pending)

    assert found == {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": expected}}


async def test_request_decided_elsewhere_returns_nothing(parts: Parts) -> None:
    permissions, asked, pending = await waiting(parts)

    pending.leave()

    assert await permissions.decision(asked, pending) == {}


@pytest.mark.parametrize(
    ("heard", "is_over"),
    [
        (news("UserPromptSubmit", prompt="go"), True),
        (news("Stop"), True),
        (news("PostToolUse", **CALL), True),
        (news("PostToolUse", tool_name="Bash", tool_input={"command": "other"}), False),
        (news("PreToolUse", **CALL), False),
        (news("Stop", session_id="s2"), False),
    ],
)
async def test_later_hook_shows_that_a_request_is_settled(
    parts: Parts, heard: HookNews, is_over: bool
) -> None:
    permissions, _, pending = await waiting(parts)

    permissions.hear(NOVA, heard)

    assert pending.decided.done() is is_over


async def test_hooks_of_other_agents_settle_nothing(parts: Parts) -> None:
    permissions, _, pending = await waiting(parts)

    permissions.hear(Caller(name="luna", standing=Standing.WORKER, kind="instance"), news("Stop"))

    assert not pending.decided.done()
