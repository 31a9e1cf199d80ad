"""The sub-agents of an OpenCode, as its sessions tell of them: each has a session below the agent's own."""

from palaver.agents.native_word import Level, Word
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.opencode.texts import Texts
from palaver.agents.typing.steps import Done


class SessionsBelow:
    """Those of one process. One lives while its session works."""

    ending = "done"

    def __init__(self, sessions: Sessions, texts: Texts) -> None:
        self._sessions = sessions
        self._texts = texts

    def living(self) -> dict[str, tuple[str, str]]:
        """Give those that work now, outer first: by session, the one that started each and its kind."""
        return self._sessions.children()

    def level_of(self, key: str) -> Level:
        """What can come through to a session now."""
        return self._sessions.level_of(key)

    def word_of(self, key: str) -> Word:
        """What a session does now, with what those below it ask."""
        return self._sessions.word_of(key)

    def is_waiting(self, key: str) -> bool:
        """Whether a text was put to a session and has not been seen, as far as is known."""
        return self._texts.is_waiting(key)

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Put a text to a session, and say what became of it."""
        return await self._texts.put(key, text, mark)
