"""`pal rewake`: a process that a hook of Claude Code leaves running, to wake an idle session once.

It is a native lane for one offer. It ends at once if a monitor runs, and when a newer rewake process waits.
While the agent works, hooks carry its messages. On any error the client prints nothing and exits with 0.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from palaver.delivery.delivery import Delivery
from palaver.delivery.lane import NOT_YET, Ability, Lane, LaneKind, Level, Offer
from palaver.doors.argv.call import Call
from palaver.doors.argv.looking_after import looked_after
from palaver.doors.argv.message_page import injection_line
from palaver.doors.argv.native_offers import Offers, give_back, remember_cut
from palaver.doors.hooks.natives import Natives, Wake
from palaver.harness.claude_monitor import LIMIT_MESSAGES, wake_lines
from palaver.harness.hook_news import Step
from palaver.harness.hooks import read_hook
from palaver.harness.setups import INSTALLED
from palaver.model.envelope import Event
from palaver.model.life import BYE, SEAT_TYPES
from palaver.model.message import INSTANCE
from palaver.routing.policy import require_own_mail

ABILITY: Final = Ability(kind=LaneKind.NATIVE, reaches_busy=False, wakes_idle=True, limit=LIMIT_MESSAGES)
WAKES: Final = 2
"""The exit status that makes the harness show the output to its model."""
_HARNESS: Final = "claude"
_WAITED: Final = b"w"
"""Token of a client that has waited with an earlier daemon, followed by the Unix time (ms) of its start."""
_SAID: Final = b"-"
"""Token of a client that has written its output, and lost the daemon before it received its exit status."""
_HEAD: Final = "New messages:"
"""The first line, because the harness may put its own text before it."""
_MONITOR_S: Final = 3.0
"""Seconds that a starting session has to start its monitor."""
_NAME_S: Final = 5.0
"""Seconds that a starting session may take to get a name."""
_ARRIVAL_S: Final = 30.0
"""Seconds in which no other lane overtakes a written offer. The offer is never written a second time."""


async def rewake(call: Call) -> int:
    """Wait for a message to the caller, and wake it. If the bus stops, the client waits for the next one."""
    call.connection.comes_back = True
    if call.asked.resume == _SAID:
        return WAKES
    news = read_hook(_HARNESS, call.parsed.positionals[0], call.asked.body)
    is_start = news is not None and news.step is Step.START
    if call.caller.kind != INSTANCE:
        if is_start and await _is_somebody_new(call):
            call.connection.come_again()
        return 0
    require_own_mail(call.caller)
    if call.caller.harness != _HARNESS or _has_its_own(call):
        return 0
    waiting = _Waiter(call)
    unsubscribe = call.services.log.subscribe(waiting.follow)
    try:
        is_new = news is not None and is_start and news.source in ("startup", "resume")
        since_ms = _waited_since(call.asked.resume)
        return await waiting.run(is_new=is_new and since_ms is None, since_ms=since_ms or 0)
    finally:
        unsubscribe()
        await waiting.close()


def _waited_since(token: bytes | None) -> int | None:
    """Return the time (ms) since which a client has waited, 0 if it is unknown; None for a new client."""
    if token is None or not token.startswith(_WAITED):
        return None
    digits = token.removeprefix(_WAITED)
    return int(digits) if digits.isdigit() and len(digits) < 16 else 0


def _has_its_own(call: Call) -> bool:
    """Return whether the agent has another rewake process.

    An agent that `pal` launched has one; this one comes from `pal install`.
    """
    return call.parsed.has(INSTALLED) and call.services.broker.directory.is_launched(call.caller.name)


async def _is_somebody_new(call: Call) -> bool:
    """Wait until any agent joins: it may be this session, whose first hook may not have run yet.

    Return False if no agent joins in time.
    """
    joined = asyncio.Event()

    def follow(events: Sequence[Event]) -> None:
        if any(event.type in SEAT_TYPES for event in events):
            joined.set()

    unsubscribe = call.services.log.subscribe(follow)
    try:
        async with asyncio.timeout(_NAME_S):
            with call.connection.waiting():
                return await joined.wait()
    except TimeoutError:
        return False
    finally:
        unsubscribe()


class _Waiter:
    """One waiting process and its lane."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._agent = call.caller.name
        self._offers: Offers = asyncio.Queue()
        self._natives: Natives = call.services.conversations.natives(self._agent)
        self._wake = Wake(lambda: self._offers.put_nowait(None))

    def follow(self, events: Sequence[Event]) -> None:
        """End the process when its agent leaves."""
        if any(event.type == BYE and event.sender == self._agent for event in events):
            self._wake.end()

    async def run(self, *, is_new: bool, since_ms: int) -> int:
        """Return the exit status. The client has received nothing since `since_ms`, unless that is 0."""
        if self._natives.monitors:
            return 0
        self._natives.wait(self._wake)
        begun_ms = since_ms or self._call.services.clock.now_ms()
        await self._call.write(b"", b"%b%d" % (_WAITED, begun_ms))
        delivery = self._call.services.delivery
        self._wake.lane = lane = delivery.open_lane(self._agent, ABILITY, self._offers.put_nowait)
        if is_new:  # while closed, this lane keeps messages from being typed
            delivery.set_level(lane, NOT_YET)
            if await self._ends_soon():
                return 0
            delivery.set_level(lane, Level())
        await delivery.recovered(lane, since_ms=since_ms)
        async with looked_after(self._call):
            with self._call.connection.waiting():
                offer = await self._offers.get()
        return 0 if offer is None else await self._say(lane, offer)

    async def _ends_soon(self) -> bool:
        try:
            async with asyncio.timeout(_MONITOR_S):
                with self._call.connection.waiting():
                    await self._offers.get()
                return True
        except TimeoutError:
            return False

    async def _say(self, lane: Lane, offer: Offer) -> int:
        services = self._call.services
        self._natives.leave(self._wake)
        written = wake_lines([injection_line(one, self._agent, services.log.device) for one in offer.events])
        remember_cut(services.conversations.get(self._agent), offer, written)
        text = "\n".join([_HEAD, *(line for line, _ in written), ""])
        # Even if the client never writes the offer, other lanes wait only this long.
        self._call.connection.spawn(let_pass(services.delivery, lane, _ARRIVAL_S))
        try:
            await self._call.write(text.encode("utf-8", "backslashreplace"), _SAID)
            await self._call.connection.output.flushed()
        except BaseException:
            # Perhaps nothing was written: hooks prove nothing about it, and other lanes need not wait.
            self._natives.take_back(lane)
            raise
        return WAKES

    async def close(self) -> None:
        """Close the lane, unless the client has written an offer: then hooks report the outcome.

        An offer that was not sent to the client is queued again. An offer that was sent, but perhaps not
        written, is unconfirmed, unless a prompt shows it later.
        """
        services, lane = self._call.services, self._wake.lane
        self._natives.forget(self._wake)
        if lane is not None and lane not in self._natives.left:
            await give_back(services.delivery, lane, self._offers, "it ended before anything left")
            await services.delivery.close_lane(lane)
        services.conversations.let_go(self._agent)


async def let_pass(delivery: Delivery, lane: Lane, wait_s: float) -> None:
    """Let other lanes carry messages after `wait_s` seconds, even if the written offer has not arrived."""
    await asyncio.sleep(wait_s)
    if lane.is_open and not lane.is_spent:
        lane.is_spent = True
        delivery.set_level(lane, Level())
