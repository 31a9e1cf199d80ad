"""The native lane of OpenCode: its sessions, and the messages and permissions that pass its server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from palaver.clock import Clock, SystemClock
from palaver.harness.base import (
    OPEN,
    AgentReport,
    Done,
    Gate,
    LaneGate,
    NativeBus,
    PermissionQuestion,
    Spawn,
    TextOutcome,
)
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
from palaver.harness.opencode import wire
from palaver.harness.opencode.launch import Began
from palaver.harness.opencode.wire import (
    AS_IT_LIKES,
    Calls,
    Head,
    Lost,
    NotSent,
    OpenCodeEvent,
    ReplySettings,
    UsageLimit,
    error_text,
    key_of,
    limit_in_error,
    limit_in_retry,
    manner_of,
)
from palaver.protocol.events import AgentState, Grade
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
            # `given` always has the patterns; only a further field says what would be allowed.
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
            # An update of an earlier message is not a new prompt: it has a reply already, or a summary.
            is_new = name not in self.answers.values() and "summary" not in info
            self.is_stopped = self.is_stopped and not is_new
            return is_new
        if role == "assistant" and (before := text_in(info, "parentID")):
            # Entered again as the newest one, so that the limit drops a message that is no longer written.
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
            # Both kinds of questions are in one table, and the ids of OpenCode begin with their kind.
            talk.forget_questions("per" if is_permission else "que")
        for asked in as_list(found):
            self.hear(OpenCodeEvent(event, asked))

    def choose(self, session: str) -> None:
        """Make a session the agent's, unless it is fixed."""
        if session and not self._only:
            self._talks.setdefault(session, SessionState())
            self.current = session

    def newest(self, since_ms: int, *, by_creation: bool = False) -> str:
        """Return the root session that was last used, or created, since `since_ms`; else empty.

        Sessions with a parent are sub-agents, and never the agent itself.
        """

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
            # A busy session retries by itself, and its next status shows whether the limit still applies.
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
        # A person who looks at a sub-agent does not make it the agent.
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
        """Return the current status of a session.

        Open questions of its sub-agents count as its own, because they are shown in its terminal.
        """
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


# --------------------
# The interface to the server of OpenCode, over HTTP or through its plugin.


