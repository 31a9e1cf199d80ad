"""Identify the caller: four rules over a chain of processes. Pure: same chain and claim, same result.

1. the nearest anchor; if it has several seats, the session key selects one, and without a key the caller is
   refused;
2. no anchor, but a mark that selects a seat: that seat, with at most a worker's rights;
3. no anchor, no mark, no process above that was an anchor before, and in the foreground of a terminal that no
   holder owns: the human;
4. otherwise: a script.

A mark selects an agent or lowers rights. Nothing that the caller claims, and nothing that could not be read,
raises them.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from palaver.errors import BadRequest, NotPerson, NotYou, WhoAreYou
from palaver.harness.marks import MARKS, SEAT_MARK, SESSION_MARKS, SHARED_HARNESSES
from palaver.links.process import Process
from palaver.links.seats import Anchored, SeatIndex, seat_mark
from palaver.model.agent import Agent, Caller, Seat, Standing, standing_of_role
from palaver.model.names import SCRIPT_NAME

HUMAN: Final = Caller(name="human", standing=Standing.HUMAN, kind="human")
_ADOPTERS: Final = frozenset({"systemd", "init", "launchd"})
SCRIPT: Final = Caller(name=SCRIPT_NAME, standing=Standing.WORKER, kind="external")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The caller's claim about itself. It can only select one of the caller's seats, or lower its rights."""

    marks: Mapping[str, str] = field(default_factory=dict)
    """The entries of its environment that are marks."""
    as_name: str = ""
    key: str = ""
    """A session key from the input of a hook or the `_meta` of an MCP call."""

    @property
    def has_mark(self) -> bool:
        """Whether any mark is set, known or not."""
        return any(self.marks.get(name) for name in (*MARKS, SEAT_MARK))


def who_is_asking(
    chain: Sequence[Process],
    claim: Claim,
    seats: SeatIndex,
    *,
    marks_above: bool,
    holder_ttys: Container[int],
    marks_between: bool = False,
) -> Caller:
    """Return the caller by the four rules. Raises WhoAreYou if it could be several agents.

    `marks_above`: a process of the chain has a mark or is a harness. `marks_between`: a harness without an
    agent is between the caller and its anchor; the caller then acts as the anchor's agent, with at most a
    worker's rights. An empty chain is a caller that cannot be seen.
    """
    anchored = seats.nearest(chain)
    if anchored is not None:
        if is_stranger(anchored, claim):
            return stranger_at(anchored, claim)
        agent = choose_seat(anchored, claim)
        is_lowered = marks_between or _is_other_session(agent, claim)
        is_lowered = is_lowered or agent in _marked_by_others(anchored.agents, claim)
        # The caller itself claims which agent it is, so it gets the lowest rights of them.
        limit = min(standing_of_role(one.role) for one in anchored.agents)
        return seated(agent, is_lowered=is_lowered, limit=limit)
    if meant := seats.marked(claim.marks):
        lowest = min(meant, key=lambda agent: standing_of_role(agent.role))
        return seated(meant[0], is_lowered=True, limit=standing_of_role(lowest.role), by=SCRIPT.name)
    is_unmarked = not marks_above and not claim.has_mark
    if is_unmarked and not seats.was_seat(chain) and _is_at_terminal(chain, holder_ttys):
        return HUMAN
    return SCRIPT


def choose_seat(anchored: Anchored, claim: Claim) -> Agent:
    """Return the agent of an anchor that makes the request. Raises WhoAreYou, naming all, if it is unclear.

    The key of a hook or call counts most, then the harness's session in the environment, then a session that
    another harness has marked there, then the seat's mark, which the sessions of one process share. The key
    of a sub-agent selects that sub-agent, unless it is also a session's; without its key a caller is never a
    sub-agent.
    """
    if (subagent := named_subagent(anchored, claim)) is not None:
        return subagent
    agents = anchored.agents
    if len(agents) == 1:
        return agents[0]
    keys = [_key_for(agent, claim) for agent in agents]
    fitting = [agent for agent, key in zip(agents, keys, strict=True) if key and _key_of(agent) == key]
    fitting = fitting or _marked_by_others(agents, claim)
    if not fitting and not any(keys) and (mark := claim.marks.get(SEAT_MARK)):
        fitting = [
            agent
            for agent in agents
            if agent.seat and seat_mark(agent.seat, agent.name, anchored.secret) == mark
        ]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(agent.name for agent in agents)
    if claim.key and not fitting:
        raise WhoAreYou(
            f"this session has not joined (joined sessions of this process: {names}); join first with 'pal "
            "join'"
        )
    raise WhoAreYou(f"this process runs several agents ({names}); choose one with --as NAME")


def is_stranger(anchored: Anchored, claim: Claim) -> bool:
    """Whether the caller is a session without a seat in a process that several sessions share.

    If it were taken for one of the seated sessions, it would receive that agent's messages.
    """
    if named_subagent(anchored, claim) is not None:
        return False
    return bool(anchored.agents) and all(
        agent.harness in SHARED_HARNESSES and _is_other_session(agent, claim) for agent in anchored.agents
    )


def stranger_at(anchored: Anchored, claim: Claim) -> Caller:
    """Return a session without an agent as a caller: a script with at most the rights of its neighbours.

    Its seat shows that it may not act as other agents: naming another session gains no rights.
    """
    standings = [standing_of_role(agent.role) for agent in anchored.agents]
    other, key = anchored.agents[0].seat, _key_for(anchored.agents[0], claim)
    assert other is not None  # every agent at an anchor has a seat
    seat = Seat(pid=other.pid, start=other.start, boot=other.boot, key=key)
    return Caller(name=SCRIPT.name, standing=min(SCRIPT.standing, *standings), kind=SCRIPT.kind, seat=seat)


