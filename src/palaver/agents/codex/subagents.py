"""The sub-agents of Codex, derived from its threads: each has a child thread of the agent's thread."""

from palaver.agents.codex.texts import Texts, UnknownQuestion
from palaver.agents.codex.threads import Threads
from palaver.agents.native_word import Level, Word
from palaver.agents.typing.steps import Answer, Done


class ThreadsBelow:
    """The sub-agents of one server. They begin and end with their threads."""

    ending = "its thread was closed"

    def __init__(self, threads: Threads, texts: Texts) -> None:
        self._threads = threads
        self._texts = texts

    def living(self) -> dict[str, tuple[str, str]]:
        """Return the running sub-agents by thread, parents first: the parent thread and the role of each."""
        return self._threads.subagents()

    def level_of(self, key: str) -> Level:
        """Return whether a message can be delivered to a thread now."""
        return self._threads.level_of(key)

    def word_of(self, key: str) -> Word:
        """Return the current status of a thread."""
        return self._threads.word_of(key)

    def is_waiting(self, key: str) -> bool:
        """Return whether a text was sent to a thread and is not known to be in it yet."""
        return self._texts.is_waiting(key)

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Send a text to a thread and return the result."""
        try:
            return await self._texts.put(key, text, mark)
        except UnknownQuestion as error:
            return Done(Answer.DEFERRED, str(error))
