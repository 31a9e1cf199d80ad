"""Interrupts that wait behind a dialog: held, their senders told, and in line again when the dialog is over.

A dialog is never answered by a message. Unlike what a brake holds, this comes back by itself: when the gate
of the terminal opens, when the terminal is gone, and when another daemon finds it held with no dialog open.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from palaver.delivery.ledger import Ledger
from palaver.log.api import Log
from palaver.log.state import read_entry
from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.mail import MAIL, decode_mail, mail_prefix
from palaver.model.priority import Priority
from palaver.model.terminal import DIALOG

_PAGE: Final = 200
_WHY: Final = "a dialog is open in its terminal. It goes on when that is answered"


class Dialogs:
    """Holds interrupts back and lets them go. Keeps nothing: what is held, the ledger says."""

    def __init__(self, log: Log, ledger: Ledger) -> None:
        self._log = log
        self._ledger = ledger

    def held(self, agent: str) -> list[int]:
        """Give the places of what waits behind a dialog, at most a page of it."""
        rows = self._log.rows
        held = (
            seq
            for seq in self._held(agent)
            if (entry := read_entry(rows, seq, agent)) and entry.reason == DIALOG
        )
        return list(islice(held, _PAGE))

    def _held(self, agent: str) -> Iterator[int]:
        for is_quiet in (False, True):
            prefix, after = mail_prefix(agent, Priority.INTERRUPT, is_quiet=is_quiet), ""
            while page := self._log.rows.scan(MAIL, prefix, after=after, limit=_PAGE):
                mails = [decode_mail(value) for _, value in page]
                yield from (mail.seq for mail in mails if mail.state == State.HELD)
                after = page[-1][0]

    async def hold_back(self, agent: str, events: Sequence[Event], *, lane: str) -> None:
        """Write that these are held, and tell each sender once, however often it happens."""
        await self._ledger.held(agent, events, lane=lane, reason=DIALOG, why=_WHY)

    async def release(self, agent: str) -> None:
        """Put in line again whatever waits behind a dialog that is over."""
        while seqs := self.held(agent):
            await self._ledger.report(agent, seqs, State.QUEUED, reason="the dialog is over")
