"""Agents: join, rename, report a state, and leave. Each name is decided on the single key `agent/<name>`."""

import asyncio
import hashlib
import posixpath
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from palaver.broker.context import Context, Joined, Written
from palaver.broker.rooms import leave_all_rooms
from palaver.errors import (
    AlreadyJoined,
    BadName,
    BadRequest,
    NameTaken,
    NotFound,
    NotPerson,
    NotYou,
    WhoAreYou,
)
from palaver.harness.hooks import THINKING
from palaver.ids import derived_id
from palaver.protocol.agents import (
    GUEST_ROLE,
    INSTANCE,
    ROLES,
    SCRIPT_NAME,
    Agent,
    BeginSubagent,
    Caller,
    Seat,
    Standing,
    check_name,
    full_name,
    spare_name,
    split_name,
    standing_of_role,
    subagent_name,
    subagent_stem,
)
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import (
    BYE,
    DAEMON_STARTED,
    HELLO,
    LIFE,
    READY,
    RESUMED,
    SESSION,
    STARTED,
    STOPPED,
    AgentState,
    parse_state,
)
from palaver.protocol.requests import LEFT, DaemonStarted, Gone, Join, Leave, Register, SetStatus
from palaver.protocol.text import check_text
from palaver.state.agents import read_agent, read_last_subagent, read_session, read_subagent
from palaver.state.rows import Rows

OnlyIf = Callable[[Agent], bool]
"""A condition for a write: it receives the agent as it is stored at the time of the write.

Pure: it may be called again, and in another thread.
"""

# --------------------
# Events about an agent's life, each written once after the event that causes it.


async def tell(context: Context, cause: Event, action: str, *, reason: str = "") -> None:
    """Write a life event that follows from an event of the agent itself. A repeat writes nothing.

    It is a separate event. A daemon that is killed in between does not write it later: only the cause is
    guaranteed.
    """
    # The id is derived from the cause, so the log recognizes a repeat.
    draft = _draft(context, cause, action, reason)
    await context.log.commit(None, lambda rows: draft)


async def tell_ready(context: Context, cause: Event) -> None:
    """Write that an agent is ready: it is idle for the first time since it joined."""
    # Every idle report comes here, and most agents are ready already: only the first one costs a commit.
    known = context.directory.get(cause.sender)
    if known is not None and known.ready:
        return
    draft = _draft(context, cause, READY, "")

    def decide(rows: Rows) -> Draft | None:
        agent = read_agent(rows, cause.sender)
        return draft if agent is not None and not agent.ready and not agent.left else None

    await context.log.commit(f"agent/{cause.sender}", decide)


def _draft(context: Context, cause: Event, action: str, reason: str) -> Draft:
    payload: dict[str, object] = {"action": action, "name": cause.sender}
    if reason:
        payload["reason"] = reason
    return Draft(
        type=LIFE,
        sender=cause.sender,
        payload=payload,
        id=derived_id(cause.id, LIFE, action),
        ts=context.clock.now_ms(),
        by=cause.by,
    )


# --------------------
# Joining: which agent may have which name, decided on the single key `agent/<name>`.
#
# A name belongs to its agent permanently. Another caller gets it only from the human, by presenting the same
# session, or, for an offline worker, as a script that asks for it explicitly. No caller is given more rights
# than it has: a session id is not a secret, so a caller that presents nothing else gets at most a worker's
# rights.

_TRIES: Final = 10_000
"""Short names that are tried before a join is refused."""
_WORKER: Final = "worker"
_OBSERVER: Final = "observer"
_LIMIT_WORD_BYTES: Final = 256
_HAS_HISTORY: Final = (
    "it belonged to an earlier agent; only a person, or the same harness session, can reuse it"
)
_IN_USE: Final = "it is in use; choose another name with --name"


async def join(context: Context, caller: Caller, request: Join, key: bytes | None) -> Joined:
    """Assign the caller a name: the requested one, else the earlier name of its session, else a new one."""
    if caller.turn:
        raise BadRequest(
            "an automatic turn cannot join or start agents: no person has read the messages that started it"
        )
    for what in ("harness", "runtime", "version", "session"):
        check_text(getattr(request, what), f"the {what}", _LIMIT_WORD_BYTES)
    standing_of_role(request.role)
    if request.has_token and caller.name != (claimed := full_name(request.name, request.tag)):
        raise NotYou(claimed, caller.name)
    if caller.is_guest and not request.has_token:
        raise NotPerson("a guest cannot join or start agents; a person can, at a terminal")
    if request.role == GUEST_ROLE and not request.has_token and not (caller.is_person and caller.by is None):
        raise NotPerson("only a person can register a person: pal agent register NAME --person")
    if request.seat is None:
        return await _join(context, caller, request, key)
    # Calls of one process may join at the same time. Each would draw another name, so no key of the log would
    # be common to them, and one seat would get several agents.
    lock = context.joining.setdefault(request.seat, asyncio.Lock())
    # The variable `lock` keeps the lock alive: the table has only a weak reference to it.
    async with lock:
        return await _join(context, caller, request, key)


