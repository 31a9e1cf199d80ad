"""Combine the states that a program reports by hooks, OSC 7501 and its title into one state. Pure.

The newest report counts. A later report of the terminal overrides a hook, because hooks do not report some
ends (an interrupt, a refused dialog). A title is ignored once the program has used OSC 7501.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.agents.terminal.terminal import Status
from palaver.harness.hook_states import hook_state
from palaver.harness.profile import Profile
from palaver.model.delivery import AgentState

_STATUS_STATES: Final = {
    "idle": AgentState.IDLE,
    "done": AgentState.IDLE,
    "working": AgentState.ACTIVE,
    "blocked": AgentState.BLOCKED,
}

PERMISSION: Final = "permission"


@dataclass(frozen=True, slots=True)
class Word:
    """One state with its reason."""

    state: AgentState
    reason: str = ""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The reported state of a program, for the process that takes over."""

    state: AgentState | None = None
    reason: str = ""
    session: str = ""
    has_status: bool = False
    from_hook: bool = False


class Signals:
    """Receives all reports of a program and keeps the newest."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._session = ""
        self._has_status = False
        self._from_hook = False
        self.word: Word | None = None

    def hear_hook(self, event: str, *, session: str = "", detail: str = "") -> bool:
        """Process a hook event. Return False if it belongs to another session or has no state."""
        found = hook_state(event, detail)
        if session and self._session and session != self._session:
            return False
        if found is None:
            return False
        self._session = "" if found[0] is AgentState.EXITED else session or self._session
        self.word = Word(*found)
        self._from_hook = True
        return True

    def hear_status(self, status: Status) -> bool:
        """Process an OSC 7501 status. Return False if its state is unknown."""
        state = _STATUS_STATES.get(status.state)
        if state is None:
            return False
        self._has_status = True
        self._say(Word(state, (status.kind or PERMISSION) if state is AgentState.BLOCKED else ""))
        return True

    def hear_title(self, title: str) -> None:
        """Process a title. Ignored if the program has used OSC 7501, which is more precise."""
        if self._has_status:
            return
        for rule in self._profile.titles:
            if rule.pattern.search(title):
                self._say(Word(rule.state, rule.reason))
                return

    def interrupt(self) -> None:
        """Record an interrupt: forget an active state that a hook reported."""
        if self._from_hook and self.word is not None and self.word.state is AgentState.ACTIVE:
            self.word = None

    def keep(self) -> Heard:
        """Return the reported state for the process that takes over."""
        return Heard(
            state=None if self.word is None else self.word.state,
            reason="" if self.word is None else self.word.reason,
            session=self._session,
            has_status=self._has_status,
            from_hook=self._from_hook,
        )

    def take_up(self, heard: Heard) -> None:
        """Continue with the state of the replaced process."""
        self.word = None if heard.state is None else Word(heard.state, heard.reason)
        self._session, self._has_status, self._from_hook = heard.session, heard.has_status, heard.from_hook

    def _say(self, word: Word) -> None:
        # A hook gives a more precise reason for an active state.
        if self._from_hook and self.word is not None and self.word.state is word.state is AgentState.ACTIVE:
            return
        self.word = word
        self._from_hook = False
