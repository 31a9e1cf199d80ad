"""The state of all sessions of an OpenCode server, computed from its events. Pure.

One session is the agent's: the one that last received a prompt from the user or from us, or always the one
named by `only`. Its child sessions are its sub-agents: their open questions block the agent too, but each has
its own status. Other sessions have no effect here and never prove that a text was seen.

A separate module from `integration.py`, because only that one does input and output.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from palaver.harness.base import OPEN, AgentReport, Gate, LaneGate, PermissionQuestion
from palaver.harness.hooks import (
    COMPACTING,
    LIMIT_COMMAND,
    PERMISSION,
    QUESTION,
    THINKING,
    as_list,
    as_map,
    as_number,
    one_line,
    text_in,
)
from palaver.harness.opencode.wire import (
    AS_IT_LIKES,
    Calls,
    OpenCodeEvent,
    ReplySettings,
    UsageLimit,
    error_text,
    key_of,
    limit_in_error,
    limit_in_retry,
    manner_of,
)
from palaver.protocol.events import AgentState
from palaver.protocol.requests import DIALOG, USAGE_LIMIT

# --------------------
# The state of one OpenCode session, computed from its server's events. Pure.
#
# It knows nothing of other sessions: `Sessions` decides which one is the agent's and which are sub-agents.

_EDITS: Final = frozenset({"edit", "write", "multiedit", "patch"})
_WHAT: Final = ("command", "filePath", "path", "pattern", "url", "query", "description")
_ANYTHING: Final = "*"
"""The pattern of a tool whose uses OpenCode does not distinguish: it says nothing about this call."""
_LIMIT_ANSWERS: Final = 200
"""Messages of the model to remember per session; when full, the oldest is dropped."""
_NO_PROOF: Final = frozenset({"patch", "snapshot", "compaction", "subtask", "agent", "file"})
"""Message parts that can exist without any output of the model."""
_BROKEN_OFF: Final = "MessageAbortedError"
_GOES_ON: Final = "ContextOverflowError"
"""OpenCode then compacts its context and continues by itself."""


def asked_of(about: Mapping[str, object]) -> PermissionQuestion:
    """Decode a permission request, from its event or from the list of all requests."""
    patterns, call = about.get("patterns"), as_map(about.get("tool"))
    given = {**as_map(about.get("metadata")), "patterns": patterns if isinstance(patterns, list) else []}
    return PermissionQuestion(
        id=text_in(about, "id"),
        session=text_in(about, "sessionID"),
        tool=text_in(about, "permission"),
        given=given,
        call=(text_in(call, "messageID"), text_in(call, "callID")),
    )


@dataclass(slots=True)
class SessionState:
    """One session."""

    parent: str = ""
    kind: str = ""
    """The OpenCode agent that it runs as."""
    manner: ReplySettings = AS_IT_LIKES
    status: Mapping[str, object] = field(default_factory=dict)
    works: dict[str, AgentReport] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """The open questions to the user as text, by id."""
    permissions: dict[str, PermissionQuestion] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)
    is_compacting: bool = False
    limit: UsageLimit | None = None
    error: str = ""
    """The error that ended its last turn."""
    is_stopped: bool = False
    """Whether its last turn was aborted: its unread texts stay unread until the next turn."""
    updated_ms: int = 0
    created_ms: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    """Texts from us that have not reached the model yet: key and message id."""
    answers: dict[str, str] = field(default_factory=dict)
    """Messages of the model, each with the last earlier message that it had received."""

    @property
    def is_busy(self) -> bool:
        return self.status.get("type") in ("busy", "retry")

    @property
    def word(self) -> AgentReport:
        """The current status of the session, without its sub-agents."""
        if asked := next(iter(self.asked.values()), ""):
            return AgentReport(state=AgentState.BLOCKED, detail=asked)
        if self.limit is not None:
            return AgentReport(state=AgentState.BLOCKED, detail=self.limit.detail)
        if not self.is_busy:
            return AgentReport(state=AgentState.IDLE, detail=self.error)
        if self.status.get("type") == "retry":
            message = text_in(self.status, "message")
            return AgentReport(state=AgentState.ACTIVE, detail=one_line(f"tries again: {message}"))
        if self.is_compacting:
            return AgentReport(state=AgentState.ACTIVE, detail=COMPACTING)
        works = list(self.works.values())
        return works[-1] if works else AgentReport(state=AgentState.ACTIVE, detail=THINKING)

    # Updates

    def take_info(self, info: Mapping[str, object]) -> None:
        """Apply the description of the session from a list or an event."""
        time = as_map(info.get("time"))
        self.parent = text_in(info, "parentID")
        self.kind = text_in(info, "agent") or self.kind
        self.manner = manner_of(info) if info.get("agent") else self.manner
        self.created_ms, self.updated_ms = as_number(time.get("created")), as_number(time.get("updated"))

    def set_status(self, status: Mapping[str, object], now_ms: int) -> None:
        """Set the status. A turn that began has no usage limit and no error."""
        self.status = status
        if status.get("type") == "busy":
            self.limit, self.error, self.is_stopped = None, "", False
        elif status.get("type") == "retry":
            self.limit = limit_in_retry(status, now_ms)
        else:
            self.works.clear()
            self.calls.clear()
            self.asked.clear()
            self.permissions.clear()
            self.is_compacting = False

    def fail(self, error: Mapping[str, object], now_ms: int) -> None:
        """Apply the error that ended a turn; a turn that the user aborted has no error."""
        name = text_in(error, "name")
        self.is_stopped = name != _GOES_ON
        if name in (_GOES_ON, _BROKEN_OFF):
            return
        self.limit = limit_in_error(error, now_ms)
        self.error = "" if self.limit is not None else error_text(error)

    def ask_permission(self, about: Mapping[str, object]) -> None:
        one = asked_of(about)
        what = text_in(one.given, "command", "filepath", "url")
        patterns = [str(pattern) for pattern in as_texts(one.given["patterns"]) if pattern != _ANYTHING]
        what = what or ", ".join(patterns)
        self.asked[one.request] = one_line(": ".join(filter(None, (PERMISSION, one.tool, what))))
        self.permissions[one.request] = one

    def whole(self, asked: PermissionQuestion) -> PermissionQuestion | None:
        """Return a request with everything the user must see; None if that is not known.

        A request that refers to no tool call must describe itself.
        """
        if not any(asked.call):
            return asked if len(asked.given) > 1 else None
        given = self.calls.input_of(asked.call)
        return None if given is None else replace(asked, given={**asked.given, "input": given})

    def ask_question(self, about: Mapping[str, object]) -> None:
        first = next(iter(as_list(about.get("questions"))), {})
        self.asked[text_in(about, "id")] = one_line(
            ": ".join(filter(None, (QUESTION, text_in(first, "question"))))
        )

    def answered(self, request: str) -> None:
        """Remove a question that was answered, at the terminal or remotely."""
        self.asked.pop(request, None)
        self.permissions.pop(request, None)

    def forget_questions(self, prefix: str) -> None:
        """Remove all questions of one kind, before the list of all is applied."""
        self.asked = {name: what for name, what in self.asked.items() if not name.startswith(prefix)}
        self.permissions = {
            name: one for name, one in self.permissions.items() if not name.startswith(prefix)
        }

    def take_message(self, info: Mapping[str, object]) -> bool:
        """Apply a message; return whether it is a new prompt to the session."""
        name, role = text_in(info, "id"), text_in(info, "role")
        if role == "user":
            self.manner = manner_of(info) if info.get("agent") else self.manner
            is_new = name not in self.answers.values() and "summary" not in info
            self.is_stopped = self.is_stopped and not is_new
            return is_new
        if role == "assistant" and (before := text_in(info, "parentID")):
            self.answers.pop(name, None)
            while len(self.answers) >= _LIMIT_ANSWERS:
                del self.answers[next(iter(self.answers))]
            self.answers[name] = before
        return False

    def take_part(self, part: Mapping[str, object]) -> set[str]:
        """Apply a message part; return the keys of the texts that it proves to be seen."""
        kind, message = text_in(part, "type"), text_in(part, "messageID")
        if key := key_of(part):
            if message not in self.answers:
                self.texts[key] = message
                self.is_stopped = False
        elif kind == "compaction":
            self.is_compacting = True
        elif kind == "tool":
            self._take_tool(part)
        if message not in self.answers or kind in _NO_PROOF:
            return set()
        # This is output of the model, which had received all earlier messages. Message ids increase.
        known = {key for key, text in self.texts.items() if text <= self.answers[message]}
        self.texts = {key: text for key, text in self.texts.items() if key not in known}
        return known

    def _take_tool(self, part: Mapping[str, object]) -> None:
        name, state = text_in(part, "id"), as_map(part.get("state"))
        self.calls.take(part)
        self.works.pop(name, None)
        if state.get("status") == "running":
            self.works[name] = _work(text_in(part, "tool"), as_map(state.get("input")))


def as_texts(value: object) -> list[object]:
    """Return the members of a list; empty for any other value."""
    return list(value) if isinstance(value, list) else []


def _work(tool: str, given: Mapping[str, object]) -> AgentReport:
    what = text_in(given, *_WHAT)
    return AgentReport(
        state=AgentState.ACTIVE,
        detail=one_line(f"{tool}: {what}" if what else tool),
        tool=one_line(tool),
        command=one_line(text_in(given, "command"), LIMIT_COMMAND),
        file=one_line(text_in(given, "filePath"), LIMIT_COMMAND) if tool in _EDITS else "",
    )


# --------------------
# All sessions of one server, and which of them is the agent's.


class Sessions:
    """All sessions of one process. `current` is the agent's; empty while there is no such session."""

    def __init__(self, manner: ReplySettings = AS_IT_LIKES, *, only: str = "") -> None:
        """`manner` applies to a new session; `only` is the id of the agent's session, if fixed."""
        self._talks: dict[str, SessionState] = {only: SessionState()} if only else {}
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
        statuses = as_map(found)
        for name, talk in self._talks.items():
            talk.set_status(as_map(statuses.get(name)), now_ms)

    def questions(self, found: object, *, is_permission: bool) -> None:
        """Replace all open questions of one kind."""
        event = "permission.asked" if is_permission else "question.asked"
        for talk in self._talks.values():
            talk.forget_questions("per" if is_permission else "que")
        for asked in as_list(found):
            self.hear(OpenCodeEvent(event, asked))

    def choose(self, session: str) -> None:
        """Make a session the agent's, unless it is fixed."""
        if session and not self._only:
            self._talks.setdefault(session, SessionState())
            self.current = session

    def newest(self, since_ms: int, *, by_creation: bool = False) -> str:
        """Return the root session that was last used, or created, since then; empty if there is no match."""

        def used_ms(talk: SessionState) -> int:
            return talk.created_ms if by_creation else talk.updated_ms

        roots = {name: used_ms(talk) for name, talk in self._talks.items() if not talk.parent}
        found = max(roots, key=roots.__getitem__, default="")
        return found if found and roots[found] >= since_ms else ""

    def hear(self, event: OpenCodeEvent, now_ms: int = 0) -> None:
        """Apply one event, received at `now_ms`."""
        about = event.about
        if event.type in ("session.created", "session.updated"):
            name = self._take_info(as_map(about.get("info")))
            if event.type == "session.created" and name and not self._talks[name].parent:
                self.choose(name)
            return
        session = text_in(about, "sessionID")
        if not session:
            return
        if event.type == "session.deleted":
            self._talks.pop(session, None)
            self.current = "" if session == self.current else self.current
            return
        if (hear := _HEARD.get(event.type)) is not None:
            hear(self, self._talks.setdefault(session, SessionState()), about, now_ms)

    def limit_over(self, now_ms: int) -> None:
        """End the usage limits whose end has passed."""
        for talk in self._talks.values():
            if talk.limit is not None and 0 < talk.limit.ends_ms <= now_ms and not talk.is_busy:
                talk.limit = None

    def _take_info(self, info: Mapping[str, object]) -> str:
        if name := text_in(info, "id"):
            self._talks.setdefault(name, SessionState()).take_info(info)
        return name

    def _hear_status(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.set_status(as_map(about.get("status")), now_ms)

    def _hear_idle(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.set_status({}, now_ms)

    def _hear_error(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.fail(as_map(about.get("error")), now_ms)

    def _hear_select(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        if not talk.parent:
            self.choose(text_in(about, "sessionID"))

    def _hear_compacted(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.is_compacting = False

    def _hear_permission(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.ask_permission(about)

    def _hear_question(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.ask_question(about)

    def _hear_answered(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        talk.answered(text_in(about, "requestID"))

    def _hear_message(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        if talk.take_message(as_map(about.get("info"))) and not talk.parent:
            self.choose(text_in(about, "sessionID"))

    def _hear_part(self, talk: SessionState, about: Mapping[str, object], now_ms: int) -> None:
        self._seen |= talk.take_part(as_map(about.get("part")))

    # Queries

    def manner_of(self, session: str) -> ReplySettings:
        """Return the agent and model that a session uses."""
        talk = self._talks.get(session)
        return talk.manner if talk is not None and talk.manner != AS_IT_LIKES else self._manner

    @property
    def manner(self) -> ReplySettings:
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

    def permissions(self) -> dict[str, PermissionQuestion]:
        """Return the fully known permission requests of the agent and its sub-agents, by id."""
        found = (talk.whole(one) for talk in self._family() for one in talk.permissions.values())
        return {one.request: one for one in found if one is not None}

    def asking(self) -> frozenset[str]:
        """Return the sessions with open permission requests, whether or not their content is known."""
        return frozenset(name for name, talk in self._below(self.current) if talk.permissions)

    def whole(self, asked: PermissionQuestion) -> PermissionQuestion | None:
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
    def word(self) -> AgentReport:
        """The current status of the agent. Open questions of its sub-agents block it too."""
        return self.word_of(self.current)

    def word_of(self, session: str) -> AgentReport:
        """Return the current status of a session, including open questions of its sub-agents."""
        own = self._talks.get(session, SessionState()).word
        if own.state is AgentState.BLOCKED:
            return own
        asked = self._asked_below(session)
        return AgentReport(state=AgentState.BLOCKED, detail=asked) if asked else own

    @property
    def level(self) -> LaneGate:
        """Whether a message can be delivered now. A busy session reads a text with its next step."""
        return self.level_of(self.current)

    def level_of(self, session: str) -> LaneGate:
        """Return whether a message can be delivered to a session now."""
        talk = self._talks.get(session, SessionState())
        if self._asked_below(session):
            return LaneGate(Gate(is_open=False, reason=DIALOG))
        if talk.limit is not None:
            return LaneGate(Gate(is_open=False, reason=USAGE_LIMIT))
        if talk.is_compacting:
            return LaneGate(Gate(is_open=False, reason=COMPACTING))
        return LaneGate(OPEN)

    def _asked_below(self, session: str) -> str:
        return next((what for _, talk in self._below(session) for what in talk.asked.values()), "")

    def _family(self) -> Iterator[SessionState]:
        """Return the agent's session and those of its sub-agents."""
        return (talk for _, talk in self._below(self.current))

    def _below(self, session: str) -> Iterator[tuple[str, SessionState]]:
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


_Hear = Callable[[Sessions, SessionState, Mapping[str, object], int], None]

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
