"""The four priorities as a queue. Pure: who waits, in which order, and what may pass now.

interrupt (FIFO) > normal (FIFO) > idle-first (LIFO) > idle (FIFO)
"""

from bisect import insort

from palaver.model.mail import mail_key, priority_of_key
from palaver.model.priority import Priority


def can_pass(priority: Priority, *, idle: bool, blocked: bool, paused: bool) -> bool:
    """Tell whether mail of a priority may be handed to an agent in this state.

    Paused or blocked: interrupts only. Normal: whenever not blocked. The two idle ones: only when idle.
    """
    if priority is Priority.INTERRUPT:
        return True
    if paused or blocked:
        return False
    return priority is Priority.NORMAL or idle


class Queue:
    """Waiting messages in the order in which they go.

    Level-triggered: nothing happens on entry or on a change of state; whoever asks gets what may pass now.
    """

    def __init__(self) -> None:
        self._line: list[tuple[str, int]] = []
        self.is_paused = False

    def __len__(self) -> int:
        return len(self._line)

    def add(self, seq: int, priority: Priority) -> None:
        """Put one message in line, at the place its priority gives it."""
        insort(self._line, (mail_key("", priority, seq), seq))

    def next(self, *, idle: bool, blocked: bool) -> int | None:
        """Take the first message that may pass out of the line, or None."""
        for place, (key, seq) in enumerate(self._line):
            if can_pass(priority_of_key(key), idle=idle, blocked=blocked, paused=self.is_paused):
                del self._line[place]
                return seq
        return None

    def take(self, limit: int, *, idle: bool, blocked: bool) -> list[int]:
        """Take up to `limit` messages that may pass, in order."""
        taken: list[int] = []
        while len(taken) < limit and (seq := self.next(idle=idle, blocked=blocked)) is not None:
            taken.append(seq)
        return taken
