"""Handled copies, which only fetching readers get, and mail of sessions, which lanes of their agent carry."""

import asyncio

import pytest
from tests.delivery.terminals import CLOSED, OPEN, WITH_DIALOG
from tests.fakes import HUMAN, Bus, FakeLane, seat
from tests.limits import LIMIT_S

from palaver.delivery.lanes import CLAIM_S, FIRST_PAUSE_S, SHUT_S
from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState, Grade
from palaver.protocol.lanes import IDLE_WAIT_S, LaneKind, Offer, OfferOutcome
from palaver.protocol.paths import Content, CreateSession, RemoveSession, SubscribePath
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    DIALOG,
    Acknowledge,
    Join,
    Pause,
    Redeliver,
    Release,
    Send,
    SetStatus,
)
from palaver.state.agents import read_unread
from palaver.state.paths import read_agent_session

MON = "nova+mon"


@pytest.fixture
async def luna(bus: Bus) -> Caller:
    return await bus.join("luna")


@pytest.fixture
async def nova(bus: Bus) -> Caller:
    """Return an agent that runs in its session `mon`, which is subscribed to `slack/**`."""
    nova = await bus.join("nova", harness="claude", session="s1", holder="hash", seat=seat(7))
    await bus.submit(nova, CreateSession(agent="nova", session="mon", harness_session="s1"))
    await bus.submit(nova, SubscribePath(agent="nova", pattern="slack/**", session="mon"))
    return nova


@pytest.fixture
async def away(bus: Bus, nova: Caller) -> Caller:
    """Return the same agent; it does not run in `mon` any more."""
    await move(bus, nova, "s2")
    return nova


async def move(bus: Bus, who: Caller, session: str) -> None:
    """Let an agent run in another session of its harness."""
    await bus.broker.submit(
        who, Join(name=who.name, harness="claude", session=session, seat=seat(7), holder="hash")
    )
    assert bus.agent(who.name).session == session


async def route(bus: Bus, who: Caller, command: str, **fields: object) -> Event:
    content = Content(command=command, payload={})
    event = await bus.submit(who, Send(text="", to=("/slack/team",), content=content, **fields))  # type: ignore[arg-type]  # fields of a send
    assert event is not None
    return event


def commands(offer: Offer) -> list[object]:
    return [event.payload.get("command") or event.payload["text"] for event in offer.events]


def fetch(bus: Bus, mailbox: str, *, is_pushed: bool = False) -> list[object]:
    reader = bus.delivery.take(mailbox, is_pushed=is_pushed)
    found = [event.payload.get("command") or event.payload["text"] for event in reader.poll(100)]
    reader.close()
    return found


async def becomes(bus: Bus, event: Event, mailbox: str, state: str) -> None:
    """Wait until a copy of a message has a state."""
    news = asyncio.Event()
    stop = bus.log.subscribe(lambda _: news.set())
    async with asyncio.timeout(LIMIT_S):
        while bus.state(event, mailbox) != state:
            news.clear()
            await news.wait()
    stop()


async def noticed(bus: Bus, name: str) -> list[str]:
    """Wait for a notice to an agent."""
    news = asyncio.Event()
    stop = bus.log.subscribe(lambda _: news.set())
    async with asyncio.timeout(LIMIT_S):
        while not (found := await notices(bus, name)):
            await news.wait()
            news.clear()
    stop()
    return found


async def notices(bus: Bus, name: str) -> list[str]:
    found = await bus.log.read(Query(types=("message",)))
    return [str(e.payload["text"]) for e in found if e.to == (name,) and e.sender == "[pal-events]"]


def unconfirmed(bus: Bus, event: Event, mailbox: str) -> bool:
    entry = bus.entry(event, mailbox)
    return entry is not None and entry.unconfirmed


# Handled copies


@pytest.mark.parametrize("kind", list(LaneKind))
@pytest.mark.parametrize("state", ["idle", "active"])
async def test_no_lane_carries_a_handled_copy(
    bus: Bus, luna: Caller, away: Caller, kind: LaneKind, state: str
) -> None:
    lane = bus.open_lane("nova", kind)
    await bus.submit(away, SetStatus(state=state))
    handled = await route(bus, luna, "new", priority="interrupt")

    await bus.send(luna, "after", "@nova")

    assert commands(await lane.next()) == ["after"]
    assert [bus.state(handled, name) for name in (MON, "nova")] == ["queued", "queued"]


