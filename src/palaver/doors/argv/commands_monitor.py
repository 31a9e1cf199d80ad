"""`pal monitor`: what a harness keeps running beside a session, so that messages come as lines at any time.

A native lane. An offer is on its way until a hook shows its lines in a prompt; where no hooks come, nothing
better will ever be known than that they were written out.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from palaver.delivery.lane import Ability, Answer, Lane, LaneKind, Offer
from palaver.doors.argv.call import Call
from palaver.doors.argv.looking_after import looked_after
from palaver.doors.argv.message_page import injection_line
from palaver.doors.argv.native_offers import Offers, give_back, remember_cut
from palaver.errors import WhoAreYou
from palaver.harness.claude_monitor import LIMIT_MESSAGES, monitor_lines
from palaver.model.delivery import Grade
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.message import INSTANCE

ABILITY: Final = Ability(kind=LaneKind.NATIVE, reaches_busy=True, wakes_idle=True, limit=LIMIT_MESSAGES)


async def monitor(call: Call) -> int:
    """Carry the caller's mail until its session ends. When the bus stops, the client waits for the next."""
    if call.caller.kind != INSTANCE:
        raise WhoAreYou("only an agent has mail that could come: join first with 'pal join'")
    watching = _Monitor(call)
    unsubscribe = call.services.log.subscribe(watching.follow)
    call.connection.comes_back = True
    try:
        async with looked_after(call):
            return await watching.run()
    finally:
        unsubscribe()
        await watching.close()


class _Monitor:
    """One monitor and its lane."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._offers: Offers = asyncio.Queue()
        self._lane: Lane = call.services.delivery.open_lane(
            call.caller.name, ABILITY, self._offers.put_nowait
        )
        call.services.conversations.add_native(self._lane)

    def follow(self, events: Sequence[Event]) -> None:
        """End with the agent."""
        if any(event.type == BYE and event.sender == self._lane.agent for event in events):
            self._offers.put_nowait(None)

    async def run(self) -> int:
        await self._call.services.delivery.recovered(self._lane)
        while True:
            with self._call.connection.waiting():
                offer = await self._offers.get()
            if offer is None:
                return 0
            await self._write(offer)

    async def close(self) -> None:
        """What was not handed to the client never left; of the rest nobody knows more than the hooks."""
        services = self._call.services
        reason = "the monitor ended before it left"
        await give_back(services.delivery, self._lane, self._offers, reason)
        services.conversations.remove_native(self._lane)
        await services.delivery.close_lane(self._lane)

    async def _write(self, offer: Offer) -> None:
        services, name = self._call.services, self._lane.agent
        lines = [injection_line(event, name, services.log.device) for event in offer.events]
        written = monitor_lines(lines)
        conversation = services.conversations.get(name)
        remember_cut(conversation, offer, written)
        data = "".join(f"{text}\n" for text, _ in written).encode("utf-8", "backslashreplace")
        flushed: Callable[[], None] | None = partial(self._flushed, offer) if conversation is None else None
        await self._call.write(data, b"-", flushed=flushed)

    def _flushed(self, offer: Offer) -> None:
        delivery = self._call.services.delivery
        self._call.connection.spawn(
            delivery.answer(self._lane, offer.number, Answer.SEEN, grade=Grade.FLUSHED)
        )
