"""The native integration of a harness on the bus: a lane for the agent and each sub-agent, and companions."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from palaver.client.wire import ReplyLine
from palaver.errors import AlreadyJoined, PalaverError, Unavailable
from palaver.harness.base import (
    AgentReport,
    Integration,
    Make,
    PermissionQuestion,
    Spawn,
    status_of,
)
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.lane import NativeLane
from palaver.holder.tasks import Work
from palaver.protocol.events import Outcome, request_digest
from palaver.protocol.lines import (
    GONE,
    TAKEN,
    AccompanyOp,
    LeaveOp,
    PermissionOp,
    SubBeginOp,
    SubEndOp,
    TellOp,
)

# --------------------
# The native integration of a harness on the bus: a lane for the agent and for each of its sub-agents.

_logger: Final = logging.getLogger("palaver.holder")

# --------------------
# Permission requests of a harness with a native integration: reported to the bus, and decisions returned.
#
# The harness receives a decision only if the daemon reports that the user made it, and only while the harness
# still has exactly that request open. A permission is granted once, never permanently. With the setting off,
# the daemon sends no decisions.


class Permissions:
    """The permission requests of one agent and its sub-agents."""

    def __init__(
        self, bus: HolderConnection, integration: Integration, *, spawn: Spawn, name_of: Callable[[str], str]
    ) -> None:
        """`name_of` returns the agent of a session; empty for the agent itself."""
        self._bus = bus
        self._integration = integration
        self._spawn = spawn
        self._name_of = name_of
        self._reported: dict[str, tuple[PermissionQuestion, str]] = {}
        """The requests that were reported to the daemon, with the agent's name."""
        self._answered: dict[str, PermissionQuestion] = {}
        """The decided requests that the harness still shows as open."""

    def connected(self) -> None:
        """Report all open requests to a new connection."""
        # The daemon may be a new one, which knows none of them.
        self._reported.clear()
        self._answered.clear()
        self.look()

    def look(self) -> None:
        """Report new requests, and those no longer open: decided at the terminal, or withdrawn."""
        if not self._bus.is_connected:
            return
        now = self._integration.questions()
        # Once the harness has closed a request, another one may use its id.
        self._answered = {one: asked for one, asked in self._answered.items() if now.get(one) == asked}
        # A list first, because the loop removes entries.
        for request in [one for one, (asked, _) in self._reported.items() if now.get(one) != asked]:
            self._tell_end(request, self._reported.pop(request)[1], GONE)
        for request, asked in now.items():
            if request not in self._reported and request not in self._answered:
                self._tell(request, asked)

    def decide(self, line: ReplyLine) -> None:
        """Apply a decision to one request. Ignore it if the request is not open or has changed."""
        known = self._reported.get(line.request)
        # A person decided about the text that they saw: with another digest the harness asks for something
        # else now.
        if known is not None and line.digest in ("", _digest(known[0])):
            # Before the reply: the harness then closes the request, and `look` would report it as withdrawn.
            del self._reported[line.request]
            self._answered[line.request] = known[0]  # From now on, do not report this request again.
            self._spawn(self._reply(line.request, *known, is_allowed=line.allowed))

    async def _reply(self, request: str, asked: PermissionQuestion, name: str, *, is_allowed: bool) -> None:
        is_taken = await self._integration.decide(asked, is_allowed=is_allowed)
        self._tell_end(request, name, TAKEN if is_taken else GONE)

    def _tell(self, request: str, asked: PermissionQuestion) -> None:
        name = self._name_of(asked.session)
        self._reported[request] = asked, name
        self._bus.mention(
            PermissionOp(
                name=name,
                request=request,
                session=asked.session,
                tool=asked.tool,
                input=dict(asked.given),
            )
        )

    def _tell_end(self, request: str, name: str, outcome: str) -> None:
        self._bus.mention(PermissionOp(name=name, request=request, outcome=outcome))


def _digest(asked: PermissionQuestion) -> str:
    return request_digest(asked.session, asked.tool, asked.given)


# --------------------
# The sub-agents: each has its own name, lane and state.
#
# The harness says which sub-agents exist. Changes are reported one at a time and in order: a parent begins
# before its children and ends after them, and the outcomes of a sub-agent are reported before its end.

Tell = Callable[[], None]


class _Named(msgspec.Struct, frozen=True):
    name: str


_named: Final = msgspec.json.Decoder(_Named).decode


@dataclass(slots=True, eq=False)
class _SubAgent:
    """A sub-agent that has a name from the daemon."""

    name: str
    parent: str
    """The name of its parent; empty for the agent itself."""
    kind: str
    lane: NativeLane
    word: AgentReport | None = None
    is_reported: bool = True
    """Whether its begin was reported on this connection."""