def who_joins(caller: Caller) -> Caller:
    """Return the caller for a join: a session without an agent joins like any script.

    Its rights after joining are decided again, including the limits of the agents in the same process.
    """
    return replace(SCRIPT, is_orphan=caller.is_orphan) if caller.name == SCRIPT.name else caller


def named_subagent(anchored: Anchored, claim: Claim) -> Agent | None:
    """Return the sub-agent whose key the caller has; None also if that key is a session's own."""
    named = (one for one in (*anchored.agents, *anchored.subagents) if _is_named(one, claim))
    found = next(named, None)
    return found if found in anchored.subagents else None


def owner_by_marks(anchored: Anchored, claim: Claim) -> Agent | None:
    """Return the session, or sub-agent, of an anchor whose key is in its harness's marks, or None."""
    return next((one for one in (*anchored.agents, *anchored.subagents) if _is_named(one, claim)), None)


def is_within(anchored: Anchored, owner: Agent, key: str) -> bool:
    """Whether a key belongs to an agent or to one of its sub-agents."""
    names = {owner.name} | {one.name for one in anchored.subagents if one.parent == owner.name}
    return any(one.name in names and _key_of(one) == key for one in (*anchored.agents, *anchored.subagents))


def _marked_by_others(agents: Sequence[Agent], claim: Claim) -> list[Agent]:
    """Return the seats whose session a mark of another harness names, if there is no better evidence."""
    if len(agents) == 1 or claim.key or any(_is_named(agent, claim) for agent in agents):
        return []
    named = {claim.marks.get(name, "") for names in SESSION_MARKS.values() for name in names} - {""}
    return [agent for agent in agents if _key_of(agent) in named]


def _key_for(agent: Agent, claim: Claim) -> str:
    """Return the caller's key, read as a session of this agent's harness."""
    if claim.key:
        return claim.key
    return next(filter(None, map(claim.marks.get, SESSION_MARKS.get(agent.harness, ()))), "")


def _is_named(agent: Agent, claim: Claim) -> bool:
    return _key_of(agent) == _key_for(agent, claim) != ""


def _key_of(agent: Agent) -> str:
    return agent.seat.key if agent.seat is not None else ""


def _is_other_session(agent: Agent, claim: Claim) -> bool:
    """Whether the seat is one session of its process and the caller names another."""
    key = _key_of(agent)
    return bool(key) and _key_for(agent, claim) not in ("", key)


def seated(agent: Agent, *, is_lowered: bool, limit: Standing, by: str | None = None) -> Caller:
    """Return an agent as the caller, with at most the rights of `limit`; if lowered, at most a worker's.

    `by` is the actual sender if only a mark says that it is this agent.
    """
    standing = min(standing_of_role(agent.role), limit)
    if is_lowered:
        standing = min(standing, Standing.WORKER)
    return Caller(
        name=agent.name,
        standing=standing,
        kind="instance",
        harness=agent.harness,
        by=by,
        seat=agent.seat,
        is_marked=by is not None,
    )


def _is_at_terminal(chain: Sequence[Process], holder_ttys: Container[int]) -> bool:
    """Whether the caller is in the foreground of a terminal without an agent, with every parent known.

    An orphan still has its terminal but no longer its parents, so it is unknown what started it. Therefore
    the session leader, which owns the terminal, must be in the chain, and so must the first process of the
    system.
    """
    if not chain or chain[-1].ppid != 0:
        return False
    caller = chain[0]
    return (
        caller.tty != 0
        and caller.tty not in holder_ttys
        and caller.pgrp == caller.foreground
        and any(process.pid == caller.session for process in chain)
    )


def is_orphan(chain: Sequence[Process], seats: SeatIndex) -> bool:
    """Whether an agent may have started this process and exited before it.

    An orphan has no parent but the process that adopts orphans. A service looks the same. So it counts as an
    orphan unless the topmost process below the adopter is older than every agent.
    """
    if not chain or chain[-1].ppid != 0 or seats.was_seat(chain):
        return True
    adopter = next((index for index, one in enumerate(chain) if index and is_adopter(one)), None)
    return adopter is not None and not seats.is_older_than_all(chain[adopter - 1])


def is_adopter(process: Process) -> bool:
    """Whether a process becomes the parent of processes whose own parent has ended."""
    return process.pid == 1 or process.name in _ADOPTERS


def act_as(caller: Caller, target: Agent) -> Caller:
    """Return the caller acting as another agent, or refuse. Its actions are logged with `by`.

    The human may act as any agent. A script may act as a worker, also an offline one. An agent may act as its
    own children, with at most its own rights; as a sub-agent only until that has ended. Any other caller,
    above all a guest from a chat, may only act as itself.
    """
    if caller.name == target.name:
        return caller
    if caller.is_orphan:
        raise NotPerson(
            f"the process that started this one has exited, so its agent is unknown; it may not use --as "
            f"{target.name}"
        )
    standing = standing_of_role(target.role)
    if caller.standing is not Standing.HUMAN:
        _check_target(caller, target, standing)
        standing = min(standing, caller.standing)
    return Caller(
        name=target.name,
        standing=standing,
        kind="instance",
        harness=target.harness,
        by=caller.name,
        seat=target.seat,
    )


def _check_target(caller: Caller, target: Agent, standing: Standing) -> None:
    if caller.name == SCRIPT.name and caller.standing is SCRIPT.standing and caller.seat is None:
        if standing is not Standing.WORKER or target.remote:
            raise NotPerson(
                f"a script can use --as only for workers on this machine, not for {target.name}; a person can"
            )
    elif target.by != caller.name or caller.kind != "instance":
        raise NotYou(target.name, caller.name)
    elif target.parent and target.left:
        raise BadRequest(f"{target.name} has exited and cannot be used with --as; leave out --as")
