"""The sub-agents of OpenCode, derived from its sessions: each has a child session of the agent's session."""

from palaver.agents.native_word import Level, Word
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.opencode.texts import Texts
from palaver.agents.typing.steps import Done


class SessionsBelow:
    """The sub-agents of one process. Each exists while its session is busy."""

    ending = "done"

    def __init__(self, sessions: Sessions, texts: Texts) -> None:
        self._sessions = sessions
        self._texts = texts

    def living(self) -> dict[str, tuple[str, str]]:
        """Return the busy sub-agents by session, parents first: the parent session and the kind of each."""
        return self._sessions.children()

    def level_of(self, key: str) -> Level:
        """Return whether a message can be delivered to a session now."""
        return self._sessions.level_of(key)

    def word_of(self, key: str) -> Word:
        """Return the current status of a session, including open questions of its sub-agents."""
        return self._sessions.word_of(key)

    def is_waiting(self, key: str) -> bool:
        """Return whether a text was sent to a session and is not known to be seen yet."""
        return self._texts.is_waiting(key)

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Send a text to a session and return the result."""
        return await self._texts.put(key, text, mark)
