"""Readers and lanes that open and close at random: no message is in two hands, and none is lost."""

import asyncio
import tempfile
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fakes import HUMAN, Bus, FakeLane, OpenLog, open_memory, open_sqlite, opened_bus

from palaver.delivery.mailbox import QueueReader
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.lanes import IDLE_WAIT_S, LaneKind, Offer, OfferOutcome
from palaver.protocol.message import PRIORITY_WORDS, Priority, parse_priority
from palaver.protocol.requests import SetStatus

T = TypeVar("T")

choices = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(PRIORITY_WORDS)),
    st.tuples(st.just("take"), st.booleans()),
    st.tuples(st.just("poll"), choices, st.integers(1, 4)),
    st.tuples(st.just("ack"), choices, choices),
    st.tuples(st.just("settle"), choices),
    st.tuples(st.just("close"), choices),
    st.tuples(st.just("lane"), st.sampled_from(LaneKind)),
    st.tuples(st.just("answer"), choices, st.sampled_from(OfferOutcome)),
    st.tuples(st.just("end"), choices),
    st.tuples(st.just("silence"), st.booleans()),
    st.tuples(st.just("late"), choices, st.sampled_from(OfferOutcome)),
    st.tuples(st.just("status"), st.sampled_from(["idle", "active", "blocked"])),
    st.tuples(st.just("turn"), st.integers(1, 5)),
)

# An open lane reports a message as unconfirmed: it cannot tell whether the message was read.
UNCONFIRMED_WHILE_OPEN: list[tuple[object, ...]] = [
    ("send", "interrupt"),
    ("lane", LaneKind.NATIVE),
    ("status", "idle"),
    ("answer", 0, OfferOutcome.UNCONFIRMED),
]


