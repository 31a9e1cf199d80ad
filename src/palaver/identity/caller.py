"""Identify the caller: four rules over a chain of processes, a claim, or a token."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from palaver.errors import AlreadyJoined, BadRequest, NotPerson, NotYou, WhoAreYou
from palaver.harness.marks import (
    MARKS,
    PRESENCE_MARKS,
    SEAT_MARK,
    SESSION_MARKS,
    SHARED_HARNESSES,
    harness_of,
)
from palaver.identity.process import Environments, HarnessEnvironment, Process, ancestors
from palaver.identity.seats import (
    AgentTerminals,
    Anchored,
    HolderAbove,
    Holders,
    SeatIndex,
    TurnSeat,
    seat_mark,
)
from palaver.protocol.agents import (
    INSTANCE,
    SCRIPT_NAME,
    Agent,
    Caller,
    Seat,
    Standing,
    standing_of_role,
)
from palaver.protocol.paths import mailbox_of

# --------------------
# Identify the caller: four rules over a chain of processes. Pure: same chain and claim, same result.
#
# 1. The nearest anchor. If it has several seats, the session key selects one; without a key the caller is
#    refused.
# 2. No anchor, but a mark that selects a seat: that seat, with at most a worker's rights.
# 3. No anchor, no mark, no process above that was an anchor before, and in the foreground of a terminal that
#    no holder owns: the human.
# 4. Otherwise: a script.
#
# A mark selects an agent or lowers rights. Nothing that the caller claims, and nothing that could not be
# read, raises them.

HUMAN: Final = Caller(name="human", standing=Standing.HUMAN, kind="human")
_ADOPTERS: Final = frozenset({"systemd", "init", "launchd"})
"""Names of processes that adopt orphans, because a login's own systemd does so with another pid than 1."""
SCRIPT: Final = Caller(name=SCRIPT_NAME, standing=Standing.WORKER, kind="external")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerClaim:
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


def marks_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the marks in the environment of a client."""
    return {name: value for name in (*MARKS, SEAT_MARK) if (value := environment.get(name))}


def who_is_asking(
    chain: Sequence[Process],
    claim: CallerClaim,
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
        return who_at_anchor(anchored, claim, lambda agent: marks_between)
    if meant := seats.marked(claim.marks):
        # Any process can set a mark that it has read elsewhere: the lowest of the selected roles limits it.
        lowest = min(meant, key=lambda agent: standing_of_role(agent.role))
        return seated(meant[0], is_lowered=True, limit=standing_of_role(lowest.role), by=SCRIPT.name)
    is_unmarked = not marks_above and not claim.has_mark
    if is_unmarked and not seats.was_seat(chain) and _is_at_terminal(chain, holder_ttys):
        return HUMAN
    return SCRIPT


def who_at_anchor(anchored: Anchored, claim: CallerClaim, is_lowered: Callable[[Agent], bool]) -> Caller:
    """Return the caller below an anchor: one of its agents, or a session without an agent.

    `is_lowered` says of that agent whether the caller gets at most a worker's rights. Raises WhoAreYou if the
    caller could be several agents.
    """
    if is_stranger(anchored, claim):
        return stranger_at(anchored, claim)
    agent = choose_seat(anchored, claim)
    # A key in the variable of another harness has come through that harness, so it lowers the rights.
    is_other = _is_other_session(agent, claim) or agent in _marked_by_others(anchored.agents, claim)
    # The caller itself claims which agent it is, so it gets the lowest rights of them.
    limit = min(standing_of_role(one.role) for one in anchored.agents)
    return seated(agent, is_lowered=is_other or is_lowered(agent), limit=limit)


def choose_seat(anchored: Anchored, claim: CallerClaim) -> Agent:
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
    # Only without any key: a key that fits no seat is of a session that has not joined, and that session has
    # inherited the mark of the process.
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


def is_stranger(anchored: Anchored, claim: CallerClaim) -> bool:
    """Whether the caller is a session without a seat in a process that several sessions share.

    If it were taken for one of the seated sessions, it would receive that agent's messages.
    """
    if named_subagent(anchored, claim) is not None:
        return False
    return bool(anchored.agents) and all(
        agent.harness in SHARED_HARNESSES and _is_other_session(agent, claim) for agent in anchored.agents
    )


def stranger_at(anchored: Anchored, claim: CallerClaim) -> Caller:
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


def named_subagent(anchored: Anchored, claim: CallerClaim) -> Agent | None:
    """Return the sub-agent whose key the caller has; None also if that key is a session's own."""
    named = (one for one in (*anchored.agents, *anchored.subagents) if _is_named(one, claim))
    found = next(named, None)
    return found if found in anchored.subagents else None


