"""The limits of a caller: its rights by standing, and the brakes on messages of agents. Pure."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from palaver.errors import BadRequest, NotAllowed, NotPerson, ReservedType, WhoAreYou
from palaver.protocol.address import AGENT, MANY, ONE, split_path
from palaver.protocol.agents import GUEST_ROLE, INSTANCE, ROLES, SCRIPT_NAME, Agent, Caller, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
from palaver.protocol.message import EXTERNAL, HUMAN
from palaver.protocol.text import counted

# --------------------
# Brakes: messages that look like agents writing in circles are held until a person releases them.
#
# Only messages of agents under a harness count; programs and people do not. Pure except for its own counters:
# the time is passed in, and the counters start empty.

_MINUTE_MS: Final = 60_000
_LIMIT_PAIRS: Final = 10_000
"""Pairs, and senders with a notice, that are remembered: otherwise every pair that ever spoke would stay."""
_LIMIT_UNTOLD: Final = 1_000
"""Held messages that the next notice to a person names."""
_NOT_COUNTED: Final = frozenset({HUMAN, SCRIPT_NAME})
"""Senders that are not counted, also when they speak as an agent under a harness: brakes are for agents that
answer each other without a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The conversation of a message, and the number of agent replies before it."""

    id: str
    hops: int


def is_counted(caller: Caller) -> bool:
    """Return whether a caller is an agent under a harness that speaks for itself or its own child.

    In an automatic turn every agent counts, also one that a configured command runs.
    """
    is_agent = bool(caller.harness) or bool(caller.turn)
    return is_agent and (caller.is_marked or caller.by not in _NOT_COUNTED)


def chain_of(caller: Caller, answered: Event | None, turn: Chain | None = None) -> Chain | None:
    """Return the chain of a reply; None if it is not counted.

    A message of a human restarts the chain. `turn` is the chain of the automatic turn that the caller is part
    of: every message of that turn continues it, so that two agents cannot start each other indefinitely.
    """
    if not is_counted(caller):
        return None
    chains = [] if answered is None else [_chain_at(answered)]
    chains += [] if turn is None else [turn]
    # With a shorter one, an agent in a turn could restart the count by answering a message without a chain.
    longest = max(chains, key=lambda chain: chain.hops, default=None)
    return None if longest is None else Chain(id=longest.id, hops=longest.hops + 1)


def chain_of_batch(events: Iterable[Event]) -> Chain | None:
    """Return the longest chain that some messages belong to; None without messages."""
    return max(map(_chain_at, events), key=lambda chain: chain.hops, default=None)


def _chain_at(event: Event) -> Chain:
    message = event.body
    # `by` is the person that acts as an agent with --as: that is a person in between too.
    if not isinstance(message, MessageSent) or HUMAN in (message.sender_kind, event.by):
        return Chain(id=event.id, hops=0)
    return Chain(id=message.chain or event.id, hops=message.hops)


class _HeldNotice:
    """When a person was notified of a sender, with which message, and the messages held since."""

    def __init__(self, sent_ms: int, seq: int) -> None:
        self.sent_ms = sent_ms
        self.seq = seq
        self.untold: deque[int] = deque(maxlen=_LIMIT_UNTOLD)


class Brakes:
    """Count the messages between each pair of agents in the last minute, and remember notices to a person.

    Above its limit of pairs or senders it forgets the ones that were quiet longest.
    """

    def __init__(self, *, limit_hops: int, limit_a_minute: int) -> None:
        """Set the limits; 0 disables a limit."""
        self._sent: dict[tuple[str, str], deque[int]] = {}
        self.set_limits(limit_hops=limit_hops, limit_a_minute=limit_a_minute)
        self._notices: dict[str, _HeldNotice] = {}

    def set_limits(self, *, limit_hops: int, limit_a_minute: int) -> None:
        """Set the limits; 0 disables a limit. With another limit, the counts of the last minute start
        again."""
        self._limit_hops = limit_hops
        self._limit_a_minute = limit_a_minute
        self._sent.clear()  # each count has the length of its limit

    def check(
        self, caller: Caller, recipients: tuple[str, ...], chain: Chain | None, now_ms: int
    ) -> str | None:
        """Count one message and return why it must be held, or None. Held messages count too."""
        if not is_counted(caller):
            return None
        # Counted before the checks, because held messages count too: otherwise a sender that goes on as fast
        # would be below its limit again after a minute.
        fastest = max((self._count(caller.name, name, now_ms) for name in recipients), default=0)
        if self._limit_hops and chain is not None and chain.hops > self._limit_hops:
            return f"{chain.hops} replies between agents without a person in between"
        if self._limit_a_minute and fastest > self._limit_a_minute:
            limit = counted(self._limit_a_minute, "message")
            return f"more than {limit} a minute from {caller.name} to one agent"
        return None

    def untold(self, sender: str, seq: int, now_ms: int) -> tuple[int, ...] | None:
        """Record a held message; return None if no person is notified now.

        A person is notified of a sender at most once a minute. Then the result contains the other messages
        held since the last notice: their seqs, up to the newest `_LIMIT_UNTOLD`.
        """
        notice = self._notices.get(sender)
        # Once a minute: the brake exists for loops, and a notice for each message of a loop would be one more
        # flood.
        if notice is not None and now_ms - notice.sent_ms < _MINUTE_MS:
            if seq not in (notice.seq, *notice.untold):  # otherwise it is a repeated request
                notice.untold.append(seq)
            return None
        self._notices.pop(sender, None)
        self._notices[sender] = _HeldNotice(now_ms, seq)  # moved to the end, as in `_count`
        if len(self._notices) > _LIMIT_PAIRS:
            del self._notices[next(iter(self._notices))]
        return () if notice is None else tuple(other for other in notice.untold if other != seq)

    def _count(self, sender: str, recipient: str, now_ms: int) -> int:
        sent = self._sent.pop((sender, recipient), None)
        if sent is None:
            # One more than the limit is enough to see that it is exceeded, however many are sent.
            sent = deque(maxlen=self._limit_a_minute + 1)
        while sent and sent[0] <= now_ms - _MINUTE_MS:
            sent.popleft()
        sent.append(now_ms)
        self._sent[sender, recipient] = sent  # moved to the end: the first ones were quiet longest
        if len(self._sent) > _LIMIT_PAIRS:
            del self._sent[next(iter(self._sent))]
        return len(sent)


# --------------------
# Required standings, and reserved event types. Pure: knows no requests, only standings and types.

# Any program could forge an event of a type of ours that is neither here nor in `_REQUESTS`.
RESERVED_TYPES: Final = frozenset(
    {
        "status",
        "life",
        "delivery",
        "bundle",
        "agent.paused",
        "agent.unpaused",
        "member_joined",
        "member_left",
        "claim",
        "release",
        "pass",
        "takeover",
        "reservation_expired",
        "kick",
        "close",
        "note_added",
        "note_resolved",
        "permission.asked",
        "permission.answered",
        "sub.added",
        "sub.removed",
        "dead.cleared",
        "auto-turn",
        "auto-turn-result",
        "auto-turn-error",
        "turn.skipped",
        "setting.changed",
        "redacted",
    }
)
"""Types that only the broker writes, in addition to the reserved families."""

_REQUESTS: Final = frozenset(
    {"message", "task.create", "task.update", "task.complete", "agent.hello", "agent.bye"}
)
"""Types that others may submit, as requests."""

RESERVED_FAMILIES: Final = ("path.", "session.", "trigger.", "schedule.")


def check_foreign_type(type: str) -> None:
    """Refuse a type that only Palaver writes; any other type is a request, or is stored and routed unread."""
    if not type:
        raise BadRequest("an envelope needs a type")
    if type in RESERVED_TYPES or type.startswith(RESERVED_FAMILIES):
        raise ReservedType(type)


def is_foreign_type(type: str) -> bool:
    """Return whether a type belongs to another program; its events are stored and routed unread."""
    is_ours = type in RESERVED_TYPES or type in _REQUESTS or type.startswith(RESERVED_FAMILIES)
    return not is_ours


def reaches_others(pattern: str, own: Collection[str]) -> bool:
    """Return whether a pattern can match the `agent/…` path of another agent. `own` are the caller's paths.

    The paths below an agent's own path belong to its sub-agents, which act for it.
    """
    segments = split_path(pattern)
    if segments[0] == MANY:
        return True
    # `*` can stand for `agent`, so `*/nova` reaches nova.
    if segments[0] not in (AGENT, ONE) or len(segments) == 1:
        return False
    # A wildcard as the second segment is in no list of own paths, so it counts as reaching others.
    return f"{AGENT}/{segments[1]}" not in own


def can(standing: Standing, needed: Standing) -> bool:
    """Return whether a standing is sufficient."""
    return standing >= needed


def require_mailbox(caller: Caller) -> None:
    """Refuse a script, which has no mailbox."""
    if caller.kind == EXTERNAL:
        raise WhoAreYou("a script has no mailbox; join with 'pal join', or choose an agent with --as NAME")


def require_own_mail(caller: Caller) -> None:
    """Refuse an orphan that would take the messages of an agent, and a guest that would take a person's.

    The origin of an orphan is unknown. A person on IRC reads copies of the messages to `human`.
    """
    if caller.is_guest and caller.name == HUMAN:
        raise NotPerson("the messages to human can be marked as read only at a person's terminal: pal inbox")
    if caller.is_orphan:
        raise NotPerson(
            "the process that started this one has exited, so it may not read the messages of "
            f"{caller.name}; "
            "run the command from the agent's own process"
        )


def require(caller: Caller, needed: Standing, request: str) -> None:
    """Refuse a request above the standing of the caller."""
    if not can(caller.standing, needed):
        raise NotAllowed(request, caller.standing.word, needed.word)


def require_person(caller: Caller, request: str) -> None:
    """Refuse every caller that is not a person at a terminal, and a person that acts as an agent."""
    if not caller.is_person:
        raise NotAllowed(request, caller.standing.word, "a person")
    if caller.by is not None:
        raise NotPerson(f"{request} requires a person, and is not possible with --as")


def has_started(caller: Caller, agent: Agent) -> bool:
    """Return whether the caller started the agent. Never true for a script: all scripts share one name."""
    return caller.kind == INSTANCE and caller.name == agent.by


def may_resume(caller: Caller, agent: Agent) -> bool:
    """Return whether the caller may start an agent again: an operator, or the agent that started it."""
    return can(caller.standing, Standing.OPERATOR) or has_started(caller, agent)


def require_turns_of(caller: Caller, agent: Agent) -> None:
    """Refuse a caller that may not configure or start the automatic turns of an agent.

    An agent may for itself, an operator for all, and a script for workers, as with --as. An automatic turn
    may not for its own agent: no person has read the messages that started it. A registered person has no
    automatic turns.
    """
    if agent.role == GUEST_ROLE:
        raise BadRequest(f"{agent.name} is a person and has no automatic turns")
    if can(caller.standing, Standing.OPERATOR) or (caller.name == agent.name and not caller.turn):
        return
    is_script = caller.name == SCRIPT_NAME and caller.seat is None and not caller.is_orphan
    if not (is_script and can(caller.standing, Standing.WORKER) and agent.role == ROLES[0]):
        raise NotAllowed(
            f"changing or starting turns of {agent.name}", caller.standing.word, "an operator or that agent"
        )