async def _join(context: Context, caller: Caller, request: Join, key: bytes | None) -> Joined:
    taken: set[str] = set()
    while True:
        wanted = _WantedName.of(context, caller, request, taken)
        # Only for a new name: a caller that names itself, or resumes a session, is decided inside the commit.
        if wanted.is_drawn:
            _check_seat(context, request.seat)
        try:
            commit = await context.log.commit(f"agent/{wanted.agent.name}", wanted.decide, request_key=key)
        except NameTaken:
            if not wanted.is_drawn:
                raise
            # Two callers drew it at once, and the other one has it. Reads may not show that yet.
            taken.add(wanted.agent.name)
            continue
        if commit.event is not None:
            if commit.event.type == HELLO:
                await tell(context, commit.event, STARTED)
            return joined_by(context, commit.event)
        return Joined(agent=_known(context, wanted.agent.name), is_new=False)


def _check_seat(context: Context, seat: Seat | None) -> None:
    """Refuse a new name for a seat that has an agent by now."""
    for agent in context.directory.all() if seat is not None else ():
        if agent.seat == seat and not agent.left:
            raise AlreadyJoined(agent.name)


def joined_by(context: Context, event: Event) -> Joined:
    """Return the outcome of a join from the event it wrote."""
    return Joined(agent=_known(context, event.sender), is_new=event.type == HELLO)


def _known(context: Context, name: str) -> Agent:
    agent = read_agent(context.log.rows, name)
    assert agent is not None  # a commit on its name has returned
    return agent


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedName:
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
    def of(cls, context: Context, caller: Caller, request: Join, taken: Set[str]) -> "_WantedName":
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
        if self.request.has_token and known is not None and not known.left:
            return None
        is_same = known is not None and (self.request.has_token or _is_same(known, self.agent))
        # A known agent that requests a higher role is checked like a new one, so no agent can raise its own
        # role.
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
        # The same session in a second process: while the first one lives, it keeps the name.
        if is_elsewhere and not known.left and self.is_here:
            raise NameTaken(known.name, _IN_USE)
        back = msgspec.structs.replace(
            known,
            role=known.role if self.request.has_token or _is_proven(known, new) else self._role_of(known),
            seat=new.seat,
            link=new.link,
            session=new.session or known.session,
            runtime=self.request.runtime or known.runtime,
            version=self.request.version or known.version,
            # The same process still runs in its holder. Another process has a holder only if the request
            # names one.
            holder=known.holder if new.seat == known.seat else new.holder,
        )
        if known.left and known.seat is not None and known.seat == new.seat:
            return self._hello(msgspec.structs.replace(back, state=AgentState.IDLE, detail=""))
        if known.left:
            back = msgspec.structs.replace(back, left=False, state=AgentState.IDLE, detail="", since=self.now)
        if back == known:
            return None
        # Only the session is new: the agent was not away, so this is not a resume.
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
        """Refuse a role above the caller's own.

        Also refuse one above worker, unless a person assigns it or it is for a child of a connection.
        """
        if standing > self.caller.standing:
            raise NotPerson(
                f"you cannot create an agent with the role {self.request.role}, which is above your own: "
                f"{self.caller.standing.word}"
            )
        if standing > Standing.WORKER and not self.caller.is_person and not self.request.has_link:
            raise NotPerson(f"only a person can assign the role {self.request.role}; join as a worker")

    def _check_free(self, known: Agent) -> None:
        """Refuse a name with a history that belongs to another agent."""
        # If the agent has changed since its presence was checked, it may be present now: refuse.
        is_newer = self.before is None or self.before.seq != known.seq
        if not known.left and (self.is_here or is_newer):
            raise NameTaken(known.name, _IN_USE)
        # All scripts share one name, so `by` does not prove that this script started the agent.
        if self.caller.is_person or known.by == self.caller.name != SCRIPT_NAME:
            return
        if known.role == GUEST_ROLE:
            raise NameTaken(known.name, "it is the name of a person; choose another name with --name")
        is_its_session = (known.session, known.harness) == (self.request.session, self.request.harness)
        # The same session continues with another holder.
        if known.left and known.session and is_its_session:
            return
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
    # A known name is not checked, because an agent of an older log keeps a name that is invalid now.
    if context.directory.get(full_name(parts.base, parts.tag)) is None:
        check_name(parts.base, parts.tag)
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
        by="" if caller.is_person else caller.name,
        holder=request.holder,
        argv=request.argv,
        cwd=request.cwd,
    )


