"""The state of all sessions of an OpenCode server, computed from its events. Pure.

One session is the agent's: the one that last received a prompt from the user or from us, or always the one
named by `only`. Its child sessions are its sub-agents: their open questions block the agent too, but each has
its own status. Other sessions have no effect here and never prove that a text was seen.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from palaver.agents.native_word import Asked, Level, Word
from palaver.agents.opencode.talk import Talk
from palaver.agents.opencode.wire import AS_IT_LIKES, Manner, Said
from palaver.agents.terminal.gates import OPEN, Gate
from palaver.harness.hook_news import as_list, as_map, text_in
from palaver.harness.hook_states import COMPACTING
from palaver.model.delivery import AgentState
from palaver.model.terminal import DIALOG, USAGE_LIMIT


class Sessions:
    """All sessions of one process. `current` is the agent's; empty while there is no such session."""

    def __init__(self, manner: Manner = AS_IT_LIKES, *, only: str = "") -> None:
        """`manner` applies to a new session; `only` is the id of the agent's session, if fixed."""
        self._talks: dict[str, Talk] = {only: Talk()} if only else {}
        self._manner = manner
        self._only = only
        self._seen: set[str] = set()
        self.current = only

    # Updates

    def listed(self, found: object) -> None:
        """Add or update the listed sessions."""
        for info in as_list(found):
            self._take_info(info)

    def statuses(self, found: object, now_ms: int = 0) -> None:
        """Set the status of every session; those not listed are idle."""
        told = as_map(found)
        for name, talk in self._talks.items():
            talk.set_status(as_map(told.get(name)), now_ms)

    def questions(self, found: object, *, is_permission: bool) -> None:
        """Replace all open questions of one kind."""
        event = "permission.asked" if is_permission else "question.asked"
        for talk in self._talks.values():
            talk.forget_questions("per" if is_permission else "que")
        for asked in as_list(found):
            self.hear(Said(event, asked))

    def choose(self, session: str) -> None:
        """Make a session the agent's, unless it is fixed."""
        if session and not self._only:
            self._talks.setdefault(session, Talk())
            self.current = session

    def newest(self, since_ms: int, *, by_creation: bool = False) -> str:
        """Return the root session that was last used, or created, since then; empty if there is no match."""

        def moment(talk: Talk) -> int:
            return talk.created_ms if by_creation else talk.updated_ms

        roots = {name: moment(talk) for name, talk in self._talks.items() if not talk.parent}
        found = max(roots, key=roots.__getitem__, default="")
        return found if found and roots[found] >= since_ms else ""

    def hear(self, said: Said, now_ms: int = 0) -> None:
        """Apply one event, received at `now_ms`."""
        about = said.about
        if said.type in ("session.created", "session.updated"):
            name = self._take_info(as_map(about.get("info")))
            if said.type == "session.created" and name and not self._talks[name].parent:
                self.choose(name)
            return
        session = text_in(about, "sessionID")
        if not session:
            return
        if said.type == "session.deleted":
            self._talks.pop(session, None)
            self.current = "" if session == self.current else self.current
            return
        if (hear := _HEARD.get(said.type)) is not None:
            hear(self, self._talks.setdefault(session, Talk()), about, now_ms)

    def limit_over(self, now_ms: int) -> None:
        """End the usage limits whose end has passed."""
        for talk in self._talks.values():
            if talk.limit is not None and 0 < talk.limit.ends_ms <= now_ms and not talk.is_busy:
                talk.limit = None

    def _take_info(self, info: Mapping[str, object]) -> str:
        if name := text_in(info, "id"):
            self._talks.setdefault(name, Talk()).take_info(info)
        return name

    def _hear_status(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.set_status(as_map(about.get("status")), now_ms)

    def _hear_idle(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.set_status({}, now_ms)

    def _hear_error(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.fail(as_map(about.get("error")), now_ms)

    def _hear_select(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        if not talk.parent:
            self.choose(text_in(about, "sessionID"))

    def _hear_compacted(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.is_compacting = False

    def _hear_permission(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.ask_permission(about)

    def _hear_question(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.ask_question(about)

    def _hear_answered(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        talk.answered(text_in(about, "requestID"))

    def _hear_message(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        if talk.take_message(as_map(about.get("info"))) and not talk.parent:
            self.choose(text_in(about, "sessionID"))

    def _hear_part(self, talk: Talk, about: Mapping[str, object], now_ms: int) -> None:
        self._seen |= talk.take_part(as_map(about.get("part")))

    # Queries

    def manner_of(self, session: str) -> Manner:
        """Return the agent and model that a session uses."""
        talk = self._talks.get(session)
        return talk.manner if talk is not None and talk.manner != AS_IT_LIKES else self._manner

    @property
    def manner(self) -> Manner:
        """The agent and model that the agent's session uses."""
        return self.manner_of(self.current)

    def take_seen(self) -> frozenset[str]:
        """Return the keys of the texts that have newly reached the model; each is returned once."""
        seen, self._seen = frozenset(self._seen), set()
        return seen

    def has_text(self, key: str) -> bool:
        """Return whether a text from us is in a session and has not reached the model yet."""
        return any(key in talk.texts for talk in self._talks.values())

    def has(self, session: str) -> bool:
        """Return whether a session is known."""
        return session in self._talks

    def has_stopped(self, session: str) -> bool:
        """Return whether a session is idle after an aborted turn: its unread texts stay unread."""
        talk = self._talks.get(session)
        return talk is None or (talk.is_stopped and not talk.is_busy)

    def limit_ends_ms(self) -> int:
        """Return the earliest known end of a usage limit; 0 if not known."""
        ends = (talk.limit.ends_ms for talk in self._family() if talk.limit is not None and not talk.is_busy)
        return min((end for end in ends if end), default=0)

    def permissions(self) -> dict[str, Asked]:
        """Return the fully known permission requests of the agent and its sub-agents, by id."""
        found = (talk.whole(one) for talk in self._family() for one in talk.permissions.values())
        return {one.request: one for one in found if one is not None}

    def asking(self) -> frozenset[str]:
        """Return the sessions with open permission requests, whether or not their content is known."""
        return frozenset(name for name, talk in self._below(self.current) if talk.permissions)

    def whole(self, asked: Asked) -> Asked | None:
        """Return a request with everything the user must see; None if that is not known."""
        talk = self._talks.get(asked.session)
        return None if talk is None else talk.whole(asked)

    def children(self) -> dict[str, tuple[str, str]]:
        """Return the busy sub-agents by session, parents first: the parent session and the kind of each."""
        found = {
            name: (talk.parent, talk.kind)
            for name, talk in self._below(self.current)
            if name != self.current and talk.is_busy
        }
        return dict(sorted(found.items(), key=lambda item: self._depth(item[0])))

    @property
    def word(self) -> Word:
        """The current status of the agent. Open questions of its sub-agents block it too."""
        return self.word_of(self.current)

    def word_of(self, session: str) -> Word:
        """Return the current status of a session, including open questions of its sub-agents."""
        own = self._talks.get(session, Talk()).word
        if own.state is AgentState.BLOCKED:
            return own
        asked = self._asked_below(session)
        return Word(state=AgentState.BLOCKED, detail=asked) if asked else own

    @property
    def level(self) -> Level:
        """Whether a message can be delivered now. A busy session reads a text with its next step."""
        return self.level_of(self.current)

    def level_of(self, session: str) -> Level:
        """Return whether a message can be delivered to a session now."""
        talk = self._talks.get(session, Talk())
        if self._asked_below(session):
            return Level(Gate(is_open=False, reason=DIALOG))
        if talk.limit is not None:
            return Level(Gate(is_open=False, reason=USAGE_LIMIT))
        if talk.is_compacting:
            return Level(Gate(is_open=False, reason=COMPACTING))
        return Level(OPEN)

    def _asked_below(self, session: str) -> str:
        return next((what for _, talk in self._below(session) for what in talk.asked.values()), "")

    def _family(self) -> Iterator[Talk]:
        """Return the agent's session and those of its sub-agents."""
        return (talk for _, talk in self._below(self.current))

    def _below(self, session: str) -> Iterator[tuple[str, Talk]]:
        """Yield a session and all its descendants."""
        for name, talk in self._talks.items():
            if session and session in self._line(name):
                yield name, talk

    def _line(self, session: str) -> list[str]:
        """Return a session and its ancestors; a cycle ends the list."""
        line: list[str] = []
        while session and session not in line:
            line.append(session)
            talk = self._talks.get(session)
            session = talk.parent if talk is not None else ""
        return line

    def _depth(self, session: str) -> int:
        return len(self._line(session))


_Hear = Callable[[Sessions, Talk, Mapping[str, object], int], None]

_HEARD: Final[Mapping[str, _Hear]] = {
    "session.status": Sessions._hear_status,
    "session.idle": Sessions._hear_idle,
    "session.error": Sessions._hear_error,
    "session.compacted": Sessions._hear_compacted,
    "tui.session.select": Sessions._hear_select,
    "permission.asked": Sessions._hear_permission,
    "permission.replied": Sessions._hear_answered,
    "question.asked": Sessions._hear_question,
    "question.replied": Sessions._hear_answered,
    "question.rejected": Sessions._hear_answered,
    "message.updated": Sessions._hear_message,
    "message.part.updated": Sessions._hear_part,
}
