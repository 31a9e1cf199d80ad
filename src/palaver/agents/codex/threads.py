"""The state of all threads of a Codex app-server, computed from its reports. Pure.

One thread is the agent's: the newest one that the user works in, or only the thread named by `only`.
Sub-agents have child threads of it. Threads of titles and reviews are ignored. Unknown reports are ignored
too, because a newer Codex may send more.
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
    """The consequences of one report of the server."""

    thread: str = ""
    """The thread of `seen` and `ended`."""
    seen: frozenset[str] = frozenset()
    """The keys of those texts from us that are now in that thread."""
    stranger: str = ""
    """An unknown thread that was mentioned and should be read."""
    ended: str = ""
    """The turn that ended: it takes no more texts."""
    edits: tuple[Word, ...] = ()
    """Files that are being changed, in addition to the one in the agent's status."""
    closed: frozenset[str] = frozenset()
    """The threads that were closed: texts on their way into them are not reported any more."""


_NOTHING: Final = Heard()
_CLOSED: Final = frozenset({"thread/closed", "thread/deleted"})
_BEGINNINGS: Final = frozenset({"thread/started", "thread/status/changed", "turn/started"})
_ENDED: Final = 50
"""Ended turns to remember: an older result can arrive after the report of the end."""
_NO_TALK: Final = Talk(is_loaded=False)
"""Represents a thread that does not exist. It must not be changed."""


class Threads:
    """All threads of one server. `current` is the agent's; empty if there is no such thread."""

    def __init__(self, only: str = "") -> None:
        """`only` is the id of the agent's thread, if no other thread may be the agent's."""
        self._only = only
        self._talks: dict[str, Talk] = {}
        self._others: set[str] = set()
        """Threads to ignore: titles, reviews, and those of other users."""
        self._refused: set[str] = set()
        """Threads that the server refused to show; they are read again only when something begins in them."""
        self._resets_at: int | None = None
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self.current = ""

    @property
    def turn(self) -> str:
        """The running turn of the agent's thread; empty if not known."""
        return self.turn_in(self.current)

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""
        return self._talk(self.current).is_active

    @property
    def is_loading(self) -> bool:
        """Whether the agent's thread exists but cannot be written to yet."""
        return self.current in self._talks and not self._talks[self.current].is_loaded

    # Updates

    def refused(self, thread: str) -> None:
        """Record that the server does not show a thread: it has ended, or has not begun yet."""
        self._refused.add(thread)

    def found(self, thread: Thread) -> bool:
        """Add or update a thread; return True if it has just become the agent's."""
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
        """Apply a turn from a result, with its items, to a thread or by default to the agent's thread."""
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
        """Return whether a turn that a result shows as running has ended since."""
        return turn.status == "inProgress" and turn.id in self._ended

    def await_tools(self) -> list[str]:
        """Return the loaded threads whose tools were not asked for yet. They are closed until `equipped`."""
        found = [one for one, talk in self._talks.items() if talk.is_loaded and talk.has_tools is None]
        for thread in found:
            self._talks[thread].has_tools = False
        return found

    def equipped(self, thread: str, trouble: str = "") -> None:
        """Record that the start of our tools in a thread has finished; `trouble` is the error, if any."""
        if (talk := self._talks.get(thread)) is not None:
            talk.has_tools, talk.trouble = True, trouble

    def lifted(self) -> None:
        """End all usage limits."""
        for talk in self._talks.values():
            talk.limit = ""

    def hear(self, said: Said) -> Heard:
        """Apply one message of the server."""
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
        # The caller reads the thread; that returns everything, whatever this report contains.
        return Heard(stranger=thread) if isinstance(thread, str) else _NOTHING

    def _hear_talk(self, method: str, params: Mapping[str, object], thread: str, talk: Talk) -> Heard:
        match method:
            case "thread/status/changed":
                was_active = talk.is_active
                talk.set_status(_part(params, "status"))
                if talk.is_active and not was_active and not talk.parent:
                    self.current = thread  # The user has returned to this thread.
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
        """Remove a closed thread and its child threads; yield each of them."""
        for below in [one for one, talk in self._talks.items() if talk.parent == thread]:
            yield from self._close(below)
        del self._talks[thread]
        self.current = "" if thread == self.current else self.current
        yield thread

    def _hear_limits(self, params: Mapping[str, object]) -> None:
        """Store when the full rate-limit windows reset; with two, the later time."""
        limits = _part(params, "rateLimits")
        windows = [_part(limits, name) for name in ("primary", "secondary")]
        full = [window for window in windows if as_number(window.get("usedPercent")) >= 100]
        moments = [as_number(window.get("resetsAt")) for window in full]
        self._resets_at = max(filter(None, moments), default=None)

    # Queries

    @property
    def is_limited(self) -> bool:
        """Whether the agent has reached its usage limit."""
        return bool(self._talk(self.current).limit)

    @property
    def word(self) -> Word:
        """The current status of the agent."""
        return self._talk(self.current).word

    @property
    def level(self) -> Level:
        """Whether a message can be delivered to the agent now."""
        return self.level_of(self.current)

    def has(self, thread: str) -> bool:
        """Return whether a thread is known as the agent's or a sub-agent's."""
        return thread in self._talks

    def has_begun(self, thread: str) -> bool:
        """Return whether a turn has begun in a thread."""
        return self._talk(thread).has_begun

    def word_of(self, thread: str) -> Word:
        """Return the current status of a thread."""
        return self._talk(thread).word

    def level_of(self, thread: str) -> Level:
        """Return whether a message can be delivered to a thread now."""
        return self._talk(thread).level

    def turn_in(self, thread: str) -> str:
        """Return the running turn of a thread; empty if not known."""
        return self._talk(thread).turn

    def subagents(self) -> dict[str, tuple[str, str]]:
        """Return the sub-agent threads, parents first, each with its parent and role."""
        found: dict[str, tuple[str, str]] = {}
        # Codex unloads a closed sub-agent until it is resumed.
        open_ones = {one: talk for one, talk in self._talks.items() if talk.parent and talk.is_loaded}
        above, left = {self.current}, open_ones
        while below := {one: talk for one, talk in left.items() if talk.parent in above}:
            found |= {one: (talk.parent, talk.role) for one, talk in below.items()}
            above, left = set(below), {one: talk for one, talk in left.items() if one not in below}
        return found

    def questions(self) -> dict[str, Asked]:
        """Return the open requests of the agent and its sub-agents that can be decided remotely."""
        talks = [self._talk(self.current), *(self._talk(one) for one in self.subagents())]
        return {
            key: one for talk in talks if talk.flags for key, one in talk.asked.items() if one.is_answerable
        }

    def _talk(self, thread: str) -> Talk:
        return self._talks.get(thread, _NO_TALK)


def keys_of(turn: Turn) -> frozenset[str]:
    """Return the keys of the texts from us in the loaded items of a turn."""
    return frozenset(filter(None, map(_key_of, turn.items)))


def _key_of(item: Mapping[str, object]) -> str:
    return text_in(item, "clientId") if item.get("type") == "userMessage" else ""


def _part(params: Mapping[str, object], name: str) -> Mapping[str, object]:
    return as_map(params.get(name))
