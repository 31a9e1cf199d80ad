"""Taking mail: one open set for each agent, and the consumers that draw on it.

A taker is a repeatable lane: its consumer drops repeats by id. Mail is handed out for as long as the connection lives
and is written down at the ack; what was not acknowledged goes back into the open set. Nothing here waits on a clock.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from palaver.log.api import Log
from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.mail import MAIL, Mail, decode_mail, mail_prefix
from palaver.model.priority import Priority

_PAGE: Final = 200

Passes = Callable[[Event], bool]


class Mailbox:
    """Who draws on one agent's mail, and what each of them has in hand."""

    def __init__(self, log: Log, agent: str, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self.agent = agent
        self.in_hand: dict[int, object] = {}
        self._takers: list[Taker] = []

    def open(self, *, passes: Passes | None = None) -> "Taker":
        """Let one more consumer draw on this mail."""
        taker = Taker(self, passes)
        self._takers.append(taker)
        return taker

    @property
    def is_idle(self) -> bool:
        """Nobody draws on it and nothing is in hand."""
        return not self._takers and not self.in_hand

    def wake(self) -> None:
        """There may be something new for everybody who waits."""
        for taker in self._takers:
            taker.wake()

    def waiting(self, priority: Priority | None = None) -> Iterator[tuple[str, Mail]]:
        """Walk the open mail that nobody has in hand, in the order in which it goes, page by page.

        Mail that is held, or on its way through a lane, or past its time, is passed over.
        """
        prefix, after = mail_prefix(self.agent, priority), ""
        while page := self._log.rows.scan(MAIL, prefix, after=after, limit=_PAGE):
            for key, value in page:
                mail = decode_mail(value)
                is_over = bool(mail.expires) and mail.expires <= self._now_ms()
                if mail.state == State.QUEUED and not is_over and mail.seq not in self.in_hand:
                    yield key, mail
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def draw(self, owner: object, limit: int, passes: Passes | None) -> list[Event]:
        """Take up to `limit` open messages in hand."""
        drawn: list[Event] = []
        for _, mail in self.waiting():
            event = self._log.event(mail.seq)
            if event is None or (passes is not None and not passes(event)):
                continue
            self.in_hand[mail.seq] = owner
            drawn.append(event)
            if len(drawn) == limit:
                break
        return drawn

    def put_back(self, owner: object, seqs: Iterable[int]) -> None:
        """Give messages back into the open set, for whoever comes next."""
        for seq in seqs:
            if self.in_hand.get(seq) is owner:
                del self.in_hand[seq]

    def close(self, taker: "Taker") -> None:
        """A consumer ends; what it had in hand goes back."""
        self._takers.remove(taker)
        self.put_back(taker, [seq for seq, owner in self.in_hand.items() if owner is taker])
        self.wake()


class Taker:
    """One consumer of an agent's mail."""

    def __init__(self, mailbox: Mailbox, passes: Passes | None) -> None:
        self._mailbox = mailbox
        self._passes = passes
        self._news = asyncio.Event()
        self._is_closed = False

    def poll(self, limit: int) -> list[Event]:
        """Take what is there now, at most `limit` messages; maybe none."""
        self._news.clear()
        return self._mailbox.draw(self, limit, self._passes)

    async def wait(self, limit: int) -> list[Event]:
        """Take what is there, waiting until there is something. Empty only when the taker was closed."""
        while not self._is_closed:
            if drawn := self.poll(limit):
                return drawn
            await self._news.wait()
        return []

    def settled(self, seqs: Iterable[int]) -> None:
        """These are written down: they are no longer in hand."""
        self._mailbox.put_back(self, seqs)

    def wake(self) -> None:
        """Look again."""
        self._news.set()

    def close(self) -> None:
        """End; what was handed out and not acknowledged is open again. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._mailbox.close(self)
            self._news.set()
