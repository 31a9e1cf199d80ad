"""Who is asking: four rules over a chain of processes. Pure: the same chain and claim, the same answer.

1. the nearest anchor; where it has several seats the key chooses, and without one nobody;
2. no anchor, but a mark that means a seat: that seat, with a worker's rights at most;
3. no anchor, no mark, nothing above that was an anchor before, and in the foreground of a terminal that no
   holder owns: the human;
4. all else: a script.

A mark binds or lowers. Nothing the caller says, and nothing that could not be read, raises it.
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
    """What the caller says about itself. It can choose between its own seats, and lower; no more."""

    marks: Mapping[str, str] = field(default_factory=dict)
    """The entries of its environment that are marks."""
    as_name: str = ""
    key: str = ""
    """A session key from the input of a hook or the `_meta` of an MCP call."""

    @property
    def has_mark(self) -> bool:
        """True when any mark is set, known or not."""
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
    """Name the caller by the four rules; raise WhoAreYou when it could be several.

    `marks_above` says that a process of the chain carries a mark or is a harness. `marks_between` says that a
    harness which is nobody stands between the caller and its anchor: it speaks in the anchor's name, with a
    worker's rights at most. An empty chain is a caller that cannot be seen.
    """
    anchored = seats.nearest(chain)
    if anchored is not None:
        if is_stranger(anchored, claim):
            return stranger_at(anchored, claim)
        agent = choose_seat(anchored, claim)
        is_lowered = marks_between or _is_other_session(agent, claim)
        is_lowered = is_lowered or agent in _marked_by_others(anchored.agents, claim)
        # Of several it is the one that it says, so it gains no rights by what it says.
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
    """Give the one seat of an anchor that asks; raise WhoAreYou, naming all, when nothing decides.

    The key of a hook or call counts most, then the harness's session in the environment, then a session that
    another harness has marked there, then the seat's mark, which the sessions of one process share. The key
    of a sub-agent means that one, unless it is a session's own; whoever brings none is not a sub-agent.
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
        raise WhoAreYou(f"this session has not joined, and is none of those beside it ({names}): join first")
    raise WhoAreYou(f"this process has several seats ({names}) and no session key says which one asks")


def is_stranger(anchored: Anchored, claim: Claim) -> bool:
    """True for a session that has no seat in a process which several share: it is none of those that have.

    Whoever took it for one of them would give it that one's mail.
    """
    if named_subagent(anchored, claim) is not None:
        return False
    return bool(anchored.agents) and all(
        agent.harness in SHARED_HARNESSES and _is_other_session(agent, claim) for agent in anchored.agents
    )


def stranger_at(anchored: Anchored, claim: Claim) -> Caller:
    """Give a session without a name as the caller: a script at a seat, with no more rights than those there.

    By its seat it is known as none that may speak for others: naming another session gains nobody anything.
    """
    standings = [standing_of_role(agent.role) for agent in anchored.agents]
    other, key = anchored.agents[0].seat, _key_for(anchored.agents[0], claim)
    assert other is not None  # whoever is at an anchor has one
    seat = Seat(pid=other.pid, start=other.start, boot=other.boot, key=key)
    return Caller(name=SCRIPT.name, standing=min(SCRIPT.standing, *standings), kind=SCRIPT.kind, seat=seat)


def who_joins(caller: Caller) -> Caller:
    """Give the caller as it joins: a session without a name does so as any script, whoever sits beside it.

    What it then may do is decided anew, and again by those beside it.
    """
    return replace(SCRIPT, is_orphan=caller.is_orphan) if caller.name == SCRIPT.name else caller


def named_subagent(anchored: Anchored, claim: Claim) -> Agent | None:
    """Give the sub-agent whose key the caller brings, or None: also where that key is a session's own."""
    named = (one for one in (*anchored.agents, *anchored.subagents) if _is_named(one, claim))
    found = next(named, None)
    return found if found in anchored.subagents else None


def owner_by_marks(anchored: Anchored, claim: Claim) -> Agent | None:
    """Give the session, or sub-agent, of an anchor whose key its own harness's marks hold, or None."""
    return next((one for one in (*anchored.agents, *anchored.subagents) if _is_named(one, claim)), None)


def is_within(anchored: Anchored, owner: Agent, key: str) -> bool:
    """Whether a key is an agent's own, or that of a sub-agent of it."""
    names = {owner.name} | {one.name for one in anchored.subagents if one.parent == owner.name}
    return any(one.name in names and _key_of(one) == key for one in (*anchored.agents, *anchored.subagents))


def _marked_by_others(agents: Sequence[Agent], claim: Claim) -> list[Agent]:
    """Give those of several seats whose session another harness's mark names, where nothing better does."""
    if len(agents) == 1 or claim.key or any(_is_named(agent, claim) for agent in agents):
        return []
    named = {claim.marks.get(name, "") for names in SESSION_MARKS.values() for name in names} - {""}
    return [agent for agent in agents if _key_of(agent) in named]


def _key_for(agent: Agent, claim: Claim) -> str:
    """The key the caller brings, read as a session of this agent's harness."""
    if claim.key:
        return claim.key
    return next(filter(None, map(claim.marks.get, SESSION_MARKS.get(agent.harness, ()))), "")


def _is_named(agent: Agent, claim: Claim) -> bool:
    return _key_of(agent) == _key_for(agent, claim) != ""


def _key_of(agent: Agent) -> str:
    return agent.seat.key if agent.seat is not None else ""


def _is_other_session(agent: Agent, claim: Claim) -> bool:
    """True when the seat is one session of its process and the caller names another."""
    key = _key_of(agent)
    return bool(key) and _key_for(agent, claim) not in ("", key)


def seated(agent: Agent, *, is_lowered: bool, limit: Standing, by: str | None = None) -> Caller:
    """Give an agent as the caller, with no more rights than the limit; lowered, than a worker's.

    `by` says who speaks, where only a mark says that it is this agent.
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
    """True in the foreground of a terminal that is nobody's, with every parent known.

    What was orphaned still has its terminal but no longer its parents: who started it is unknown. So the
    session's leader, which holds the terminal, must be among them, and so must the first of all processes.
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
    """Whether an agent may have started this process and left it behind.

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
    """Give the caller in the name of another, or refuse. What is done is logged with `by`.

    The human may be anyone. A script may be a worker, also one that is away. An agent may be itself and its
    own children, with no more rights than it has; a sub-agent only as long as it lives. Everybody else, a
    guest from a chat above all, is only itself.
    """
    if caller.name == target.name:
        return caller
    if caller.is_orphan:
        raise NotPerson(
            f"the process that started this one has ended, so nobody knows whose it is: it may not use --as "
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
                f"a script may use --as for workers of this machine, and {target.name} is none: a person may"
            )
    elif target.by != caller.name or caller.kind != "instance":
        raise NotYou(target.name, caller.name)
    elif target.parent and target.left:
        raise BadRequest(f"{target.name} has ended, and nobody speaks for it any more: leave --as out")
