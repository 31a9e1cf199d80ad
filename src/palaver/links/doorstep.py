"""Identify callers: collect processes, environments and seats, and apply the rules to them.

Reads only data that the result depends on. Decides nothing itself: `identity.py` and `joining.py` do.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from palaver.errors import BadRequest
from palaver.harness.marks import PRESENCE_MARKS, SEAT_MARK, SESSION_MARKS
from palaver.links.environment import Environments, Surroundings
from palaver.links.holders import Below, Holders
from palaver.links.identity import (
    HUMAN,
    SCRIPT,
    Claim,
    choose_seat,
    is_orphan,
    is_stranger,
    is_within,
    named_subagent,
    owner_by_marks,
    seated,
    stranger_at,
    who_is_asking,
)
from palaver.links.joining import Anchor, anchor_for_join
from palaver.links.process import Process, ancestors
from palaver.links.seats import Anchored, SeatIndex
from palaver.links.terminals import AgentTerminals
from palaver.model.agent import Agent, Caller, Standing, standing_of_role

_SHELLS: Final = frozenset(
    {"ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "sh", "tcsh", "xonsh", "zsh"}
)
_HARNESS_OF_MARK: Final = {
    name: harness
    for table in (SESSION_MARKS, PRESENCE_MARKS)
    for harness, names in table.items()
    for name in names
}


@dataclass(slots=True)
class Doorstep:
    """Everything needed to identify a caller. Belongs to one thread."""

    seats: SeatIndex
    holder_ttys: Container[int] = ()
    """Terminals that holders own, as device numbers."""
    environments: Environments = field(default_factory=Environments)
    holders: Holders = field(default_factory=lambda: Holders(""))
    agent_terminals: AgentTerminals = field(default_factory=lambda: AgentTerminals(""))

    def who(self, chain: Sequence[Process], claim: Claim) -> Caller:
        """Return the caller of this process chain. Raises WhoAreYou if it could be several agents."""
        anchored = self.seats.nearest(chain)
        below = self.holders.above(chain if anchored is None else chain[: anchored.index])
        if below is not None and (left := self._left_behind(chain, claim, below)) is not None:
            return left
        if anchored is not None:
            return self._seated(chain, claim, anchored, is_lowered=below is not None)
        around = [self.environments.look(process) for process in chain]
        # A harness above the caller that has no agent runs its sessions itself: a session mark may be a copy
        # of another agent's.
        own = [name for found in around for name in SESSION_MARKS.get(found.harness or "", ())]
        seen = [replace(found, marks=_without(found.marks, own)) for found in around]
        caller = who_is_asking(
            chain,
            self._bound(replace(claim, marks=_without(claim.marks, own)), seen),
            self.seats,
            marks_above=below is not None or any(found.can_be_harness for found in around),
            holder_ttys=self.holder_ttys,
        )
        if caller is HUMAN and self.agent_terminals.has_agent(chain[0].tty):
            return SCRIPT
        return caller if caller is HUMAN else replace(caller, is_orphan=is_orphan(chain, self.seats))

    def is_forged(self, chain: Sequence[Process], claim: Claim, child: str = "") -> bool:
        """Whether the caller was started by one session of an anchor and names another, so it is refused.

        A session may name its own sub-agents; `child` is one that is named in addition to the key.
        """
        anchored = self.seats.nearest(chain)
        if anchored is None or not claim.key:
            return False
        *below, own = (self.environments.look(one).marks for one in chain[: anchored.index + 1])
        for found in (claim.marks, *below):
            # Marks that the anchor itself was started with do not identify its children.
            marks = {name: value for name, value in found.items() if own.get(name) != value}
            if (owner := owner_by_marks(anchored, Claim(marks=marks))) is not None:
                return not is_within(anchored, owner, claim.key) and not is_within(anchored, owner, child)
        return False

    def place(self, chain: Sequence[Process], claim: Claim, pid: int | None = None) -> Anchor:
        """Choose the seat of a caller that joins, or refuse.

        A process that a holder adopted gets a seat below it.
        """
        below = self.holders.above(chain)
        if below is not None and below.seats:
            chain = chain[: below.index]
        around = [self.environments.look(process) for process in chain]
        anchor = anchor_for_join(chain, claim, pid, self.seats, around)
        index = next(index for index, process in enumerate(chain) if process.pid == anchor.seat.pid)
        if self._is_persons_shell(chain[index:], around[index:]) and self.who(chain, claim) is not HUMAN:
            raise BadRequest(
                f"process {anchor.seat.pid} is the shell of a person's terminal, and only that person can "
                "make it an agent: run 'pal join' in its foreground, or start the agent with 'pal run'"
            )
        return anchor

    def _is_persons_shell(self, chain: Sequence[Process], around: Sequence[Surroundings]) -> bool:
        """Whether the chain begins with the login shell of a terminal that no agent uses."""
        shell = chain[0]
        return (
            shell.pid == shell.session
            and shell.tty != 0
            and shell.tty not in self.holder_ttys
            and shell.name.removeprefix("-") in _SHELLS
            and not self.seats.was_seat(chain)
            and not any(found.can_be_harness for found in around)
        )

    def _left_behind(self, chain: Sequence[Process], claim: Claim, below: Below) -> Caller | None:
        """Return the agent whose orphan the caller is, adopted by the holder; None if that is unclear.

        A mark can show that it belonged to an agent inside that agent. It is unknown what started it, so it
        has at most a worker's rights.
        """
        agents = [agent for seat in below.seats for agent in self.seats.at(seat)]
        if not agents:
            return None
        around = [self.environments.look(process) for process in chain[: below.index]]
        inside = [
            agent
            for agent in self.seats.marked(self._bound(claim, around).marks)
            if agent in agents or self._is_below(agent, chain[below.index])
        ]
        subagents = [agent for seat in below.seats for agent in self.seats.subagents_at(seat)]
        anchored = Anchored(below.index, agents, subagents, self.seats.secret)
        agent = named_subagent(anchored, claim) or (inside[0] if inside else choose_seat(anchored, claim))
        limit = min(standing_of_role(one.role) for one in (*agents, *inside))
        # Every process below the holder is its agent's. Only a mark makes it another agent inside.
        by = agents[0].name if agent in inside and agent not in agents else None
        return seated(agent, is_lowered=True, limit=limit, by=by)

    def _is_below(self, agent: Agent, holder: Process) -> bool:
        seat = agent.seat
        chain = [] if seat is None or seat.boot != self.seats.boot else ancestors(seat.pid)
        found = [(process.pid, process.start) for process in chain]
        return (
            seat is not None and found[:1] == [(seat.pid, seat.start)] and (holder.pid, holder.start) in found
        )

    def _seated(
        self, chain: Sequence[Process], claim: Claim, anchored: Anchored, *, is_lowered: bool
    ) -> Caller:
        if is_stranger(anchored, claim):
            return stranger_at(anchored, claim)
        agent = choose_seat(anchored, claim)
        # Only rights above a worker's can be lowered, so the environment is read only for those.
        is_high = standing_of_role(agent.role) > Standing.WORKER
        return who_is_asking(
            chain,
            claim,
            self.seats,
            marks_above=False,
            holder_ttys=self.holder_ttys,
            marks_between=is_lowered
            or (is_high and self._has_harness_between(chain[: anchored.index + 1], claim, agent)),
        )

    def _has_harness_between(self, chain: Sequence[Process], claim: Claim, agent: Agent) -> bool:
        """Whether a foreign harness, or a process of another seat, is between the caller and its anchor.

        The anchor ends the chain. A harness marks its children: marks of its direct child are its own. A
        shell sets no marks: it has those that it inherited. Any other mark was added by a process in between.
        A process that ended before it could be read may have been a harness.
        """
        *below, anchor = chain
        if not below:
            return False
        around = [self.environments.look(process) for process in below]
        if any(found.harness not in (None, agent.harness) or not found.is_known for found in around):
            return True
        own = around[-1].marks if agent.harness else self.environments.look(anchor).marks
        entries = [*claim.marks.items(), *(entry for found in around for entry in found.marks.items())]
        return any(self._is_foreign(name, value, agent) for name, value in entries if own.get(name) != value)

    def _is_foreign(self, name: str, value: str, agent: Agent) -> bool:
        """Whether a mark is of another harness or another seat than the agent's."""
        if name == SEAT_MARK:
            return bool(value) and (agent.seat is None or value != self.seats.mark(agent.seat, agent.name))
        return bool(value) and _HARNESS_OF_MARK.get(name, agent.harness) != agent.harness

    def _bound(self, claim: Claim, around: Sequence[Surroundings]) -> Claim:
        """Use the nearest parent's marks if the claim's own select no agent: they may have been cleared."""
        if self.seats.marked(claim.marks):
            return claim
        for found in around:
            if found.marks and self.seats.marked(found.marks):
                return replace(claim, marks=found.marks)
        return claim


def _without(marks: Mapping[str, str], names: Container[str]) -> Mapping[str, str]:
    return {name: value for name, value in marks.items() if name not in names}
