"""Waiting for the stick: wake-ups, time limits, ends of waits, and events returned with a turn."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import HANDOFF, RoomResult, Stage, done, opened_stage
from tests.fakes import HUMAN, OpenLog
from tests.limits import LIMIT_S

from palaver.errors import (
    BadRequest,
    DuplicateWait,
    NotAllowed,
    ObserverCannotHoldTurn,
    ParkRequiresRelease,
    RecipientUnreachable,
    RoomNotFound,
    StaleLease,
    TurnMismatch,
    UnknownMember,
    UnknownTarget,
)
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.requests import Claim, Leave, Request, SetStatus

MINUTE_S = 60
LEASE_S = 45 * MINUTE_S


@pytest.fixture
async def stage(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path, open_log=open_log) as made:
        yield made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def members_of(answer: RoomResult) -> list[dict[str, Any]]:
    found: Any = answer["members"]
    return list(found)


async def test_free_stick_is_granted_at_once(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")

    answer = await stage.rendered.wait_for_turn(luna, room_id="#work")

    assert (answer["status"], answer["reason"], answer["turn_id"]) == ("your_turn", "open_claim", 1)
    assert answer["lease_id"] == stage.room().lease
    assert answer["handoff"] is None
    assert answer["from_agent_id"] is None
    assert answer["lease_expires_at"] == stage.clock.now_ms() + LEASE_S * 1000


async def test_release_wakes_a_waiter_that_gets_the_handoff(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    released = await stage.release(luna)
    answer = await done(waiting)

    assert (released["status"], released["reserved_for"]) == ("released", "nova")
    assert (answer["status"], answer["turn_id"], answer["from_agent_id"]) == ("your_turn", 2, "luna")
    assert answer["handoff"] == HANDOFF


async def test_wait_without_a_turn_ends_at_its_limit_and_names_the_owner(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", max_wait_ms=30_000))
    await stage.settle()

    await stage.timers.advance(29.9)
    assert not waiting.done()
    await stage.timers.advance(0.2)
    answer = await done(waiting)

    assert answer["status"] == "not_yet"
    assert answer["owner_agent_id"] == "luna"
    assert answer["room_state"] == "owned"


@pytest.mark.parametrize(
    ("asked", "limit", "lasts_s"),
    [(None, 110_000, 110), (500_000, 110_000, 110), (-5, 110_000, 0), (200_000, None, 200), (-5, None, 0)],
)
async def test_wait_lasts_as_requested_within_its_limit(
    stage: Stage, work: Path, asked: int | None, limit: int | None, lasts_s: int
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(
        stage.rendered.wait_for_turn(nova, room_id="work", max_wait_ms=asked, limit_ms=limit)
    )
    await stage.settle()

    await stage.timers.advance(lasts_s - 1)
    assert waiting.done() == (lasts_s == 0)
    await stage.timers.advance(1.1)

    assert (await done(waiting))["status"] == "not_yet"


async def test_wait_without_a_limit_lasts_until_a_takeover_is_possible(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", limit_ms=None))
    await stage.settle()

    await stage.timers.advance(40 * MINUTE_S)
    assert not waiting.done()
    await stage.timers.advance(5 * MINUTE_S)
    answer = await done(waiting)

    assert (answer["status"], answer["reason"]) == ("takeover_available", "owner_timeout")


async def test_waiting_queries_only_after_a_notification(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    asked = 0
    submit = stage.broker.submit

    async def counting(caller: Caller, request: Request, *, key: bytes | None = None) -> object:
        nonlocal asked
        asked += isinstance(request, Claim)
        return await submit(caller, request, key=key)

    stage.broker.submit = counting  # type: ignore[method-assign, assignment]  # counts calls, changes nothing
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", max_wait_ms=100_000))
    await stage.settle()
    before = asked

    await stage.timers.advance(90)

    assert before == asked == 1
    waiting.cancel()


async def test_next_waiter_gets_the_stick_after_the_grace_of_an_absent_one(stage: Stage, work: Path) -> None:
    luna, nova, rosa = await stage.seat(work, "luna", "nova", "rosa")
    await stage.claim(luna)
    await stage.timers.advance(11)
    await stage.release(luna)
    assert stage.room().state == "idle"

    waiting = stage.start(stage.rendered.wait_for_turn(rosa, room_id="work"))
    await stage.settle()
    assert not waiting.done()
    await stage.timers.advance(10.1)

    assert (await done(waiting))["status"] == "your_turn"
    assert nova.name == "nova"


async def test_cancelled_wait_leaves_no_waiter(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()
    assert stage.book.is_waiting(stage.room().id, "nova")

    waiting.cancel()
    await stage.settle()

    assert not stage.book.is_waiting(stage.room().id, "nova")
    assert len(stage.timers) == 0
    await stage.timers.advance(11)
    assert (await stage.release(luna))["reserved_for"] is None


async def test_member_removed_while_waiting_gets_an_error(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    await stage.rendered.kick_member(HUMAN, room_id="work", target_agent_id="nova", force=True)

    with pytest.raises(UnknownMember):
        await done(waiting)


async def test_closing_the_room_ends_the_wait(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    room = stage.room().id
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    closed = await stage.rendered.close_room(HUMAN, room_id="work", reason="done")

    assert closed["status"] == closed["room_state"] == "closed"
    assert (await done(waiting))["status"] == "closed"
    assert (await stage.rendered.wait_for_turn(nova, room_id=room))["status"] == "closed"


async def test_idle_owner_does_not_end_a_wait_but_a_new_call_reports_it(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.submit(luna, SetStatus(state="idle"))
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", limit_ms=None))
    await stage.settle()

    await stage.timers.advance(20 * MINUTE_S)
    asked = await stage.claim(nova)

    assert not waiting.done()
    assert (asked["status"], asked["reason"]) == ("takeover_available", "owner_idle")
    waiting.cancel()


async def test_owner_with_expired_lease_can_heartbeat_until_a_takeover(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    room = stage.room()
    await stage.timers.advance(LEASE_S + 1)
    assert (await stage.claim(luna))["reason"] == "lease_expired"
    assert (await stage.claim(nova))["status"] == "takeover_available"

    beat = await stage.rendered.heartbeat(luna, room_id="work", lease_id=room.lease, expected_turn_id=1)

    assert beat["status"] == "ok"
    assert beat["lease_expires_at"] == stage.clock.now_ms() + LEASE_S * 1000
    assert (await stage.claim(nova))["status"] == "not_yet"

    await stage.timers.advance(LEASE_S + 1)
    taken = await stage.rendered.takeover_stick(
        nova, room_id="work", expected_turn_id=1, reason="it is silent"
    )
    assert (taken["status"], taken["reason"], taken["revoked"]) == ("your_turn", "owner_timeout", "luna")
    with pytest.raises(TurnMismatch):
        await stage.rendered.heartbeat(luna, room_id="work", lease_id=room.lease, expected_turn_id=1)


async def test_heartbeat_writes_nothing(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    await stage.claim(luna)
    room, last = stage.room(), stage.log.last()

    for _ in range(100):
        await stage.rendered.heartbeat(luna, room_id="work", lease_id=room.lease, expected_turn_id=1)

    assert stage.log.last() == last
    with pytest.raises(StaleLease):
        await stage.rendered.heartbeat(luna, room_id="work", lease_id="no", expected_turn_id=1)


async def test_owner_activity_renews_its_lease(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.timers.advance(LEASE_S - 1)

    await stage.rendered.get_room_state(luna, room_id="work")
    await stage.timers.advance(LEASE_S - 1)
    assert (await stage.claim(nova))["status"] == "not_yet"
    await stage.submit(luna, SetStatus(state="blocked"))
    await stage.timers.advance(LEASE_S - 1)
    assert (await stage.claim(nova))["status"] == "not_yet"
    await stage.timers.advance(2)

    assert (await stage.claim(nova))["status"] == "takeover_available"


async def test_active_owner_keeps_its_lease_without_any_call(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.submit(luna, SetStatus(state="active"))

    await stage.timers.advance(5 * LEASE_S)
    assert (await stage.claim(nova))["status"] == "not_yet"
    await stage.submit(luna, SetStatus(state="blocked"))
    await stage.timers.advance(LEASE_S - 1)
    assert (await stage.claim(nova))["status"] == "not_yet"
    await stage.timers.advance(2)

    assert (await stage.claim(nova))["reason"] == "owner_timeout"


async def test_owner_without_a_process_does_not_count_as_active(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.submit(luna, SetStatus(state="active"))
    stage.present.discard("luna")

    await stage.timers.advance(LEASE_S + 1)

    assert (await stage.claim(nova))["reason"] == "owner_timeout"


async def test_refused_park_leaves_the_member_unparked(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)

    with pytest.raises(ParkRequiresRelease):
        await stage.claim(luna, mode="parked")

    state = await stage.rendered.get_room_state(nova, room_id="work")
    assert [member["parked"] for member in members_of(state)] == [False, False]


async def test_base_name_or_harness_never_selects_the_caller(stage: Stage, work: Path) -> None:
    os.makedirs(work)
    mine = await stage.join("luna", tag="api", harness="codex")
    await stage.rendered.join_path(mine, context_path=str(work))
    await stage.claim(mine)
    fields: dict[str, Any] = {
        "room_id": "work",
        "lease_id": stage.room().lease,
        "expected_turn_id": 1,
        "handoff": HANDOFF,
    }
    for word in ("codex", "luna"):
        with pytest.raises(UnknownMember):
            await stage.rendered.pass_stick(mine, to_agent_id=word, **fields)
        with pytest.raises(UnknownTarget):
            await stage.rendered.kick_member(mine, room_id="work", target_agent_id=word)
    other = await stage.join("nova", harness="codex")
    await stage.rendered.join_path(other, context_path=str(work))

    passed = await stage.rendered.pass_stick(mine, to_agent_id="codex", **fields)

    assert passed["reserved_for"] == "nova"


async def test_waiter_without_a_process_gets_the_stick(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.submit(nova, Leave())
    await stage.rendered.join_path(nova, context_path=str(work))
    stage.present.discard("nova")
    with stage.book.speaking("nova"):
        waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
        await stage.timers.advance(30)

        released = await stage.release(luna)
        answer = await done(waiting)

    assert (released["reserved_for"], answer["status"]) == ("nova", "your_turn")


async def test_stick_can_be_passed_to_a_waiter_without_a_process(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    stage.present.discard("nova")
    fields: dict[str, Any] = {
        "room_id": "work",
        "lease_id": stage.room().lease,
        "expected_turn_id": 1,
        "to_agent_id": "nova",
        "handoff": HANDOFF,
    }
    await stage.timers.advance(30)
    with pytest.raises(RecipientUnreachable):
        await stage.rendered.pass_stick(luna, **fields)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", mode="parked"))
    await stage.settle()

    await stage.rendered.pass_stick(luna, **fields)

    assert (await done(waiting))["reason"] == "direct_pass"


async def test_parked_member_is_notified_once_of_a_pending_handoff(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    await stage.claim(luna)
    with pytest.raises(ParkRequiresRelease):
        await stage.claim(luna, mode="parked")
    await stage.release(luna)

    first = await stage.rendered.wait_for_turn(luna, room_id="work", mode="parked")
    second = await stage.claim(luna, mode="parked")

    assert (first["status"], first["reason"]) == ("not_yet", "auto_claim_disabled")
    assert "pending handoff" in str(first["hint"])
    assert (second["status"], second["reason"]) == ("not_yet", None)
    assert "hint" not in second


async def test_stick_passed_to_a_parked_member_is_its_turn(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", mode="parked"))
    await stage.settle()

    passed = await stage.rendered.pass_stick(
        luna,
        room_id="work",
        lease_id=stage.room().lease,
        expected_turn_id=1,
        to_agent_id="@nova",
        handoff=HANDOFF,
    )

    assert (passed["status"], passed["reserved_for"], passed["routed_to_parked"]) == ("passed", "nova", True)
    assert (await done(waiting))["reason"] == "direct_pass"


async def test_solo_claim_can_be_disabled_and_a_turn_carries_messages(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    alone = await stage.claim(luna, allow_solo_claim=False)
    waiting = stage.start(
        stage.rendered.wait_for_turn(luna, room_id="work", allow_solo_claim=False, events=True)
    )
    await stage.settle()
    assert (alone["status"], waiting.done()) == ("not_yet", False)

    [nova] = await stage.seat(work, "nova")
    answer = await done(waiting)
    assert answer["status"] == "your_turn"

    await stage.timers.advance(11)
    await stage.release(luna)
    await stage.rendered.send_message(nova, room_id="work", body="start with the tests", to_agent_id="luna")
    await stage.timers.advance(61)
    again = await stage.claim(luna, events=True)
    assert again["status"] == "your_turn"
    bodies = [event["payload"]["body"] for event in again["events"]]
    assert bodies == ["start with the tests"]


async def test_wait_with_events_ends_with_the_first_event(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    before = stage.log.last()
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", events=True))
    other = stage.start(
        stage.rendered.wait_for_turn(
            nova, room_id="work", events=True, is_woken_by_events=False, max_wait_ms=0
        )
    )
    await stage.settle()
    assert (waiting.done(), (await done(other))["events"]) == (False, [])

    sent = await stage.rendered.send_message(luna, room_id="work", body="almost done", to_agent_id="nova")
    answer = await done(waiting)
    again = stage.start(
        stage.rendered.wait_for_turn(nova, room_id="work", after_event_seq=answer["cursor_event_seq"])
    )
    await stage.settle()

    assert answer["status"] == "not_yet"
    assert [event["payload"]["body"] for event in answer["events"]] == ["almost done"]
    assert answer["cursor_event_seq"] == sent["event_seq"] > before
    assert not again.done()
    await stage.release(luna)
    assert (await done(again))["status"] == "your_turn"


async def test_repeated_wait_also_returns_events_since_its_first_start(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    start = stage.log.last()
    await stage.rendered.leave_room(luna, room_id="work")
    await stage.rendered.join_path(luna, context_path=str(work))

    answer = await stage.claim(nova, events=True, since_event_seq=start)

    assert [event["event_type"] for event in answer["events"]] == ["member_left", "member_joined"]


async def test_second_wait_of_a_member_is_refused(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    first = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    with pytest.raises(DuplicateWait) as refused:
        await stage.rendered.wait_for_turn(nova, room_id="work")

    assert refused.value.code == "duplicate_listener"
    assert refused.value.details == {"agent_id": "nova", "room": stage.room().id}
    assert (await stage.claim(nova))["status"] == "not_yet"  # it only looks
    await stage.release(luna)
    assert (await done(first))["status"] == "your_turn"
    await stage.release(nova)
    after = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()
    after.cancel()
    await stage.settle()
    last = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", max_wait_ms=1))
    await stage.settle()
    await stage.timers.advance(1)
    assert (await done(last))["status"] == "not_yet"


async def test_repeated_wait_of_one_request_is_allowed(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    key = b"k" * 16
    first = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", key=key))
    await stage.settle()

    again = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", key=key))
    await stage.settle()
    first.cancel()
    await stage.settle()

    with pytest.raises(DuplicateWait):
        await stage.rendered.wait_for_turn(nova, room_id="work", key=b"o" * 16)
    await stage.release(luna)
    assert (await done(again))["status"] == "your_turn"


async def test_repeated_wait_may_end_before_the_first_one(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    key = b"k" * 16
    first = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", key=key))
    await stage.settle()
    again = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", key=key))
    await stage.settle()

    again.cancel()
    await stage.settle()
    await stage.release(luna)

    assert (await done(first))["status"] == "your_turn"


@pytest.mark.parametrize("reason", ["", " \t"])
async def test_takeover_needs_a_reason(stage: Stage, work: Path, reason: str) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    turn = await stage.claim(luna)

    with pytest.raises(BadRequest, match="needs a reason"):
        await stage.rendered.takeover_stick(
            nova, room_id="work", expected_turn_id=turn["turn_id"], reason=reason
        )


async def test_events_with_a_turn_are_from_others_and_from_this_turn(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    before = stage.log.last()
    await stage.claim(luna)
    waiting = stage.start(
        stage.rendered.wait_for_turn(nova, room_id="work", events=True, after_event_seq=before)
    )
    await stage.settle()
    await stage.release(luna)

    answer = await done(waiting)

    types = [event["event_type"] for event in answer["events"]]
    assert types == ["release"]
    nothing = await stage.claim(nova, events=True)
    assert nothing["events"] == []
    assert nothing["cursor_event_seq"] == stage.log.last()


async def test_observers_and_non_members_cannot_wait_for_a_turn(stage: Stage, work: Path) -> None:
    await stage.seat(work, "luna")
    mira = await stage.join("mira", role="observer")
    rosa = await stage.join("rosa")
    script = Caller(name="script", standing=Standing.WORKER, kind="external")

    with pytest.raises(ObserverCannotHoldTurn):
        await stage.claim(mira)
    with pytest.raises(UnknownMember):
        await stage.claim(rosa)
    with pytest.raises(UnknownMember):
        await stage.claim(script)
    with pytest.raises(RoomNotFound):
        await stage.rendered.wait_for_turn(rosa, room_id="nowhere")
    with pytest.raises(BadRequest, match="the mode must be"):
        await stage.claim(rosa, mode="standing")
    assert stage.book.waiters(stage.room().id) == []


async def test_only_an_operator_overrides(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)

    with pytest.raises(NotAllowed):
        await stage.rendered.takeover_stick(
            nova, room_id="work", expected_turn_id=1, reason="now", operator_override=True
        )
    await stage.rendered.join_path(HUMAN, context_path=str(work))
    taken = await stage.rendered.takeover_stick(
        HUMAN, room_id="work", expected_turn_id=1, reason="now", operator_override=True
    )

    assert (taken["reason"], taken["revoked"]) == ("operator_override", "luna")


async def test_two_waiters_never_get_the_same_turn(stage: Stage, work: Path) -> None:
    callers = await stage.seat(work, *(f"agent{number}" for number in range(8)))
    first = await stage.claim(callers[0])
    waits = [stage.start(stage.rendered.wait_for_turn(one, room_id="work")) for one in callers[1:]]
    await stage.settle()
    turns = [first["turn_id"]]

    for _ in waits:
        holder = stage.room().owner
        await stage.release(next(one for one in callers if one.name == holder))
        finished, _ = await asyncio.wait(
            [task for task in waits if task not in turns],
            return_when=asyncio.FIRST_COMPLETED,
            timeout=LIMIT_S,
        )
        granted = [task for task in finished if task in waits]
        assert len(granted) == 1
        turns.append(granted[0].result()["turn_id"])
        waits.remove(granted[0])
        await stage.settle()
        if not waits:
            break

    assert turns == list(range(1, len(turns) + 1))


async def test_owner_that_leaves_the_bus_releases_the_stick(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    await stage.submit(luna, Leave())

    assert (await done(waiting))["status"] == "your_turn"
