"""What a request comes to when it is not refused."""

from dataclasses import dataclass

from palaver.model.agent import Agent
from palaver.model.envelope import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message, its place, and whom it was meant for. `event` is None for a dry run."""

    event: Event | None
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """An agent that has its name. `is_new` is false when it had it before."""

    agent: Agent
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An event, or None when there was nothing left to write."""

    event: Event | None


Outcome = Sent | Joined | Written
