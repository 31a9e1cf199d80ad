"""Hold messages that cannot pass a closed gate, notify their senders once, and queue them again later.

An interrupt is held at once if a dialog is open. Other messages are held after a longer wait, as are messages
for an idle agent that no lane can wake. Unlike messages held by a brake, these are queued again
automatically: when the gate opens, when the terminal ends, when a better lane can reach the agent, and when
another daemon finds them held. An agent that reads its mailbox receives them in the meantime.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from palaver.delivery.ledger import Ledger
from palaver.log.api import Log
from palaver.log.state import read_entry, read_mail
from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.mail import DeliveryReport
from palaver.model.terminal import DIALOG, GATE_ADVICE

_AT_ONCE: Final = 200
"""Messages per report."""
ASLEEP: Final = "asleep"
"""The reason of messages for an idle agent that no lane can wake."""
_WHY_DIALOG: Final = "a dialog is open in its terminal. It goes on when that is answered"
_WHY_ASLEEP: Final = "it rests, and nothing can wake it. It is given it with its next prompt"
_WHY_ADVISED: Final = {
    reason: f"{advice}. It goes on when that is over" for reason, advice in GATE_ADVICE.items()
}
_WHY: Final = "its terminal lets nothing through now ({reason}). It goes on when that is over"


class Gated:
    """Holds messages and queues them again. The ledger is the record; this is a cache per agent."""

    def __init__(self, log: Log, ledger: Ledger) -> None:
        self._log = log
        self._ledger = ledger
        self._held: dict[str, dict[int, str]] = {}
        self._told: dict[str, set[int]] = {}

    def hear(self, report: DeliveryReport) -> None:
        """Update the cache with a step of the ledger."""
        if report.state == State.HELD:
            if report.lane:
                self._of(report.agent).update(dict.fromkeys(report.messages, report.reason))
            return
        for seq in report.messages:
            self._held.get(report.agent, {}).pop(seq, None)
            if report.state != State.QUEUED:
                self._told.get(report.agent, set()).discard(seq)

    async def hold_back(self, agent: str, events: Sequence[Event], *, lane: str, reason: str) -> None:
        """Write that these are held, and notify each sender once, even if it happens repeatedly."""
        await self._ledger.report(
            agent, [event.seq for event in events], State.HELD, lane=lane, reason=reason
        )
        await self.tell(agent, self._ledger.which_are(State.HELD, agent, events), reason=reason)

    async def tell(self, agent: str, events: Iterable[Event], *, reason: str) -> None:
        """Notify the senders of messages that wait at a gate, except for messages already reported."""
        told = self._told.setdefault(agent, set())
        news = [event for event in events if event.seq not in told]
        known = {DIALOG: _WHY_DIALOG, ASLEEP: _WHY_ASLEEP, **_WHY_ADVISED}
        why = known.get(reason) or _WHY.format(reason=reason or "closed")
        await self._ledger.tell_held(agent, news, why=why)
        told.update(event.seq for event in news)

    async def release(self, agent: str, is_over: Callable[[str], bool], *, why: str) -> None:
        """Queue again the messages whose reason no longer applies. `why` says what ended it."""
        while over := dict(islice(self._over(agent, is_over), _AT_ONCE)):
            held = self._of(agent)
            for seq in over:
                del held[seq]
            try:
                await self._ledger.report(agent, list(over), State.QUEUED, reason=why)
            except BaseException:
                held.update(over)
                raise

    def forget(self, agent: str) -> None:
        """Drop the cache of an agent without a lane. Its messages are queued; notices sent stay recorded."""
        self._held.pop(agent, None)

    def forget_told(self, agent: str) -> None:
        """Forget the notices for an agent that has left, so that senders to its next session are notified."""
        self._told.pop(agent, None)

    def _over(self, agent: str, is_over: Callable[[str], bool]) -> Iterable[tuple[int, str]]:
        return ((seq, reason) for seq, reason in self._of(agent).items() if is_over(reason))

    def _of(self, agent: str) -> dict[int, str]:
        """Return the held messages of an agent. The ledger is read once; then `hear` keeps them current."""
        held = self._held.get(agent)
        if held is None:
            rows = self._log.rows
            gated = [mail.seq for mail in read_mail(rows, agent) if mail.is_gated]
            entries = {seq: read_entry(rows, seq, agent) for seq in gated}
            held = self._held[agent] = {seq: entry.reason for seq, entry in entries.items() if entry}
        return held
