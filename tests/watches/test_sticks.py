"""Time in rooms: what falls due is done once, timers are only where one is needed, and who must hears."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import HANDOFF, Stage, opened_stage
from tests.fakes import HUMAN, OpenLog

from palaver.doors.desk import Answer
from palaver.errors import DiskFull, NotFound
from palaver.model.agent import Caller
from palaver.model.envelope import Draft, Event
from palaver.model.query import Query
from palaver.model.room import ExpireReservation, HandOn, RetireMember
from palaver.watches.stick_words import stick_notice

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
    """Let an agent's process end, as presence tells it."""
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
    """Pass the stick, whoever has it."""
    room = stage.room()
    await stage.desk.pass_stick(
        asking,
        room_id=room.id,
        lease_id=room.lease,
        expected_turn_id=room.turn,
        to_agent_id=to,
        handoff=HANDOFF,
    )


def shown(answer: Answer) -> list[dict[str, Any]]:
    found: Any = answer["events"]
    return list(found)


async def events(stage: Stage, *types: str) -> list[Event]:
    return await stage.log.read(Query(types=types))


async def test_a_room_at_rest_has_no_timer(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")

    await stage.claim(luna)

    assert len(stage.timers) == 0


async def test_the_stick_of_one_who_is_surely_gone_goes_to_the_fairest_who_waits(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.desk.wait_for_turn(nova, room_id="work", limit_ms=None))
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


async def test_with_nobody_waiting_it_lies_free_without_a_hand_over(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)

    await stage.timers.advance(GONE_S + 1)

    assert (stage.room().state, stage.room().pending) == ("idle", None)
    assert isinstance(stage.submitted[0], HandOn)


async def test_one_who_comes_back_in_time_keeps_the_stick(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    await stage.timers.advance(GONE_S - 10)
    stage.present.add("luna")
    await stage.send(luna, "back", "@human")

    await stage.timers.advance(GONE_S)

    assert stage.room().owner == "luna"


async def test_signs_of_one_who_is_gone_put_the_moment_off(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    await stage.timers.advance(GONE_S - 10)

    await stage.desk.get_room_state(luna, room_id="work")
    await stage.timers.advance(GONE_S - 10)
    assert stage.room().owner == "luna"
    await stage.timers.advance(11)

    assert stage.room().owner == ""


async def test_a_reservation_that_nobody_claims_goes_back_in_line_with_its_hand_over(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.desk.pass_stick(
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


async def test_who_is_gone_for_long_is_a_member_no_longer_and_it_is_said_once(
    stage: Stage, work: Path
) -> None:
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


async def test_what_falls_due_while_nobody_watches_is_done_after_the_start(
    tmp_path: Path, work: Path
) -> None:
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


async def test_while_there_is_no_room_on_the_disk_it_is_tried_again_later(stage: Stage, work: Path) -> None:
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


async def test_what_the_broker_refuses_stops_nobody(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    stage.refusal = NotFound("room")

    await stage.timers.advance(GONE_S + 1)
    stage.refusal = None
    await stage.timers.advance(2)

    assert stage.room().owner == ""


async def test_a_closed_room_and_a_closed_reactor_do_nothing_more(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await lose(stage, luna)
    await lose(stage, nova)
    assert len(stage.timers) == 1

    await stage.desk.close_room(HUMAN, room_id="work")
    await stage.settle()
    assert len(stage.timers) == 0

    await stage.seat(work, "rosa")
    await lose(stage, await stage.join("mona"))
    stage.sticks.close()
    await stage.timers.advance(2 * PRESENCE_S)
    assert not any(isinstance(one, RetireMember | ExpireReservation) for one in stage.submitted)


async def test_a_timer_rings_with_whatever_is_due_and_a_room_that_is_gone_is_passed_over(
    stage: Stage, work: Path
) -> None:
    await stage.seat(work, "luna")

    stage.sticks._ring("no such room")
    await stage.settle()

    assert stage.submitted == []


async def test_one_who_does_not_wait_is_told_that_the_stick_waits_for_it(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)

    await stage.desk.pass_stick(
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


async def test_one_who_waits_is_told_nothing_beside_its_turn(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    waiting = stage.start(stage.desk.wait_for_turn(nova, room_id="work"))
    await stage.settle()

    await stage.release(luna)
    await stage.settle()

    assert waiting.result()["status"] == "your_turn"
    assert stage.texts("nova") == []


async def test_one_who_loses_the_stick_or_its_seat_is_told_so(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.timers.advance(45 * 60 + 1)

    await stage.desk.takeover_stick(nova, room_id="work", expected_turn_id=1, reason="it sleeps")
    await stage.desk.kick_member(HUMAN, room_id="work", target_agent_id="luna", force=True, reason="asleep")
    await stage.settle()

    room = stage.room().id
    assert stage.texts("luna") == [
        f"nova has taken the stick of #{room} over from you (it sleeps): change nothing more there",
        f"human has removed you from #{room}: asleep",
    ]


async def test_one_that_speaks_by_a_token_keeps_the_stick_for_a_lease_behind_its_last_word(
    stage: Stage, work: Path
) -> None:
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


async def test_after_a_restart_one_that_has_a_token_is_not_gone_before_its_lease(
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


async def test_a_kick_is_told_to_those_who_listen_for_leaves_and_changes_nothing(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    after = stage.log.last()
    await stage.desk.kick_member(HUMAN, room_id="work", target_agent_id="nova", force=True)
    await stage.desk.join_path(nova, context_path=str(work))
    await stage.settle()

    heard = await stage.desk.wait_for_events(
        luna, room_id="work", after_event_seq=after, event_type="leave", max_wait_ms=0
    )

    [left] = await events(stage, "member_left")
    assert (left.sender, left.payload["from"], left.payload["reason"]) == ("[pal-events]", "nova", "kicked")
    assert [(one["from_agent_id"], one["reason"]) for one in shown(heard)] == [("nova", "kicked")]
    assert [member.name for member in stage.room().members] == ["luna", "nova"]
    assert stage.log.rows.get("skipped", "member_left") is None


async def test_what_was_not_told_before_the_end_is_told_once_after_the_start(
    tmp_path: Path, work: Path
) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova, rosa = await stage.seat(work, "luna", "nova", "rosa")
        await stage.claim(luna)
        await stage.timers.advance(LEASE_S + 1)
        await stage.desk.takeover_stick(nova, room_id="work", expected_turn_id=1, reason="it sleeps")
        await stage.desk.kick_member(HUMAN, room_id="work", target_agent_id="luna", force=True)
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


async def test_a_reservation_that_is_over_is_not_told_after_the_start(tmp_path: Path, work: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(work, "luna", "nova")
        await stage.claim(luna)
        await give(stage, luna, "nova")
        await stage.claim(nova)

        stage.sticks.start()
        await stage.settle()

        assert stage.texts("nova") == []


async def test_a_word_that_cannot_be_written_now_is_written_a_little_later(stage: Stage, work: Path) -> None:
    luna, _, _ = await stage.seat(work, "luna", "nova", "rosa")
    await stage.claim(luna)
    stage.refusal = DiskFull("there is no room")
    await give(stage, luna, "nova")
    await stage.desk.kick_member(HUMAN, room_id="work", target_agent_id="rosa", force=True)
    await stage.timers.advance(3)
    assert stage.texts("nova") == stage.texts("rosa") == []

    stage.refusal = None
    await stage.timers.advance(2)

    assert len(stage.texts("nova")) == len(stage.texts("rosa")) == 1
    assert len(await events(stage, "member_left")) == 1


async def test_a_reactor_that_is_closed_says_nothing_more(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    stage.refusal = DiskFull("there is no room")
    await give(stage, luna, "nova")
    await stage.settle()

    stage.sticks.close()
    stage.refusal = None
    await stage.timers.advance(5)

    assert stage.texts("nova") == []


async def test_a_kick_in_a_room_that_has_closed_since_is_told_to_nobody(tmp_path: Path, work: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        await stage.seat(work, "luna", "nova")
        await stage.desk.kick_member(HUMAN, room_id="work", target_agent_id="nova", force=True)
        await stage.desk.close_room(HUMAN, room_id="work")

        stage.sticks.start()
        await stage.settle()

        assert await events(stage, "member_left") == []
        assert len(stage.texts("nova")) == 1


@pytest.mark.parametrize(
    ("type", "to", "payload", "text"),
    [
        ("release", (), {}, None),
        ("release", (), {"reserved_for": 7}, None),
        ("release", ("nova",), {"reserved_for": "nova"}, "luna has given up the stick of #work"),
        ("release", ("nova",), {"reserved_for": "nova", "from": None}, "nobody has given up"),
        ("takeover", (), {}, None),
        ("takeover", ("nova",), {"cause": "owner_gone"}, "luna has taken the stick of #work over"),
        ("kick", (), {}, None),
        ("kick", ("nova",), {}, "luna has removed you from #work"),
        ("claim", ("nova",), {}, None),
    ],
)
def test_only_the_one_whom_it_concerns_is_told(
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
        payload={"room": "work", **payload},
    )

    notice = stick_notice(event, lambda name: False)

    if text is None:
        assert notice is None
    else:
        assert notice is not None
        assert notice.to == "nova"
        assert notice.text.startswith(text)
