"""Screen states that are reported too early: a screen may look idle while it still draws a dialog.

Such a report is kept for the time that drawing takes. Then it is stored, unless a hook or the screen has
reported a newer state of the agent.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from palaver.doors.services import Services
from palaver.errors import PalaverError
from palaver.harness.claude_registry import LOOKED_UP
from palaver.model.agent import Agent
from palaver.model.caller import caller_for
from palaver.model.delivery import AgentState
from palaver.model.request import SetStatus
from palaver.model.terminal import DIALOG

_DRAWING_MS: Final = 1500
"""Milliseconds that a dialog may take until it is on the screen."""

Start = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]

_logger: Final = logging.getLogger("palaver.doors")


class EarlyWords:
    """The early reports of one holder, at most one for each agent: the last."""

    def __init__(self, services: Services, start: Start) -> None:
        self._services = services
        self._start = start
        self._kept: dict[str, asyncio.Task[None]] = {}

    def drop(self, agent: str) -> None:
        """Discard the kept report of an agent, because a newer one arrived."""
        if (task := self._kept.pop(agent, None)) is not None:
            task.cancel()

    def keep(self, known: Agent, status: SetStatus) -> None:
        """Store this status later, if the agent's state has not changed by then."""
        self.drop(known.name)
        drawn_ms = self._services.clock.now_ms() + _DRAWING_MS
        self._kept[known.name] = self._start(self._say(known, status, drawn_ms))

    async def _say(self, known: Agent, status: SetStatus, drawn_ms: int) -> None:
        rest_ms = drawn_ms - self._services.clock.now_ms()
        await asyncio.sleep(min(max(rest_ms, 0), _DRAWING_MS) / 1000)
        now = self._services.broker.directory.get(known.name)
        if now is None or now.left or _said_of(now) != _said_of(known) or self._has_dialog(known.name):
            return
        try:
            await self._services.broker.submit(caller_for(now), status)
        except PalaverError as error:
            _logger.info("what %s is doing stays as it was: %s: %s", known.name, error.code, error)

    def _has_dialog(self, name: str) -> bool:
        levels = self._services.delivery.levels(name)
        return any(not level.is_open and level.reason == DIALOG for _, level in levels)

    def close(self) -> None:
        """Discard all kept reports, because the holder has disconnected."""
        for name in list(self._kept):
            self.drop(name)


def is_before_dialog(known: Agent, state: str) -> bool:
    """Return whether an idle screen may be about to show the dialog that a hook has reported."""
    return known.state == AgentState.BLOCKED and state == AgentState.IDLE and known.harness in LOOKED_UP


def says_less(status: SetStatus, known: Agent) -> bool:
    """Return whether the status says only that the agent waits for a person, and the reason is known."""
    is_waiting = status.state == known.state == AgentState.BLOCKED
    return is_waiting and bool(status.detail) and known.detail.startswith(f"{status.detail}: ")


def _said_of(agent: Agent) -> tuple[str, str, int]:
    return agent.state, agent.detail, agent.since
