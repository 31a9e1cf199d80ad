"""Hooks that carry a permission request: which of them wait, which later hooks settle them, and the reply.

The request and the decision themselves are in `palaver.doors.permissions`.
"""

import logging
from collections.abc import Mapping
from typing import Final

from palaver.doors.hooks.desk import Answer
from palaver.doors.permissions import Pending, PermissionDesk
from palaver.doors.services import Services
from palaver.errors import BadRequest
from palaver.harness.hook_news import HookNews, Step
from palaver.harness.permissions import permission_answer
from palaver.model.agent import Caller
from palaver.model.permission import request_digest

_OVER: Final = frozenset({Step.START, Step.PROMPT, Step.BATCH, Step.TURN_END, Step.END})
"""After these steps no permission request of the turn is open."""


_logger: Final = logging.getLogger("palaver.doors")


class HookPermissions:
    """The hooks that wait for a person's decision."""

    def __init__(self, services: Services) -> None:
        self._book = services.permissions
        self._desk = PermissionDesk(services)

    def hear(self, caller: Caller, news: HookNews) -> None:
        """End requests that a later hook shows to be settled; the harness does not notify the waiting hook.

        If that was wrong, the harness asks its own user.
        """
        for pending in self._book.all():
            if pending.agent == caller.name and pending.session == news.session and _is_over(pending, news):
                pending.leave()

    async def open(self, answer: Answer) -> Pending | None:
        """Open the permission request of a hook; None if the hook must not wait."""
        news, caller = answer.news, answer.caller
        can_answer = permission_answer(caller.harness, news.event, is_allowed=False, message="")
        if not can_answer or news.permission is None:
            return None
        try:
            return await self._desk.take(caller, news.session, *_call(news.permission))
        except BadRequest as refusal:  # the harness asks its own user
            _logger.warning("%s", refusal)
            return None

    async def decision(self, answer: Answer, pending: Pending) -> dict[str, object]:
        """Wait for a person's decision and return the reply for the harness; empty without a decision."""
        verdict = await self._desk.verdict(pending)
        if verdict.is_allowed is None:
            return {}
        return permission_answer(
            pending.harness, answer.news.event, is_allowed=verdict.is_allowed, message=verdict.message
        )


def _call(asked: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return the tool and its input."""
    given = asked.get("input")
    return str(asked.get("tool") or ""), given if isinstance(given, Mapping) else {}


def _is_over(pending: Pending, news: HookNews) -> bool:
    if news.step in _OVER and not news.agent_id:
        return True
    return (
        news.result_of is not None and request_digest(news.session, *_call(news.result_of)) == pending.digest
    )
