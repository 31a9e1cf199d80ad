"""The inbox of one connection: each pushed message once, and the record of acknowledged ones."""

from collections import OrderedDict
from typing import Final

from palaver.client.message import Message
from palaver.client.stream import Stream

_LIMIT_REMEMBERED: Final = 10_000


class Inbox:
    """Drops repeats by seq. Unacknowledged messages are all remembered, acknowledged ones up to 10,000.

    It holds the messages that were pushed and not taken yet: at most all unread messages of the agent.
    """

    def __init__(self) -> None:
        self.waiting: Stream[Message] = Stream()
        self._in_hand: set[int] = set()
        self._acked: OrderedDict[int, None] = OrderedDict()

    def put(self, message: Message) -> bool:
        """Store a pushed message; return False if it was already acknowledged, so its ack must have been
        lost.
        """
        if message.seq in self._acked:
            return False
        if message.seq not in self._in_hand:
            self._in_hand.add(message.seq)
            self.waiting.put(message)
        return True

    def acked(self, seq: int) -> None:
        """Remember that the program has acknowledged a message."""
        self._in_hand.discard(seq)
        self._acked[seq] = None
        if len(self._acked) > _LIMIT_REMEMBERED:
            self._acked.popitem(last=False)
