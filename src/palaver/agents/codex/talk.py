"""One thread of a Codex as its app-server tells it: what runs, what is asked, what can come through. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from palaver.agents.codex.items import work_of
from palaver.agents.codex.questions import changes_in
from palaver.agents.native_word import Asked, Level, Word
from palaver.agents.terminal.gates import OPEN, Gate
from palaver.harness.hook_news import as_map, one_line, text_in
from palaver.harness.hook_states import COMPACTING, PERMISSION, QUESTION, THINKING
from palaver.model.delivery import AgentState
from palaver.model.terminal import DIALOG, USAGE_LIMIT

_AGAIN: Final = re.compile(r"\btry\s+again\s+at\s+([^.\n]{1,60})")
"""How Codex tells a person when its allowance is there again."""
_LIMITED: Final = frozenset({"usageLimitExceeded", "sessionBudgetExceeded"})


@dataclass(slots=True)
class Talk:
    """One thread as it is now."""

    parent: str = ""
    """The thread that started it, for a sub-agent's."""
    role: str = ""
    is_loaded: bool = True
    is_active: bool = False
    flags: frozenset[str] = frozenset()
    turn: str = ""
    works: dict[str, Word] = field(default_factory=dict)
    changes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """The changes of files that are under way: who is asked about one is not told it again."""
    asked: dict[str, Asked] = field(default_factory=dict)
    has_tools: bool | None = None
    """Whether our tools have started, or will not start; None if that was not asked for yet."""
    trouble: str = ""
    """Why it has none of our tools."""
    limit: str = ""
    """Set while the last turn ended because no more may be used: when it ends, where that is known."""

    # What is told

    def set_status(self, status: Mapping[str, object]) -> None:
        """Take in what the server says of the whole thread."""
        kind, flags = status.get("type"), status.get("activeFlags")
        self.is_loaded = kind != "notLoaded"
        if not self.is_loaded:
            self.has_tools = None  # Codex starts the MCP servers again when it loads the thread again.
        self.is_active = kind == "active"
        self.flags = frozenset(map(str, flags)) if isinstance(flags, list) else frozenset()
        if not self.flags:
            self.asked.clear()
        if not self.is_active:
            self.turn = ""
            self.works.clear()
            self.changes.clear()

    def begin_turn(self, turn: str) -> None:
        """A turn runs."""
        self.turn, self.limit = turn, ""

    def end_turn(self, turn: Mapping[str, object], resets_at: int | None) -> None:
        """A turn is over; `resets_at` is when an allowance is there again, where that was said apart."""
        if turn.get("id") == self.turn:
            self.turn = ""
        error = as_map(turn.get("error"))
        info = error.get("codexErrorInfo")
        if isinstance(info, str) and info in _LIMITED:
            said = _AGAIN.search(text_in(error, "message"))
            until = str(resets_at or "") or (one_line(said[1]) if said else "")
            self.limit = f"{USAGE_LIMIT} until {until}" if until else USAGE_LIMIT

    def begin_item(self, item: Mapping[str, object]) -> None:
        """A piece of work begins; what is no work is passed over."""
        name = text_in(item, "id")
        if (work := work_of(item)) is not None:
            self.works[name] = work
        if changes := changes_in(item):
            self.changes[name] = changes

    def end_item(self, item: Mapping[str, object]) -> None:
        """A piece of work has ended."""
        self.works.pop(text_in(item, "id"), None)
        self.changes.pop(text_in(item, "id"), None)

    # What is asked

    @property
    def word(self) -> Word:
        """What is done in it now."""
        if not self.is_loaded:
            return Word(state=AgentState.STARTING)
        if self.flags:
            asked = next((one.text for one in self.asked.values()), "")
            kind = PERMISSION if "waitingOnApproval" in self.flags else QUESTION
            return Word(state=AgentState.BLOCKED, detail=f"{kind}: {asked}" if asked else kind)
        if not self.is_active and self.limit:
            return Word(state=AgentState.BLOCKED, detail=self.limit)
        if not self.is_active:
            return Word(
                state=AgentState.STARTING if self.awaits_tools else AgentState.IDLE, detail=self.trouble
            )
        if self.works:
            return list(self.works.values())[-1]
        return Word(state=AgentState.ACTIVE, detail=THINKING)

    @property
    def awaits_tools(self) -> bool:
        """Whether our tools are still starting: a message would come before the agent can answer it."""
        return self.has_tools is False

    @property
    def level(self) -> Level:
        """What can come through now. While the model speaks a text would stop it: only an interrupt may."""
        if not self.is_loaded or (self.awaits_tools and not self.flags):
            return Level(Gate(is_open=False, reason="starting"))
        if self.flags:
            return Level(Gate(is_open=False, reason=DIALOG))
        if self.limit:
            return Level(Gate(is_open=False, reason=USAGE_LIMIT))
        if any(work.detail == COMPACTING for work in self.works.values()):
            return Level(Gate(is_open=False, reason=COMPACTING))
        return Level(OPEN, is_paused=self.is_active and not self.works)
