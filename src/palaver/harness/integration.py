"""The interface of a native integration: requests of the bus to a harness, and reports of the harness. Pure.

`harness/<name>/integration.py` implements `Integration` and receives a `NativeBus`. The holder connects the
two: it has the lanes, knows the daemon, and asks the integration.
"""

import enum
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from palaver.harness.base import AgentReport, LaneGate, PermissionQuestion
from palaver.protocol.events import Grade

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a coroutine as a task; the provider of this function owns the task."""


class TextOutcome(enum.StrEnum):
    """The outcome of delivering a text to a harness, natively or through its terminal."""

    SEEN = "seen"
    """It left the composer, or the harness reports that the model has it."""
    DEFERRED = "deferred"
    """It cannot be delivered now, and no part of it has arrived. It may be offered again."""
    REFUSED = "refused"
    """It must not be delivered to this harness."""
    UNCONFIRMED = "unconfirmed"
    """It was sent or typed and its effect is unknown. It must not be repeated automatically."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome. `grade` is set if the message was seen."""

    answer: TextOutcome
    reason: str = ""
    grade: Grade | None = None


class NativeBus(Protocol):
    """The bus, as an integration uses it."""

    async def open(self) -> None:
        """Open the lane of the agent: the harness can be reached. A lost connection opens it again."""

    def update(self) -> None:
        """Report all changes: the session, the gates, the sub-agents and the permission requests."""

    def report(self) -> None:
        """Report that the agent's status may have changed, or that the integration has begun or ended."""

    def prove(self, mark: str) -> None:
        """Report that an unconfirmed text has reached the model after all."""

    def close(self) -> None:
        """Close all lanes because the harness cannot be reached. Offers in progress become unconfirmed."""


class Integration(Protocol):
    """A native integration of one agent and its sub-agents.

    `key` is the harness's id of a sub-agent, and empty for the agent itself.
    """

    @property
    def session(self) -> str:
        """The harness session of the agent; empty while there is no session."""

    @property
    def status(self) -> AgentReport | None:
        """The status of the agent; None while unknown."""

    @property
    def is_over(self) -> bool:
        """Whether the integration has ended permanently or could never be reached."""

    @property
    def ending(self) -> str:
        """The reason for the end of a sub-agent, in a few words."""

    def start(self) -> None:
        """Connect to the harness once it runs. Repeats have no effect."""

    def close(self) -> None:
        """Disconnect from the harness."""

    def subagents(self) -> Mapping[str, tuple[str, str]]:
        """Return the running sub-agents by key, parents first: the parent's key and the kind of each."""

    def status_of(self, key: str) -> AgentReport:
        """Return the current status of a sub-agent."""

    def gate_of(self, key: str) -> LaneGate:
        """Return whether a message can be delivered now."""

    def is_waiting(self, key: str) -> bool:
        """Return whether a text was sent to this sub-agent and is not known to be seen yet."""

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Send a text and return the result. `mark` identifies the text in the harness."""

    def questions(self) -> Mapping[str, PermissionQuestion]:
        """Return the open permission requests that can be decided remotely, by id."""

    async def decide(self, question: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if the same request is still open; return whether the harness accepted it."""


Make = Callable[[NativeBus], Integration]
"""Makes an integration for a bus."""
