"""Notices of watches and subscriptions, on both log engines, also across restarts."""

import asyncio
from pathlib import Path

import pytest
from tests.fakes import HUMAN, SCRIPT, open_memory, opened_bus
from tests.limits import LIMIT_S
from tests.reactors.conftest import Watched

from palaver.daemon.daemon import GuardedTasks
from palaver.errors import BadText
from palaver.log.api import LIMIT_NEWEST
from palaver.protocol.requests import JoinRoom
from palaver.protocol.subscriptions import COLLISION, Unsubscribe
from palaver.reactors import subscriptions
from palaver.state.watches import due_watches, read_subscription, read_watches


async def test_sender_is_notified_once_when_the_reader_of_a_request_is_idle(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")
    await watched.bus.ack(nova, request.seq)

    await watched.status(nova, "active")
    await watched.status(nova, "idle")
    await watched.status(nova, "idle")
    await watched.leave(nova)

    (notice,) = await watched.told("luna")
    assert notice.payload["text"] == f"@luna nova is now idle (request #{request.seq})"
    assert (notice.sender, notice.payload["sender_kind"]) == ("[pal-events]", "system")
    assert notice.payload["watch"] == {"agent": "nova", "request": request.seq}
    assert list(read_watches(watched.bus.log.rows)) == []


async def test_agent_idle_before_it_saw_the_request_causes_no_notice(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")
    await watched.status(nova, "idle")
    await watched.bus.ack(nova, request.seq)

    assert await watched.texts("luna") == []


async def test_sender_is_notified_when_a_recipient_leaves_before_reading(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")

    await watched.leave(nova)

    assert await watched.texts("luna") == [f"@luna nova is now stopped (request #{request.seq})"]


async def test_every_agent_that_gets_a_broadcast_is_watched(watched: Watched) -> None:
    luna, nova, kira = [await watched.bus.join(name) for name in ("luna", "nova", "kira")]
    everyone = await watched.ask(luna, "@all")
    person = await watched.ask(luna, "@human", "luna")

    await watched.leave(kira)
    await watched.leave(nova)
    await watched.leave(luna)

    assert await watched.texts("luna") == [
        f"@luna kira is now stopped (request #{everyone.seq})",
        f"@luna nova is now stopped (request #{everyone.seq})",
    ]
    assert {watch.request for watch in read_watches(watched.bus.log.rows)} == {everyone.seq} - {person.seq}


async def test_reply_ends_the_watch_of_that_recipient(watched: Watched) -> None:
    luna, nova, kira = [await watched.bus.join(name) for name in ("luna", "nova", "kira")]
    request = await watched.ask(luna, "@nova", "@kira")
    await watched.bus.send(nova, "done", reply_to=str(request.seq))

    await watched.leave(nova)
    await watched.leave(kira)

    assert await watched.texts("luna") == [f"@luna kira is now stopped (request #{request.seq})"]


async def test_requests_of_the_human_are_watched_and_those_of_scripts_not(watched: Watched) -> None:
    nova = await watched.bus.join("nova")
    await watched.ask(SCRIPT, "@nova")
    request = await watched.ask(HUMAN, "@nova")

    await watched.leave(nova)

    assert await watched.texts("script") == []
    assert await watched.texts("human") == [f"@human nova is now stopped (request #{request.seq})"]


async def test_removed_watch_sends_no_notice(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")
    await watched.bus.submit(luna, Unsubscribe(id=f"w{request.seq}-nova"))

    await watched.leave(nova)

    assert await watched.texts("luna") == []


async def test_watch_due_before_the_start_is_reported_after_it(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")
    await watched.settled()
    watched.watches.close()
    await watched.leave(nova)
    await watched.bus.join("nova")
    before = due_watches(watched.bus.log.rows)

    watched.start()

    assert before == [("nova", request.seq)]
    assert await watched.texts("luna") == [f"@luna nova is now stopped (request #{request.seq})"]
    assert due_watches(watched.bus.log.rows) == []


async def test_due_watch_is_reported_after_many_later_events(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")
    made = await watched.subscribe(luna, types=("tick",), once=True)
    await watched.settled()
    watched.watches.close()
    await watched.leave(nova)
    await watched.put("message", "[pal-events]", sender_kind="system", sub=made.id, event=1, delivered_to=[])
    await asyncio.gather(*(watched.put("tock") for _ in range(LIMIT_NEWEST)))

    watched.start()

    assert await watched.texts("luna") == [f"@luna nova is now stopped (request #{request.seq})"]
    assert read_subscription(watched.bus.log.rows, made.id) is None


async def test_notice_names_the_subscription_and_the_event(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    made = await watched.subscribe(luna, agents=("Nova",), statuses=("listening",), text="look at it")

    await watched.status(nova, "active")
    idle = await watched.status(nova, "idle", file="src/x.py")

    (notice,) = await watched.told("luna")
    assert (
        notice.payload["text"] == f"[sub {made.id}] #{idle.seq} status nova: idle (in src/x.py) — look at it"
    )
    assert (notice.payload["sub"], notice.payload["event"]) == (made.id, idle.seq)
    assert watched.bus.texts("luna") == [notice.payload["text"]]


async def test_events_before_a_subscription_are_not_reported(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    await watched.status(nova, "idle")
    await watched.subscribe(luna, agents=("nova",), types=("status",))
    watched.watches.close()

    watched.start()
    blocked = await watched.status(nova, "blocked")

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [blocked.seq]


async def test_event_right_after_a_first_subscription_is_reported(watched: Watched) -> None:
    luna, nova, kira = [await watched.bus.join(name) for name in ("luna", "nova", "kira")]
    await watched.ask(luna, "@nova")
    watched.failures = 3
    await watched.leave(kira)
    await watched.leave(nova)  # Its notice fails until three more events are stored.
    await asyncio.wait_for(watched.has_failed.wait(), LIMIT_S)

    await watched.subscribe(luna, senders=("human",), types=("message",))
    message = await watched.bus.send(HUMAN, "hello", "@luna")
    await watched.status(luna, "active")

    assert message.seq in [notice.payload.get("event") for notice in await watched.told("luna")]


async def test_own_events_are_reported_only_if_the_filter_names_the_owner(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    await watched.subscribe(luna, types=("status",))
    await watched.subscribe(nova, senders=("@Nova",), types=("status",))

    mine = await watched.status(luna, "blocked")
    other = await watched.status(nova, "blocked")

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [other.seq]
    assert [notice.payload["event"] for notice in await watched.told("nova")] == [other.seq]
    assert mine.seq < other.seq


async def test_two_broad_subscriptions_do_not_trigger_each_other(watched: Watched) -> None:
    luna, nova, kira = [await watched.bus.join(name) for name in ("luna", "nova", "kira")]
    for asking in (luna, nova):
        await watched.subscribe(asking, types=("delivery", "message"))
    message = await watched.bus.send(kira, "hello", "@human")
    hits = [*await watched.told("luna"), *await watched.told("nova")]

    for asking in (luna, nova):
        await watched.bus.ack(asking, *(hit.seq for hit in hits))
    seen = await watched.bus.ack(HUMAN, message.seq)

    assert seen is not None
    for name in ("luna", "nova"):
        assert [notice.payload["event"] for notice in await watched.told(name)] == [message.seq, seen.seq]


async def test_malformed_foreign_event_is_reported(watched: Watched) -> None:
    luna = await watched.bus.join("luna")
    await watched.subscribe(luna, types=("delivery",))

    odd = await watched.put("delivery", messages="all", state="seen")

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [odd.seq]


async def test_once_subscription_reports_the_first_event_and_ends(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    made = await watched.subscribe(luna, agents=("nova",), statuses=("idle",), once=True)

    first, _ = await asyncio.gather(watched.status(nova, "idle"), watched.status(nova, "idle"))

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [first.seq]
    assert read_subscription(watched.bus.log.rows, made.id) is None
    (removed,) = await watched.events("sub.removed")
    assert removed.payload == {"id": made.id, "reason": "once"}
    assert removed.sender == "[pal-events]"


async def test_finished_once_subscription_is_removed_at_the_next_start(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    made = await watched.subscribe(luna, agents=("nova",), statuses=("idle",), once=True)
    await watched.settled()
    watched.watches.close()
    await watched.put("message", "[pal-events]", sender_kind="system", sub=made.id, event=1, delivered_to=[])
    await watched.status(nova, "idle")

    watched.start()

    assert await watched.texts("luna") == []
    assert [event.payload["reason"] for event in await watched.events("sub.removed")] == ["once"]


async def test_removed_subscription_reports_nothing(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    gone = await watched.subscribe(luna, agents=("nova",), types=("status",))
    kept = await watched.subscribe(luna, agents=("nova",), types=("agent.bye",))
    await watched.bus.submit(luna, Unsubscribe(id=gone.id.upper()))

    await watched.status(nova, "idle")
    await watched.leave(nova)

    assert [notice.payload["sub"] for notice in await watched.told("luna")] == [kept.id]


async def test_notices_wait_for_an_absent_owner(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    await watched.subscribe(luna, agents=("nova",), types=("status",))
    await watched.leave(luna)

    await watched.status(nova, "blocked")

    assert len(await watched.told("luna")) == 1
    assert len(watched.bus.texts("luna")) == 1


async def test_two_editors_of_one_file_collide_once_and_both_are_named(watched: Watched) -> None:
    luna, nova, kira = [await watched.bus.join(name) for name in ("luna", "nova", "kira")]
    made = await watched.subscribe(luna, preset=COLLISION)
    await watched.subscribe(kira, preset=COLLISION, files=("src/other.py",))
    await watched.status(nova, "active", file="src/x.py")
    await watched.status(nova, "active", file="src/x.py")

    second = await watched.status(luna, "active", file="src/x.py")
    await watched.status(nova, "active", file="src/x.py")

    (notice,) = await watched.told("luna")
    assert notice.payload["text"] == f"[sub {made.id}] #{second.seq} collision: nova and luna edited src/x.py"
    assert notice.payload["agents"] == ["luna", "nova"]
    assert notice.payload["file"] == "src/x.py"
    assert await watched.texts("kira") == []


async def test_members_that_edit_one_file_are_both_notified(watched: Watched) -> None:
    luna, nova, kira, stranger = [
        await watched.bus.join(name) for name in ("luna", "nova", "kira", "stranger")
    ]
    for member in (luna, nova, kira):
        await watched.bus.broker.submit(member, JoinRoom(workspaces=("/shop",)))
    made = await watched.subscribe(kira, preset=COLLISION)
    for editor in (stranger, kira, nova):
        await watched.status(editor, "active", file="/shop/cart.py")

    last = await watched.status(luna, "active", file="/shop/cart.py")
    await watched.status(nova, "active", file="/shop/cart.py")

    (notification,) = await watched.told("luna")
    assert notification.payload["text"] == (
        f"@luna you and nova, kira edited /shop/cart.py within 30 seconds (#{last.seq}): "
        "agree who continues, and check that no change was lost"
    )
    assert (notification.payload["event"], notification.payload["file"]) == (last.seq, "/shop/cart.py")
    assert notification.payload["agents"] == ["luna", "nova", "kira"]
    (with_kira, with_luna) = await watched.told("nova")
    assert (with_kira.payload["agents"], with_luna.payload["agents"]) == (["nova", "kira"], ["luna", "nova"])
    assert {notice.payload["sub"] for notice in await watched.told("kira")} == {made.id}
    assert await watched.texts("stranger") == []


async def test_edits_before_a_common_room_are_not_reported_after_a_restart(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    for editor in (luna, nova):
        await watched.status(editor, "active", file="cart.py")
    watched.watches.close()
    watched.bus.clock.advance(60)
    for member in (luna, nova):
        await watched.bus.broker.submit(member, JoinRoom(workspaces=("/shop",)))

    watched.start()
    await watched.status(nova, "active", file="other.py")
    later = await watched.status(luna, "active", file="other.py")

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [later.seq]


async def test_refused_notice_to_a_member_is_logged_with_its_event(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    for member in (luna, nova):
        await watched.bus.broker.submit(member, JoinRoom(workspaces=("/shop",)))
    await watched.status(luna, "active", file="cart.py")
    await watched.settled()
    watched.failure, watched.failures = BadText("the text", 27, 3), 1

    edit = await watched.status(nova, "active", file="cart.py")
    await watched.told("luna")

    assert f"skipped Notify of {edit.id}" in caplog.text


async def test_notices_wait_while_the_disk_is_full(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    await watched.subscribe(luna, agents=("nova",), types=("status",))
    await watched.settled()
    watched.failures = 1
    first = await watched.status(nova, "idle")
    await asyncio.wait_for(watched.has_failed.wait(), LIMIT_S)

    second = await watched.status(nova, "blocked")

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [first.seq, second.seq]


async def test_notice_that_fails_unexpectedly_is_not_tried_again(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus, GuardedTasks() as tasks:
        await bus.join("marks")
        watched = Watched(bus, tasks)
        luna, nova = await bus.join("luna"), await bus.join("nova")
        await watched.subscribe(luna, agents=("nova",), types=("status",))
        await watched.settled()
        watched.failure, watched.failures = RuntimeError("a bug"), 1
        await watched.status(nova, "idle")

        second = await watched.status(nova, "blocked")

        assert [notice.payload["event"] for notice in await watched.told("luna")] == [second.seq]
        watched.watches.close()


async def test_notices_are_tried_again_without_an_event(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    await watched.subscribe(luna, agents=("nova",), types=("status",))
    await watched.settled()
    monkeypatch.setattr(subscriptions, "TRY_AGAIN_S", 0)
    is_told = asyncio.Event()
    stop = watched.bus.log.subscribe(lambda _: is_told.set(), ("message",))
    watched.failures = 2

    await watched.status(nova, "idle")

    await asyncio.wait_for(is_told.wait(), LIMIT_S)
    assert watched.failures == 0
    stop()


async def test_refused_notice_is_logged_and_skipped(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    made = await watched.subscribe(luna, agents=("nova",), types=("status",))
    await watched.settled()
    watched.failure, watched.failures = BadText("the text", 27, 3), 1
    await watched.status(nova, "idle")
    await asyncio.wait_for(watched.has_failed.wait(), LIMIT_S)

    second = await watched.status(nova, "blocked")

    assert [notice.payload["event"] for notice in await watched.told("luna")] == [second.seq]
    assert [made.id in record.getMessage() for record in caplog.records] == [True]


async def test_held_message_is_not_reported_and_does_not_end_a_watch(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    await watched.subscribe(luna, senders=("nova",), types=("message",))
    request = await watched.ask(luna, "@nova")
    held = {"text": "secret", "delivered_to": ["luna"], "reply_to": str(request.seq), "held": "40 hops"}
    await watched.put("message", "nova", **held)

    await watched.leave(nova)

    assert await watched.texts("luna") == [f"@luna nova is now stopped (request #{request.seq})"]


async def test_expired_request_is_not_reported(watched: Watched) -> None:
    luna, nova = await watched.bus.join("luna"), await watched.bus.join("nova")
    request = await watched.ask(luna, "@nova")
    await watched.put("delivery", "[pal]", agent="nova", messages=[request.seq], state="expired")

    await watched.leave(nova)

    assert await watched.texts("luna") == []


async def test_large_burst_is_reported_in_order(watched: Watched) -> None:
    luna = await watched.bus.join("luna")
    await watched.subscribe(luna, types=("tick",))

    ticks = await asyncio.gather(*(watched.put("tick", n=n) for n in range(600)))

    assert [notice.payload["event"] for notice in await watched.told("luna")] == sorted(
        one.seq for one in ticks
    )


async def test_close_twice_or_before_the_start_is_harmless(watched: Watched) -> None:
    watched.watches.close()
    watched.watches.close()

    watched.make().close()
    watched.start()

    await watched.settled()
