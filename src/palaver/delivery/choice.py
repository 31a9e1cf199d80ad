"""Select the open messages that may go to an agent now. Reads only; claims nothing.

Quiet messages do not wake an idle agent. They are delivered together with other messages, or while the agent
works.
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
    """Return the seqs of the messages that may go now, in order, at most `limit`."""
    loud = _head(mailbox, gate, limit, is_quiet=False, without=without)
    if gate.idle and not loud:
        return []
    quiet = _head(mailbox, gate, limit - len(loud), is_quiet=True, without=without)
    return _in_order(rows, mailbox.agent, loud + quiet) if loud and quiet else loud or quiet


def _head(mailbox: Mailbox, gate: Gate, limit: int, *, is_quiet: bool, without: Container[int]) -> list[int]:
    """Load the first messages of each priority, at most `limit` of each, and return those that may pass."""
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
        assert found is not None  # it was queued before, and nothing was awaited since
        queue.add(seq, priority_of_key(found[0]))
    return queue.take(len(seqs), idle=True, blocked=False)
