"""A harness without activity, for tests of code that needs a harness."""

from palaver.agents.native_word import Asked, Level, Word
from palaver.agents.terminal.gates import OPEN
from palaver.agents.typing.steps import Answer, Done
from palaver.model.delivery import AgentState


class Nobody:
    """A harness without sub-agents and without permission requests."""

    ending = "done"

    def living(self) -> dict[str, tuple[str, str]]:
        return {}

    def level_of(self, key: str) -> Level:
        return Level(OPEN)

    def word_of(self, key: str) -> Word:
        return Word(state=AgentState.IDLE)

    def is_waiting(self, key: str) -> bool:
        return False

    async def carry(self, key: str, text: str, mark: str) -> Done:
        return Done(Answer.DEFERRED)

    def asked(self) -> dict[str, Asked]:
        return {}

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        return False
