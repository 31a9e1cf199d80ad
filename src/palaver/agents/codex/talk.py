"""The state of one Codex thread as its app-server reports it: status, open requests, gate. Pure."""

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
"""The text with which Codex tells the user when its usage limit ends."""
_LIMITED: Final = frozenset({"usageLimitExceeded", "sessionBudgetExceeded"})
_BEGUN: Final = frozenset({"active", "systemError"})
"""The statuses that a thread has only during its first turn or later; a failed turn leaves the second one."""


@dataclass(slots=True)
class Talk:
    """The current state of one thread."""

    parent: str = ""
    """The parent thread, for a sub-agent."""
    role: str = ""
    is_loaded: bool = True
    is_active: bool = False
    has_begun: bool = False
    """Whether a turn has begun in it: from then on Codex stores the thread."""
    flags: frozenset[str] = frozenset()
    turn: str = ""
    works: dict[str, Word] = field(default_factory=dict)
    changes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """The file changes in progress: a permission request refers to them without repeating them."""
    asked: dict[str, Asked] = field(default_factory=dict)
    has_tools: bool | None = None
    """Whether our tools have started, or will not start; None if that was not asked for yet."""
    trouble: str = ""
    """Why our tools are missing."""
    limit: str = ""
    """Set while the last turn ended because of a usage limit; includes its end, if known."""

    # Updates

    def set_status(self, status: Mapping[str, object]) -> None:
        """Set the status of the whole thread."""
        kind, flags = status.get("type"), status.get("activeFlags")
        self.is_loaded = kind != "notLoaded"
        if not self.is_loaded:
            self.has_tools = None  # Codex starts the MCP servers again when it loads the thread again.
        self.is_active = kind == "active"
        self.has_begun = self.has_begun or kind in _BEGUN
        self.flags = frozenset(map(str, flags)) if isinstance(flags, list) else frozenset()
        if not self.flags:
            self.asked.clear()
        if not self.is_active:
            self.turn = ""
            self.works.clear()
            self.changes.clear()

    def begin_turn(self, turn: str) -> None:
        """Begin a turn."""
        self.turn, self.limit, self.has_begun = turn, "", True

    def end_turn(self, turn: Mapping[str, object], resets_at: int | None) -> None:
        """End a turn; `resets_at` is the end of the usage limit, if the server reported it separately."""
        if turn.get("id") == self.turn:
            self.turn = ""
        error = as_map(turn.get("error"))
        info = error.get("codexErrorInfo")
        if isinstance(info, str) and info in _LIMITED:
            said = _AGAIN.search(text_in(error, "message"))
            until = str(resets_at or "") or (one_line(said[1]) if said else "")
            self.limit = f"{USAGE_LIMIT} until {until}" if until else USAGE_LIMIT

    def begin_item(self, item: Mapping[str, object]) -> None:
        """Begin a work item; ignore items that are not work."""
        name = text_in(item, "id")
        if (work := work_of(item)) is not None:
            self.works[name] = work
        if changes := changes_in(item):
            self.changes[name] = changes

    def end_item(self, item: Mapping[str, object]) -> None:
        """End a work item."""
        self.works.pop(text_in(item, "id"), None)
        self.changes.pop(text_in(item, "id"), None)

    # Queries

    @property
    def word(self) -> Word:
        """The current status of the thread."""
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
        """Whether our tools are still starting: the agent could not reply to a message yet."""
        return self.has_tools is False

    @property
    def level(self) -> Level:
        """Whether a message can be delivered now.

        While the model writes, only an interrupt: a text stops it.
        """
        if not self.is_loaded or (self.awaits_tools and not self.flags):
            return Level(Gate(is_open=False, reason="starting"))
        if self.flags:
            return Level(Gate(is_open=False, reason=DIALOG))
        if self.limit:
            return Level(Gate(is_open=False, reason=USAGE_LIMIT))
        if any(work.detail == COMPACTING for work in self.works.values()):
            return Level(Gate(is_open=False, reason=COMPACTING))
        return Level(OPEN, is_paused=self.is_active and not self.works)