class NativeSubagents:
    """Begins and ends sub-agents on the bus as the harness does."""

    def __init__(
        self,
        bus: HolderConnection,
        integration: Integration,
        *,
        spawn: Spawn,
        on_change: Callable[[], None],
        on_begun: Callable[[str, str], None] = lambda key, name: None,
    ) -> None:
        """`on_change` is called when an offer to a sub-agent ends, `on_begun` with its key and name."""
        self._bus = bus
        self._integration = integration
        self._spawn = spawn
        self._on_change = on_change
        self._on_begun = on_begun
        self._known: dict[str, _SubAgent] = {}
        self._refused: set[str] = set()
        """The keys that the daemon refused on this connection."""
        self._remembered: list[Outcome] = []
        self._changing = asyncio.Lock()
        self._is_closed = False

    @property
    def is_at_rest(self) -> bool:
        """Whether no lane here has an offer in progress."""
        return all(one.lane.is_at_rest for one in self._known.values())

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet, each with the name of its sub-agent."""
        unreported = [
            msgspec.structs.replace(outcome, name=one.name)
            for one in self._known.values()
            for outcome in one.lane.outcomes
        ]
        return (*self._remembered, *unreported)

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self._remembered.extend(outcomes)

    async def settle(self) -> None:
        """Wait until all outcomes are reported, or the connection is lost."""
        # A copy, because sub-agents can begin and end during the waits.
        for one in list(self._known.values()):
            await one.lane.settle()

    def name_of(self, key: str) -> str:
        """Return the name of a sub-agent; empty if the key is unknown."""
        known = self._known.get(key)
        return known.name if known is not None else ""

    def connected(self) -> None:
        """Report all sub-agents again on a new connection; they keep their names."""
        # Another daemon may accept them.
        self._refused.clear()
        for one in self._known.values():
            one.lane.lose()  # Lane numbers are valid on one connection only.
            # The daemon may be a new one: it gets every begin and status again.
            one.word, one.is_reported = None, False
        if not self._is_closed:
            self._spawn(self._change())

    def look(self) -> None:
        """Report changes: new and ended sub-agents, and the status of each."""
        if self._is_closed or not self._bus.is_connected:
            return
        for key, one in self._known.items():
            if one.is_reported:
                self._tell(key, one)
        # A running change looks for the next one itself.
        if not self._changing.locked() and self._next() is not None:
            self._spawn(self._change())

    def claim(self, line: ReplyLine, otherwise: Callable[[ReplyLine], None]) -> None:
        """Take an offer for a lane here, and pass any other to `otherwise`."""
        # A chain and not a lookup by number: a lane that is being opened has no number yet, and keeps the
        # offer.
        for one in self._known.values():
            otherwise = partial(one.lane.claim, otherwise=otherwise)
        otherwise(line)

    def prove(self, mark: str) -> None:
        """Report that an unconfirmed text was seen after all."""
        for one in self._known.values():
            one.lane.prove(mark)

    def close(self) -> None:
        """Close all lanes without a report: the daemon ends the sub-agents together with the agent."""
        self._is_closed = True
        for one in self._known.values():
            one.lane.end()

    # Changes

    def _next(self) -> tuple[str, bool] | None:
        """Return the next change: the key, and whether the sub-agent begins."""
        living = self._integration.subagents()
        for key in reversed(self._known):  # Begun last, ended first: children before their parents.
            one = self._known[key]
            if key not in living:
                # Its outcomes must be reported before its end.
                return key, not one.is_reported and bool(one.lane.outcomes)
        for key in living:
            if key not in self._refused and (key not in self._known or not self._known[key].is_reported):
                return key, True
        return None

    async def _change(self) -> None:
        async with self._changing:
            try:
                while not self._is_closed and self._bus.is_connected and (due := self._next()) is not None:
                    await (self._begin(due[0]) if due[1] else self._end(due[0]))
            except PalaverError as error:
                _logger.info("sub-agents wait for the daemon: %s", error)

    async def _begin(self, key: str) -> None:
        known = self._known.get(key)
        parent, kind = self._integration.subagents().get(key) or ("", "")
        if known is not None:
            # The harness may have ended it: it is begun again only to report its outcomes.
            above, kind = known.parent, known.kind
        elif parent in self._refused:
            # Begun all the same, it would count as a sub-agent of the agent itself.
            self._refused.add(key)
            return
        else:
            above = self.name_of(parent)
        try:
            name = _named(await self._bus.ask(SubBeginOp(name=above, key=key, type=kind))).name
        except Unavailable:
            raise
        except PalaverError as refusal:
            _logger.warning("a sub-agent is not on the bus: %s: %s", refusal.code, refusal)
            self._forget(key)
            self._refused.add(key)
            return
        await self._open(key, self._take(key, name, above, kind))

    def _take(self, key: str, name: str, above: str, kind: str) -> _SubAgent:
        """Record a sub-agent under the name that the daemon gave it."""
        one = self._known.get(key)
        # Another daemon may give it another name, and a lane belongs to one name.
        if one is None or one.name != name:
            self._forget(key)
            lane = NativeLane(self._bus, partial(self._integration.carry, key), self._on_change, name=name)
            lane.remember(
                tuple(
                    msgspec.structs.replace(outcome, name="")
                    for outcome in self._remembered
                    if outcome.name == name
                )
            )
            self._remembered = [outcome for outcome in self._remembered if outcome.name != name]
            one = self._known[key] = _SubAgent(name=name, parent=above, kind=kind, lane=lane)
            self._on_begun(key, name)
        one.is_reported = True
        return one

    async def _open(self, key: str, one: _SubAgent) -> None:
        self._tell(key, one)
        if one.lane.is_at_rest:
            await one.lane.open()
        else:
            self._spawn(one.lane.try_open())  # Do not delay the other sub-agents until its offer ends.

    async def _end(self, key: str) -> None:
        one = self._known[key]
        # A text that waits for its proof may wait long after the end of the sub-agent.
        if not self._integration.is_waiting(key):
            await one.lane.settle()  # Report its outcomes before its end.
        one.lane.lose()  # Accept no more offers.
        try:
            await self._bus.ask(SubEndOp(name=one.parent, key=key, reason=self._integration.ending))
        except Unavailable:
            raise  # The next connection reports it again.
        except PalaverError as refusal:
            _logger.info("the end of a sub-agent was not accepted: %s: %s", refusal.code, refusal)
        self._forget(key)

    def _forget(self, key: str) -> None:
        if (one := self._known.pop(key, None)) is not None:
            one.lane.end()

    def _tell(self, key: str, one: _SubAgent) -> None:
        level = self._integration.gate_of(key)
        one.lane.set_level(level.gate, is_paused=level.is_paused)
        if (word := self._integration.status_of(key)) != one.word:
            one.word = word
            self._bus.mention(status_of(word, one.name))


# --------------------
# The agent itself with its sub-agents.


class NativeLanes:
    """One integration on the bus: the lanes of the agent and its sub-agents, and their permission requests.

    It is the same for every harness, and implements the `NativeBus` of the integration.
    """

    def __init__(
        self,
        bus: HolderConnection,
        make: Make,
        *,
        spawn: Spawn,
        on_status: Tell,
        on_change: Tell = lambda: None,
        on_subagent: Callable[[str, str], None] = lambda key, name: None,
    ) -> None:
        """`on_status` is called when the agent's status may have changed, `on_change` when an offer ends.

        `on_subagent` receives the key and name of each sub-agent.
        """
        self._bus = bus
        self._spawn = spawn
        self._on_status = on_status
        self.integration = make(self)
        self.lane = NativeLane(bus, partial(self.integration.carry, ""), on_change)
        self.subagents = NativeSubagents(
            bus, self.integration, spawn=spawn, on_change=on_change, on_begun=on_subagent
        )
        self.permissions = Permissions(bus, self.integration, spawn=spawn, name_of=self.subagents.name_of)

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress, for the agent and its sub-agents."""
        return self.lane.is_at_rest and self.subagents.is_at_rest

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet, for the agent and its sub-agents."""
        return self.lane.outcomes + self.subagents.outcomes

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self.lane.remember(tuple(one for one in outcomes if not one.name))
        self.subagents.remember(tuple(one for one in outcomes if one.name))

    def connected(self) -> None:
        """Report everything except the agent's status on a new connection.

        If the harness can be reached, its lane opens as soon as no offer is in progress.
        """
        self.lane.lose()  # Lane numbers are valid on one connection only.
        if self.integration.status is not None:
            self._spawn(self.lane.try_open())
        self.subagents.connected()
        self.permissions.connected()

    def claim(self, line: ReplyLine, otherwise: Callable[[ReplyLine], None]) -> None:
        """Take an offer for one of the lanes here, and pass any other to `otherwise`."""
        self.lane.claim(line, lambda other: self.subagents.claim(other, otherwise))

    def decide(self, line: ReplyLine) -> None:
        """Apply the user's decision on a permission request."""
        self.permissions.decide(line)

    async def settle(self) -> None:
        """Wait until all outcomes are reported."""
        await self.lane.settle()
        await self.subagents.settle()

    def end(self) -> None:
        """End after the agent has exited: an offer in progress stays unconfirmed, without a report."""
        self.lane.end()
        self.integration.close()

    # Called by the integration

    async def open(self) -> None:
        """Open the lane of the agent: the harness can be reached. A lost connection opens it again."""
        await self.lane.try_open()

    def update(self) -> None:
        """Report all changes: the session, the gates, the sub-agents and the permission requests."""
        level = self.integration.gate_of("")
        self.lane.set_level(level.gate, is_paused=level.is_paused)
        if self.integration.session:
            self._bus.bind(self.integration.session)
        self.subagents.look()
        self.permissions.look()

    def report(self) -> None:
        """Report that the status of the agent may have changed."""
        self._on_status()

    def prove(self, mark: str) -> None:
        """Report that an unconfirmed text has reached the model after all."""
        self.lane.prove(mark)
        self.subagents.prove(mark)

    def close(self) -> None:
        """Close all lanes because the harness cannot be reached. Offers in progress become unconfirmed."""
        self.subagents.close()
        self.lane.close()


