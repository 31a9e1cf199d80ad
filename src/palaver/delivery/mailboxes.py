"""The mailboxes that somebody draws on now, one for each agent. What is idle is forgotten; the log has it."""

from collections.abc import Callable, Sequence

from palaver.delivery.taker import HearLost, Mailbox
from palaver.log.api import Log
from palaver.log.state import read_carried, read_entry
from palaver.model.mail import Entry


class Mailboxes:
    """Every open mailbox. `put_back` is told the agent's name whenever mail is open again."""

    def __init__(
        self, log: Log, *, now_ms: Callable[[], int], put_back: Callable[[str], None], lost: HearLost
    ) -> None:
        """`lost` is told of mail whose content is lost; it is in a hand until it is settled."""
        self._log = log
        self._now_ms = now_ms
        self._put_back = put_back
        self._lost = lost
        self._mailboxes: dict[str, Mailbox] = {}

    def get(self, agent: str) -> Mailbox:
        """Give the mailbox of an agent."""
        mailbox = self._mailboxes.get(agent)
        if mailbox is None:
            mailbox = Mailbox(self._log, agent, now_ms=self._now_ms, put_back=self._put_back, lost=self._lost)
            self._mailboxes[agent] = mailbox
        return mailbox

    def is_in_hand(self, agent: str, seq: int) -> bool:
        """Whether somebody has a message now."""
        mailbox = self._mailboxes.get(agent)
        return mailbox is not None and mailbox.has_in_hand(seq)

    def settle(self, agent: str, seqs: Sequence[int]) -> None:
        """The ledger says that these wait no longer, whoever has them in hand."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.settle(seqs)

    def wake(self, agent: str, *, is_behind: bool) -> None:
        """There may be something for everybody who draws on it; `is_behind` says that it may be old mail."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.wake(is_behind=is_behind)

    def unclaimed(self, agent: str, lane: str = "", *, since_ms: int = 0) -> list[int]:
        """Give what lanes carry by the ledger, or those of one kind, and nobody has in hand.

        With `since_ms` only what was submitted on one kind of lane after that Unix time.
        """
        rows = self._log.rows
        lost = [seq for seq in read_carried(rows, agent) if not self.is_in_hand(agent, seq)]
        if lane:
            lost = [
                seq
                for seq in lost
                if (entry := read_entry(rows, seq, agent)) and _is_of(entry, lane, since_ms)
            ]
        return lost

    def forget_idle(self, agent: str) -> None:
        """Forget a mailbox on which nobody draws."""
        mailbox = self._mailboxes.get(agent)
        if mailbox is not None and mailbox.is_idle:
            del self._mailboxes[agent]


def _is_of(entry: Entry, lane: str, since_ms: int) -> bool:
    return entry.lane == lane and entry.submitted > since_ms
