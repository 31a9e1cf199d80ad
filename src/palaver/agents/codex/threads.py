"""What the app-server of Codex says of its threads, made into one state. Pure: it hears, and is asked.

Of all threads in a server one is the agent's: the one that a person works in, and of several the newest; or
the one that was named, and then no other. Sub-agents have threads of their own, below it. Titles and reviews
have threads too: what they do changes nothing here. Words that cannot be read are passed over, so a newer
Codex may say more.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from palaver.agents.codex.items import edits_of
from palaver.agents.codex.questions import question_of
from palaver.agents.codex.talk import Talk
from palaver.agents.codex.wire import Said, Thread, Turn
from palaver.agents.native_word import Asked, Level, Word
from palaver.harness.hook_news import as_map, as_number, text_in


@dataclass(frozen=True, slots=True)
class Heard:
    """What follows from one word of the server."""

    thread: str = ""
    """Where `seen` and `ended` happened."""
    seen: frozenset[str] = frozenset()
    """The keys of our own texts that are now in that thread."""
    stranger: str = ""
    """A thread that was named and is not known: somebody should look."""
    ended: str = ""
    """The turn that is over: what it has not taken it will not take any more."""
    edits: tuple[Word, ...] = ()
    """Files that are being changed beside the one that the agent's word names."""
    closed: frozenset[str] = frozenset()
    """The threads that are gone: what was on its way into them is not heard of any more."""


_NOTHING: Final = Heard()
_CLOSED: Final = frozenset({"thread/closed", "thread/deleted"})
_BEGINNINGS: Final = frozenset({"thread/started", "thread/status/changed", "turn/started"})
_ENDED: Final = 50
"""Turns whose end is remembered: an answer that was made before it can come behind it."""
_NO_TALK: Final = Talk(is_loaded=False)
"""What stands for a thread that is not there. Nothing is written into it."""


