"""`pal monitor`: a process that a harness keeps running during a session, and whose output lines it reads.

It is a native lane that can carry messages at any time. An offer stays open until a hook shows its lines in a
prompt; without hooks, the only evidence is that the lines were written out. The lane is closed while another
line would exceed the rate limit of the harness. If the agent is idle and no prompt has shown the lines, the
harness has dropped them: the offer is withdrawn, and its messages go by another lane or once more by this
one.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from palaver.delivery.lane import PACED, Ability, Answer, Lane, LaneKind, Level, Offer
from palaver.doors.argv.call import Call
from palaver.doors.argv.looking_after import looked_after
from palaver.doors.argv.message_page import injection_line
from palaver.doors.argv.native_offers import Offers, give_back, remember_cut
from palaver.errors import WhoAreYou
from palaver.harness.claude_monitor import LIMIT_MESSAGES, Pace, monitor_lines
from palaver.model.delivery import Grade
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.message import INSTANCE
from palaver.routing.policy import require_own_mail

ABILITY: Final = Ability(
    kind=LaneKind.NATIVE,
    reaches_busy=True,
    wakes_idle=True,
    limit=LIMIT_MESSAGES,
    remembers=True,
    idle_wait_s=15.0,
)
_LIMIT_HAD: Final = 40
"""How many messages a token names at most. A token has at most 1,024 bytes in the client."""


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """The state that a client keeps for the next daemon: open messages, and how much it may still write."""

    events: int
    since_s: float
    had: tuple[int, ...] | None
    """Messages that the client received and that were not confirmed; None if there are too many to name."""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Token).decode


async def monitor(call: Call) -> int:
    """Carry the caller's messages until it leaves. If the bus stops, the client waits for the next one."""
    if call.caller.kind != INSTANCE:
        raise WhoAreYou("only an agent has mail that could come: join first with 'pal join'")
    require_own_mail(call.caller)
    call.connection.comes_back = True
    watching = _Monitor(call, _read_token(call.asked.resume))
    unsubscribe = call.services.log.subscribe(watching.follow)
    try:
        async with looked_after(call):
            return await watching.run()
    finally:
        unsubscribe()
        await watching.close()


def _read_token(token: bytes | None) -> _Token | None:
    try:
        return None if token is None else _decode(token)
    except msgspec.DecodeError:  # a token from an older daemon
        return None


class _Monitor:
    """One monitor and its lane."""

    def __init__(self, call: Call, before: _Token | None) -> None:
        """`before` is the token of an earlier daemon; None for a client that has just started."""
        self._call = call
        self._clock = call.services.clock
        self._before = before
        self._pace = Pace() if before is None else Pace(before.events, before.since_s)
        self._reopening: asyncio.TimerHandle | None = None
        self._offers: Offers = asyncio.Queue()
        self._lane: Lane | None = None
        self._written: set[int] = set()
        """Numbers of the offers whose lines the client has written out."""
        self._withdrawn: set[int] = set()
        """Messages that were withdrawn. No message is withdrawn twice."""

    def follow(self, events: Sequence[Event]) -> None:
        """End the monitor when its agent leaves."""
        if any(event.type == BYE and event.sender == self._call.caller.name for event in events):
            self._offers.put_nowait(None)

    async def run(self) -> int:
        # Send a token first: a client that brings one back knows which offers it received since.
        await self._call.write(b"", self._token(() if self._before is None else self._before.had))
        await self._call.connection.output.flushed()
        lane = await self._open()
        while True:
            with self._call.connection.waiting():
                offer = await self._offers.get()
            if offer is None:
                return 0
            await self._write(lane, offer)

    async def _open(self) -> Lane:
        """Open the lane, and report which offers of an earlier daemon the client received."""
        services, name = self._call.services, self._call.caller.name
        delivery = services.delivery
        self._lane = lane = delivery.open_lane(name, ABILITY, self._offers.put_nowait)
        lane.silence = self._silence
        services.conversations.add_native(lane)
        self._keep_pace(lane)
        had = None if self._before is None else self._before.had
        if had and (offer := delivery.take_up(lane, had)) is not None:
            # The harness has the lines, and a prompt may have shown them already.
            delivery.arrived(lane, offer.number)
        await delivery.recovered(lane, knows_all=had is not None)
        return lane

    async def close(self) -> None:
        """Close the lane.

        Offers that were not written to the client are queued again. If the client has ended, the others
        become unconfirmed; otherwise it reports them to the next daemon.
        """
        if self._reopening is not None:
            self._reopening.cancel()
        if (lane := self._lane) is None:
            return
        services = self._call.services
        await give_back(services.delivery, lane, self._offers, "the monitor ended before it left")
        services.conversations.remove_native(lane)
        if self._call.connection.has_gone:  # The client cannot report what it received.
            for number in list(lane.offers):
                await services.delivery.answer(lane, number, Answer.UNCONFIRMED)
        await services.delivery.close_lane(lane)

    async def _write(self, lane: Lane, offer: Offer) -> None:
        services, name = self._call.services, lane.agent
        lines = [injection_line(event, name, services.log.device) for event in offer.events]
        written = monitor_lines(lines)
        conversation = services.conversations.get(name)
        remember_cut(conversation, offer, written)
        data = "".join(f"{text}\n" for text, _ in written).encode("utf-8", "backslashreplace")
        self._pace.spend(self._clock.monotonic_s())
        self._keep_pace(lane)
        had = tuple(seq for one in lane.offers.values() for seq in one.seqs)
        known = services.broker.directory.get(name)
        has_hooks = conversation is not None or (known is not None and bool(known.session))
        flushed = partial(self._flushed, lane, offer, has_hooks=has_hooks)
        await self._call.write(data, self._token(had), flushed=flushed)

    def _flushed(self, lane: Lane, offer: Offer, *, has_hooks: bool) -> None:
        self._written.add(offer.number)
        if not has_hooks:
            delivery = self._call.services.delivery
            self._call.connection.spawn(delivery.answer(lane, offer.number, Answer.SEEN, grade=Grade.FLUSHED))

    def _token(self, had: tuple[int, ...] | None) -> bytes:
        named = had if had is not None and len(had) <= _LIMIT_HAD else None
        return _encode(_Token(self._pace.events, round(self._pace.since_s, 3), named))

    # The rate limit of the harness

    def _keep_pace(self, lane: Lane) -> None:
        """Close the lane while the harness would drop another line, and reopen it afterwards."""
        wait_s = self._pace.wait_s(self._clock.monotonic_s())
        delivery = self._call.services.delivery
        if not wait_s:
            delivery.set_level(lane, Level())
            return
        delivery.set_level(lane, Level(is_open=False, reason=PACED))
        self._reopening = asyncio.get_running_loop().call_later(wait_s, self._keep_pace, lane)

    def _silence(self, offer: Offer) -> Answer:
        """Return the outcome of an offer that no prompt of an idle agent has shown.

        Hooks report every prompt, so lines that were written out and are in no prompt were dropped.
        """
        lane = self._lane
        assert lane is not None  # offers exist only on an open lane
        is_proven = (
            offer.number in self._written
            and offer.number not in lane.arrived
            and self._withdrawn.isdisjoint(offer.seqs)
            and self._call.services.conversations.get(lane.agent) is not None
        )
        if not is_proven:
            return Answer.UNCONFIRMED
        self._withdrawn.update(offer.seqs)
        return Answer.REFUSED
