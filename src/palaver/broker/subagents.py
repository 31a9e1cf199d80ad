"""Start a sub-agent: which name it gets, decided on the single key `agent/<name>`.

Numbers are never reused: the next one follows from the log. Two that start at once may try the same name; one
gets it, and the other takes the next.
"""

import hashlib
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from palaver.broker.context import Context
from palaver.broker.life import tell
from palaver.broker.outcome import Joined
from palaver.errors import BadRequest, NameTaken, NotFound
from palaver.harness.hook_states import THINKING
from palaver.log.api import Rows
from palaver.log.state import read_agent, read_last_subagent, read_subagent
from palaver.model.agent import ROLES, Agent, Caller, Seat, standing_of_role
from palaver.model.delivery import AgentState
from palaver.model.envelope import Draft
from palaver.model.life import HELLO, LIFE, RESUMED, STARTED
from palaver.model.names import check_name, full_name, split_name
from palaver.model.subagent import BeginSubagent, subagent_name, subagent_stem
from palaver.model.text import check_text

_WORKER: Final = ROLES[0]
_LIMIT_KEY_BYTES: Final = 256
_BEGINS: Final = THINKING
"""The detail of a new sub-agent, which starts with work to do."""


async def begin(context: Context, caller: Caller, request: BeginSubagent, key: bytes | None) -> Joined:
    """Assign a sub-agent its earlier name, or a new one.

    Raises NotFound if its parent is not present, BadName if no name can be formed from the parent's, and
    BadRequest for the key of a session that is an independent agent: it cannot become a sub-agent.
    """
    if not request.key:
        raise BadRequest("the id of the sub-agent is missing; its harness must send one")
    check_text(request.key, "the id of a sub-agent", _LIMIT_KEY_BYTES)
    _check_nobodys(context, request)
    taken: set[str] = set()
    while True:
        wanted = _Wanted.of(context, request, taken)
        try:
            commit = await context.log.commit(
                f"agent/{wanted.name}", wanted.decide, request_key=wanted.first_key
            )
        except NameTaken:
            taken.add(wanted.name)  # another agent has it by now: try the next number
            continue
        if commit.is_repeat:
            continue  # it has started meanwhile, maybe under another name, which can be read now
        if commit.event is None:
            return Joined(agent=wanted.found[-1], is_new=False)
        is_new = commit.event.type == HELLO
        if is_new:
            await tell(context, commit.event, STARTED)
        return Joined(agent=_known(context, commit.event.sender), is_new=is_new)


def _check_nobodys(context: Context, request: BeginSubagent) -> None:
    """Refuse the key of a session in the parent's process that is not a sub-agent."""
    parent = context.directory.get(request.parent)
    here = None if parent is None else _process(parent.seat)
    for agent in context.directory.all() if here is not None else ():
        is_here = _process(agent.seat) == here and not (agent.parent or agent.left)
        if is_here and agent.seat is not None and request.key in (agent.seat.key, agent.session):
            raise BadRequest(
                f"the session {request.key} belongs to {agent.name}, which is not a sub-agent of "
                f"{request.parent}"
            )


def _process(seat: Seat | None) -> tuple[int, int, str] | None:
    return None if seat is None else (seat.pid, seat.start, seat.boot)


def _known(context: Context, name: str) -> Agent:
    agent = read_agent(context.log.rows, name)
    assert agent is not None  # a commit that wrote it has returned
    return agent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A requested sub-agent, and the name that it would have."""

    request: BeginSubagent
    name: str
    first_key: bytes | None
    """The request key of its first start: two concurrent requests for it are one."""
    id: str
    now: int
    device: str
    found: list[Agent] = field(default_factory=list)
    """The running sub-agent, as the decision saw it: reads may not show it yet."""

    @classmethod
    def of(cls, context: Context, request: BeginSubagent, taken: Set[str]) -> "_Wanted":
        rows = context.log.rows
        had = read_subagent(rows, request.parent, request.key) or ""
        known = read_agent(rows, had)
        is_back = known is not None and _is_same(known, request)
        begins = repr(("subagent", request.parent, request.key, had)).encode()
        return cls(
            request=request,
            name=had if is_back else _free_name(rows, request, taken),
            first_key=None if is_back else hashlib.sha256(begins).digest()[:16],
            id=context.ids.next(),
            now=context.clock.now_ms(),
            device=context.log.device,
        )

    def decide(self, rows: Rows) -> Draft | None:
        """Return the event to write: a hello, a change of seat, or None if nothing has changed."""
        parent = read_agent(rows, self.request.parent)
        if parent is None or parent.left or parent.remote:
            raise NotFound(f"agent {self.request.parent} here", "a sub-agent needs a running parent")
        known = read_agent(rows, self.name)
        agent = self._agent(parent)
        if known is None:
            return self._draft(HELLO, agent)
        if not _is_same(known, self.request):
            raise NameTaken(self.name, "it belongs to another agent")
        if known.left:
            return self._draft(HELLO, agent)
        if known.seat == agent.seat:
            self.found.append(known)
            return None
        return self._draft(LIFE, msgspec.structs.replace(known, seat=agent.seat))

    def _agent(self, parent: Agent) -> Agent:
        parts = split_name(self.name)
        check_name(parts.base, parts.tag)
        seat = parent.seat
        return Agent(
            name=full_name(parts.base, parts.tag),
            base=parts.base,
            tag=parts.tag,
            role=min(_WORKER, parent.role, key=standing_of_role),
            harness=parent.harness,
            device=self.device,
            runtime=parent.runtime,
            version=parent.version,
            state=AgentState.ACTIVE,
            detail=_BEGINS,
            seat=None if seat is None else msgspec.structs.replace(seat, key=self.request.key),
            session=self.request.key,
            by=parent.name,
            parent=parent.name,
            cwd=parent.cwd,
        )

    def _draft(self, type: str, agent: Agent) -> Draft:
        payload: dict[str, object] = {"agent": msgspec.to_builtins(agent)}
        if type == LIFE:
            payload["action"] = RESUMED
        else:
            payload |= {"runtime": agent.runtime, "version": agent.version}
        return Draft(type=type, sender=agent.name, payload=payload, id=self.id, ts=self.now, by=agent.parent)


def _free_name(rows: Rows, request: BeginSubagent, taken: Set[str]) -> str:
    """Return the first name that no agent ever had and that is not in `taken`."""
    stem = subagent_stem(request.parent, request.type)
    number = read_last_subagent(rows, stem) + 1
    while (name := subagent_name(stem, number)) in taken or read_agent(rows, name) is not None:
        number += 1
    return name


def _is_same(known: Agent, request: BeginSubagent) -> bool:
    """Whether the name still belongs to this sub-agent."""
    return (known.parent, known.session) == (request.parent, request.key)
