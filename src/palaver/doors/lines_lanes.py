"""The lanes of one connection: offers go out as pushes, outcomes come back as requests."""

from collections.abc import Callable
from itertools import count

from palaver.delivery.lane import Ability, Answer, Lane, LaneKind, Level, Offer
from palaver.doors.hidden_keys import show_keys
from palaver.doors.lines_wire import push_line
from palaver.doors.services import Services
from palaver.doors.views import message_view
from palaver.errors import BadRequest, MessageTooLarge, NotFound, WhoAreYou
from palaver.harness.profiles import profile_of
from palaver.model.agent import Caller
from palaver.model.lines.holder_ops import LIMIT_EVIDENCE_BYTES, AnswerOp, LaneOp
from palaver.model.message import INSTANCE
from palaver.routing.policy import require_own_mail


class Lanes:
    """Lanes for the names of this connection. `push` sends a line without waiting."""

    def __init__(self, services: Services, push: Callable[[bytes], None]) -> None:
        self._services = services
        self._push = push
        self._lanes: dict[int, Lane] = {}
        self._numbers = count(1)

    @property
    def has_any(self) -> bool:
        """True once a lane was opened."""
        return bool(self._lanes)

    async def open(self, caller: Caller, op: LaneOp) -> dict[str, object]:
        """Open a lane, and store the outcomes of earlier offers that its holder reports.

        Messages that the holder is still carrying become an offer of this lane; the result has its number.
        """
        if caller.kind != INSTANCE:
            raise WhoAreYou("only an agent has lanes: join first")
        require_own_mail(caller)
        kind = _parse_kind(op.kind)
        ability = Ability(
            kind=kind,
            awaits_native=kind is LaneKind.TERMINAL and self._has_native(caller.name),
            reaches_busy=op.reaches_busy,
            wakes_idle=op.wakes_idle,
            remembers=op.remembers,
        )
        recovered = [(outcome, _parse_answer(outcome.answer)) for outcome in op.outcomes]
        number = next(self._numbers)

        def carry(offer: Offer) -> None:
            messages = [show_keys(self._services.holds, message_view(event)) for event in offer.events]
            fields = {"lane": number, "offer": offer.number, "name": caller.name, "messages": messages}
            self._push(push_line("offer", fields))

        lane = self._services.delivery.open_lane(caller.name, ability, carry)
        self._lanes[number] = lane
        offer = self._services.delivery.take_up(lane, op.carrying)  # No await before: else offered again.
        for outcome, answer in recovered:
            await self._services.delivery.recover(lane, outcome.messages, answer, grade=outcome.grade)
        await self._services.delivery.recovered(lane)
        return {"lane": number} if offer is None else {"lane": number, "offer": offer.number}

    def _has_native(self, agent: str) -> bool:
        """Return whether the agent's harness opens a native lane itself, apart from the holder's lanes."""
        directory = self._services.broker.directory
        known = directory.get(agent)
        is_launched = known is not None and directory.is_launched(agent)
        return known is not None and is_launched and profile_of(known.harness).opens_native

    async def answer(self, op: AnswerOp) -> None:
        """Store the outcome of an offer on a lane of this connection."""
        lane = self._lane(op.lane)
        answer = _parse_answer(op.answer)
        if len(op.evidence.encode()) > LIMIT_EVIDENCE_BYTES:
            raise MessageTooLarge("the evidence", len(op.evidence.encode()), LIMIT_EVIDENCE_BYTES)
        await self._services.delivery.answer(
            lane, op.offer, answer, grade=op.grade, reason=op.reason, evidence=op.evidence
        )

    def set_level(self, number: int, level: Level) -> None:
        """Set whether a lane of this connection accepts messages."""
        self._services.delivery.set_level(self._lane(number), level)

    def _lane(self, number: int) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            raise NotFound(f"lane {number}", "this connection has not opened it")
        return lane

    async def close(self, agent: str = "") -> None:
        """Close the lanes of one agent, or all. Their open offers become unconfirmed."""
        for lane in self._lanes.values():
            if agent in ("", lane.agent):
                await self._services.delivery.close_lane(lane)


def _parse_kind(word: str) -> LaneKind:
    try:
        return LaneKind[word.upper()]
    except KeyError:
        kinds = ", ".join(kind.name.lower() for kind in LaneKind)
        raise BadRequest(f"the kinds of lane are {kinds}, not {word!r}") from None


def _parse_answer(word: str) -> Answer:
    try:
        return Answer(word)
    except ValueError:
        raise BadRequest(f"a lane answers {', '.join(Answer)}, not {word!r}") from None
