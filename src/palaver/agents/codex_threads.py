"""What the app-server of Codex says of its threads, made into one state. Pure: it hears, and is asked.

Of all threads in a server one is the agent's: the one that a person works in, and of several the newest.
Titles and sub-agents have threads too; what they do changes nothing here. Words that cannot be read are
passed over, so a newer Codex may say more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from palaver.agents.codex_items import asked_in, map_of, work_of
from palaver.agents.codex_wire import Said, Thread, Turn
from palaver.agents.gates import OPEN, Gate
from palaver.agents.native_word import Level, Word
from palaver.harness.hook_news import one_line, text_in
from palaver.harness.hook_states import COMPACTING, PERMISSION, THINKING
from palaver.model.delivery import AgentState
from palaver.model.terminal import DIALOG

QUESTION: Final = "question"
USAGE_LIMIT: Final = "usage_limit"
_AGAIN: Final = re.compile(r"\btry\s+again\s+at\s+([^.\n]{1,60})")
"""How Codex tells a person when its allowance is there again."""
_LIMITED: Final = frozenset({"usageLimitExceeded", "sessionBudgetExceeded"})


@dataclass(frozen=True, slots=True)
class Heard:
    """What follows from one word of the server."""

    seen: frozenset[str] = frozenset()
    """The keys of our own texts that are now in the thread."""
    stranger: str = ""
    """A thread that was named and is not known: somebody should look."""
    ended: str = ""
    """The turn of the agent's thread that is over: what it has not taken it will not take any more."""


_NOTHING: Final = Heard()


@dataclass(slots=True)
class _Talk:
    """One thread as it is now."""

    is_loaded: bool = True
    is_active: bool = False
    flags: frozenset[str] = frozenset()
    turn: str = ""
    works: dict[str, Word] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    limit: str = ""
    """Set while the last turn ended because no more may be used: when it ends, where that is known."""


