"""Pending permission requests: limits, decisions and outcomes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.doors.parts import Parts, opened_parts
from tests.limits import LIMIT_S

from palaver.errors import BadRequest, NotFound, Unavailable
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.events import ASKED, request_digest
from palaver.protocol.requests import Leave, SetStatus
from palaver.services.permissions import (
    LIMIT_WAIT_S,
    Pending,
    PermissionBook,
    PermissionService,
    PermissionVerdict,
)

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance", harness="claude")
ASK = ("s", "Bash", {"command": "ls\x1b[2J"})


def added(book: PermissionBook, wait_ms: int = 1) -> Pending:
    return book.add(LUNA, *ASK, now_ms=1000, wait_ms=wait_ms)


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with opened_parts(tmp_path, approvals=1, approvals_wait_s=600) as made:
        yield made


def service_of(parts: Parts) -> PermissionService:
    services = parts.services
    return PermissionService(
        services.agents.permissions,
        broker=services.broker,
        queries=services.queries,
        clock=services.clock,
        settings=services.daemon.settings,
    )


async def taken(parts: Parts) -> tuple[PermissionService, Pending, Caller]:
    """A request of an agent that is blocked by it."""
    luna = await parts.bus.join("luna")
    await parts.bus.submit(luna, SetStatus(state="blocked", detail="permission"))
    service = service_of(parts)
    pending = await service.take(luna, *ASK)
    assert pending is not None
    return service, pending, luna


async def test_request_is_shown_without_control_characters_but_kept_exactly() -> None:
    pending = added(PermissionBook(), 5000)

    assert (pending.agent, pending.tool, pending.text) == ("luna", "Bash", "Bash: ls [2J")
    assert pending.input == {"command": "ls\x1b[2J"}
    assert pending.digest == request_digest(*ASK)
    assert (pending.since_ms, pending.until_ms) == (1000, 6000)


async def test_request_never_gets_the_id_that_one_had_before_a_restart() -> None:
    """An agent chooses its request, so that its digest must not decide the id that a person types."""
    assert len({added(PermissionBook()).id for _ in range(20)}) > 1


async def test_request_is_decided_by_one_person_at_a_time() -> None:
    book = PermissionBook()
    pending = added(book)

    assert book.take(pending.id) is pending
    with pytest.raises(BadRequest, match="is being answered"):
        book.take(pending.id)


async def test_closed_request_reports_its_first_reason() -> None:
    book = PermissionBook()
    pending = added(book)

    book.close(pending, "the first reason")
    book.close(pending, "another one")

    assert book.all() == ()
    with pytest.raises(NotFound, match="the first reason"):
        book.take(pending.id)


async def test_pending_and_remembered_requests_are_limited() -> None:
    book = PermissionBook()
    agents = [replace(LUNA, name=f"luna_{number % 25}") for number in range(500)]
    waiting = [book.add(agent, *ASK, now_ms=1000, wait_ms=1) for agent in agents]

    with pytest.raises(
        BadRequest, match="500 requests already wait for a person: this one is asked in the agent's own"
    ):
        added(book)

    for one in waiting:
        book.close(one, "over")
    with pytest.raises(NotFound, match="'pal pending' shows"):
        book.take(waiting[0].id)
    with pytest.raises(NotFound, match="over"):
        book.take(waiting[-1].id)


async def test_one_agent_cannot_use_all_pending_requests() -> None:
    book = PermissionBook()
    waiting = [added(book) for _ in range(20)]

    with pytest.raises(BadRequest, match="20 requests of luna already wait for a person"):
        added(book)

    assert book.add(replace(LUNA, name="nova"), *ASK, now_ms=1000, wait_ms=1).agent == "nova"
    book.close(waiting[0], "over")
    assert added(book) is not None


async def test_abandoned_request_has_no_decision() -> None:
    pending = added(PermissionBook())
    assert pending is not None

    pending.leave()
    pending.leave()
    pending.arrive(has_it=True)

    assert pending.decided.result() is None
    assert pending.arrived.result() is False


async def test_no_request_waits_when_approvals_are_off(tmp_path: Path) -> None:
    async with opened_parts(tmp_path) as parts:
        luna = await parts.bus.join("luna")

        assert await service_of(parts).take(luna, *ASK) is None

        assert parts.permissions.all() == ()
        assert await parts.payloads(ASKED) == []


async def test_request_is_stored_and_waits_at_most_one_hour(tmp_path: Path) -> None:
    async with opened_parts(tmp_path, approvals=1, approvals_wait_s=10 * LIMIT_WAIT_S) as parts:
        _, pending, _ = await taken(parts)

        assert pending.until_ms - pending.since_ms == LIMIT_WAIT_S * 1000
        (asked,) = await parts.payloads(ASKED)
        assert (asked["permission"], asked["digest"]) == (pending.id, pending.digest)


async def test_request_that_cannot_be_stored_does_not_wait(parts: Parts) -> None:
    luna = await parts.bus.join("luna")
    await parts.log.close()

    with pytest.raises(Unavailable):
        await service_of(parts).take(luna, *ASK)

    assert parts.permissions.all() == ()


@pytest.mark.parametrize(("is_allowed", "detail"), [(True, "Bash: ls [2J"), (False, "thinking")])
async def test_decision_of_a_person_unblocks_the_agent(parts: Parts, is_allowed: bool, detail: str) -> None:
    service, pending, _ = await taken(parts)
    pending.decided.set_result(is_allowed)

    verdict = await service.verdict(pending)

    assert verdict == PermissionVerdict(is_allowed, "" if is_allowed else "a person denied it")
    assert (parts.bus.agent("luna").state, parts.bus.agent("luna").detail) == ("active", detail)
    assert parts.permissions.all() == ()


async def test_status_is_unchanged_when_the_harness_reports_it_itself(parts: Parts) -> None:
    service, pending, _ = await taken(parts)
    pending.decided.set_result(True)

    assert (await service.verdict(pending, is_state_reported=True)).is_allowed

    assert parts.bus.agent("luna").state == "blocked"


async def test_request_is_denied_after_the_time_limit(tmp_path: Path) -> None:
    async with opened_parts(tmp_path, approvals=1, approvals_wait_s=0) as parts:
        service, pending, _ = await taken(parts)

        verdict = await service.verdict(pending)

        assert verdict == PermissionVerdict(is_allowed=False, message="no person answered in time")
        (answered,) = await parts.payloads("permission.answered")
        assert (answered["decision"], answered["reason"]) == ("deny", "timeout")
        with pytest.raises(NotFound, match="was denied"):
            parts.permissions.take(pending.id)


async def test_request_in_decision_at_the_time_limit_is_awaited(tmp_path: Path) -> None:
    async with opened_parts(tmp_path, approvals=1, approvals_wait_s=0) as parts:
        service, pending, _ = await taken(parts)
        parts.permissions.take(pending.id)
        waiting = asyncio.ensure_future(service.verdict(pending))
        asyncio.get_running_loop().call_soon(pending.decided.set_result, True)

        async with asyncio.timeout(LIMIT_S):
            assert (await waiting).is_allowed


async def test_request_ends_when_its_agent_leaves(parts: Parts) -> None:
    service, pending, luna = await taken(parts)
    waiting = asyncio.ensure_future(service.verdict(pending))
    await asyncio.sleep(0)

    await parts.bus.submit(luna, Leave())

    async with asyncio.timeout(LIMIT_S):
        assert await waiting == PermissionVerdict(is_allowed=None)
    (answered,) = await parts.payloads("permission.answered")
    assert answered["reason"] == "gone"
