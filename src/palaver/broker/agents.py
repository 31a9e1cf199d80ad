"""Joining: which agent may have which name, decided on the single key `agent/<name>`.

A name belongs to its agent permanently. Another caller gets it only from the human, by presenting the same
session, or, for an offline worker, as a script that asks for it explicitly. No caller is given more rights
than it has: a session id is not a secret, so a caller that presents nothing else gets at most a worker's
rights.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.broker.context import Context
from palaver.broker.life import tell
from palaver.broker.outcome import Joined
from palaver.errors import BadName, NameTaken, NotPerson
from palaver.log.api import Rows
from palaver.log.state import read_agent, read_session
from palaver.model.agent import Agent, Caller, Standing, standing_of_role
from palaver.model.delivery import AgentState
from palaver.model.envelope import Draft, Event
from palaver.model.life import HELLO, LIFE, RESUMED, SESSION, STARTED
from palaver.model.message import HUMAN
from palaver.model.names import SCRIPT_NAME, check_name, full_name, spare_name, split_name
from palaver.model.request import Join, Register
from palaver.model.text import check_text

_TRIES: Final = 10_000
_WORKER: Final = "worker"
_OBSERVER: Final = "observer"
_LIMIT_WORD_BYTES: Final = 256
_HAS_HISTORY: Final = (
    "it belonged to an earlier agent; only a person, or the same harness session, can reuse it"
)
_IN_USE: Final = "it is in use; choose another name with --name"


async def join(context: Context, caller: Caller, request: Join, key: bytes | None) -> Joined:
    """Assign the caller a name: the requested one, else the earlier name of its session, else a new one."""
    for what in ("harness", "runtime", "version", "session"):
        check_text(getattr(request, what), f"the {what}", _LIMIT_WORD_BYTES)
    standing_of_role(request.role)
    taken: set[str] = set()
    while True:
        wanted = _Wanted.of(context, caller, request, taken)
        try:
            commit = await context.log.commit(f"agent/{wanted.agent.name}", wanted.decide, request_key=key)
        except NameTaken:
            if not wanted.is_drawn:
                raise
            taken.add(wanted.agent.name)  # Two callers drew it at once, and the other one has it.
            continue
        if commit.event is not None:
            if commit.event.type == HELLO:
                await tell(context, commit.event, STARTED)
            return joined_by(context, commit.event)
        return Joined(agent=_known(context, wanted.agent.name), is_new=False)


def joined_by(context: Context, event: Event) -> Joined:
    """Return the outcome of a join from the event it wrote."""
    return Joined(agent=_known(context, event.sender), is_new=event.type == HELLO)


def _known(context: Context, name: str) -> Agent:
    agent = read_agent(context.log.rows, name)
    assert agent is not None  # a commit on its name has returned
    return agent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A requested name, with everything that the decision needs in addition to the state."""

    caller: Caller
    request: Join
    agent: Agent
    is_drawn: bool
    before: Agent | None
    """The agent with that name when presence was checked: if it has changed since, the check is void."""
    is_here: bool
    id: str
    now: int

    @classmethod
    def of(cls, context: Context, caller: Caller, request: Join, taken: Set[str]) -> "_Wanted":
        tag = request.tag.lower()
        name = full_name(request.name.lower(), tag) if request.name else ""
        own = name or _own_name(context, request)
        agent = _new_agent(context, caller, request, own or _draw_name(context, tag, taken))
        return cls(
            caller=caller,
            request=request,
            agent=agent,
            is_drawn=not own,
            before=context.directory.get(agent.name),
            is_here=context.is_present(agent.name),
            id=context.ids.next(),
            now=context.clock.now_ms(),
        )

    def decide(self, rows: Rows) -> Draft | None:
        """Return the event to write: a hello, a resume, or None if nothing has changed."""
        known = read_agent(rows, self.agent.name)
        standing = standing_of_role(self.request.role)
        is_same = known is not None and _is_same(known, self.agent)
        if known is not None and is_same and standing <= standing_of_role(known.role):
            return self._back(known)
        self._check_standing(standing)
        if known is not None and not is_same:
            self._check_free(known)
        return self._hello(self.agent)

    def _hello(self, agent: Agent) -> Draft:
        return Draft(
            type=HELLO,
            sender=agent.name,
            payload={
                "runtime": agent.runtime,
                "version": agent.version,
                "agent": msgspec.to_builtins(agent),
            },
            id=self.id,
            ts=self.now,
            by=agent.by or None,
        )

    def _back(self, known: Agent) -> Draft | None:
        """Resume a known agent with its role and state; after a leave at the same seat it joins again.

        Only a caller that presents more than a session id keeps a role above its own standing.
        """
        new = self.agent
        is_elsewhere = known.seat is not None and known.seat != new.seat
        if is_elsewhere and not known.left and self.is_here:
            raise NameTaken(known.name, _IN_USE)
        back = msgspec.structs.replace(
            known,
            role=known.role if _is_proven(known, new) else self._role_of(known),
            seat=new.seat,
            link=new.link,
            session=new.session or known.session,
            runtime=self.request.runtime or known.runtime,
            version=self.request.version or known.version,
            holder=known.holder if new.seat == known.seat else new.holder,
        )
        if known.left and known.seat is not None and known.seat == new.seat:
            return self._hello(msgspec.structs.replace(back, state=AgentState.IDLE, detail=""))
        if known.left:
            back = msgspec.structs.replace(back, left=False, state=AgentState.IDLE, detail="", since=self.now)
        if back == known:
            return None
        is_there = back == msgspec.structs.replace(known, session=back.session)
        return Draft(
            type=LIFE,
            sender=known.name,
            payload={"action": SESSION if is_there else RESUMED, "agent": msgspec.to_builtins(back)},
            id=self.id,
            ts=self.now,
        )

    def _role_of(self, known: Agent) -> str:
        """Return the agent's role, or the highest role that the caller may join with, if that is lower."""
        if standing_of_role(known.role) <= self.caller.standing:
            return known.role
        return _WORKER if self.caller.standing >= Standing.WORKER else _OBSERVER

    def _check_standing(self, standing: Standing) -> None:
        """Refuse a role above worker unless the human gives it or it is for a child of a connection."""
        if standing > self.caller.standing:
            raise NotPerson(
                f"you cannot create an agent with the role {self.request.role}, which is above your own: "
                f"{self.caller.standing.word}"
            )
        if standing > Standing.WORKER and self.caller.kind != HUMAN and not self.request.has_link:
            raise NotPerson(f"only a person can assign the role {self.request.role}; join as a worker")

    def _check_free(self, known: Agent) -> None:
        """Refuse a name with a history that belongs to another agent."""
        is_newer = self.before is None or self.before.seq != known.seq
        if not known.left and (self.is_here or is_newer):
            raise NameTaken(known.name, _IN_USE)
        if self.caller.kind == HUMAN or known.by == self.caller.name != SCRIPT_NAME:
            return
        is_its_session = (known.session, known.harness) == (self.request.session, self.request.harness)
        if known.left and known.session and is_its_session:
            return  # the same session continues with another holder
        if self.request.is_resumed and self.caller.standing >= Standing.OPERATOR:
            return
        is_worker = standing_of_role(known.role) <= Standing.WORKER
        is_script = self.caller.name == SCRIPT_NAME and not self.caller.is_orphan
        if is_script and self.request.takes_over and is_worker:
            return
        way = f" (in a script: pal join --as {known.name})"
        raise NameTaken(known.name, _HAS_HISTORY + (way if is_worker and not self.request.takes_over else ""))


