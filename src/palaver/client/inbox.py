"""The mail of one connection: what was handed to it, each message once, and what it has said to have seen."""

from collections import OrderedDict
from typing import Final

from palaver.client.message import Message
from palaver.client.stream import Stream

_LIMIT_REMEMBERED: Final = 10_000


class Inbox:
    """Drops repeats by place. What was not acknowledged is known exactly; of the rest, the last 10,000.

    It holds what the daemon has handed out and the program has not taken: at most all of its unread mail.
    """

    def __init__(self) -> None:
        self.waiting: Stream[Message] = Stream()
        self._in_hand: set[int] = set()
        self._acked: OrderedDict[int, None] = OrderedDict()

    def put(self, message: Message) -> bool:
        """Take in what was handed out; return False when this one's acknowledgement must have been lost."""
        if message.seq in self._acked:
            return False
        if message.seq not in self._in_hand:
            self._in_hand.add(message.seq)
            self.waiting.put(message)
        return True

    def acked(self, seq: int) -> None:
        """Remember that the program has seen a message."""
        self._in_hand.discard(seq)
        self._acked[seq] = None
        if len(self._acked) > _LIMIT_REMEMBERED:
            self._acked.popitem(last=False)
