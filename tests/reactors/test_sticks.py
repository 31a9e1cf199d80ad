"""Time limits in rooms: due actions happen once, timers exist only if needed, and members are notified."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import HANDOFF, RoomResult, Stage, opened_stage
from tests.fakes import HUMAN, OpenLog

from palaver.errors import DiskFull, NotFound
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.protocol.requests import ExpireReservation, HandOn, RetireMember
from palaver.reactors.timers import stick_notice

GONE_S = 600
CLAIM_S = 20 * 60
PRESENCE_S = 4 * 3600
LEASE_S = 45 * 60


@pytest.fixture
async def stage(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path, open_log=open_log) as made:
        made.sticks.start()
        yield made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


async def lose(stage: Stage, asking: Caller) -> None:
    """End the process of an agent, as presence reports it."""
    stage.present.discard(asking.name)
    draft = Draft(
        type="agent.bye",
        sender=asking.name,
        payload={"reason": "its process ended"},
        id=f"BYE{asking.name}",
        ts=stage.clock.now_ms(),
    )
    await stage.log.commit(None, lambda rows: draft)
    await stage.settle()


async def give(stage: Stage, asking: Caller, to: str) -> None:
    """Pass the stick from its current owner."""
    room = stage.room()
    await stage.rendered.pass_stick(
        asking,
        room_id=room.id,
        lease_id=room.lease,
        expected_turn_id=room.turn,
        to_agent_id=to,
        handoff=HANDOFF,
    )


def shown(answer: RoomResult) -> list[dict[str, Any]]:
    found: Any = answer["events"]
    return list(found)


async def events(stage: Stage, *types: str) -> list[Event]:
    return await stage.log.read(Query(types=types))


async def test_room_without_time_limits_has_no_timer(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")

    await stage.claim(luna)

    assert len(stage.timers) == 0


async def test_stick_of_an_exited_owner_goes_to_the_fairest_waiter(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work", limit_ms=None))
    await stage.settle()
    await lose(stage, luna)

    await stage.timers.advance(GONE_S - 1)
    assert await events(stage, "release") == []
    await stage.timers.advance(2)

    answer = waiting.result()
    assert (answer["status"], answer["handoff"]) in [("your_turn", None), ("takeover_available", None)]
    [release] = await events(stage, "release")
    assert release.payload["reason"] == "harness_gone"
    assert stage.room().owner == "nova"


async def test_stick_without_waiters_becomes_free_without_a_handoff(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)

    await stage.timers.advance(GONE_S + 1)

    assert (stage.room().state, stage.room().pending) == ("idle", None)
    assert isinstance(stage.submitted[0], HandOn)


async def test_owner_that_returns_in_time_keeps_the_stick(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    await stage.timers.advance(GONE_S - 10)
    stage.present.add("luna")
    await stage.send(luna, "back", "@human")

    await stage.timers.advance(GONE_S)

    assert stage.room().owner == "luna"


async def test_activity_of_an_absent_owner_extends_its_time(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    await stage.timers.advance(GONE_S - 10)

    await stage.rendered.get_room_state(luna, room_id="work")
    await stage.timers.advance(GONE_S - 10)
    assert stage.room().owner == "luna"
    await stage.timers.advance(11)

    assert stage.room().owner == ""


async def test_unclaimed_reservation_expires_and_keeps_its_handoff(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.rendered.pass_stick(
        luna,
        room_id="work",
        lease_id=stage.room().lease,
        expected_turn_id=1,
        to_agent_id="nova",
        handoff=HANDOFF,
    )

    await stage.timers.advance(CLAIM_S + 1)

    [expired] = await events(stage, "reservation_expired")
    assert expired.to == ("nova",)
    room = stage.room()
    assert room.state == "idle"
    assert room.pending is not None
    assert room.pending.fields["status"] == "tests pass"
    assert len(stage.timers) == 0
    assert nova.name == "nova"


async def test_long_absent_member_is_removed_once(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await lose(stage, nova)

    await stage.timers.advance(PRESENCE_S - 1)
    assert [member.name for member in stage.room().members] == ["luna", "nova"]
    await stage.timers.advance(2)
    await stage.timers.advance(PRESENCE_S)

    [left] = await events(stage, "member_left")
    assert (left.payload["from"], left.payload["reason"]) == ("nova", "inactive")
    assert [member.name for member in stage.room().members] == ["luna"]
    assert len(stage.timers) == 0
    assert luna.name == "luna"


async def test_actions_due_before_the_start_happen_after_it(tmp_path: Path, work: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(work, "luna", "nova")
        await stage.claim(luna)
        await lose(stage, luna)
        await lose(stage, nova)
        stage.clock.advance(PRESENCE_S + 1)
        assert stage.room().owner == "luna"

        stage.sticks.start()
        await stage.timers.advance(0)

        assert stage.room().owner == ""
        assert stage.room().members == ()


async def test_action_is_retried_while_the_disk_is_full(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    stage.refusal = DiskFull("there is no room")
    await stage.timers.advance(GONE_S + 1)
    tries = len(stage.submitted)
    assert stage.room().owner == "luna"
    assert 1 <= tries <= 3

    stage.refusal = None
    await stage.timers.advance(2)

    assert stage.room().owner == ""


async def test_error_of_the_broker_does_not_stop_the_reactor(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    stage.refusal = NotFound("room")

    await stage.timers.advance(GONE_S + 1)
    stage.refusal = None
    await stage.timers.advance(2)

    assert stage.room().owner == ""


async def test_closed_room_and_closed_reactor_do_nothing(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    await lose(stage, nova)
    assert len(stage.timers) == 1

    await stage.rendered.close_room(HUMAN, room_id="work")
    await stage.settle()
    assert len(stage.timers) == 0

    await stage.seat(work, "rosa")
    await lose(stage, await stage.join("mona"))
    stage.sticks.close()
    await stage.timers.advance(2 * PRESENCE_S)
    assert not any(isinstance(one, RetireMember | ExpireReservation) for one in stage.submitted)


async def test_timer_of_a_missing_room_is_ignored(stage: Stage, work: Path) -> None:
    await stage.seat(work, "luna")

    stage.sticks._ring("no such room")
    await stage.settle()

    assert stage.submitted == []


async def test_member_that_does_not_wait_is_notified_of_its_reservation(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)

    await stage.rendered.pass_stick(
        luna,
        room_id="work",
        lease_id=stage.room().lease,
        expected_turn_id=1,
        to_agent_id="nova",
        handoff=HANDOFF,
    )
    await stage.settle()

    [text] = stage.texts("nova")
    assert text.startswith(f"luna passes you the stick of #{stage.room().id}")
    assert (await stage.claim(nova))["status"] == "your_turn"


async def test_waiting_member_gets_its_turn_without_a_notice(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    await stage.release(luna)
    await stage.settle()

    assert waiting.result()["status"] == "your_turn"
    assert stage.texts("nova") == []


async def test_member_that_loses_the_stick_or_membership_is_notified(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.timers.advance(45 * 60 + 1)

    await stage.rendered.takeover_stick(nova, room_id="work", expected_turn_id=1, reason="it sleeps")
    await stage.rendered.kick_member(
        HUMAN, room_id="work", target_agent_id="luna", force=True, reason="asleep"
    )
    await stage.settle()

    room = stage.room().id
    assert stage.texts("luna") == [
        f"nova has taken over the stick of #{room} from you (it sleeps): stop changing files there",
        f"human has removed you from #{room}: asleep",
    ]


async def test_token_owner_keeps_the_stick_for_a_lease_after_its_last_call(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await lose(stage, luna)
    with stage.book.speaking("luna"):
        await stage.claim(luna)
        await stage.timers.advance(2 * GONE_S)
        assert stage.room().owner == "luna"

    await stage.timers.advance(LEASE_S - 1)
    assert stage.room().owner == "luna"
    await stage.timers.advance(2)

    assert stage.room().owner == ""
    [release] = await events(stage, "release")
    assert release.payload["reason"] == "harness_gone"


async def test_restart_keeps_the_stick_of_a_token_owner_until_its_lease_ends(
    tmp_path: Path, work: Path
) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, _ = await stage.seat(work, "luna", "nova")
        stage.tokens.add("luna")
        await stage.claim(luna)
        await lose(stage, luna)

        stage.sticks.start()
        await stage.timers.advance(LEASE_S - 1)
        assert stage.room().owner == "luna"
        await stage.timers.advance(2)

        assert stage.room().owner == ""


async def test_kick_is_reported_to_leave_listeners_and_changes_nothing(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    after = stage.log.last()
    await stage.rendered.kick_member(HUMAN, room_id="work", target_agent_id="nova", force=True)
    await stage.rendered.join_path(nova, context_path=str(work))
    await stage.settle()

    heard = await stage.rendered.wait_for_events(
        luna, room_id="work", after_event_seq=after, event_type="leave", max_wait_ms=0
    )

    [left] = await events(stage, "member_left")
    assert (left.sender, left.payload["from"], left.payload["reason"]) == ("[pal-events]", "nova", "kicked")
    assert [(one["from_agent_id"], one["reason"]) for one in shown(heard)] == [("nova", "kicked")]
    assert [member.name for member in stage.room().members] == ["luna", "nova"]
    assert stage.log.rows.get("skipped", "member_left") is None


async def test_missing_notices_are_sent_once_after_the_start(tmp_path: Path, work: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova, rosa = await stage.seat(work, "luna", "nova", "rosa")
        await stage.claim(luna)
        await stage.timers.advance(LEASE_S + 1)
        await stage.rendered.takeover_stick(nova, room_id="work", expected_turn_id=1, reason="it sleeps")
        await stage.rendered.kick_member(HUMAN, room_id="work", target_agent_id="luna", force=True)
        await give(stage, nova, "rosa")
        assert stage.texts("luna") == stage.texts("rosa") == []

        for _ in range(3):
            stage.sticks.start()
            await stage.settle()
            stage.sticks.close()

        assert len(stage.texts("luna")) == 2
        assert len(stage.texts("rosa")) == 1
        assert len(await events(stage, "member_left")) == 1
        assert rosa.name == "rosa"


async def test_ended_reservation_is_not_reported_after_the_start(tmp_path: Path, work: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(work, "luna", "nova")
        await stage.claim(luna)
        await give(stage, luna, "nova")
        await stage.claim(nova)

        stage.sticks.start()
        await stage.settle()

        assert stage.texts("nova") == []


async def test_notice_that_cannot_be_stored_is_retried(stage: Stage, work: Path) -> None:
    luna, _, _ = await stage.seat(work, "luna", "nova", "rosa")
    await stage.claim(luna)
    stage.refusal = DiskFull("there is no room")
    await give(stage, luna, "nova")
    await stage.rendered.kick_member(HUMAN, room_id="work", target_agent_id="rosa", force=True)
    await stage.timers.advance(3)
    assert stage.texts("nova") == stage.texts("rosa") == []

    stage.refusal = None
    await stage.timers.advance(2)

    assert len(stage.texts("nova")) == len(stage.texts("rosa")) == 1
    assert len(await events(stage, "member_left")) == 1


async def test_closed_reactor_sends_no_notices(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    stage.refusal = DiskFull("there is no room")
    await give(stage, luna, "nova")
    await stage.settle()

    stage.sticks.close()
    stage.refusal = None
    await stage.timers.advance(5)

    assert stage.texts("nova") == []


async def test_kick_in_a_room_closed_since_is_not_reported_as_a_leave(tmp_path: Path, work: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        await stage.seat(work, "luna", "nova")
        await stage.rendered.kick_member(HUMAN, room_id="work", target_agent_id="nova", force=True)
        await stage.rendered.close_room(HUMAN, room_id="work")

        stage.sticks.start()
        await stage.settle()

        assert await events(stage, "member_left") == []
        assert len(stage.texts("nova")) == 1


@pytest.mark.parametrize(
    ("type", "to", "payload", "text"),
    [
        ("release", (), {}, None),
        ("release", (), {"reserved_for": 7}, None),
        ("release", ("nova",), {"reserved_for": "nova"}, "luna has released the stick of #work"),
        ("release", ("nova",), {"reserved_for": "nova", "from": None}, "the bus has released"),
        ("takeover", (), {}, None),
        ("takeover", ("nova",), {"cause": "owner_gone"}, "luna has taken over the stick of #work"),
        ("kick", (), {}, None),
        ("kick", ("nova",), {}, "luna has removed you from #work"),
        ("claim", ("nova",), {}, None),
    ],
)
def test_only_the_affected_member_is_notified(
    type: str, to: tuple[str, ...], payload: dict[str, Any], text: str | None
) -> None:
    event = Event(
        seq=1,
        id="A",
        type=type,
        sender="luna",
        to=to,
        ts=1,
        device="T",
        payload={"room": "work", "turn_id": 1, "lease_id": "l", "cause": "c", "until": 7, **payload},
    )

    notice = stick_notice(event, lambda name: False)

    if text is None:
        assert notice is None
    else:
        assert notice is not None
        assert notice.to == "nova"
        assert notice.text.startswith(text)
