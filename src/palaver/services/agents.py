"""Agents in use: start, end and list them, with their sub-agents."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER, Joined
from palaver.errors import RequestError
from palaver.log.api import Log
from palaver.protocol.agents import Agent, BeginSubagent, Seat
from palaver.protocol.envelope import Event
from palaver.protocol.events import SEAT_TYPES
from palaver.protocol.requests import Gone
from palaver.state.agents import read_subagent
from palaver.state.fold import agent_of

# --------------------
# The live sub-agents: the parent of each, and their end when the parent ends. Used by every door.
#
# The broker makes the durable decisions. This index of the log is in memory, so that a hook of a known
# sub-agent does not wait for the disk.

_LIMIT_CALLS: Final = 4096
"""Remembered tool calls. When full, the oldest is dropped and then counts as a call of the parent."""


class Subagents:
    """The index of live sub-agents; it also begins and ends them. Use it only on the event loop's thread."""

    def __init__(self, log: Log, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        """Ends of sub-agents that follow from their parent's end are stored in `tasks`."""
        self._log = log
        self._broker = broker
        self._tasks = tasks
        self._living: dict[str, dict[str, str]] = {}
        self._calls: dict[str, str] = {}
        self._unsubscribe = log.subscribe(self._follow, SEAT_TYPES)

    def start(self) -> None:
        """Load the stored sub-agents, and end those whose parent ended while no daemon was running."""
        for agent in list(self._broker.directory.all()):
            if agent.parent:
                self._put(agent)

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def find(self, parent: str, key: str) -> Agent | None:
        """Return a live sub-agent by the id that its harness uses for it."""
        name = self._living.get(parent, {}).get(key)
        return None if name is None else self._broker.directory.get(name)

    def was_here(self, parent: str, key: str) -> bool:
        """Return whether a sub-agent has ever begun, live or not."""
        return read_subagent(self._log.rows, parent, key) is not None

    def of(self, parent: str) -> list[Agent]:
        """Return the live sub-agents of an agent, oldest first."""
        found = map(self._broker.directory.get, self._living.get(parent, {}).values())
        return [agent for agent in found if agent is not None]

    async def begun(self, parent: str, key: str, type: str = "") -> Agent | None:
        """Return a sub-agent with its former name or a new one. When this returns, the name is durable.

        For a live sub-agent nothing is stored. Returns None if the parent is not there or no name can be
        made.
        """
        if (known := self.find(parent, key)) is not None:
            return known
        try:
            request = BeginSubagent(parent=parent, key=key, type=type)
            joined = await self._broker.submit(SYSTEM_CALLER, request)
        except RequestError:
            return None
        assert isinstance(joined, Joined)
        return joined.agent

    async def ended(self, parent: str, key: str, reason: str = "ended") -> None:
        """Store that a sub-agent has ended. Repeats and unknown keys have no effect."""
        if (agent := self.find(parent, key)) is not None:
            await self._end(agent, reason)

    async def left(self, name: str, reason: str) -> None:
        """Store that a sub-agent has ended, by its name. Other names have no effect."""
        agent = self._broker.directory.get(name)
        if agent is not None and agent.parent and not agent.left:
            await self._end(agent, reason)

    # Tool calls, by the id that the harness uses for each

    def calls(self, call: str, key: str) -> None:
        """Record that a sub-agent makes a tool call. A caller with the id of that call is this sub-agent."""
        self._calls.pop(call, None)
        self._calls[call] = key
        if len(self._calls) > _LIMIT_CALLS:
            del self._calls[next(iter(self._calls))]

    def caller_of(self, call: str) -> str:
        """Return the key of the sub-agent that made a call; empty if no sub-agent did."""
        return self._calls.get(call, "")

    # Following the log

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            agent = self._broker.directory.get(agent_of(event)) if event.type in SEAT_TYPES else None
            if agent is None:
                continue
            if agent.parent:
                self._put(agent)
            for child in self.of(agent.name):
                self._look_at(child, agent)

    def _put(self, agent: Agent) -> None:
        here = self._living.setdefault(agent.parent, {})
        if not agent.left:
            here[agent.session] = agent.name
            self._look_at(agent, self._broker.directory.get(agent.parent))
        elif here.get(agent.session) == agent.name:
            del here[agent.session]
        if not here:
            del self._living[agent.parent]

    def _look_at(self, agent: Agent, parent: Agent | None) -> None:
        """End a sub-agent whose parent has ended, or now runs in another process than when it began."""
        if parent is None or parent.left:
            why = f": {parent.detail}" if parent is not None and parent.detail else ""
            self._tasks.create_task(self._end(agent, f"{agent.parent} has ended{why}"))
        elif _process(parent.seat) != _process(agent.seat):
            self._tasks.create_task(self._end(agent, f"{agent.parent} is now another process"))

    async def _end(self, agent: Agent, reason: str) -> None:
        await self._broker.submit(SYSTEM_CALLER, Gone(name=agent.name, reason=reason, seat=agent.seat))


def _process(seat: Seat | None) -> tuple[int, int, str] | None:
    return None if seat is None else (seat.pid, seat.start, seat.boot)


# --------------------
# The transcript file of each agent, as reported by its hooks. In memory: the next hook reports it again.

LIMIT_TOLD: Final = 10_000
"""Agents whose transcripts are remembered. When full, the one reported longest ago is dropped."""
_LIMIT_PATH: Final = 4096


@dataclass(slots=True)
class TranscriptBook:
    """The paths that hooks have reported. They are never opened or checked here."""

    _paths: dict[str, str] = field(default_factory=dict)

    def tell(self, name: str, path: str) -> None:
        """Remember the transcript of an agent. A path that is not absolute or is too long is ignored."""
        if not path.startswith("/") or "\0" in path or len(path) > _LIMIT_PATH:
            return
        self._paths.pop(name, None)
        self._paths[name] = path
        if len(self._paths) > LIMIT_TOLD:
            del self._paths[next(iter(self._paths))]

    def path_of(self, name: str) -> str:
        """Return the path that was reported last, or ""."""
        return self._paths.get(name, "")