async def test_lane_that_requests_messages_gets_no_handled_copy(bus: Bus, luna: Caller, away: Caller) -> None:
    lane = bus.open_lane("nova", LaneKind.HOOK, is_pulled=True, wakes_idle=False)
    await route(bus, luna, "new")

    assert await bus.delivery.draw(lane.lane, AgentState.ACTIVE) is None


async def test_only_a_fetching_reader_gets_handled_copies_and_in_order(
    bus: Bus, luna: Caller, away: Caller
) -> None:
    await bus.send(luna, "one", "@nova")
    await route(bus, luna, "two")
    await bus.send(luna, "three", "@nova")

    assert fetch(bus, "nova") == ["one", "two", "three"]
    assert fetch(bus, "nova", is_pushed=True) == ["one", "three"]
    assert read_unread(bus.log.rows, "nova") == 2


async def test_handled_copy_wakes_a_fetching_reader_and_no_pushed_one(
    bus: Bus, luna: Caller, away: Caller
) -> None:
    pushed, fetching = bus.delivery.take("nova", is_pushed=True), bus.delivery.take("nova")
    waits = [asyncio.create_task(reader.wait(10)) for reader in (pushed, fetching)]
    await asyncio.sleep(0)

    event = await route(bus, luna, "new")

    async with asyncio.timeout(LIMIT_S):
        assert [one.seq for one in await waits[1]] == [event.seq]
    fetching.close()
    await bus.send(luna, "after", "@nova")
    async with asyncio.timeout(LIMIT_S):
        assert [one.payload["text"] for one in await waits[0]] == ["after"]
    pushed.close()


async def test_many_handled_copies_are_fetched_page_by_page(bus: Bus, luna: Caller, away: Caller) -> None:
    for number in range(60):
        await route(bus, HUMAN, f"c{number}")

    assert fetch(bus, "nova") == [f"c{number}" for number in range(60)]
    assert fetch(bus, "nova", is_pushed=True) == []


async def test_handled_copy_does_not_end_the_pause_of_a_lane(bus: Bus, luna: Caller, away: Caller) -> None:
    lane = bus.open_lane("nova")
    first = await bus.send(luna, "one", "@nova")
    offer = await lane.next()
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)

    await route(bus, luna, "new")

    assert lane.lane.is_deferred
    assert bus.state(first, "nova") == "queued"


async def test_closed_gate_does_not_hold_a_handled_copy(bus: Bus, luna: Caller, away: Caller) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL, CLOSED)
    event = await route(bus, luna, "new")

    bus.clock.advance(SHUT_S)
    await bus.delivery.catch_up()

    assert lane.is_empty
    assert bus.state(event, "nova") == "queued"
    assert await notices(bus, "luna") == []


