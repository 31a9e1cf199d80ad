"""The native lane of a harness: one fence and one outcome per offer, and no loss between two daemons."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.holder.stage import Stage
from tests.limits import LIMIT_S

from palaver.client.wire import ReplyLine
from palaver.errors import PalaverError
from palaver.harness.base import OPEN, Done, Gate, TextOutcome
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.lane import NativeLane, NativeOffer, fenced
from palaver.protocol.events import Grade, Outcome
from palaver.protocol.lines import HoldOp

SEEN = Done(TextOutcome.SEEN, grade=Grade.CONTEXT)


class Carrier:
    """Accepts texts and reports the outcome that the test chooses."""

    def __init__(self, stage: Stage) -> None:
        self.texts: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.dones: asyncio.Queue[Done] = asyncio.Queue()
        self.others: asyncio.Queue[ReplyLine] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()
        hold = HoldOp(pid=1, ticket="ticket", secret="secret")
        self.bus = HolderConnection(str(stage.home), hold, self._on_held, self._on_push)
        self.lane = NativeLane(self.bus, self._carry, lambda: None)

    async def _carry(self, text: str, key: str) -> Done:
        self.texts.put_nowait((text, key))
        return await self.dones.get()

    async def _on_held(self, held: Held) -> None:
        self.lane.lose()
        task = asyncio.create_task(self._open())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _open(self) -> None:
        try:
            await self.lane.open()
        except PalaverError:
            return

    def _on_push(self, line: ReplyLine) -> None:
        self.lane.claim(line, self.others.put_nowait)


@asynccontextmanager
async def carrying(stage: Stage) -> AsyncIterator[Carrier]:
    carrier = Carrier(stage)
    running = asyncio.create_task(carrier.bus.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            await stage.daemon.heard("lane", kind="native")
            yield carrier
    finally:
        carrier.lane.close()
        running.cancel()
        await asyncio.wait([running, *carrier.tasks])


def offered(seq: int, text: str, **fields: object) -> NativeOffer:
    return NativeOffer(seq=seq, id=f"id-{seq}", sender="nova", text=text, **fields)  # type: ignore[arg-type]


async def test_offer_is_carried_and_answered(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        text, key = await carrier.texts.get()
        carrier.dones.put_nowait(SEEN)

        answer = await stage.daemon.heard("answer")

        assert text == "<pal>[new message #7] nova → luna: hello</pal>"
        assert key.endswith("-7")
        assert (answer["answer"], answer["grade"]) == ("seen", "context")
        await carrier.lane.settle()
        assert carrier.lane.is_at_rest
        assert carrier.lane.outcomes == ()


async def test_first_offer_may_arrive_together_with_the_lane(stage: Stage) -> None:
    async with carrying(stage) as carrier:  # the offer below is read together with the lane's number
        stage.daemon.offer(7, "hello")

        assert "hello" in (await carrier.texts.get())[0]


async def test_offer_for_another_lane_is_passed_on(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello", lane=9)

        assert (await carrier.others.get()).lane == 9
        assert carrier.lane.is_at_rest


async def test_offer_for_another_lane_survives_a_refused_opening(stage: Stage) -> None:
    stage.daemon.silent.add("lane")
    async with carrying(stage) as carrier:
        refusal = {"req": stage.daemon.last("lane")["req"], "error": "not_found", "message": "no"}

        stage.daemon.offer(7, "hello", lane=9)
        stage.daemon.write(refusal)

        async with asyncio.timeout(LIMIT_S):
            assert (await carrier.others.get()).lane == 9


async def test_unreadable_offer_is_refused(stage: Stage) -> None:
    async with carrying(stage):
        stage.daemon.push("offer", lane=1, offer=7, name="luna", messages=[{"seq": "seven"}])

        answer = await stage.daemon.heard("answer")

        assert (answer["answer"], answer["offer"]) == ("refused", 7)


async def test_deferral_is_reported_with_its_reason(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        carrier.dones.put_nowait(Done(TextOutcome.DEFERRED, "dialog"))

        answer = await stage.daemon.heard("answer")

        assert (answer["answer"], answer["reason"]) == ("deferred", "dialog")


async def test_second_offer_is_deferred_while_one_is_open(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        await carrier.texts.get()
        stage.daemon.offer(8, "more")
        later = await stage.daemon.heard("answer")
        carrier.dones.put_nowait(SEEN)

        first = await stage.daemon.heard("answer", count=2)

        assert (later["offer"], later["answer"]) == (8, "deferred")
        assert (first["offer"], first["answer"]) == (7, "seen")


async def test_gate_is_reported_once_and_again_to_a_new_daemon(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        carrier.lane.set_level(Gate(is_open=False, reason="dialog"), is_paused=False)
        await stage.daemon.heard("gate", reason="dialog")
        carrier.lane.set_level(Gate(is_open=False, reason="dialog"), is_paused=False)
        carrier.lane.set_level(OPEN, is_paused=True)
        await stage.daemon.heard("gate", paused=True)

        await stage.daemon.close()
        await stage.daemon.open()
        await stage.daemon.heard("gate", count=2, paused=True)

        report = [(one["open"], one.get("reason", "")) for one in stage.daemon.said if one["op"] == "gate"]
        assert report == [(False, "dialog"), (True, ""), (True, "")]


async def test_outcome_of_an_offer_reaches_the_next_daemon(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        await carrier.texts.get()

        await stage.daemon.close()
        await stage.daemon.open()
        await stage.daemon.heard("hold", count=2)
        carrier.dones.put_nowait(SEEN)

        lane = await stage.daemon.heard("lane", count=2)
        assert lane["outcomes"] == [{"messages": [7], "answer": "seen", "grade": "context"}]


async def test_outcomes_of_an_older_version_are_reported(stage: Stage) -> None:
    carrier = Carrier(stage)
    carrier.lane.remember((Outcome(messages=(3,), answer="seen"),))
    running = asyncio.create_task(carrier.bus.run())

    lane = await stage.daemon.heard("lane")

    assert lane["outcomes"] == [{"messages": [3], "answer": "seen"}]
    running.cancel()
    await asyncio.wait([running, *carrier.tasks])


async def test_unconfirmed_offer_is_reported_and_the_lane_continues(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        carrier.dones.put_nowait(Done(TextOutcome.UNCONFIRMED))
        assert (await stage.daemon.heard("answer"))["answer"] == "unconfirmed"

        stage.daemon.offer(8, "again")
        carrier.dones.put_nowait(SEEN)

        assert (await stage.daemon.heard("answer", count=2))["answer"] == "seen"
        assert len([one for one in stage.daemon.said if one["op"] == "lane"]) == 1


async def test_unconfirmed_offer_is_reported_to_the_next_daemon(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        await carrier.texts.get()

        await stage.daemon.close()
        await stage.daemon.open()
        await stage.daemon.heard("hold", count=2)
        carrier.dones.put_nowait(Done(TextOutcome.UNCONFIRMED))

        lane = await stage.daemon.heard("lane", count=2)
        assert lane["outcomes"] == [{"messages": [7], "answer": "unconfirmed"}]


async def test_next_daemon_learns_that_every_offer_is_known(stage: Stage) -> None:
    async with carrying(stage):
        first = stage.daemon.last("lane")

        await stage.daemon.close()
        await stage.daemon.open()
        again = await stage.daemon.heard("lane", count=2)

        # A process knows nothing of offers before its first lane: another process may have carried them.
        assert (first.get("remembers", False), again["remembers"]) == (False, True)


async def test_late_proof_of_an_unconfirmed_offer_is_sent_with_the_next_lane(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        _, key = await carrier.texts.get()
        carrier.dones.put_nowait(Done(TextOutcome.UNCONFIRMED))
        await stage.daemon.heard("answer")
        await carrier.lane.settle()

        carrier.lane.prove("another key")
        carrier.lane.prove(key)
        lane = await stage.daemon.heard("lane", count=2)

        assert lane["outcomes"] == [{"messages": [7], "answer": "seen", "grade": "context"}]


async def test_proof_during_another_offer_is_sent_after_that_offer(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        _, key = await carrier.texts.get()
        carrier.dones.put_nowait(Done(TextOutcome.UNCONFIRMED))
        await stage.daemon.heard("answer")
        await carrier.lane.settle()
        stage.daemon.offer(8, "again")
        await carrier.texts.get()

        carrier.lane.prove(key)
        carrier.dones.put_nowait(SEEN)
        lane = await stage.daemon.heard("lane", count=2)

        assert (await stage.daemon.heard("answer", count=2))["answer"] == "seen"
        assert lane["outcomes"] == [{"messages": [7], "answer": "seen", "grade": "context"}]


async def test_closed_lane_is_not_opened_again(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.offer(7, "hello")
        await carrier.texts.get()
        assert not carrier.lane.is_at_rest

        carrier.lane.close()
        carrier.lane.close()

        await stage.daemon.heard("hold", count=2)
        await asyncio.sleep(0)
        assert len([one for one in stage.daemon.said if one["op"] == "lane"]) == 1


async def test_outcomes_of_a_closed_lane_are_left_to_another_lane(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.silent.add("answer")
        for seq, done in ((7, SEEN), (8, Done(TextOutcome.DEFERRED)), (9, Done(TextOutcome.REFUSED))):
            stage.daemon.offer(seq, "hello")
            await carrier.texts.get()
            carrier.dones.put_nowait(done)
            await stage.daemon.heard("answer", offer=seq)
        before = carrier.lane.left

        carrier.lane.close()

        assert before == ()
        left = carrier.lane.left
        assert [(one.messages, one.answer) for one in left] == [((7,), "seen"), ((8,), "deferred")]
        carrier.lane.forget(left)
        assert carrier.lane.left == ()


async def test_report_of_an_offer_arrives_although_the_agent_exits(stage: Stage) -> None:
    async with carrying(stage) as carrier:
        stage.daemon.silent.add("answer")
        stage.daemon.offer(7, "hello")
        await carrier.texts.get()
        carrier.dones.put_nowait(SEEN)
        await stage.daemon.heard("answer")

        carrier.lane.end()
        stage.daemon.write({"req": stage.daemon.last("answer")["req"], "ok": {}})
        await carrier.lane.settle()

        assert carrier.lane.outcomes == ()


def test_messages_share_one_fence() -> None:
    two = (offered(1, "one", intent="request", delivered_to=("luna", "kira")), offered(2, "two", thread="t"))

    assert fenced(two, "luna") == (
        "<pal>[2 new messages] | [request #1] nova → luna (+1): one | [thread:t #2] nova → luna: two</pal>"
    )


def test_text_from_the_input_bar_has_no_fence() -> None:
    assert fenced((offered(1, "do it", bare=True),), "luna") == "do it"
    assert fenced((offered(1, "do it", bare=True), offered(2, "two")), "luna") == (
        "<pal>[new message #2] nova → luna: two</pal>\n\ndo it"
    )