class Threads:
    """Every thread of one server. `current` is the agent's, empty while there is none."""

    def __init__(self, only: str = "") -> None:
        """`only` names the one thread that is the agent's, whatever else happens in the server."""
        self._only = only
        self._talks: dict[str, Talk] = {}
        self._others: set[str] = set()
        """Threads that are nobody here: titles, reviews, and what others do."""
        self._refused: set[str] = set()
        """Threads that the server would not show: not again until something begins in them."""
        self._resets_at: int | None = None
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self.current = ""

    @property
    def turn(self) -> str:
        """The turn that runs in the agent's thread, empty when none is known."""
        return self.turn_in(self.current)

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self._talk(self.current).is_active

    @property
    def is_loading(self) -> bool:
        """Whether the agent's thread is there and cannot be written to yet."""
        return self.current in self._talks and not self._talks[self.current].is_loaded

    # What is told

    def refused(self, thread: str) -> None:
        """The server does not show a thread: it has ended, or has not yet begun."""
        self._refused.add(thread)

    def found(self, thread: Thread) -> bool:
        """Take in a thread that exists; True when it is the agent's from now on and was not before."""
        self._refused.discard(thread.id)
        is_below = thread.is_subagent and (thread.parent_thread_id or "") in self._talks
        if not is_below and (not thread.is_ours or self._only not in ("", thread.id)):
            self._others.add(thread.id)
            return False
        talk = self._talks.setdefault(thread.id, Talk())
        talk.set_status(thread.status)
        if is_below:
            talk.parent, talk.role = thread.parent_thread_id or "", thread.agent_role or ""
            return False
        is_new = thread.id != self.current
        self.current = thread.id
        return is_new

    def begun(self, turn: Turn, thread: str = "") -> Heard:
        """Take in a turn of a thread, or of the agent's, as an answer has it, with what is in it already."""
        thread = thread or self.current
        if self.has_ended(turn):
            return Heard(thread=thread, seen=keys_of(turn), ended=turn.id)
        talk = self._talks.setdefault(thread, Talk())
        if turn.status == "inProgress":
            talk.is_active = True
            talk.begin_turn(turn.id)
            for item in turn.items:
                if item.get("status") == "inProgress":
                    talk.begin_item(item)
        else:
            talk.end_turn({"id": turn.id, "error": turn.error}, self._resets_at)
        ended = "" if turn.status == "inProgress" else turn.id
        return Heard(thread=thread, seen=keys_of(turn), ended=ended)

    def has_ended(self, turn: Turn) -> bool:
        """Whether a turn is over by now that was running when the answer was made which shows it."""
        return turn.status == "inProgress" and turn.id in self._ended

    def await_tools(self) -> list[str]:
        """Return the loaded threads whose tools were not asked for yet. They are closed until `equipped`."""
        found = [one for one, talk in self._talks.items() if talk.is_loaded and talk.has_tools is None]
        for thread in found:
            self._talks[thread].has_tools = False
        return found

    def equipped(self, thread: str, trouble: str = "") -> None:
        """The start of our tools in a thread has ended; `trouble` says why there are none."""
        if (talk := self._talks.get(thread)) is not None:
            talk.has_tools, talk.trouble = True, trouble

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
        if not isinstance(thread, str):
            return _NOTHING
        talk = self._talks.get(thread)
        if talk is None:
            return self._hear_unknown(said.method, thread)
        if said.is_question:
            item = talk.changes.get(text_in(params, "itemId"), {})
            asked = question_of(said, item)
            talk.asked[asked.request] = asked
            return _NOTHING
        return self._hear_talk(said.method, params, thread, talk)

    def _hear_unknown(self, method: str, thread: str) -> Heard:
        if method in _CLOSED:
            self._others.discard(thread)
            self._refused.discard(thread)
            return _NOTHING
        is_passed_over = thread in self._refused and method not in _BEGINNINGS
        return _NOTHING if thread in self._others or is_passed_over else Heard(stranger=thread)

    def _hear_started(self, params: Mapping[str, object]) -> Heard:
        thread = _part(params, "thread").get("id")
        # Whoever listens asks about it: one look says all, whatever this word carries.
        return Heard(stranger=thread) if isinstance(thread, str) else _NOTHING

    def _hear_talk(self, method: str, params: Mapping[str, object], thread: str, talk: Talk) -> Heard:
        match method:
            case "thread/status/changed":
                was_active = talk.is_active
                talk.set_status(_part(params, "status"))
                if talk.is_active and not was_active and not talk.parent:
                    self.current = thread  # a person has gone back to it
            case "thread/closed" | "thread/deleted":
                return Heard(closed=frozenset(self._close(thread)))
            case "turn/started":
                talk.begin_turn(text_in(_part(params, "turn"), "id"))
            case "turn/completed":
                talk.end_turn(_part(params, "turn"), self._resets_at)
                self._ended.append(text_in(_part(params, "turn"), "id"))
                return Heard(thread=thread, ended=text_in(_part(params, "turn"), "id"))
            case "item/started":
                item = _part(params, "item")
                if key := _key_of(item):
                    return Heard(thread=thread, seen=frozenset({key}))
                talk.begin_item(item)
                return Heard(edits=tuple(edits_of(item)) if thread == self.current else ())
            case "item/completed":
                talk.end_item(_part(params, "item"))
            case "serverRequest/resolved":
                talk.asked.pop(str(params.get("requestId")), None)
        return _NOTHING

    def _close(self, thread: str) -> Iterator[str]:
        """Forget a thread that is gone, and what it had started; gives each of them."""
        for below in [one for one, talk in self._talks.items() if talk.parent == thread]:
            yield from self._close(below)
        del self._talks[thread]
        self.current = "" if thread == self.current else self.current
        yield thread

    def _hear_limits(self, params: Mapping[str, object]) -> None:
        """Remember when the window that is used up most begins anew."""
        limits = _part(params, "rateLimits")
        windows = [_part(limits, name) for name in ("primary", "secondary")]
        full = [window for window in windows if as_number(window.get("usedPercent")) >= 100]
        moments = [as_number(window.get("resetsAt")) for window in full]
        self._resets_at = max(filter(None, moments), default=None)

    # What is asked

    @property
    def is_limited(self) -> bool:
        """Whether the agent may use no more for now."""
        return bool(self._talk(self.current).limit)

    @property
    def word(self) -> Word:
        """What the agent does now."""
        return self._talk(self.current).word

    @property
    def level(self) -> Level:
        """What can come through to the agent now."""
        return self.level_of(self.current)

    def has(self, thread: str) -> bool:
        """Whether a thread is there, and the agent's or below it."""
        return thread in self._talks

    def word_of(self, thread: str) -> Word:
        """What is done in a thread now."""
        return self._talk(thread).word

    def level_of(self, thread: str) -> Level:
        """What can come through to a thread now."""
        return self._talk(thread).level

    def turn_in(self, thread: str) -> str:
        """The turn that runs in a thread, empty when none is known."""
        return self._talk(thread).turn

    def subagents(self) -> dict[str, tuple[str, str]]:
        """Give the threads below the agent's, each with the one that started it and its role, outer first."""
        found: dict[str, tuple[str, str]] = {}
        # One that Codex has closed is not in memory any more, until it is taken up again.
        open_ones = {one: talk for one, talk in self._talks.items() if talk.parent and talk.is_loaded}
        above, left = {self.current}, open_ones
        while below := {one: talk for one, talk in left.items() if talk.parent in above}:
            found |= {one: (talk.parent, talk.role) for one, talk in below.items()}
            above, left = set(below), {one: talk for one, talk in left.items() if one not in below}
        return found

    def questions(self) -> dict[str, Asked]:
        """Give what is asked in the agent's thread and below it, and can be answered from elsewhere."""
        talks = [self._talk(self.current), *(self._talk(one) for one in self.subagents())]
        return {
            key: one for talk in talks if talk.flags for key, one in talk.asked.items() if one.is_answerable
        }

    def _talk(self, thread: str) -> Talk:
        return self._talks.get(thread, _NO_TALK)


def keys_of(turn: Turn) -> frozenset[str]:
    """Give the keys of our own texts in what is loaded of a turn."""
    return frozenset(filter(None, map(_key_of, turn.items)))


def _key_of(item: Mapping[str, object]) -> str:
    return text_in(item, "clientId") if item.get("type") == "userMessage" else ""


def _part(params: Mapping[str, object], name: str) -> Mapping[str, object]:
    return as_map(params.get(name))