def owner_by_marks(anchored: Anchored, claim: CallerClaim) -> Agent | None:
    """Return the session, or sub-agent, of an anchor whose key is in its harness's marks, or None."""
    return next((one for one in (*anchored.agents, *anchored.subagents) if _is_named(one, claim)), None)


def is_within(anchored: Anchored, owner: Agent, key: str) -> bool:
    """Whether a key belongs to an agent or to one of its sub-agents."""
    names = {owner.name} | {one.name for one in anchored.subagents if one.parent == owner.name}
    return any(one.name in names and _key_of(one) == key for one in (*anchored.agents, *anchored.subagents))


def _marked_by_others(agents: Sequence[Agent], claim: CallerClaim) -> list[Agent]:
    """Return the agents whose session a mark of another harness names, if there is no better evidence."""
    if len(agents) == 1 or claim.key or any(_is_named(agent, claim) for agent in agents):
        return []
    named = {claim.marks.get(name, "") for names in SESSION_MARKS.values() for name in names} - {""}
    return [agent for agent in agents if _key_of(agent) in named]


def _key_for(agent: Agent, claim: CallerClaim) -> str:
    """Return the caller's key, read as a session of this agent's harness."""
    if claim.key:
        return claim.key
    return next(filter(None, map(claim.marks.get, SESSION_MARKS.get(agent.harness, ()))), "")


def _is_named(agent: Agent, claim: CallerClaim) -> bool:
    return _key_of(agent) == _key_for(agent, claim) != ""


def _key_of(agent: Agent) -> str:
    return agent.seat.key if agent.seat is not None else ""


def _is_other_session(agent: Agent, claim: CallerClaim) -> bool:
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


def in_turn(turn: TurnSeat) -> Caller:
    """Return the agent of an automatic turn, with at most a worker's rights.

    No person has seen the messages that started the turn, so an agent with a higher role is lowered. A triage
    is not the agent: it has no mailbox, may only read, and may not act as another.
    """
    key = mailbox_of(turn.agent.name, turn.session)
    if turn.is_triage:
        return replace(SCRIPT, standing=Standing.OBSERVER, is_orphan=True, turn=key)
    found = seated(turn.agent, is_lowered=True, limit=Standing.WORKER)
    return replace(found, turn=key)


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
    # Not the caller itself, at index 0: the process below the adopter is needed.
    adopter = next((index for index, one in enumerate(chain) if index and is_adopter(one)), None)
    return adopter is not None and not seats.is_older_than_all(chain[adopter - 1])


def is_adopter(process: Process) -> bool:
    """Whether a process becomes the parent of processes whose own parent has ended."""
    return process.pid == 1 or process.name in _ADOPTERS


def act_as(caller: Caller, target: Agent) -> Caller:
    """Return the caller acting as another agent, or refuse. Its actions are logged with `by`.

    The human may act as any agent. A script may act as a worker, also an offline one. An agent may act as
    agents that it started, with at most its own rights; as a sub-agent only until that has ended. Any other
    caller, above all a guest from a chat, may only act as itself.
    """
    if caller.name == target.name:
        return caller
    if caller.is_orphan:
        raise NotPerson(
            f"this process may belong to an agent that has left or exited, so it cannot use --as "
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
        turn=caller.turn,  # its messages continue the chain of the turn under any name
    )