async def test_handled_copy_stays_pull_only_after_its_release(bus: Bus, luna: Caller, away: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    await bus.report("nova", "held", event.seq, reason="too many")
    assert fetch(bus, "nova") == []

    await bus.submit(HUMAN, Release(message=str(event.seq)))

    assert fetch(bus, "nova") == ["new"]
    await bus.send(luna, "after", "@nova")
    assert commands(await lane.next()) == ["after"]


# Sessions


async def test_lane_carries_the_mail_of_the_session_that_its_agent_runs_in(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")

    event = await route(bus, luna, "new")
    offer = await lane.next()

    assert (commands(offer), dict(offer.parts)) == (["new"], {MON: (event.seq,)})
    assert [bus.state(event, name) for name in (MON, "nova")] == ["submitted", "queued"]
    bus.clock.advance(1)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN, grade=Grade.CONTEXT)

    entry = bus.entry(event, MON)
    assert entry is not None
    assert (entry.state, entry.lane, entry.grade) == ("seen", "native", "context")
    session = read_agent_session(bus.log.rows, "nova", "mon")
    assert session is not None
    assert session.last_used_at == bus.clock.now_ms()
    (*_, report) = await bus.log.read(Query(types=("delivery",)))
    assert (report.sender, report.payload["agent"]) == ("nova", MON)


async def test_lane_carries_no_mail_of_another_session(bus: Bus, luna: Caller, away: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    await bus.send(luna, "after", "@nova")

    assert commands(await lane.next()) == ["after"]
    assert bus.state(event, MON) == "queued"
    assert fetch(bus, MON) == ["new"]


async def test_default_session_is_reached_without_a_harness_session(bus: Bus, luna: Caller) -> None:
    kira = await bus.join("kira")
    await bus.submit(kira, SubscribePath(agent="kira", pattern="slack/**", session="main"))
    lane = bus.open_lane("kira")

    event = await route(bus, luna, "new")

    assert dict((await lane.next()).parts) == {"kira+main": (event.seq,)}


async def test_mail_of_the_agent_itself_goes_first(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL, CLOSED)
    await route(bus, luna, "new")
    await bus.send(luna, "own", "@nova")

    bus.delivery.set_level(lane.lane, OPEN)
    first = await lane.next()
    await bus.delivery.answer(lane.lane, first.number, OfferOutcome.SEEN)

    assert [commands(first), commands(await lane.next())] == [["own"], ["new"]]


@pytest.mark.parametrize("how", ["move", "create", "remove"])
async def test_change_of_the_session_changes_what_the_lanes_carry(
    bus: Bus, luna: Caller, away: Caller, how: str
) -> None:
    lane = bus.open_lane("nova")
    await bus.submit(away, CreateSession(agent="nova", session="other", harness_session="s2"))
    await bus.submit(away, SubscribePath(agent="nova", pattern="x", session="main"))
    await bus.submit(luna, Send(text="", to=("/x",), content=Content(command="to main", payload={})))
    await route(bus, luna, "to mon")

    if how == "move":
        await move(bus, away, "s1")
    elif how == "create":
        await bus.submit(away, CreateSession(agent="nova", session="other", harness_session=""))
        await bus.submit(away, CreateSession(agent="nova", session="mon", harness_session="s2"))
    else:
        await bus.submit(away, RemoveSession(agent="nova", session="other"))

    assert commands(await lane.next()) == ["to main" if how != "move" else "to mon"]


async def test_submitted_message_stays_with_its_session_when_the_agent_moves(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    await bus.submit(nova, SubscribePath(agent="nova", pattern="slack/team", session="main"))
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    first = await lane.next()
    bus.delivery.arrived(lane.lane, first.number)

    await move(bus, nova, "s2")
    second = await lane.next()
    await bus.delivery.answer(lane.lane, first.number, OfferOutcome.SEEN)
    states = [bus.state(event, name) for name in (MON, "nova+main")]
    await bus.delivery.answer(lane.lane, second.number, OfferOutcome.SEEN)

    assert (dict(first.parts), dict(second.parts)) == ({MON: (event.seq,)}, {"nova+main": (event.seq,)})
    assert states == ["seen", "submitted"]
    assert bus.state(event, "nova+main") == "seen"


async def test_pulled_lane_gets_session_mail_and_its_late_outcome_counts(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", LaneKind.HOOK, is_pulled=True, wakes_idle=False)
    event = await route(bus, luna, "new")

    offer = await bus.delivery.draw(lane.lane, AgentState.ACTIVE)

    assert offer is not None
    await bus.submit(nova, SetStatus(state="idle"))
    bus.clock.advance(IDLE_WAIT_S)
    await bus.delivery.catch_up()
    assert unconfirmed(bus, event, MON)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)
    assert bus.state(event, MON) == "queued"


async def test_late_proof_is_recorded_for_the_session(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    offer = await lane.next()
    await bus.delivery.end_silence(lane.lane, offer.number)

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert bus.state(event, MON) == "seen"
    assert await notices(bus, "luna") == [
        f"#{event.seq} was submitted to nova (session mon) but never confirmed: it may or may not have been "
        f"read. 'pal redeliver {event.seq}' sends it again"
    ]


async def test_unconfirmed_session_mail_is_redelivered_by_a_person(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    await lane.next()
    await bus.delivery.close_lane(lane.lane)
    was_unconfirmed = unconfirmed(bus, event, MON)

    await bus.submit(HUMAN, Redeliver(message=str(event.seq)))

    assert was_unconfirmed
    assert commands(await bus.open_lane("nova").next()) == ["new"]


async def test_next_session_is_notified_of_unconfirmed_session_mail(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL)
    event = await route(bus, luna, "new")
    await lane.next()
    await bus.delivery.close_lane(lane.lane)

    await bus.submit(nova, SetStatus(state="idle"))

    assert await noticed(bus, "nova") == [
        f"delivered to you before, but maybe not read: #{event.seq} ('pal show NUMBER' shows one)"
    ]


async def test_reply_of_the_agent_settles_the_copy_of_its_session(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    offer = await lane.next()

    await bus.send(nova, "done", "@luna", reply_to=str(event.seq))

    assert [bus.state(event, name) for name in (MON, "nova")] == ["answered", "answered"]
    assert not bus.delivery.is_in_hand(MON, event.seq)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.UNCONFIRMED)
    assert bus.state(event, MON) == "answered"


# What a holder remembers


async def _carried(bus: Bus, luna: Caller) -> tuple[Event, Event]:
    """Return a message of the agent and one of its session, both submitted on a lane that is gone."""
    own, routed = await bus.send(luna, "own", "@nova"), await route(bus, luna, "new")
    await bus.report("nova", "submitted", own.seq, lane="terminal")
    await bus.report(MON, "submitted", routed.seq, lane="terminal")
    return own, routed


def _remembering(bus: Bus) -> FakeLane:
    return bus.open_lane("nova", LaneKind.TERMINAL, OPEN, remembers=True)


async def test_holder_takes_up_mail_of_both_mailboxes(bus: Bus, luna: Caller, nova: Caller) -> None:
    own, routed = await _carried(bus, luna)
    lane = _remembering(bus)

    offer = bus.delivery.take_up(lane.lane, [own.seq, routed.seq])

    assert offer is not None
    assert dict(offer.parts) == {"nova": (own.seq,), MON: (routed.seq,)}
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
    assert [bus.state(own, "nova"), bus.state(routed, MON)] == ["seen", "seen"]


async def test_newer_connection_replaces_the_offers_of_an_earlier_one(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    first = bus.open_lane("nova", LaneKind.TERMINAL, OPEN)
    event = await route(bus, luna, "new")
    await first.next()
    second = _remembering(bus)

    offer = bus.delivery.take_up(second.lane, [event.seq])

    assert offer is not None
    assert first.lane.offers == {}
    await bus.delivery.answer(second.lane, offer.number, OfferOutcome.SEEN)
    assert bus.state(event, MON) == "seen"


async def test_remembered_outcomes_are_recorded_for_each_mailbox(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    own, routed = await _carried(bus, luna)
    lane = _remembering(bus)

    await bus.delivery.recover(lane.lane, [own.seq, routed.seq], OfferOutcome.SEEN)

    assert [bus.state(own, "nova"), bus.state(routed, MON)] == ["seen", "seen"]


async def test_offer_that_never_reached_its_holder_is_queued_again(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    _, routed = await _carried(bus, luna)
    lane = _remembering(bus)
    bus.delivery.set_level(lane.lane, CLOSED)

    await bus.delivery.recovered(lane.lane)

    assert bus.state(routed, MON) == "queued"
    bus.delivery.set_level(lane.lane, OPEN)
    await bus.delivery.answer(lane.lane, (await lane.next()).number, OfferOutcome.SEEN)
    assert commands(await lane.next()) == ["new"]


async def test_unclaimed_session_mail_becomes_unconfirmed_in_time(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = _remembering(bus)
    event = await route(bus, luna, "new")
    await lane.next()
    await bus.delivery.close_lane(lane.lane)
    assert not unconfirmed(bus, event, MON)

    bus.clock.advance(CLAIM_S)
    await bus.delivery.catch_up()

    assert unconfirmed(bus, event, MON)


async def test_late_closed_lane_of_a_returned_holder_gives_session_mail_back(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    old = _remembering(bus)
    event = await route(bus, luna, "new")
    await old.next()
    new = bus.open_lane("nova", LaneKind.TERMINAL, CLOSED, remembers=True)
    await bus.delivery.recovered(new.lane)

    await bus.delivery.close_lane(old.lane)

    assert bus.state(event, MON) == "queued"


async def test_withdrawn_session_mail_is_claimed_again(bus: Bus, luna: Caller, nova: Caller) -> None:
    hook = bus.open_lane("nova", LaneKind.HOOK, is_pulled=True, wakes_idle=False)
    native = bus.open_lane("nova")
    native.lane.silence = lambda offer: OfferOutcome.REFUSED
    event = await route(bus, luna, "new")
    offer = await native.next()
    bus.open_lane("nova", LaneKind.TERMINAL, CLOSED)
    await bus.delivery.end_silence(native.lane, offer.number)
    assert bus.state(event, MON) == "queued"

    await bus.delivery.reclaim(hook.lane, [event.seq])

    (again,) = hook.lane.offers.values()
    assert dict(again.parts) == {MON: (event.seq,)}
    assert bus.state(event, MON) == "submitted"


# Closed gates


async def test_session_mail_waits_for_the_gate_of_the_terminal_of_its_agent(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL, CLOSED)
    event = await route(bus, luna, "new")
    bus.clock.advance(SHUT_S)

    await bus.delivery.catch_up()

    entry = bus.entry(event, MON)
    assert entry is not None
    assert (entry.state, entry.reason) == ("held", "draft")
    assert len(await notices(bus, "luna")) == 1
    bus.delivery.set_level(lane.lane, OPEN)
    assert commands(await lane.next()) == ["new"]


async def test_messages_that_came_later_are_held_later(bus: Bus, luna: Caller, nova: Caller) -> None:
    bus.open_lane("nova", LaneKind.TERMINAL, CLOSED)
    bus.clock.advance(SHUT_S / 2)
    own, routed = await bus.send(luna, "own", "@nova"), await route(bus, luna, "new")
    bus.clock.advance(SHUT_S / 2)
    await bus.delivery.catch_up()
    early = [bus.state(own, "nova"), bus.state(routed, MON)]

    bus.clock.advance(SHUT_S / 2)
    await bus.delivery.catch_up()

    assert early == ["queued", "queued"]
    assert [bus.state(own, "nova"), bus.state(routed, MON)] == ["held", "held"]


async def test_interrupt_for_a_session_is_held_at_a_dialog(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL, WITH_DIALOG)
    event = await route(bus, luna, "new", priority="interrupt")

    await becomes(bus, event, MON, "held")

    bus.delivery.set_level(lane.lane, OPEN)
    assert commands(await lane.next()) == ["new"]


async def test_sender_is_notified_of_session_mail_that_a_dialog_covers(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL)
    event = await route(bus, luna, "new")
    await lane.next()
    bus.delivery.set_level(lane.lane, WITH_DIALOG)
    bus.clock.advance(2)

    await bus.delivery.catch_up()

    why = "a dialog is open in its terminal. It is delivered when the dialog is answered"
    assert await notices(bus, "luna") == [f"#{event.seq} is held for nova (session mon): {why}"]


async def test_held_session_mail_is_queued_when_the_agent_leaves_the_session(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    bus.open_lane("nova", LaneKind.TERMINAL, CLOSED)
    event = await route(bus, luna, "new")
    bus.clock.advance(SHUT_S)
    await bus.delivery.catch_up()
    assert bus.state(event, MON) == "held"

    await move(bus, nova, "s2")

    await becomes(bus, event, MON, "queued")


async def test_held_session_mail_is_found_by_the_next_daemon(bus: Bus, luna: Caller, nova: Caller) -> None:
    event = await route(bus, luna, "new")
    await bus.report(MON, "held", event.seq, lane="terminal", reason=DIALOG)

    lane = bus.open_lane("nova")

    assert commands(await lane.next()) == ["new"]
    assert bus.state(event, MON) == "submitted"


# Readers of sessions


async def test_acknowledged_session_mail_is_seen_and_the_agents_copy_stays(
    bus: Bus, luna: Caller, away: Caller
) -> None:
    event = await route(bus, luna, "new")

    written = await bus.submit(
        away, Acknowledge(messages=(event.seq,), session="mon", lane="receive", grade="handed")
    )

    assert written is not None
    assert (written.sender, written.by, written.payload["agent"]) == ("nova", None, MON)
    assert [bus.state(event, name) for name in (MON, "nova")] == ["seen", "queued"]


async def test_pushed_reader_of_a_session_has_the_gate_of_its_agent(
    bus: Bus, luna: Caller, away: Caller
) -> None:
    await bus.submit(HUMAN, Pause(name="nova"))
    await route(bus, luna, "new")
    await route(bus, luna, "now", priority="interrupt")

    assert fetch(bus, MON, is_pushed=True) == ["now"]
    assert fetch(bus, MON) == ["now", "new"]


@pytest.mark.parametrize("is_pushed", [False, True])
async def test_session_that_waits_again_counts_as_idle_for_a_request(
    bus: Bus, luna: Caller, is_pushed: bool
) -> None:
    kira = await bus.join("kira")
    await bus.submit(kira, SubscribePath(agent="kira", pattern="slack/**", session="mon"))
    event = await route(bus, luna, "new", intent="request")
    await bus.submit(kira, Acknowledge(messages=(event.seq,), session="mon", lane="receive", grade="handed"))
    reader = bus.delivery.take("kira+mon", is_pushed=is_pushed)
    waiting = asyncio.create_task(reader.wait(1))
    await asyncio.sleep(0)

    bus.clock.advance(2)
    await bus.delivery.catch_up()

    assert await noticed(bus, "luna") == [f"@luna kira is now idle (request #{event.seq})"]
    reader.close()
    await waiting


@pytest.mark.parametrize("is_read", [False, True])
async def test_sender_is_notified_only_of_the_expiry_of_session_mail(
    bus: Bus, luna: Caller, away: Caller, is_read: bool
) -> None:
    event = await route(bus, luna, "new", expires_in_ms=1000)
    if is_read:
        await bus.report(MON, "seen", event.seq)
    bus.clock.advance(1)

    await bus.delivery.catch_up()

    assert [bus.state(event, name) for name in (MON, "nova")] == ["seen" if is_read else "expired", "expired"]
    expired = f"#{event.seq} expired before nova (session mon) saw it"
    assert await notices(bus, "luna") == ([] if is_read else [expired])


# Removed sessions


async def test_waiting_mail_of_a_removed_session_is_dead(bus: Bus, luna: Caller, away: Caller) -> None:
    event = await route(bus, luna, "new")

    await bus.submit(away, RemoveSession(agent="nova", session="mon"))

    entry = bus.entry(event, MON)
    assert entry is not None
    assert (entry.state, entry.reason) == ("dead", "the session was removed")
    assert bus.state(event, "nova") == "queued"


async def test_message_that_comes_back_to_a_removed_session_is_dead(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    offer = await lane.next()
    await bus.submit(nova, RemoveSession(agent="nova", session="mon"))
    assert bus.state(event, MON) == "submitted"

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)

    await becomes(bus, event, MON, "dead")


async def test_failed_end_of_a_message_of_a_removed_session_is_retried(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await route(bus, luna, "new")
    await lane.next()
    await bus.submit(nova, RemoveSession(agent="nova", session="mon"))
    bus.failure = DiskFull("no room")
    await bus.report(MON, "queued", event.seq)
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()
    bus.failure = None

    bus.clock.advance(FIRST_PAUSE_S)
    await bus.delivery.catch_up()

    assert bus.state(event, MON) == "dead"


# Dead letters


async def test_sender_of_a_routed_dead_letter_gets_no_notice(bus: Bus, luna: Caller) -> None:
    text = await bus.send(luna, "hi", "nobody/here")
    await becomes(bus, text, "nobody/here", "dead")
    content = Content(command="go", payload={})
    routed = await bus.submit(luna, Send(text="", to=("/a+b",), content=content))
    assert routed is not None

    await becomes(bus, routed, "a+b", "dead")

    (*_, report) = await bus.log.read(Query(types=("delivery",)))
    assert report.sender == "a+b"
    assert len(await notices(bus, "luna")) == 1
