"""What waits behind the gate of a terminal: held, its senders told once, and in line again when it is over.

An interrupt behind a dialog is held at once; other mail when it has waited for long, and so is mail for an
agent at rest that nothing can wake. Unlike what a brake
holds, this comes back by itself: when the gate opens, when the terminal is gone or something better can reach
the agent, and when another daemon finds it held. Whoever fetches its mail itself gets it meanwhile.
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
ASLEEP: Final = "asleep"
"""The reason for what waits for an agent at rest that nothing can wake."""
_WHY_DIALOG: Final = "a dialog is open in its terminal. It goes on when that is answered"
_WHY_ASLEEP: Final = "it rests, and nothing can wake it. It is given it with its next prompt"
_WHY_ADVISED: Final = {
    reason: f"{advice}. It goes on when that is over" for reason, advice in GATE_ADVICE.items()
}
_WHY: Final = "its terminal lets nothing through now ({reason}). It goes on when that is over"


class Gated:
    """Holds mail back and lets it go. What is held, the ledger says; here it is only remembered by agent."""

    def __init__(self, log: Log, ledger: Ledger) -> None:
        self._log = log
        self._ledger = ledger
        self._held: dict[str, dict[int, str]] = {}
        self._told: dict[str, set[int]] = {}

    def hear(self, report: DeliveryReport) -> None:
        """Take in a step of the ledger."""
        if report.state == State.HELD:
            if report.lane:
                self._of(report.agent).update(dict.fromkeys(report.messages, report.reason))
            return
        for seq in report.messages:
            self._held.get(report.agent, {}).pop(seq, None)
            if report.state != State.QUEUED:
                self._told.get(report.agent, set()).discard(seq)

    async def hold_back(self, agent: str, events: Sequence[Event], *, lane: str, reason: str) -> None:
        """Write that these are held, and tell each sender once, however often it happens."""
        await self._ledger.report(
            agent, [event.seq for event in events], State.HELD, lane=lane, reason=reason
        )
        await self.tell(agent, self._ledger.which_are(State.HELD, agent, events), reason=reason)

    async def tell(self, agent: str, events: Iterable[Event], *, reason: str) -> None:
        """Tell the senders of what stands behind a gate; those who know already are passed over."""
        told = self._told.setdefault(agent, set())
        news = [event for event in events if event.seq not in told]
        known = {DIALOG: _WHY_DIALOG, ASLEEP: _WHY_ASLEEP, **_WHY_ADVISED}
        why = known.get(reason) or _WHY.format(reason=reason or "closed")
        await self._ledger.tell_held(agent, news, why=why)
        told.update(event.seq for event in news)

    async def release(self, agent: str, is_over: Callable[[str], bool], *, why: str) -> None:
        """Queue again the messages that were held for a reason that is over; `why` says what ended it."""
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
        """Nothing can reach an agent now. What it had held is in line; who was told of it still knows."""
        self._held.pop(agent, None)

    def forget_told(self, agent: str) -> None:
        """An agent has gone: whoever writes to its next session is told anew."""
        self._told.pop(agent, None)

    def _over(self, agent: str, is_over: Callable[[str], bool]) -> Iterable[tuple[int, str]]:
        return ((seq, reason) for seq, reason in self._of(agent).items() if is_over(reason))

    def _of(self, agent: str) -> dict[int, str]:
        """What is held for an agent. The ledger is asked once: from then on every step is heard."""
        held = self._held.get(agent)
        if held is None:
            rows = self._log.rows
            gated = [mail.seq for mail in read_mail(rows, agent) if mail.is_gated]
            entries = {seq: read_entry(rows, seq, agent) for seq in gated}
            held = self._held[agent] = {seq: entry.reason for seq, entry in entries.items() if entry}
        return held