def _check_target(caller: Caller, target: Agent, standing: Standing) -> None:
    # A session without an agent has this name too, but also a seat: it may not act as others.
    if caller.name == SCRIPT.name and caller.standing is SCRIPT.standing and caller.seat is None:
        if standing is not Standing.WORKER or target.remote:
            raise NotPerson(
                f"a script can use --as only for workers on this machine, not for {target.name}; a person can"
            )
    elif target.by != caller.name or caller.kind != "instance":
        raise NotYou(target.name, caller.name)
    elif target.parent and target.left:
        raise BadRequest(f"{target.name} has exited and cannot be used with --as; leave out --as")


# --------------------
# Choose the seat of a new agent. Pure: selects the anchor process, and stores nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A seat, and the harness there, if known."""

    seat: Seat
    harness: str = ""
    session: str = ""


def anchor_for_join(
    chain: Sequence[Process],
    claim: CallerClaim,
    pid: int | None,
    seats: SeatIndex,
    surroundings: Sequence[HarnessEnvironment],
) -> Anchor:
    """Choose the anchor of a caller that joins: its harness, else its parent, or the given `pid`.

    `surroundings` has one entry per process of the chain. Refuses a process that already has an agent, one
    that is not between the caller and its own seat, and processes that adopt orphans: their children are
    unrelated.
    """
    if not chain:
        raise BadRequest("the calling process has ended or runs in another container, so it cannot join")
    below = [dict(found.marks) for found in surroundings]
    # The system shows the environment that a program was started with, and the client sends the current one.
    below[0] |= {name: value for name, value in claim.marks.items() if value}
    harness_index = _nearest_harness(chain, surroundings, below)
    # Index 0 is the client itself, which ends with its command, so without a harness its parent is the seat.
    index = _asked_index(chain, pid) if pid is not None else harness_index or 1
    own = seats.nearest(chain)
    if own is not None and index > own.index:
        raise AlreadyJoined(own.agents[0].name)  # the caller already has an agent, whatever is above it
    if index >= len(chain) or (is_adopter(chain[index]) and index != harness_index):
        raise BadRequest(
            "the process that started this one has exited, so there is no process to join for: "
            "join from a shell that stays, or choose a process with --pid"
        )
    harness, session = "", claim.key
    if harness_index is not None:
        harness, session = _harness_at(harness_index, surroundings, below, claim)
    if harness_index is not None and index != harness_index:
        session = ""  # a process next to the session, not the session itself
    # A harness that runs one session at a time begins another one in the same process, as with `/clear`: its
    # agent stays the same, so its seat has no key.
    key = session if harness in SHARED_HARNESSES or not harness else ""
    _check_free(chain, index, key, seats)
    process = chain[index]
    seat = Seat(pid=process.pid, start=process.start, boot=seats.boot, key=key)
    return Anchor(seat=seat, harness=harness, session=session)


def anchor_for_child(
    caller: Process, child: Sequence[Process], seats: SeatIndex, key: str = "", own: str = ""
) -> Seat:
    """Return the seat of a process that the caller itself started, as a holder does for its agent.

    `child` is the chain of that process. Refuses a process that is not below the caller, and one that already
    has an agent, unless its name is `own`.
    """
    started = [(process.pid, process.start) for process in child[1:]]
    if (caller.pid, caller.start) not in started:
        raise BadRequest("you can join only for a process that you started")
    if [agent.name for agent in seats.at(child[0])] != [own]:
        _check_free(child, 0, key, seats)
    return Seat(pid=child[0].pid, start=child[0].start, boot=seats.boot, key=key)


