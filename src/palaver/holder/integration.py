"""Choose between the native integration of a harness and its terminal, and judge usage limits on screens."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver.client.wire import ReplyLine
from palaver.clock import CallLater, Clock, Timer
from palaver.errors import Disconnected
from palaver.harness.base import AgentReport, Gate, Make, Spawn
from palaver.harness.hooks import USED_UP, USED_UP_ASKED, fix_limit, is_counted_from_then, limit_ends_ms
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.native_lane import NativeLanes, Tell
from palaver.protocol.events import AgentState, Outcome
from palaver.terminal.screen import ScreenState
from palaver.version import __version__

if TYPE_CHECKING:
    from palaver.harness.codex.integration import Connect, TextSocket

# --------------------
# A usage limit that only the screen shows, and how long to believe it.
#
# A screen can show the limit long after it has ended. So the end is computed once, when the limit first
# appears, and after that time the agent counts as idle whatever the screen shows.

_STALE_MS: Final = 12 * 60 * 60_000
"""For this long after its end, the same text on a screen is the old limit and not a new one."""
_LOOK_MS: Final = 60_000
"""Interval at which the clock is checked: timers stop while the machine sleeps, and the clock may be set."""
GRACE_MS: Final = 5_000
"""For this long after the dialog about a limit was answered, the turn may still end because of the limit."""


class LimitWatch:
    """Derives the agent state from the usage limit shown on an idle screen."""

    def __init__(self, clock: Clock, on_end: Callable[[], None], call_later: CallLater) -> None:
        """`on_end` is called when the state must be checked again, such as at the end of the limit."""
        self._clock = clock
        self._on_end = on_end
        self._call_later = call_later
        self._shown = ""
        self._detail = ""
        self._ends_ms: int | None = None
        self._before = ("", "", 0)
        """The last limit whose end was known: its text on the screen, its detail, and its end."""
        self._timer: Timer | None = None
        self._asked: AgentReport | None = None
        self._answered_ms: int | None = None

    def see(self, report: AgentReport) -> AgentReport:
        """Return the state of the agent: blocked while its usage limit is reached, as far as known."""
        report = self._see_dialog(report)
        shown = report.detail if report.state is AgentState.IDLE and report.detail.startswith(USED_UP) else ""
        if shown != self._shown:
            self._begin(shown)
        if not shown:
            return report
        if self._ends_ms is not None:
            left_ms = self._ends_ms - self._clock.now_ms()
            if left_ms <= 0:
                # The old text stays until something is typed, and nothing is typed while the agent counts as
                # blocked.
                return AgentReport(state=AgentState.IDLE)
            self._look_in(min(left_ms, _LOOK_MS))
        return AgentReport(state=AgentState.BLOCKED, detail=self._detail)

    def _see_dialog(self, report: AgentReport) -> AgentReport:
        """Keep the state of an answered limit dialog for `GRACE_MS`, until its effect is visible."""
        if report.state is AgentState.BLOCKED and report.detail.startswith(USED_UP_ASKED):
            self._asked, self._answered_ms = report, None
        elif self._asked is not None and report.state is AgentState.ACTIVE:
            monotonic_ms = int(self._clock.monotonic_s() * 1000)
            self._answered_ms = monotonic_ms if self._answered_ms is None else self._answered_ms
            left_ms = self._answered_ms + GRACE_MS - monotonic_ms
            if left_ms > 0:
                self._look_in(left_ms)
                return self._asked
            self._asked = None
        else:
            self._asked = None
        return report

    def close(self) -> None:
        """Forget the limit and cancel the timer."""
        self._begin("")

    def _look_in(self, wait_ms: int) -> None:
        """Call `on_end` after `wait_ms`, instead of any earlier plan."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_later(wait_ms / 1000, self._on_end)

    def _begin(self, shown: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock.now_ms()
        known, detail, ends_ms = self._before
        self._shown = shown
        # The same text again, for instance after a dialog covered it. A time such as `3pm` that has passed
        # would now be taken for that of the next day.
        if shown and shown == known and not is_counted_from_then(shown) and now_ms < ends_ms + _STALE_MS:
            self._detail, self._ends_ms = detail, ends_ms
        else:
            self._detail = fix_limit(shown, now_ms)
            self._ends_ms = limit_ends_ms(self._detail, now_ms)
        if self._ends_ms is not None:
            self._before = shown, self._detail, self._ends_ms


# --------------------
# Choose between the native integration of a harness and its terminal.
#
# While the native integration works, nothing is typed: it carries the messages and reports the agent's
# status, the terminal lane is closed, and the user can type as usual. When it has ended or could never be
# reached, the terminal lane is used.

_NATIVE: Final = Gate(is_open=False, reason="native")


# Each integration is imported when its holder starts, so that no other harness waits for it to load.


def _codex(address: str, held: Held | None, clock: Clock, spawn: Spawn) -> Make:
    from palaver.harness.codex.integration import CodexIntegration

    connect = connect_codex(Path(address), is_own=True)
    return lambda bus: CodexIntegration(connect, bus, version=__version__, clock=clock, spawn=spawn)


def connect_codex(path: Path, *, is_own: bool = False) -> "Connect":
    """Return the function that connects to an app-server at a socket.

    `is_own` is a server that `pal` started for one agent: its directory must be private.
    """

    async def connect(
        on_text: Callable[[bytes], None], on_lost: Callable[[Disconnected], None]
    ) -> "TextSocket":
        # The library takes tens of milliseconds to load: not at the start of Codex, which the user waits for.
        from palaver.holder.codex_start import check_server_folder
        from palaver.holder.websocket import open_websocket

        # Another user who controls the directory could listen there, and would receive the agent's messages.
        try:
            if is_own:
                check_server_folder(path)
        except OSError as error:
            raise Disconnected(str(error)) from error
        return await open_websocket(path, on_text, on_lost)

    return connect


def _opencode(address: str, held: Held | None, clock: Clock, spawn: Spawn) -> Make:
    from palaver.holder.opencode import integrate_opencode

    return integrate_opencode(Path(address), held, clock=clock, spawn=spawn)


INTEGRATIONS: Final[dict[str, Callable[[str, Held | None, Clock, Spawn], Make]]] = {
    "codex": _codex,
    "opencode": _opencode,
}
"""Makers of integrations by harness: for an address, the held agent, the clock and the task spawner."""


class AgentIntegration:
    """The native integration of one agent, from the view of its holder.

    Does nothing if there is no integration.
    """

    def __init__(
        self,
        harness: str,
        address: str,
        bus: HolderConnection,
        *,
        clock: Clock,
        spawn: Spawn,
        on_status: Tell,
        on_change: Tell,
    ) -> None:
        """`address` is the future address of the integration: a path or a URL. Empty means no integration."""
        self.address = address
        self._limit = LimitWatch(clock, on_status, asyncio.get_running_loop().call_later)
        integrate = INTEGRATIONS.get(harness) if address else None
        self._lanes: NativeLanes | None = None
        if integrate is not None:
            self._lanes = NativeLanes(
                bus,
                integrate(address, bus.held, clock, spawn),
                spawn=spawn,
                on_status=on_status,
                on_change=on_change,
            )

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress, for the agent and its sub-agents."""
        return self._lanes is None or self._lanes.is_at_rest

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet, for the agent and its sub-agents."""
        return () if self._lanes is None else self._lanes.outcomes

    @property
    def left(self) -> tuple[Outcome, ...]:
        """The outcomes of the agent that its native lane cannot report any more, because it is closed."""
        return () if self._lanes is None else self._lanes.lane.left

    def forget(self, reported: tuple[Outcome, ...]) -> None:
        """Drop outcomes that were reported on the terminal lane."""
        if self._lanes is not None:
            self._lanes.lane.forget(reported)

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        if self._lanes is not None:
            self._lanes.remember(outcomes)

    def connected(self) -> None:
        """Open the native lane on a new connection, as soon as no offer is in progress."""
        if self._lanes is not None:
            self._lanes.connected()

    def take(self, line: ReplyLine, otherwise: Callable[[ReplyLine], None]) -> None:
        """Take an offer for the native lanes, and pass any other to `otherwise`."""
        if self._lanes is None:
            otherwise(line)
        else:
            self._lanes.claim(line, otherwise)

    def decide(self, line: ReplyLine) -> None:
        """Apply the user's decision on a request of the harness."""
        if self._lanes is not None:
            self._lanes.decide(line)

    def see(self, look: ScreenState, gate: Gate) -> tuple[AgentReport, Gate]:
        """Return the agent's status and the gate of the terminal lane.

        The status comes from the integration if there is one, and the terminal lane is closed then.
        """
        seen = self._limit.see(AgentReport(state=look.state, detail=look.reason))
        integration = self._lanes.integration if self._lanes is not None else None
        if integration is None or integration.is_over or look.state is AgentState.EXITED:
            return seen, gate
        if look.state is not AgentState.STARTING:
            # Only when the program is ready: Codex names its server after the first client, which must be the
            # user's screen.
            integration.start()
        report = integration.status or AgentReport(state=AgentState.STARTING)
        # A dialog at the start must be answered by the user, and messages wait for that as usual. Any other
        # screen is not conclusive before the integration has a status.
        is_asked = report.state is AgentState.STARTING and look.state is AgentState.BLOCKED
        return (seen, _NATIVE if gate.is_open else gate) if is_asked else (report, _NATIVE)

    async def settle(self) -> None:
        """Wait until all outcomes are reported."""
        if self._lanes is not None:
            await self._lanes.settle()

    def ended(self) -> None:
        """Close the integration: the agent has ended."""
        self._limit.close()
        if self._lanes is not None:
            self._lanes.end()

    def clear(self) -> None:
        """Remove the integration's files; it has its own directory."""
        # A URL has no directory. `parent` must never be that of a relative path.
        if self._lanes is not None and self.address.startswith("/"):
            shutil.rmtree(Path(self.address).parent, ignore_errors=True)