def _new_agent(context: Context, caller: Caller, request: Join, name: str) -> Agent:
    parts = split_name(name)
    if context.directory.get(full_name(parts.base, parts.tag)) is None:
        check_name(parts.base, parts.tag)  # An agent from an older log keeps its name.
    if parts.device:
        raise BadName(
            name, "a local agent has no device suffix; use --remote to register an agent of another machine"
        )
    return Agent(
        name=full_name(parts.base, parts.tag),
        base=parts.base,
        tag=parts.tag,
        role=request.role,
        harness=request.harness,
        device=context.log.device,
        runtime=request.runtime or request.harness,
        version=request.version,
        seat=request.seat,
        link=request.has_link,
        session=request.session,
        by="" if caller.kind == HUMAN else caller.name,
        holder=request.holder,
        argv=request.argv,
        cwd=request.cwd,
    )


def _is_same(known: Agent, agent: Agent) -> bool:
    """Whether the caller is the agent that has the name: the same seat, session or holder."""
    if agent.holder or (known.holder and not known.left):  # Only its holder can resume an agent that has one.
        return known.holder == agent.holder
    if agent.seat is not None and known.seat == agent.seat:
        return True
    return bool(agent.session) and (known.session, known.harness) == (agent.session, agent.harness)


def _is_proven(known: Agent, agent: Agent) -> bool:
    """Whether the caller proves its identity by a seat or a secret, and not by a session id alone."""
    is_seated = agent.seat is not None and known.seat == agent.seat
    return is_seated or bool(agent.holder) or (known.link and agent.link)


def _own_name(context: Context, request: Join) -> str:
    """Return the earlier name of a session, if it still has that session."""
    name = read_session(context.log.rows, request.harness, request.session) if request.session else None
    known = context.directory.get(name or "")
    return known.name if known is not None and known.session == request.session else ""


def _draw_name(context: Context, tag: str, taken: Set[str]) -> str:
    """Draw a name that no agent has had, and that is not in `taken`."""
    start = context.draw() % _TRIES
    for step in range(_TRIES):
        base = spare_name(start + step)
        name = full_name(base, tag)
        if name not in taken and not context.directory.by_base(base):
            return name
    raise NameTaken("*", "every short name is in use; choose one with --name")


async def register(context: Context, caller: Caller, request: Register, key: bytes | None) -> Joined:
    """Register an agent of another machine."""
    parts = split_name(request.name)
    if not parts.device or parts.device == context.log.device:
        raise BadName(
            request.name, "write a remote agent as NAME:DEVICE, with the device id of the other machine"
        )
    check_name(parts.base, parts.tag)
    agent = Agent(
        name=full_name(parts.base, parts.tag, parts.device),
        base=parts.base,
        tag=parts.tag,
        device=parts.device,
        remote=True,
    )
    draft = Draft(
        type=HELLO,
        sender=agent.name,
        payload={"runtime": "", "version": "", "agent": msgspec.to_builtins(agent)},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.name,
    )
    commit = await context.log.commit(
        f"agent/{agent.name}",
        lambda rows: None if read_agent(rows, agent.name) else draft,
        request_key=key,
    )
    return Joined(agent=_known(context, agent.name), is_new=commit.event is not None)
