"""Decide which view tells the person of something. There is one notice for each event, and not too often.

Every open view asks about each event. The book waits a moment for all of them, because one may have the entry
in view. Then the first one that asked gets the word, for all events that have come meanwhile.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from palaver.clock import CallLater, Clock, Timer
from palaver.config import LiveSettings, split_command
from palaver.protocol.lines import NoticeReply

SETTLE_S: Final = 0.3
"""Seconds that the book waits for other views."""
EVERY_S: Final = 5.0
"""Seconds between two notices."""
LIMIT_WAITING: Final = 1_000
"""Events that wait for a decision; further ones cause no notice."""
LIMIT_KNOWN: Final = 10_000
"""Decided events that are remembered, for views that ask later."""

_NO: Final = NoticeReply(send=False)


@dataclass(slots=True, kw_only=True)
class _UndecidedNotice:
    """An event without a decision, and the views that ask about it."""

    asking: list["asyncio.Future[NoticeReply]"] = field(default_factory=list)
    is_in_view: bool = False


class NoticeBook:
    """The events that views have asked about. Belongs to the event loop."""

    def __init__(self, live: LiveSettings, clock: Clock, call_later: CallLater) -> None:
        self._live = live
        self._clock = clock
        self._call_later = call_later
        self._waiting: dict[str, _UndecidedNotice] = {}
        self._known: dict[str, None] = {}
        self._sent_s = float("-inf")
        self._timer: Timer | None = None

    async def claim(self, key: str, *, is_in_view: bool) -> NoticeReply:
        """Wait for the decision about an event, and return whether this view tells the person."""
        if key in self._known:
            return _NO
        waiting = self._waiting.get(key)
        if waiting is None:
            if len(self._waiting) >= LIMIT_WAITING:
                return _NO
            waiting = self._waiting[key] = _UndecidedNotice()
            self._wait()
        if is_in_view:
            waiting.is_in_view = True
            return _NO
        answer: asyncio.Future[NoticeReply] = asyncio.get_running_loop().create_future()
        waiting.asking.append(answer)
        return await answer  # a view that has gone cancels it

    def close(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._timer is None:
            pause_s = EVERY_S - (self._clock.monotonic_s() - self._sent_s)
            self._timer = self._call_later(max(SETTLE_S, pause_s), self._decide)

    def _decide(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        self._remember(waiting)
        told = {key: one for key, one in waiting.items() if not one.is_in_view}
        answers = [answer for one in told.values() for answer in one.asking if not answer.done()]
        if answers:
            self._sent_s = self._clock.monotonic_s()
            answers[0].set_result(self._reply(tuple(told)))
        for one in waiting.values():
            for answer in one.asking:
                if not answer.done():
                    answer.set_result(_NO)

    def _reply(self, keys: tuple[str, ...]) -> NoticeReply:
        settings = self._live.now
        return NoticeReply(
            send=True,
            keys=keys,
            notify=settings.notify,
            command=tuple(split_command(settings.notify_command)),
            has_text=bool(settings.notify_text),
        )

    def _remember(self, keys: dict[str, _UndecidedNotice]) -> None:
        self._known |= dict.fromkeys(keys)
        while len(self._known) > LIMIT_KNOWN:
            del self._known[next(iter(self._known))]