def _asked_index(chain: Sequence[Process], pid: int) -> int:
    for index, process in enumerate(chain):
        if process.pid == pid:
            return index
    raise BadRequest(f"process {pid} is not a parent of this process; choose a parent with --pid")


def _nearest_harness(
    chain: Sequence[Process], surroundings: Sequence[HarnessEnvironment], below: Sequence[Mapping[str, str]]
) -> int | None:
    """Find the innermost harness: by its name, or by a mark that only its child has."""
    for index in range(1, len(chain)):
        if surroundings[index].harness:
            return index
        # An orphan inherited its marks from a parent that has exited, not from its adopter.
        if harness_of(_introduced(index, surroundings, below)) and not is_adopter(chain[index]):
            return index
    return None


def _introduced(
    index: int, surroundings: Sequence[HarnessEnvironment], below: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """Return the marks that a process has given to its child, and does not have itself."""
    own = surroundings[index].marks
    return {name: value for name, value in below[index - 1].items() if own.get(name) != value}


def _harness_at(
    index: int,
    surroundings: Sequence[HarnessEnvironment],
    below: Sequence[Mapping[str, str]],
    claim: CallerClaim,
) -> tuple[str, str]:
    harness = surroundings[index].harness or harness_of(_introduced(index, surroundings, below)) or ""
    marks = below[index - 1]
    session = claim.key or next(filter(None, map(marks.get, SESSION_MARKS.get(harness, ()))), "")
    return harness, session


def _check_free(chain: Sequence[Process], index: int, key: str, seats: SeatIndex) -> None:
    own = seats.nearest(chain)
    if own is None or index != own.index:
        return
    for agent in own.agents:
        if not key or agent.seat is None or agent.seat.key in ("", key):
            raise AlreadyJoined(agent.name)


# --------------------
# Identify callers: collect processes, environments and seats, and apply the rules to them.
#
# Reads only data that the result depends on. Decides nothing itself: the rules above do.

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
class CallerIdentifier:
    """Everything needed to identify a caller. Belongs to one thread."""

    seats: SeatIndex
    holder_ttys: Container[int] = ()
    """Terminals that holders own, as device numbers."""
    environments: Environments = field(default_factory=Environments)
    holders: Holders = field(default_factory=lambda: Holders(""))
    agent_terminals: AgentTerminals = field(default_factory=lambda: AgentTerminals(""))

    def who(self, chain: Sequence[Process], claim: CallerClaim) -> Caller:
        """Return the caller of this process chain. Raises WhoAreYou if it could be several agents."""
        if (turn := self.seats.turn_above(chain)) is not None:
            return in_turn(turn)
        anchored = self.seats.nearest(chain)
        # Only a holder nearer than the anchor counts: the one above the anchor runs that agent itself.
        below = self.holders.above(chain if anchored is None else chain[: anchored.index])
        if below is not None and (left := self._adopted_orphan(chain, claim, below)) is not None:
            return left
        if anchored is not None:
            return self._seated(chain, claim, anchored, is_below_holder=below is not None)
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
        # The agent could type at this terminal as well as the person: see `AgentTerminals`.
        if caller is HUMAN and self.agent_terminals.has_agent(chain[0].tty):
            return SCRIPT
        # The human is returned as the object itself, because callers of this method compare with `is HUMAN`.
        return caller if caller is HUMAN else replace(caller, is_orphan=is_orphan(chain, self.seats))

    def why_not_person(self, chain: Sequence[Process], claim: CallerClaim) -> str:
        """Return why a caller does not count as a person, and what to do about it; empty for a person."""
        caller = self.who(chain, claim)
        if caller is HUMAN:
            return ""
        if caller.kind == INSTANCE:
            return (
                f"This process belongs to the agent {caller.name}, as does everything that it starts; a "
                "person can do this in a new shell"
            )
        if self.seats.was_seat(chain):
            return (
                "This shell was an agent, and such a shell does not become a person again; open a new shell "
                "to act as a person"
            )
        around = [self.environments.look(process) for process in chain]
        if claim.has_mark or any(found.can_be_harness for found in around):
            return "This process runs inside a harness; a person can do this in a shell of their own"
        return (
            "This process is not in the foreground of a person's terminal; a person can do this there, in a "
            "shell of their own"
        )

    def is_forged(self, chain: Sequence[Process], claim: CallerClaim, child: str = "") -> bool:
        """Whether the caller was started by one session of an anchor and names another, so it is refused.

        A session may name its own sub-agents; `child` is one that is named in addition to the key.
        """
        anchored = self.seats.nearest(chain)
        # Without a key the caller names no session. Without an anchor it cannot be taken for another one's.
        if anchored is None or not claim.key:
            return False
        *below, own = (self.environments.look(one).marks for one in chain[: anchored.index + 1])
        for found in (claim.marks, *below):
            # Marks that the anchor itself was started with do not identify its children.
            marks = {name: value for name, value in found.items() if own.get(name) != value}
            if (owner := owner_by_marks(anchored, CallerClaim(marks=marks))) is not None:
                return not is_within(anchored, owner, claim.key) and not is_within(anchored, owner, child)
        return False

    def anchor_of(self, chain: Sequence[Process], claim: CallerClaim, pid: int | None = None) -> Anchor:
        """Choose the seat of a caller that joins, or refuse.

        A process that a holder adopted gets a seat below it. A process of an automatic turn has an agent
        already.
        """
        if (turn := self.seats.turn_above(chain)) is not None:
            raise AlreadyJoined(turn.agent.name)
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

    def _is_persons_shell(self, chain: Sequence[Process], around: Sequence[HarnessEnvironment]) -> bool:
        """Whether the chain begins with the shell that owns a terminal that no agent uses."""
        shell = chain[0]
        return (
            shell.pid == shell.session
            and shell.tty != 0
            and shell.tty not in self.holder_ttys
            and shell.name.removeprefix("-") in _SHELLS
            and not self.seats.was_seat(chain)
            and not any(found.can_be_harness for found in around)
        )

    def _adopted_orphan(
        self, chain: Sequence[Process], claim: CallerClaim, below: HolderAbove
    ) -> Caller | None:
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
        """Whether the process of an agent runs below a holder now."""
        seat = agent.seat
        chain = [] if seat is None or seat.boot != self.seats.boot else ancestors(seat.pid)
        found = [(process.pid, process.start) for process in chain]
        # The first process is compared too, because the pid of the seat may belong to another process by now.
        return (
            seat is not None and found[:1] == [(seat.pid, seat.start)] and (holder.pid, holder.start) in found
        )

    def _seated(
        self, chain: Sequence[Process], claim: CallerClaim, anchored: Anchored, *, is_below_holder: bool
    ) -> Caller:
        def is_lowered(agent: Agent) -> bool:
            # Only rights above a worker's can be lowered, so the environment is read only for those.
            is_high = standing_of_role(agent.role) > Standing.WORKER
            between = chain[: anchored.index + 1]
            return is_below_holder or (is_high and self._has_harness_between(between, claim, agent))

        return who_at_anchor(anchored, claim, is_lowered)

    def _has_harness_between(self, chain: Sequence[Process], claim: CallerClaim, agent: Agent) -> bool:
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

    def _bound(self, claim: CallerClaim, around: Sequence[HarnessEnvironment]) -> CallerClaim:
        """Use the nearest parent's marks if the claim's own select no agent: they may have been cleared."""
        if self.seats.marked(claim.marks):
            return claim
        for found in around:
            if found.marks and self.seats.marked(found.marks):
                return replace(claim, marks=found.marks)
        return claim


def _without(marks: Mapping[str, str], names: Container[str]) -> Mapping[str, str]:
    return {name: value for name, value in marks.items() if name not in names}
