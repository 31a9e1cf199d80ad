"""The sub-agents of a Codex, as its threads tell of them: each has a thread below the agent's own."""

from palaver.agents.codex.texts import Texts, UnknownQuestion
from palaver.agents.codex.threads import Threads
from palaver.agents.native_word import Level, Word
from palaver.agents.typing.steps import Answer, Done


class ThreadsBelow:
    """Those of one server. They begin and end with their threads."""

    ending = "its thread was closed"

    def __init__(self, threads: Threads, texts: Texts) -> None:
        self._threads = threads
        self._texts = texts

    def living(self) -> dict[str, tuple[str, str]]:
        """Give those that live, outer first: by thread, the one that started each and its role."""
        return self._threads.subagents()

    def level_of(self, key: str) -> Level:
        """What can come through to a thread now."""
        return self._threads.level_of(key)

    def word_of(self, key: str) -> Word:
        """What is done in a thread now."""
        return self._threads.word_of(key)

    def is_waiting(self, key: str) -> bool:
        """Whether a text was put to a thread and is not in it, as far as is known."""
        return self._texts.is_waiting(key)

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Put a text to a thread, and say what became of it."""
        try:
            return await self._texts.put(key, text, mark)
        except UnknownQuestion as error:
            return Done(Answer.DEFERRED, str(error))