class Threads:
    """Every thread of one server. `current` is the agent's, empty while there is none."""

    def __init__(self) -> None:
        self._talks: dict[str, _Talk] = {}
        self._others: set[str] = set()
        self._resets_at: int | None = None
        self.current = ""

    @property
    def turn(self) -> str:
        """The turn that runs in the agent's thread, empty when none is known."""
        talk = self._talks.get(self.current)
        return talk.turn if talk is not None else ""

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        talk = self._talks.get(self.current)
        return talk is not None and talk.is_active

    @property
    def is_loading(self) -> bool:
        """Whether the agent's thread is there and cannot be written to yet."""
        talk = self._talks.get(self.current)
        return talk is not None and not talk.is_loaded

    # What is told

    def found(self, thread: Thread) -> bool:
        """Take in a thread that exists; True when it is the agent's from now on and was not before."""
        if not thread.is_ours:
            self._others.add(thread.id)
            return False
        is_new = thread.id != self.current
        self._set_status(self._talks.setdefault(thread.id, _Talk()), thread.status)
        self.current = thread.id
        return is_new

    def begun(self, turn: Turn) -> Heard:
        """Take in a turn of the agent's thread as an answer has it, with what is in it already."""
        talk = self._talks.setdefault(self.current, _Talk())
        if turn.status == "inProgress":
            talk.turn, talk.is_active = turn.id, True
            talk.limit = ""
        else:
            self._end_turn(talk, {"id": turn.id, "error": turn.error})
        return Heard(seen=keys_of(turn), ended="" if turn.status == "inProgress" else turn.id)

    def lifted(self) -> None:
        """More may be used again."""
        for talk in self._talks.values():
            talk.limit = ""

    def hear(self, said: Said) -> Heard:
        """Take in one word of the server."""
        params = said.params
        if said.method == "account/rateLimits/updated":
            self._hear_limits(params)
            return _NOTHING
        if said.method == "thread/started":
            return self._hear_started(params)
        thread = params.get("threadId")
        if not isinstance(thread, str) or thread in self._others:
            return _NOTHING
        talk = self._talks.get(thread)
        if talk is None:
            return Heard(stranger=thread)
        if said.is_question:
            talk.asked[str(said.id)] = asked_in(said.method, params, talk.works.values())
            return _NOTHING
        return self._hear_talk(said.method, params, thread, talk)

    def _hear_started(self, params: Mapping[str, object]) -> Heard:
        thread = _part(params, "thread").get("id")
        # Whoever listens asks about it: one look says all, whatever this word carries.
        return Heard(stranger=thread) if isinstance(thread, str) else _NOTHING

    def _hear_talk(self, method: str, params: Mapping[str, object], thread: str, talk: _Talk) -> Heard:
        match method:
            case "thread/status/changed":
                was_active = talk.is_active
                self._set_status(talk, _part(params, "status"))
                if talk.is_active and not was_active:
                    self.current = thread  # a person has gone back to it
            case "thread/closed" | "thread/deleted":
                del self._talks[thread]
                self.current = "" if thread == self.current else self.current
            case "turn/started":
                talk.turn = text_in(_part(params, "turn"), "id")
                talk.limit = ""
            case "turn/completed":
                self._end_turn(talk, _part(params, "turn"))
                return Heard(ended=text_in(_part(params, "turn"), "id"))
            case "item/started":
                return self._begin_item(_part(params, "item"), thread, talk)
            case "item/completed":
                talk.works.pop(text_in(_part(params, "item"), "id"), None)
            case "serverRequest/resolved":
                talk.asked.pop(str(params.get("requestId")), None)
        return _NOTHING

    def _begin_item(self, item: Mapping[str, object], thread: str, talk: _Talk) -> Heard:
        if key := _key_of(item):
            return Heard(seen=frozenset({key})) if thread == self.current else _NOTHING
        if (work := work_of(item)) is not None:
            talk.works[text_in(item, "id")] = work
        return _NOTHING

    def _set_status(self, talk: _Talk, status: Mapping[str, object]) -> None:
        kind, flags = status.get("type"), status.get("activeFlags")
        talk.is_loaded = kind != "notLoaded"
        talk.is_active = kind == "active"
        talk.flags = frozenset(map(str, flags)) if isinstance(flags, list) else frozenset()
        if not talk.flags:
            talk.asked.clear()
        if not talk.is_active:
            talk.turn = ""
            talk.works.clear()

    def _end_turn(self, talk: _Talk, turn: Mapping[str, object]) -> None:
        if turn.get("id") == talk.turn:
            talk.turn = ""
        error = _part(turn, "error")
        info = error.get("codexErrorInfo")
        if isinstance(info, str) and info in _LIMITED:
            said = _AGAIN.search(text_in(error, "message"))
            until = str(self._resets_at or "") or (one_line(said[1]) if said else "")
            talk.limit = f"{USAGE_LIMIT} until {until}" if until else USAGE_LIMIT

    def _hear_limits(self, params: Mapping[str, object]) -> None:
        """Remember when the window that is used up most begins anew."""
        limits = _part(params, "rateLimits")
        windows = [_part(limits, name) for name in ("primary", "secondary")]
        full = [window for window in windows if _number(window.get("usedPercent")) >= 100]
        moments = [_number(window.get("resetsAt")) for window in full]
        self._resets_at = max(filter(None, moments), default=None)

    # What is asked

    @property
    def is_limited(self) -> bool:
        """Whether the agent may use no more for now."""
        talk = self._talks.get(self.current)
        return talk is not None and bool(talk.limit)

    @property
    def word(self) -> Word:
        """What the agent does now."""
        talk = self._talks.get(self.current)
        if talk is None or not talk.is_loaded:
            return Word(state=AgentState.STARTING)
        if talk.flags:
            asked = next(iter(talk.asked.values()), "")
            kind = PERMISSION if "waitingOnApproval" in talk.flags else QUESTION
            return Word(state=AgentState.BLOCKED, detail=f"{kind}: {asked}" if asked else kind)
        if not talk.is_active:
            return Word(state=AgentState.BLOCKED if talk.limit else AgentState.IDLE, detail=talk.limit)
        if talk.works:
            return list(talk.works.values())[-1]
        return Word(state=AgentState.ACTIVE, detail=THINKING)

    @property
    def level(self) -> Level:
        """What can come through now. While the model speaks a text would stop it: only an interrupt may."""
        talk = self._talks.get(self.current)
        if talk is None or not talk.is_loaded:
            return Level(Gate(is_open=False, reason="starting"))
        if talk.flags:
            return Level(Gate(is_open=False, reason=DIALOG))
        if talk.limit:
            return Level(Gate(is_open=False, reason=USAGE_LIMIT))
        if any(work.detail == COMPACTING for work in talk.works.values()):
            return Level(Gate(is_open=False, reason=COMPACTING))
        return Level(OPEN, is_paused=talk.is_active and not talk.works)


def keys_of(turn: Turn) -> frozenset[str]:
    """Give the keys of our own texts in what is loaded of a turn."""
    return frozenset(filter(None, map(_key_of, turn.items)))


def _key_of(item: Mapping[str, object]) -> str:
    return text_in(item, "clientId") if item.get("type") == "userMessage" else ""


def _part(params: Mapping[str, object], name: str) -> Mapping[str, object]:
    return map_of(params.get(name))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
