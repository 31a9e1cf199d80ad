"""An integration without activity, for tests of code that needs one."""

from palaver.harness.base import OPEN, AgentReport, Done, LaneGate, PermissionQuestion, TextOutcome
from palaver.protocol.events import AgentState


class Nobody:
    """A harness without sub-agents and without permission requests. A test changes what it is about."""

    ending = "done"
    session = ""

    def __init__(self) -> None:
        self.status: AgentReport | None = None
        self.is_over = False
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")

    def subagents(self) -> dict[str, tuple[str, str]]:
        return {}

    def gate_of(self, key: str) -> LaneGate:
        return LaneGate(OPEN)

    def status_of(self, key: str) -> AgentReport:
        return AgentReport(state=AgentState.IDLE)

    def is_waiting(self, key: str) -> bool:
        return False

    async def carry(self, key: str, text: str, mark: str) -> Done:
        return Done(TextOutcome.DEFERRED)

    def questions(self) -> dict[str, PermissionQuestion]:
        return {}

    async def decide(self, question: PermissionQuestion, *, is_allowed: bool) -> bool:
        return False
