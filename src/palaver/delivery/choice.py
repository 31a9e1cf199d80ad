"""What may go to an agent now, out of its open mail. Reads only; it takes nothing into a hand.

Quiet mail is no reason to wake an agent that is idle. Where something else goes, it goes along; and it
reaches an agent that is at work.
"""

from collections.abc import Container, Sequence
from itertools import islice

from palaver.delivery.gate import Gate
from palaver.delivery.queue import Queue
from palaver.delivery.taker import Mailbox
from palaver.log.api import Rows
from palaver.log.state import find_mail
from palaver.model.mail import priority_of_key
from palaver.model.priority import Priority


def passing(
    rows: Rows, mailbox: Mailbox, gate: Gate, limit: int, *, without: Container[int] = ()
) -> list[int]:
    """Give the places of what may go now, in order, at most `limit`; what woke the agent is among it."""
    loud = _head(mailbox, gate, limit, is_quiet=False, without=without)
    if gate.idle and not loud:
        return []
    quiet = _head(mailbox, gate, limit - len(loud), is_quiet=True, without=without)
    return _in_order(rows, mailbox.agent, loud + quiet) if loud and quiet else loud or quiet


def _head(mailbox: Mailbox, gate: Gate, limit: int, *, is_quiet: bool, without: Container[int]) -> list[int]:
    """Load the head of each priority's line, enough for one injection, and take what may pass."""
    queue = Queue()
    queue.is_paused = gate.paused
    for priority in Priority:
        line = mailbox.waiting_apart(priority, is_quiet=is_quiet)
        open_mail = (mail.seq for mail in line if mail.seq not in without)
        for seq in islice(open_mail, limit):
            queue.add(seq, priority)
    return queue.take(limit, idle=gate.idle, blocked=gate.blocked)


def _in_order(rows: Rows, agent: str, seqs: Sequence[int]) -> list[int]:
    queue = Queue()
    for seq in seqs:
        found = find_mail(rows, agent, seq)
        assert found is not None  # it was in line a moment ago, and nothing was awaited since
        queue.add(seq, priority_of_key(found[0]))
    return queue.take(len(seqs), idle=True, blocked=False)