# --------------------
# A companion of one harness session that was started without `pal`: connects it to the bus as an agent.
#
# A companion never starts a daemon; it waits for one indefinitely. Finding the session and noticing its end
# is left to the module of each harness.

_PAUSE_S: Final = 0.2


class SessionCompanion:
    """One session, from the time an agent works in it."""

    def __init__(
        self,
        home: str,
        hold: AccompanyOp,
        make: Callable[[Spawn], Make],
        *,
        on_subagent: Callable[[str, str], None] = lambda key, name: None,
        on_held: Callable[[Held], None] = lambda held: None,
        is_news: Callable[[AgentReport, AgentReport], bool] = lambda before, now: True,
        tries: int = 1,
    ) -> None:
        """`make` takes the task spawner. `on_subagent` receives the key and name of each sub-agent.

        `on_held` receives the agent of the session; `is_news` decides which status changes are reported.

        Retry up to `tries` times if the session already has an agent.
        """
        self._session = hold.session
        self._on_news = on_held
        self._is_news = is_news
        self._tries = tries
        self._status: AgentReport | None = None
        self._work = Work()
        self._bus = HolderConnection(home, hold, self._on_held, self._on_push, _start_nothing)
        self._lanes = NativeLanes(
            self._bus,
            make(self._work.spawn),
            spawn=self._work.spawn,
            on_status=self._say_status,
            on_subagent=on_subagent,
        )
        self.is_over = asyncio.Event()
        """Set when the harness cannot be reached any more."""

    def start(self) -> None:
        """Connect to the harness, whether or not a daemon is running."""
        self._lanes.integration.start()

    async def run(self) -> PalaverError:
        """Stay on the bus until cancelled or refused permanently; return the refusal."""
        try:
            refusal = await self._serve()
            _logger.warning("session %s is not on the bus: %s: %s", self._session, refusal.code, refusal)
            return refusal
        finally:
            self._lanes.integration.close()
            self._work.cancel()
            await self._work.settle()

    async def _serve(self) -> PalaverError:
        left = self._tries
        while True:
            try:
                await self._bus.run()
            except PalaverError as refusal:
                left -= 1
                # A hook may be joining this session at the same time: a later attempt can succeed.
                if refusal.code != AlreadyJoined.code or left <= 0:
                    return refusal
                await asyncio.sleep(_PAUSE_S)

    async def leave(self, reason: str) -> None:
        """Report that the session has ended permanently. If the daemon cannot be reached, only log it."""
        try:
            await self._bus.ask(LeaveOp(reason=reason))
        except PalaverError as error:
            _logger.info("session %s has ended: %s", self._session, error)

    async def _on_held(self, held: Held) -> None:
        self._on_news(held)
        self._status = None  # The daemon may be a new one: it gets the status again.
        self._lanes.integration.start()
        self._say_status()
        self._lanes.connected()

    def _say_status(self) -> None:
        status, before = self._lanes.integration.status, self._status
        if self._lanes.integration.is_over:
            self.is_over.set()
        if status is None or status == before or not self._bus.is_connected or self._bus.held is None:
            return
        self._status = status
        # Recorded above even if it is not reported, so that each status is compared with the one right before
        # it.
        if before is None or self._is_news(before, status):
            self._bus.mention(status_of(status))

    def _on_push(self, line: ReplyLine) -> None:
        if line.push == "offer":
            self._lanes.claim(line, lambda other: _logger.warning("an offer for lane %d", other.lane))
        elif line.push == "decision":
            self._lanes.decide(line)
        elif line.push == "control":
            sentence = "it does not run in a terminal of Palaver"
            self._bus.mention(TellOp(ask=line.ask, error="bad_request", message=sentence))


async def _start_nothing() -> bool:
    """Start no daemon: the user started the harness without `pal`."""
    return False


def run_companion(work: Coroutine[Any, Any, int]) -> int:
    """Run a companion in this process and return its exit status."""
    os.umask(0o077)
    os.chdir("/")  # Do not keep a directory in use that the user may want to remove.
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.WARNING)
    gc.freeze()  # The imported modules stay: full collections need not visit them.
    return asyncio.run(work)
