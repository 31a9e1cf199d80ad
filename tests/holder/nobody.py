"""A harness without activity, for tests of code that needs a harness."""

from palaver.harness.base import OPEN, AgentReport, LaneGate, PermissionQuestion
from palaver.protocol.events import AgentState
from palaver.terminal.typing import Done, TextOutcome


class Nobody:
    """A harness without sub-agents and without permission requests."""

    ending = "done"

    def living(self) -> dict[str, tuple[str, str]]:
        return {}

    def level_of(self, key: str) -> LaneGate:
        return LaneGate(OPEN)

    def word_of(self, key: str) -> AgentReport:
        return AgentReport(state=AgentState.IDLE)

    def is_waiting(self, key: str) -> bool:
        return False

    async def carry(self, key: str, text: str, mark: str) -> Done:
        return Done(TextOutcome.DEFERRED)

    def asked(self) -> dict[str, PermissionQuestion]:
        return {}

    async def reply(self, asked: PermissionQuestion, *, is_allowed: bool) -> bool:
        return False
