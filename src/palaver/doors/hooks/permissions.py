"""The hooks by which agents ask leave: which of them wait, what later hooks show, what goes back.

What is asked, and a person's word on it, is `palaver.doors.permissions`. Here is only how hooks come to it.
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
"""Behind these nothing of the turn waits for leave any more."""


_logger: Final = logging.getLogger("palaver.doors")


class HookPermissions:
    """Lets hooks wait for a person's word."""

    def __init__(self, services: Services) -> None:
        self._book = services.permissions
        self._desk = PermissionDesk(services)

    def hear(self, caller: Caller, news: HookNews) -> None:
        """Let go of what a later hook shows to be settled: a harness does not say so to the hook that waits.

        At worst that was wrong, and then the harness asks its own user.
        """
        for pending in self._book.all():
            if pending.agent == caller.name and pending.session == news.session and _is_over(pending, news):
                pending.leave()

    async def open(self, answer: Answer) -> Pending | None:
        """Take in what an agent asks leave for; None when nobody is to be waited for."""
        news, caller = answer.news, answer.caller
        can_answer = permission_answer(caller.harness, news.event, is_allowed=False, message="")
        if not can_answer or news.permission is None:
            return None
        try:
            return await self._desk.take(caller, news.session, *_call(news.permission))
        except BadRequest as refusal:  # its harness asks its own user
            _logger.warning("%s", refusal)
            return None

    async def decision(self, answer: Answer, pending: Pending) -> dict[str, object]:
        """Wait for a person's word and give what goes back to the harness; nothing when there is none."""
        verdict = await self._desk.verdict(pending)
        if verdict.is_allowed is None:
            return {}
        return permission_answer(
            pending.harness, answer.news.event, is_allowed=verdict.is_allowed, message=verdict.message
        )


def _call(asked: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Give the tool and its input."""
    given = asked.get("input")
    return str(asked.get("tool") or ""), given if isinstance(given, Mapping) else {}


def _is_over(pending: Pending, news: HookNews) -> bool:
    if news.step in _OVER and not news.agent_id:
        return True
    return (
        news.result_of is not None and request_digest(news.session, *_call(news.result_of)) == pending.digest
    )
