"""The state of one OpenCode session, computed from its server's events. Pure.

It knows nothing of other sessions: `sessions` decides which one is the agent's and which are sub-agents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from palaver.agents.native_word import Asked, Word
from palaver.agents.opencode.calls import Calls
from palaver.agents.opencode.limits import Limit, error_text, limit_in_error, limit_in_retry
from palaver.agents.opencode.wire import AS_IT_LIKES, Manner, key_of, manner_of
from palaver.harness.hook_news import LIMIT_COMMAND, as_list, as_map, as_number, one_line, text_in
from palaver.harness.hook_states import COMPACTING, PERMISSION, QUESTION, THINKING
from palaver.model.delivery import AgentState

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


def asked_of(about: Mapping[str, object]) -> Asked:
    """Decode a permission request, from its event or from the list of all requests."""
    patterns, call = about.get("patterns"), as_map(about.get("tool"))
    given = {**as_map(about.get("metadata")), "patterns": patterns if isinstance(patterns, list) else []}
    return Asked(
        id=text_in(about, "id"),
        session=text_in(about, "sessionID"),
        tool=text_in(about, "permission"),
        given=given,
        call=(text_in(call, "messageID"), text_in(call, "callID")),
    )


@dataclass(slots=True)
class Talk:
    """One session."""

    parent: str = ""
    kind: str = ""
    """The OpenCode agent that it runs as."""
    manner: Manner = AS_IT_LIKES
    status: Mapping[str, object] = field(default_factory=dict)
    works: dict[str, Word] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """The open questions to the user as text, by id."""
    permissions: dict[str, Asked] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)
    is_compacting: bool = False
    limit: Limit | None = None
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
    def word(self) -> Word:
        """The current status of the session, without its sub-agents."""
        if asked := next(iter(self.asked.values()), ""):
            return Word(state=AgentState.BLOCKED, detail=asked)
        if self.limit is not None:
            return Word(state=AgentState.BLOCKED, detail=self.limit.detail)
        if not self.is_busy:
            return Word(state=AgentState.IDLE, detail=self.error)
        if self.status.get("type") == "retry":
            said = text_in(self.status, "message")
            return Word(state=AgentState.ACTIVE, detail=one_line(f"tries again: {said}"))
        if self.is_compacting:
            return Word(state=AgentState.ACTIVE, detail=COMPACTING)
        works = list(self.works.values())
        return works[-1] if works else Word(state=AgentState.ACTIVE, detail=THINKING)

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

    def whole(self, asked: Asked) -> Asked | None:
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


def _work(tool: str, given: Mapping[str, object]) -> Word:
    what = text_in(given, *_WHAT)
    return Word(
        state=AgentState.ACTIVE,
        detail=one_line(f"{tool}: {what}" if what else tool),
        tool=one_line(tool),
        command=one_line(text_in(given, "command"), LIMIT_COMMAND),
        file=one_line(text_in(given, "filePath"), LIMIT_COMMAND) if tool in _EDITS else "",
    )
