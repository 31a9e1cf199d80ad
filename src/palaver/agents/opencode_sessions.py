"""What the server of OpenCode says of its sessions, made into one state. Pure: it hears, and is asked.

Of all sessions in a process one is the agent's: the one that a person, or a text of ours, was last put to.
Sessions below it are its sub-agents: what they ask stops it too. What other sessions do changes nothing here,
and proves nothing about a text that was put to this one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from palaver.agents.gates import OPEN, Gate
from palaver.agents.native_word import Level, Word
from palaver.agents.opencode_wire import AS_IT_LIKES, Manner, Said, as_list, as_map, key_of, manner_of
from palaver.harness.hook_news import LIMIT_COMMAND, one_line, text_in
from palaver.harness.hook_states import COMPACTING, PERMISSION, THINKING
from palaver.harness.profile import is_usage_limit
from palaver.model.delivery import AgentState
from palaver.model.terminal import DIALOG

QUESTION: Final = "question"
USAGE_LIMIT: Final = "usage_limit"
_EDITS: Final = frozenset({"edit", "write", "multiedit", "patch"})
_WHAT: Final = ("command", "filePath", "path", "pattern", "url", "query", "description")
_LIMIT_ANSWERS: Final = 200
"""Messages of the model that are remembered in each session; then the oldest is forgotten."""
_NO_PROOF: Final = frozenset({"patch", "snapshot", "compaction", "subtask", "agent", "file"})
"""Parts that are in a message without a word of the model."""


@dataclass(slots=True)
class _Talk:
    """One session as it is now."""

    parent: str = ""
    manner: Manner = AS_IT_LIKES
    status: Mapping[str, object] = field(default_factory=dict)
    works: dict[str, Word] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    is_compacting: bool = False
    updated_ms: int = 0
    created_ms: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    """Texts of ours that no model has seen yet: key and message."""
    answers: dict[str, str] = field(default_factory=dict)
    """Messages of the model, and the last one before each that it had seen."""

    @property
    def is_busy(self) -> bool:
        return self.status.get("type") in ("busy", "retry")


class Sessions:
    """Every session of one process. `current` is the agent's, empty while there is none."""

    def __init__(self, manner: Manner = AS_IT_LIKES) -> None:
        """`manner` is that of a session that is yet to begin."""
        self._talks: dict[str, _Talk] = {}
        self._manner = manner
        self._seen: set[str] = set()
        self.current = ""

    # What is told

    def listed(self, found: object) -> None:
        """Take in the sessions that there are."""
        for info in as_list(found):
            self._take_info(info)

    def statuses(self, found: object) -> None:
        """Take in what every session does; one that is not named does nothing."""
        told = as_map(found)
        for name, talk in self._talks.items():
            self._set_status(talk, as_map(told.get(name)))

    def questions(self, found: object, *, is_permission: bool) -> None:
        """Take in everything of one kind that people are asked now."""
        event = "permission.asked" if is_permission else "question.asked"
        prefix = "per" if is_permission else "que"
        for talk in self._talks.values():
            talk.asked = {name: what for name, what in talk.asked.items() if not name.startswith(prefix)}
        for asked in as_list(found):
            self.hear(Said(event, asked))

    def choose(self, session: str) -> None:
        """Take a session for the agent's."""
        if session:
            self._talks.setdefault(session, _Talk())
            self.current = session

    def newest(self, since_ms: int, *, by_creation: bool = False) -> str:
        """Give the session that was last worked in, or begun, since then; nothing when there is none."""

        def moment(talk: _Talk) -> int:
            return talk.created_ms if by_creation else talk.updated_ms

        roots = {name: moment(talk) for name, talk in self._talks.items() if not talk.parent}
        found = max(roots, key=roots.__getitem__, default="")
        return found if found and roots[found] >= since_ms else ""

    def hear(self, said: Said) -> None:
        """Take in one event."""
        about = said.about
        if said.type in ("session.created", "session.updated"):
            name = self._take_info(as_map(about.get("info")))
            if said.type == "session.created" and name and not self._talks[name].parent:
                self.current = name
            return
        session = text_in(about, "sessionID")
        if not session:
            return
        if said.type == "session.deleted":
            self._talks.pop(session, None)
            self.current = "" if session == self.current else self.current
            return
        if (hear := _HEARD.get(said.type)) is not None:
            hear(self, self._talks.setdefault(session, _Talk()), session, about)

    def _take_info(self, info: Mapping[str, object]) -> str:
        if not (name := text_in(info, "id")):
            return ""
        talk, time = self._talks.setdefault(name, _Talk()), as_map(info.get("time"))
        talk.parent = text_in(info, "parentID")
        talk.manner = manner_of(info) if info.get("agent") else talk.manner
        talk.created_ms, talk.updated_ms = _number(time.get("created")), _number(time.get("updated"))
        return name

    def _set_status(self, talk: _Talk, status: Mapping[str, object]) -> None:
        talk.status = status
        if not talk.is_busy:
            talk.works.clear()
            talk.asked.clear()
            talk.is_compacting = False

    def _hear_status(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        self._set_status(talk, as_map(about.get("status")))

    def _hear_idle(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        self._set_status(talk, {})

    def _hear_select(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        if not talk.parent:
            self.current = session

    def _hear_compacted(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        talk.is_compacting = False

    def _hear_permission(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        what = text_in(as_map(about.get("metadata")), "command", "filepath", "url")
        patterns = about.get("patterns")
        if not what and isinstance(patterns, list):
            what = ", ".join(str(one) for one in patterns)
        asked = ": ".join(filter(None, (PERMISSION, text_in(about, "permission"), what)))
        talk.asked[text_in(about, "id")] = one_line(asked)

    def _hear_question(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        first = next(iter(as_list(about.get("questions"))), {})
        talk.asked[text_in(about, "id")] = one_line(
            ": ".join(filter(None, (QUESTION, text_in(first, "question"))))
        )

    def _hear_answered(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        talk.asked.pop(text_in(about, "requestID"), None)

    def _hear_message(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        info = as_map(about.get("info"))
        name, role = text_in(info, "id"), text_in(info, "role")
        if role == "user":
            talk.manner = manner_of(info) if info.get("agent") else talk.manner
            if name not in talk.answers.values() and not talk.parent and "summary" not in info:
                self.current = session
        elif role == "assistant" and (before := text_in(info, "parentID")):
            talk.answers.pop(name, None)
            while len(talk.answers) >= _LIMIT_ANSWERS:
                del talk.answers[next(iter(talk.answers))]
            talk.answers[name] = before

    def _hear_part(self, talk: _Talk, session: str, about: Mapping[str, object]) -> None:
        part = as_map(about.get("part"))
        kind, message = text_in(part, "type"), text_in(part, "messageID")
        if key := key_of(part):
            if message not in talk.answers:
                talk.texts[key] = message
        elif kind == "compaction":
            talk.is_compacting = True
        elif kind == "tool":
            self._hear_tool(talk, part)
        if message in talk.answers and kind not in _NO_PROOF:
            # A word of the model, which was asked with all that stood before it. Names of messages rise.
            known = {key for key, text in talk.texts.items() if text <= talk.answers[message]}
            self._seen |= known
            talk.texts = {key: text for key, text in talk.texts.items() if key not in known}

    def _hear_tool(self, talk: _Talk, part: Mapping[str, object]) -> None:
        name, state = text_in(part, "id"), as_map(part.get("state"))
        talk.works.pop(name, None)
        if state.get("status") == "running":
            talk.works[name] = _work(text_in(part, "tool"), as_map(state.get("input")))

    # What is asked

    @property
    def manner(self) -> Manner:
        """How the agent's session answers."""
        talk = self._talks.get(self.current)
        return talk.manner if talk is not None and talk.manner != AS_IT_LIKES else self._manner

    def take_seen(self) -> frozenset[str]:
        """Give the keys of the texts that are in a request to the model now, once."""
        seen, self._seen = frozenset(self._seen), set()
        return seen

    def has_text(self, key: str) -> bool:
        """Tell whether a text of ours is in a session, and no model has seen it yet."""
        return any(key in talk.texts for talk in self._talks.values())

    @property
    def word(self) -> Word:
        """What the agent does now."""
        talk = self._talks.get(self.current, _Talk())
        if asked := self._asked():
            return Word(state=AgentState.BLOCKED, detail=asked)
        if not talk.is_busy:
            return Word(state=AgentState.IDLE)
        said = text_in(talk.status, "message")
        if talk.status.get("type") == "retry":
            if is_usage_limit(said):
                return Word(state=AgentState.BLOCKED, detail=one_line(f"{USAGE_LIMIT}: {said}"))
            return Word(state=AgentState.ACTIVE, detail=one_line(f"tries again: {said}"))
        if talk.is_compacting:
            return Word(state=AgentState.ACTIVE, detail=COMPACTING)
        works = [work for one in self._family() for work in one.works.values()]
        return works[-1] if works else Word(state=AgentState.ACTIVE, detail=THINKING)

    @property
    def level(self) -> Level:
        """What can come through now. A busy session takes a text with its next step."""
        talk, word = self._talks.get(self.current, _Talk()), self.word
        if self._asked():
            return Level(Gate(is_open=False, reason=DIALOG))
        if word.state is AgentState.BLOCKED:
            return Level(Gate(is_open=False, reason=USAGE_LIMIT))
        if talk.is_compacting:
            return Level(Gate(is_open=False, reason=COMPACTING))
        return Level(OPEN)

    def _asked(self) -> str:
        return next((what for talk in self._family() for what in talk.asked.values()), "")

    def _family(self) -> Iterable[_Talk]:
        """The agent's session, and those of its sub-agents."""
        for name, talk in self._talks.items():
            above, steps = name, 0
            while above and above != self.current and steps < len(self._talks):
                known = self._talks.get(above)
                above, steps = known.parent if known is not None else "", steps + 1
            if above and above == self.current:
                yield talk


def _work(tool: str, given: Mapping[str, object]) -> Word:
    what = text_in(given, *_WHAT)
    return Word(
        state=AgentState.ACTIVE,
        detail=one_line(f"{tool}: {what}" if what else tool),
        tool=one_line(tool),
        command=one_line(text_in(given, "command"), LIMIT_COMMAND),
        file=one_line(text_in(given, "filePath"), LIMIT_COMMAND) if tool in _EDITS else "",
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


_Hear = Callable[[Sessions, _Talk, str, Mapping[str, object]], None]

_HEARD: Final[Mapping[str, _Hear]] = {
    "session.status": Sessions._hear_status,
    "session.idle": Sessions._hear_idle,
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
