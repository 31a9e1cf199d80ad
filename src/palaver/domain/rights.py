"""Required standings, and reserved event types. Pure: knows no requests, only standings and types."""

from collections.abc import Collection
from typing import Final

from palaver.errors import BadRequest, NotAllowed, NotPerson, ReservedType, WhoAreYou
from palaver.protocol.address import AGENT, MANY, ONE, split_path
from palaver.protocol.agents import GUEST_ROLE, INSTANCE, ROLES, SCRIPT_NAME, Agent, Caller, Standing
from palaver.protocol.message import EXTERNAL, HUMAN

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
    if segments[0] not in (AGENT, ONE) or len(segments) == 1:
        return False
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
    may not for its own agent: no person has read the messages that started it. A registered person has none.
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