def _is_same(known: Agent, agent: Agent) -> bool:
    """Whether the caller is the agent that has the name: the same seat, session or holder."""
    # First, because only its holder can resume an agent that has one: a process in the same seat or session
    # is not enough.
    if agent.holder or (known.holder and not known.left):
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
    # Another session may have got the name since; then this session draws a new one.
    return known.name if known is not None and known.session == request.session else ""


def _draw_name(context: Context, tag: str, taken: Set[str]) -> str:
    """Draw a name that no agent has had, and that is not in `taken`."""
    start = context.draw() % _TRIES
    for step in range(_TRIES):
        base = spare_name(start + step)
        name = full_name(base, tag)
        # By base name: an address without a tag would otherwise select this agent and an older one.
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


# --------------------
# Leaving: each agent leaves once, or the bus writes it, decided on the single key `agent/<name>`.


async def leave(context: Context, caller: Caller, request: Leave, key: bytes | None) -> Written:
    """Write that the caller leaves; a repeat writes nothing."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent can leave, and you have not joined; 'pal list' shows the agents")
    # Only an agent that leaves by request loses its rooms. One whose process ends may come back.
    if request.reason == LEFT:
        await leave_all_rooms(context, caller)
    return await leave_bus(context, caller.name, request.reason, key, by=caller.by)


async def gone(context: Context, caller: Caller, request: Gone, key: bytes | None) -> Written:
    """Write that an offline agent has left, unless it is back or has another seat by now."""
    known = context.directory.get(request.name)
    if known is None:
        return Written(event=None)
    if known.link and request.seat is None and context.is_present(known.name):
        return Written(event=None)  # It has a new connection by now.
    # The end of its process was noticed outside the log. Since then the agent may have joined again, also at
    # the same seat: then its seq has changed.
    where = (request.seat, known.seq)
    return await leave_bus(
        context, request.name, request.reason, key, only_if=lambda now: (now.seat, now.seq) == where
    )


async def leave_bus(
    context: Context,
    name: str,
    reason: str,
    key: bytes | None,
    *,
    by: str | None = None,
    id: str = "",
    sent_ts: int | None = None,
    only_if: OnlyIf | None = None,
) -> Written:
    """Write that an agent has left, once, and only if `only_if` holds for it then."""
    check_text(reason, "the reason", 1024)
    draft = Draft(
        type=BYE,
        sender=name,
        payload={"reason": reason},
        id=id or context.ids.next(),
        ts=context.clock.now_ms(),
        by=by,
        sent_ts=sent_ts,
    )

    def decide(rows: Rows) -> Draft | None:
        return draft if _is_present_and(rows, name, only_if) else None

    event = (await context.log.commit(f"agent/{name}", decide, request_key=key)).event
    # A repeated id or request key may return an event of another type; then the agent has not stopped.
    if event is not None and event.type == BYE:
        await tell(context, event, STOPPED, reason=reason)
    return Written(event=event)


# --------------------
# The state that an agent, or the daemon, reports, written on the key `agent/<name>`.
#
# Several programs report the state of one agent: its hooks, its holder, and the daemon. A report that must
# not replace a better one is decided when it is written: reads do not show reports that are being written.


async def set_status(
    context: Context,
    caller: Caller,
    request: SetStatus,
    key: bytes | None,
    *,
    only_if: OnlyIf | None = None,
) -> Written:
    """Write what the caller is doing. `exited` means that it leaves.

    With `only_if` it is written only if that holds for the agent then, and if the agent has not left.
    """
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent can report a state; join first with 'pal join'")
    state = parse_state(request.state)
    payload: dict[str, object] = {"state": state.value}
    for name in ("detail", "tool", "command", "file"):
        if value := getattr(request, name):
            check_text(value, f"the {name}", 4096)
            payload[name] = value
    if request.file and (known := context.directory.get(caller.name)):
        # Some harnesses name a file as the model did. Edits of one file are found by its full path.
        payload["file"] = posixpath.normpath(posixpath.join(known.cwd, request.file))
    if state == AgentState.EXITED:
        reason = request.detail or "exited"
        return await leave_bus(context, caller.name, reason, key, by=caller.by, only_if=only_if)
    draft = _reported(context, caller, "status", payload)

    def decide(rows: Rows) -> Draft | None:
        return draft if only_if is None or _is_present_and(rows, caller.name, only_if) else None

    event = (await context.log.commit(f"agent/{caller.name}", decide, request_key=key)).event
    if event is not None and state == AgentState.IDLE:
        await tell_ready(context, event)
    return Written(event=event)


def _is_present_and(rows: Rows, name: str, only_if: OnlyIf | None) -> bool:
    """Return whether an agent has not left, and the condition holds for it."""
    known = read_agent(rows, name)
    return known is not None and not known.left and (only_if is None or only_if(known))


async def started(context: Context, caller: Caller, request: DaemonStarted, key: bytes | None) -> Written:
    """Write that the daemon has started: everything that depended on connections has ended."""
    payload: dict[str, object] = {
        "action": DAEMON_STARTED,
        "pid": request.pid,
        "version": request.version,
    }
    draft = _reported(context, caller, LIFE, payload)
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


def _reported(context: Context, caller: Caller, type_: str, payload: dict[str, object]) -> Draft:
    return Draft(
        type=type_,
        sender=caller.name,
        payload=payload,
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )


# --------------------
# Start a sub-agent: which name it gets, decided on the single key `agent/<name>`.
#
# Numbers are never reused: the next one follows from the log. Two that start at once may try the same name;
# one gets it, and the other takes the next.

_SUBAGENT_ROLE: Final = ROLES[0]
_LIMIT_KEY_BYTES: Final = 256
_BEGINS: Final = THINKING
"""The detail of a new sub-agent, which starts with work to do."""


async def begin_subagent(
    context: Context, caller: Caller, request: BeginSubagent, key: bytes | None
) -> Joined:
    """Assign a sub-agent its earlier name, or a new one.

    Raises NotFound if its parent is not present, BadName if no name can be formed from the parent's, and
    BadRequest for the key of a session that is an independent agent: it cannot become a sub-agent.
    """
    if not request.key:
        raise BadRequest("the id of the sub-agent is missing; its harness must send one")
    check_text(request.key, "the id of a sub-agent", _LIMIT_KEY_BYTES)
    _check_nobodys(context, request)
    # Names that another sub-agent has got meanwhile: reads may not show it yet.
    taken: set[str] = set()
    while True:
        wanted = _WantedSubagent.of(context, request, taken)
        try:
            commit = await context.log.commit(
                f"agent/{wanted.name}", wanted.decide, request_key=wanted.first_key
            )
        except NameTaken:
            taken.add(wanted.name)  # try the next number
            continue
        # It has started meanwhile, maybe under another name. A commit that returns its event makes it
        # readable.
        if commit.is_repeat:
            continue
        if commit.event is None:
            return Joined(agent=wanted.found[-1], is_new=False)
        is_new = commit.event.type == HELLO
        if is_new:
            await tell(context, commit.event, STARTED)
        return Joined(agent=_known_subagent(context, commit.event.sender), is_new=is_new)


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


def _known_subagent(context: Context, name: str) -> Agent:
    agent = read_agent(context.log.rows, name)
    assert agent is not None  # a commit that wrote it has returned
    return agent


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedSubagent:
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
    def of(cls, context: Context, request: BeginSubagent, taken: Set[str]) -> "_WantedSubagent":
        rows = context.log.rows
        had = read_subagent(rows, request.parent, request.key) or ""
        known = read_agent(rows, had)
        is_back = known is not None and _is_same_subagent(known, request)
        # With the earlier name, because a sub-agent whose name has passed to another one starts a second
        # time: that must not count as a repeat of the first start.
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
        if not _is_same_subagent(known, self.request):
            raise NameTaken(self.name, "it belongs to another agent")
        if known.left:
            return self._draft(HELLO, agent)
        if known.seat == agent.seat:
            # Appended, because the engine may call this several times; the last call counts.
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
            # Never more rights than its parent has.
            role=min(_SUBAGENT_ROLE, parent.role, key=standing_of_role),
            harness=parent.harness,
            device=self.device,
            runtime=parent.runtime,
            version=parent.version,
            state=AgentState.ACTIVE,
            detail=_BEGINS,
            # The parent's process with the sub-agent's own key: two agents must not have the same seat.
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
    # An agent may have chosen such a name for itself, so the number alone does not make a free name.
    while (name := subagent_name(stem, number)) in taken or read_agent(rows, name) is not None:
        number += 1
    return name


def _is_same_subagent(known: Agent, request: BeginSubagent) -> bool:
    """Whether the name still belongs to this sub-agent."""
    return (known.parent, known.session) == (request.parent, request.key)
