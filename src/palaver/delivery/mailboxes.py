"""The mailboxes in use, one per agent. An unused mailbox is dropped: the log has all messages."""

from collections.abc import Callable, Sequence

from palaver.delivery.taker import HearLost, Mailbox
from palaver.log.api import Log
from palaver.log.state import read_carried, read_entry
from palaver.model.mail import Entry


class Mailboxes:
    """Every mailbox in use. `put_back` is called with the agent's name when messages are released."""

    def __init__(
        self, log: Log, *, now_ms: Callable[[], int], put_back: Callable[[str], None], lost: HearLost
    ) -> None:
        """`lost` is called with messages whose content is lost. They stay claimed until they are settled."""
        self._log = log
        self._now_ms = now_ms
        self._put_back = put_back
        self._lost = lost
        self._mailboxes: dict[str, Mailbox] = {}

    def get(self, agent: str) -> Mailbox:
        """Return the mailbox of an agent. It is created if needed."""
        mailbox = self._mailboxes.get(agent)
        if mailbox is None:
            mailbox = Mailbox(self._log, agent, now_ms=self._now_ms, put_back=self._put_back, lost=self._lost)
            self._mailboxes[agent] = mailbox
        return mailbox

    def is_in_hand(self, agent: str, seq: int) -> bool:
        """Return whether a reader or lane has claimed a message."""
        mailbox = self._mailboxes.get(agent)
        return mailbox is not None and mailbox.has_in_hand(seq)

    def settle(self, agent: str, seqs: Sequence[int]) -> None:
        """Drop all claims to these messages: the ledger says that they no longer wait."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.settle(seqs)

    def wake(self, agent: str, *, is_behind: bool) -> None:
        """Wake all readers of an agent. `is_behind`: a message may be open that they have passed already."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.wake(is_behind=is_behind)

    def unclaimed(self, agent: str, lane: str = "", *, since_ms: int = 0) -> list[int]:
        """Return the messages that are submitted according to the ledger, but claimed by no lane.

        `lane` restricts them to one kind of lane, and `since_ms` to those submitted after that Unix time.
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
        """Drop the mailbox of an agent if it has no readers and no claims."""
        mailbox = self._mailboxes.get(agent)
        if mailbox is not None and mailbox.is_idle:
            del self._mailboxes[agent]


def _is_of(entry: Entry, lane: str, since_ms: int) -> bool:
    return entry.lane == lane and entry.submitted > since_ms