class Table:
    """All readers and lanes of nova's mail, and the expected state of it."""

    def __init__(self, bus: Bus, nova: Caller) -> None:
        self.bus = bus
        self.nova = nova
        self.readers: dict[QueueReader, set[int]] = {}
        self.picky: set[QueueReader] = set()
        self.lanes: list[FakeLane] = []
        self.sent: dict[int, Priority] = {}
        self.seen: set[int] = set()
        self.lost: set[int] = set()
        """Messages that are submitted and unconfirmed: their lane ended, or could not tell."""

    async def do(self, step: tuple[object, ...]) -> None:
        await getattr(self, f"_{step[0]}")(*step[1:])

    async def _send(self, word: str) -> None:
        event = await self.bus.send(HUMAN, word, "@nova", priority=word)
        self.sent[event.seq] = parse_priority(word)

    async def _take(self, is_picky: bool) -> None:
        passes = (lambda event: event.seq % 2 == 0) if is_picky else None
        reader = self.bus.delivery.take("nova", passes=passes)
        self.readers[reader] = set()
        if is_picky:
            self.picky.add(reader)

    async def _poll(self, which: int, limit: int) -> None:
        if self.readers:
            reader = _one(list(self.readers), which)
            for event in reader.poll(limit):
                self._check_free(event)
                self.readers[reader].add(event.seq)

    async def _ack(self, which: int, message: int) -> None:
        if hand := self._hand(which):
            reader, seqs = hand
            seq = _one(sorted(seqs), message)
            await self.bus.ack(self.nova, seq)
            reader.settled([seq])
            seqs.discard(seq)
            self.seen.add(seq)

    async def _settle(self, which: int) -> None:
        """Let a reader settle all of its messages although no acknowledgement was recorded."""
        if hand := self._hand(which):
            reader, seqs = hand
            reader.settled(seqs)
            seqs.clear()

    async def _close(self, which: int) -> None:
        if self.readers:
            reader = _one(list(self.readers), which)
            reader.close()
            del self.readers[reader]

    async def _lane(self, kind: LaneKind) -> None:
        self.lanes.append(self.bus.open_lane("nova", kind))

    async def _answer(self, which: int, answer: OfferOutcome) -> None:
        if self.lanes:
            lane = _one(self.lanes, which).lane
            for offer in list(lane.offers.values()):
                await self.bus.delivery.answer(lane, offer.number, answer)
                if answer is OfferOutcome.SEEN:
                    self.seen.update(offer.seqs)
                elif answer is OfferOutcome.UNCONFIRMED:
                    self.lost.update(offer.seqs)

    async def _end(self, which: int) -> None:
        if self.lanes:
            lane = _one(self.lanes, which)
            self.lanes.remove(lane)
            self.lost.update(seq for offer in lane.lane.offers.values() for seq in offer.seqs)
            await self.bus.delivery.close_lane(lane.lane)

    async def _silence(self, is_certain: bool) -> None:
        """Let the wait for open offers end without an outcome, if the agent is idle."""
        before = {(lane, number) for lane in self.lanes for number in lane.lane.offers}
        for lane in self.lanes:
            lane.lane.silence = lambda offer: OfferOutcome.REFUSED if is_certain else OfferOutcome.UNCONFIRMED
        self.bus.clock.advance(IDLE_WAIT_S)
        await self.bus.delivery.catch_up()
        over = [lane.lane.late[number] for lane, number in before if number not in lane.lane.offers]
        if not is_certain:
            self.lost.update(seq for offer in over for seq in offer.seqs)

    async def _late(self, which: int, answer: OfferOutcome) -> None:
        """Let a lane report the outcome of an offer after the wait for it has ended."""
        offers = [(lane.lane, offer) for lane in self.lanes for offer in lane.lane.late.values()]
        if not offers:
            return
        lane, offer = _one(offers, which)
        await self.bus.delivery.answer(lane, offer.number, answer)
        if answer is OfferOutcome.SEEN:
            self.seen.update(offer.seqs)
            for seqs in self.readers.values():
                seqs.difference_update(offer.seqs)
        elif answer is not OfferOutcome.UNCONFIRMED:
            self.lost.difference_update(offer.seqs)

    async def _status(self, state: str) -> None:
        await self.bus.submit(self.nova, SetStatus(state=state))

    async def _turn(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    def _hand(self, which: int) -> tuple[QueueReader, set[int]] | None:
        full = [(reader, seqs) for reader, seqs in self.readers.items() if seqs]
        return _one(full, which) if full else None

    def _check_free(self, event: Event) -> None:
        assert event.seq not in self.seen
        assert all(event.seq not in seqs for seqs in self.readers.values())
        assert all(event.seq not in offer.seqs for offer in self._offers())

    def _offers(self) -> list[Offer]:
        return [offer for lane in self.lanes for offer in lane.lane.offers.values()]

    def check(self) -> None:
        """Check that no message is in two hands, and that no lane carries a seen message."""
        hands = [set(offer.seqs) for offer in self._offers()] + list(self.readers.values())
        assert sum(map(len, hands)) == len(set().union(*hands))

    async def clear(self) -> list[int]:
        """End all readers and lanes and return the remaining mail in order. A witness must miss nothing."""
        witness = next((reader for reader in self.readers if reader not in self.picky), None)
        if witness is not None:
            # From now on it has seen all of the mailbox.
            await self._poll(list(self.readers).index(witness), 1000)
        kept = set() if witness is None else self.readers.pop(witness)
        while self.lanes:
            await self._end(0)
        while self.readers:
            await self._close(0)
        for _ in range(20):  # An offer that was being written when its lane ended is queued again.
            await self.bus.send(HUMAN, "turn", "@human")
        if witness is not None:
            drawn = {event.seq for event in witness.poll(1000)}
            assert kept | drawn == set(self.sent) - self.seen - self.lost
            witness.close()
        reader = self.bus.delivery.take("nova")
        left = [event.seq for event in reader.poll(1000)]
        reader.close()
        return left


def _one(items: list[T], which: int) -> T:
    return items[which % len(items)]


def in_order(sent: dict[int, Priority], seqs: set[int]) -> list[int]:
    """Return the order in which a naive queue delivers."""
    return sorted(seqs, key=lambda seq: (sent[seq], -seq if sent[seq] is Priority.IDLE_FIRST else seq))


@pytest.mark.parametrize("open_log", [open_memory, open_sqlite], ids=["memory", "sqlite"])
@example(UNCONFIRMED_WHILE_OPEN)
@given(st.lists(steps, max_size=40))
def test_no_message_is_in_two_hands_and_none_is_lost(
    open_log: OpenLog, sequence: list[tuple[object, ...]]
) -> None:
    asyncio.run(_come_and_go(open_log, sequence))


async def _come_and_go(open_log: OpenLog, sequence: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with opened_bus(open_log, Path(directory)) as bus:
            table = Table(bus, await bus.join("nova"))
            for step in sequence:
                await table.do(step)
                table.check()

            left = await table.clear()

            assert left == in_order(table.sent, set(table.sent) - table.seen - table.lost)