class OpenCodeServer(Protocol):
    """The server of OpenCode, over either transport."""

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""

    def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events of a stream in order. Raises NotSent or Lost."""


# --------------------
# Texts on their way into OpenCode sessions, each until it was sent to a model.
#
# A text is sent to a session once. If the response is lost, the session's own messages show whether it
# arrived.

_SEEN: Final = Done(TextOutcome.SEEN, grade=Grade.CONTEXT)
_ARRIVAL_LIMIT_S: Final = 60.0
"""Seconds in which the events must show a text after the response to it was lost."""


class OpenCodeInjections:
    """The texts that were sent to sessions and are not seen yet."""

    def __init__(
        self,
        server: OpenCodeServer,
        sessions: Sessions,
        prove: Callable[[str], None],
        *,
        arrival_limit_s: float = _ARRIVAL_LIMIT_S,
    ) -> None:
        """`prove` receives the keys of texts that were unconfirmed here and are seen after all.

        `arrival_limit_s` is the time in which a text must show up after the response to it was lost.
        """
        self._arrival_limit_s = arrival_limit_s
        self._server = server
        self._sessions = sessions
        self._prove = prove
        self._waiting: dict[str, tuple[str, asyncio.Future[Done]]] = {}
        """By key: the session, and the future result."""
        self._sent: set[str] = set()
        """The keys of waiting texts whose request has ended."""

    @property
    def sent(self) -> frozenset[str]:
        """The waiting texts whose request has ended: messages that are read from now on show these texts."""
        return frozenset(self._sent)

    @property
    def sessions(self) -> set[str]:
        """The sessions with waiting texts."""
        return {session for session, _ in self._waiting.values()}

    def is_waiting(self, session: str) -> bool:
        """Return whether a text in this session is not known to be seen yet."""
        return any(where == session and not future.done() for where, future in self._waiting.values())

    async def put(self, session: str, text: str, key: str) -> Done:
        """Send a text to a session, and wait until it was sent to the model or cannot be any more."""
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        # Before the request: an event can prove the text before the response to the request arrives.
        self._waiting[key] = session, future
        try:
            return await self._send(session, text, key, future) or await future
        finally:
            self._waiting.pop(key, None)
            self._sent.discard(key)

    async def _send(self, session: str, text: str, key: str, future: "asyncio.Future[Done]") -> Done | None:
        """Send a text; None if it arrived or may have arrived: then the events decide the result."""
        body = wire.prompt_body(text, key, self._sessions.manner_of(session))
        try:
            head, _ = await self._server.ask("POST", wire.prompt_path(session), body)
        except NotSent as error:
            return Done(TextOutcome.DEFERRED, f"OpenCode does not respond: {error}")
        # The text may have arrived, so it is not sent again: the messages of the session will show it.
        except Lost as error:
            self._sent.add(key)
            # The server may have dropped only this one request. Then no event settles the text, and without
            # a limit the lane would carry nothing else as long as the stream of events continues.
            # Not `wait_for`, which would cancel the future at the timeout: an event may still settle it.
            await asyncio.wait((future,), timeout=self._arrival_limit_s)
            if future.done() or self._sessions.has_text(key):
                return None
            return Done(TextOutcome.UNCONFIRMED, f"OpenCode did not respond: {error}")
        if head.status == wire.NOT_FOUND:
            self._sessions.hear(wire.OpenCodeEvent("session.deleted", {"sessionID": session}))
            return Done(TextOutcome.DEFERRED, "its session was deleted")
        self._sent.add(key)
        return None if head.is_ok else Done(TextOutcome.REFUSED, f"OpenCode responded with {head.status}")

    def settle(self) -> None:
        """Finish every text that was sent to the model, and those that no turn will read now."""
        for key in self._sessions.take_seen():
            # No call waits for this text any more: its result was unconfirmed.
            if (waiting := self._waiting.get(key)) is None:
                self._prove(key)
            elif not waiting[1].done():
                waiting[1].set_result(_SEEN)
        # A result wakes its waiting call only later, so no entry is removed during the loop.
        for key, (session, future) in self._waiting.items():
            if future.done():
                continue
            if not self._sessions.has(session):
                future.set_result(Done(TextOutcome.UNCONFIRMED, "its session was deleted"))
            # The text stays in the session, and the next turn of the session will read it.
            elif self._sessions.has_text(key) and self._sessions.has_stopped(session):
                future.set_result(Done(TextOutcome.UNCONFIRMED, "its turn was aborted"))

    def missed(self, sent: Set[str]) -> None:
        """Finish the texts that are not in the sessions: they never arrived.

        `sent` are the sent texts from before all messages were read.
        """
        for key, (_, future) in self._waiting.items():
            # The server may accept a text whose request was still in progress, after its messages were read.
            if key in sent and not self._sessions.has_text(key) and not future.done():
                future.set_result(Done(TextOutcome.DEFERRED, "OpenCode did not accept it"))


# --------------------
# The permission requests of OpenCode, and the user's decisions passed on to it.
#
# A request can be decided remotely only if it is known in full, with the input of the tool. Everything else
# must be answered at the terminal.

_logger: Final = logging.getLogger("palaver.holder")


class OpenCodeAsker:
    """The requests in the agent's session and those of its sub-agents."""

    def __init__(self, server: OpenCodeServer, sessions: Sessions) -> None:
        self._server = server
        self._sessions = sessions

    async def reply(self, asked: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if exactly this request is still open; return whether the server accepted it."""
        try:
            return await self._reply(asked, is_allowed=is_allowed)
        except (NotSent, Lost) as error:
            _logger.warning("a person's decision did not reach OpenCode: %s", error)
            return False

    async def _reply(self, asked: PermissionQuestion, *, is_allowed: bool) -> bool:
        # Asked again now: an id alone does not show that the request is still the one that the user saw.
        head, body = await self._server.ask("GET", wire.PERMISSIONS)
        found = [asked_of(one) for one in as_list(wire.json_from_bytes(body))] if head.is_ok else []
        if asked not in map(self._sessions.whole, found):
            return False
        reply = wire.reply_body(is_allowed=is_allowed)
        head, _ = await self._server.ask("POST", wire.reply_path(asked.request), reply)
        return head.is_ok


# --------------------
# The integration of OpenCode: its server accepts texts for the session that its terminal UI shows.
#
# The server listens on a local port with a random password. A text wakes an idle session; a busy one reads
# it with its next step; the user's draft is kept. The server's events report the status of its sessions,
# and when a text was sent to the model. While a question to the user is open, nothing is delivered. A
# permission is granted only by the user's own decision. If the server is lost permanently, this lane ends
# and the terminal lane is used.

START_LIMIT_S: Final = 120.0
"""Seconds that the server may take until it listens, or until it has copied the session to continue."""
BACK_LIMIT_S: Final = 15.0
"""Seconds that the server may be offline after that."""
_HEALTH_S: Final = 3.0
_FIRST_S: Final = 10.0
"""Seconds to wait for the first event: a request during the server's start may never be answered."""
_SILENCE_S: Final = 45.0
"""Seconds without an event before the stream is lost. The server sends a heartbeat every ten seconds."""
_PAUSE_S: Final = 0.2
"""Seconds between two attempts to connect."""
_LIMIT_MESSAGES: Final = 100


class OpenCodeIntegration:
    """One OpenCode from start to exit, or only the session named by `only`.

    Each sub-agent has a child session of the agent's session; it exists while that session is busy.
    """

    ending = "done"

    def __init__(
        self,
        server: OpenCodeServer,
        began: Began,
        bus: NativeBus,
        *,
        spawn: Spawn,
        only: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._server = server
        self._began = began
        self._bus = bus
        self._spawn = spawn
        self._clock = clock or SystemClock()
        manner = wire.ReplySettings(agent=began.agent, provider=began.provider, model=began.model)
        self._sessions = Sessions(manner, only=only)
        self._texts = OpenCodeInjections(server, self._sessions, bus.prove)
        self._asker = OpenCodeAsker(server, self._sessions)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_there = False
        self.is_over = False
        """Whether the integration has ended permanently or could never be reached."""

    @property
    def status(self) -> AgentReport | None:
        """The status of the agent; None while unknown."""
        return self._sessions.word if self._is_there else None

    @property
    def session(self) -> str:
        """The session that receives texts; empty while there is no session."""
        return self._sessions.current

    def start(self) -> None:
        """Connect to the server once it listens. Repeats have no effect."""
        if self._task is None:
            # Not by `spawn`, which returns no task that `close` could cancel.
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Disconnect from the server."""
        if self._task is not None:
            self._task.cancel()
        self._give_up()

    # The server

    async def _run(self) -> None:
        """Follow the server until it is lost permanently."""
        loop = asyncio.get_running_loop()
        limit, word = loop.time() + START_LIMIT_S, "never came"
        while loop.time() < limit:
            try:
                await self._follow()
            except (NotSent, Lost) as error:
                _logger.debug("OpenCode's server: %s", error)
            except Exception:  # Any error must end in the fallback to the terminal lane.
                _logger.exception("OpenCode's server sent an unknown response")
            # It was connected: from now on the shorter limit counts, also if it is lost again later.
            if self._is_there:
                self._is_there, word = False, "is gone"
                limit = loop.time() + BACK_LIMIT_S
                self._bus.report()
            await asyncio.sleep(_PAUSE_S)
        _logger.warning("OpenCode's server %s", word)
        self._give_up()

    def _give_up(self) -> None:
        if not self.is_over:
            self.is_over, self._is_there = True, False
            self._set_timer(0)
            self._bus.close()
            self._bus.report()

    async def _follow(self) -> None:
        # A request that arrives while the server starts may never be answered: try a cheap one first.
        await self._server.ask("GET", wire.HEALTH, limit_s=_HEALTH_S)
        async for data in self._server.follow(wire.EVENTS, first_s=_FIRST_S, silence_s=_SILENCE_S):
            if (event := wire.event_from_bytes(data)) is None:
                continue
            if event.type == "server.connected":
                # Later events stay queued in the stream until this is done.
                await self._look_around()
            else:
                self._sessions.hear(event, self._clock.now_ms())
                self._texts.settle()
            if not self._awaits_copy:
                self._come()

    @property
    def _awaits_copy(self) -> bool:
        """Whether it has yet to copy the session that it was started with: a text would begin another one."""
        limit_ms = self._began.started_ms + START_LIMIT_S * 1000
        return self._began.is_fork and not self._sessions.current and self._clock.now_ms() < limit_ms

    async def _look_around(self) -> None:
        """Read the current state of the server, to catch up on missed events."""
        sessions, sent = self._sessions, self._texts.sent
        # Sessions first, because statuses are applied to known sessions only.
        sessions.listed(await self._get(wire.SESSIONS))
        if not sessions.current:
            sessions.choose(self._first_session())
        sessions.statuses(await self._get(wire.STATUSES), self._clock.now_ms())
        sessions.questions(await self._get(wire.PERMISSIONS), is_permission=True)
        sessions.questions(await self._get(wire.QUESTIONS), is_permission=False)
        for session in self._texts.sessions | sessions.asking() | {sessions.current} - {""}:
            # To `sessions` an old message looks like a new one, for which the user has opened its session.
            current = sessions.current
            for event in wire.events_in_messages(await self._messages(session)):
                sessions.hear(event)
            sessions.choose(current if sessions.has(current) else "")
        self._settle()
        # Only now, when all messages were read: a text that is in none of them never arrived.
        self._texts.missed(sent)

    def _first_session(self) -> str:
        began = self._began
        if began.session and not began.is_fork:
            return began.session
        if began.is_continued and not began.is_fork:
            return self._sessions.newest(0)
        return self._sessions.newest(began.started_ms, by_creation=began.is_fork)

    async def _messages(self, session: str) -> object:
        """Return the last messages of a session.

        Raises Lost if they cannot be read: any text may be among them.
        """
        head, body = await self._server.ask("GET", wire.messages_path(session, _LIMIT_MESSAGES))
        if head.status == wire.NOT_FOUND:
            self._sessions.hear(wire.OpenCodeEvent("session.deleted", {"sessionID": session}))
        elif not head.is_ok:
            raise Lost(f"OpenCode answered {head.status} when its messages were read")
        return wire.json_from_bytes(body) if head.is_ok else None

    async def _get(self, path: str) -> object:
        head, body = await self._server.ask("GET", path)
        return wire.json_from_bytes(body) if head.is_ok else None

    def _come(self) -> None:
        if not self._is_there:
            self._is_there = True
            self._spawn(self._bus.open())
        self._tell()

    def _settle(self) -> None:
        """Finish texts with a known outcome, and report changes."""
        self._texts.settle()
        if self._is_there:
            self._tell()

    def _tell(self) -> None:
        self._bus.update()
        self._set_timer(self._sessions.limit_ends_ms())
        self._bus.report()

    def _set_timer(self, ends_ms: int) -> None:
        """Check again at the end of a usage limit; 0 means never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if ends_ms:
            wait_s = max(0, ends_ms - self._clock.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._limit_over)

    def _limit_over(self) -> None:
        self._timer = None
        self._sessions.limit_over(self._clock.now_ms())
        self._settle()

    # Texts

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Send a text to a session, and wait until it was sent to the model."""
        try:
            session = key or self._sessions.current or await self._begin_session()
            return await self._texts.put(session, text, mark)
        # Only `_begin_session` raises these here, before the text was sent: so the text may be offered again.
        except (NotSent, Lost) as error:
            return Done(TextOutcome.DEFERRED, f"OpenCode does not respond: {error}")

    def is_waiting(self, key: str) -> bool:
        """Return whether a text was sent to a session and is not known to be seen yet."""
        return self._texts.is_waiting(key)

    async def _begin_session(self) -> str:
        """Create a session if there is no session yet, and show it in the terminal UI.

        Keep the user's draft.
        """
        body = wire.session_body(self._sessions.manner)
        head, answer = await self._server.ask("POST", wire.SESSIONS, body)
        info = as_map(wire.json_from_bytes(answer))
        session = info.get("id")
        if not head.is_ok or not isinstance(session, str):
            raise Lost(f"it answered {head.status} when a session was created")
        # Chosen before its terminal shows it: if that request fails, the next attempt uses this session.
        self._sessions.listed([info])
        self._sessions.choose(session)
        await self._server.ask("POST", wire.SELECT, wire.select_body(session))
        return session

    # Sub-agents and permissions

    def subagents(self) -> dict[str, tuple[str, str]]:
        """Return the busy sub-agents by session, parents first: the parent session and the kind of each."""
        return self._sessions.children()

    def status_of(self, key: str) -> AgentReport:
        """Return the current status of a session, including open questions of its sub-agents."""
        return self._sessions.word_of(key)

    def gate_of(self, key: str) -> LaneGate:
        """Return whether a message can be delivered to a session now."""
        return self._sessions.level_of(key) if key else self._sessions.level

    def questions(self) -> dict[str, PermissionQuestion]:
        """Return the open permission requests by id."""
        return self._sessions.permissions()

    async def decide(self, question: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if exactly this request is still open; return whether the server accepted it."""
        return await self._asker.reply(question, is_allowed=is_allowed)
