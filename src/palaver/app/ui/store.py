"""The bus as the dashboard knows it, folded from snapshots and changes. Pure.

Lists are kept sorted by bisection: a change moves its own rows and builds no list again.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from palaver.protocol.views import (
    AgentRow,
    AgentsPage,
    Attention,
    AttentionPage,
    Changes,
    ConversationRow,
    Counts,
    Snapshot,
)

if TYPE_CHECKING:
    from palaver.client.view_link import Record

SortKey = tuple[object, ...]

_DEEPEST: Final = 8
"""Levels of sub-agents that are shown below each other."""


class SortedKeys:
    """Keys in the order of a sort value. Adding, moving and finding one take a bisection."""

    def __init__(self) -> None:
        self._order: list[tuple[SortKey, str]] = []
        self._values: dict[str, tuple[SortKey, str]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return (key for _, key in self._order)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def key(self, index: int) -> str:
        """Return the key at an index."""
        return self._order[index][1]

    def find(self, key: str) -> int:
        """Return the index of a key, or -1."""
        value = self._values.get(key)
        return -1 if value is None else bisect_left(self._order, value)

    def put(self, key: str, value: SortKey) -> None:
        """Add a key, or move it to where its new value belongs."""
        placed = (value, key)  # the key makes it unique, so a bisection finds exactly this entry
        known = self._values.get(key)
        if known == placed:
            return
        if known is not None:
            del self._order[bisect_left(self._order, known)]
        insort(self._order, placed)
        self._values[key] = placed

    def drop(self, key: str) -> None:
        """Remove a key, if it is there."""
        known = self._values.pop(key, None)
        if known is not None:
            del self._order[bisect_left(self._order, known)]

    def fill(self, values: Iterable[tuple[str, SortKey]]) -> None:
        """Replace everything."""
        self._values = {key: (value, key) for key, value in values}
        self._order = sorted(self._values.values())


# --------------------
# The list of agents: sorted, filtered, with sub-agents below their parents.

_STATE_ORDER: Final = ("blocked", "active", "starting", "idle", "exited")
"""States in the order in which a person wants to see them. All others come after these, by name."""


def _state_rank(row: AgentRow) -> tuple[int, str]:
    rank = _STATE_ORDER.index(row.state) if row.state in _STATE_ORDER else len(_STATE_ORDER)
    return (rank + (0 if row.is_present else 10), row.state)


def _room(row: AgentRow) -> str:
    # After all names of rooms, so that agents without a room come last.
    return row.rooms[0] if row.rooms else "\uffff"


SORTS: Final[dict[str, Callable[[AgentRow], SortKey]]] = {
    "name": lambda row: (),
    "state": _state_rank,
    "since": lambda row: (-row.since,),
    "unread": lambda row: (-row.unread,),
    "harness": lambda row: (row.harness,),
    "room": lambda row: (_room(row),),
    "folder": lambda row: (row.folder,),
    "last message": lambda row: (-row.last_seq,),
}
"""The ways to sort agents. Agents with the same value are sorted by name."""


class AgentOrder:
    """The visible agents. Sub-agents follow their parent, unless that is folded."""

    def __init__(self, agents: dict[str, AgentRow]) -> None:
        self._agents = agents
        self._children: dict[str, set[str]] = {}
        self._shown = SortedKeys()
        self._open: set[str] = set()
        self.sort = "name"
        self.words: tuple[str, ...] = ()
        self.has_departed = False
        """Whether agents that have left are listed too."""

    def __len__(self) -> int:
        return len(self._shown)

    def key(self, index: int) -> str:
        """Return the name at an index."""
        return self._shown.key(index)

    def find(self, name: str) -> int:
        """Return the index of an agent, or -1."""
        return self._shown.find(name)

    def names(self) -> list[str]:
        """Return all visible names in order."""
        return list(self._shown)

    def sub_agents(self, name: str) -> int:
        """Return how many agents are directly below an agent."""
        return len(self._children.get(name, ()))

    def depth(self, name: str) -> int:
        """Return how many levels below a listed agent this one is."""
        depth, row = 0, self._agents.get(name)
        # With a limit, so that parents in a circle do no harm.
        while row is not None and row.parent and depth < _DEEPEST and not self.words:
            row = self._agents.get(row.parent)
            depth += row is not None
        return depth

    def is_folded(self, name: str) -> bool:
        """Whether the sub-agents of an agent are hidden."""
        return name not in self._open

    def fold(self, name: str) -> None:
        """Hide the sub-agents of an agent, or show them again."""
        self._open ^= {name}
        self.rebuild()

    def fold_all(self) -> None:
        """Show all sub-agents, or hide them if all are shown."""
        parents = {name for name in self._children if self._children[name]}
        self._open = set() if parents <= self._open else parents
        self.rebuild()

    def arrange(self, *, sort: str | None = None, words: str | None = None) -> None:
        """Sort by another column, or keep only rows that contain all of these words."""
        if sort is not None:
            self.sort = sort
        if words is not None:
            self.words = tuple(words.lower().split())
        self.rebuild()

    def show_departed(self, *, is_wanted: bool) -> None:
        """List agents that have left, or leave them out."""
        self.has_departed = is_wanted
        self.rebuild()

    def rebuild(self) -> None:
        """Build the list again, after a change that concerns every row."""
        self._children = {}
        for row in self._agents.values():
            if row.parent:
                self._children.setdefault(row.parent, set()).add(row.name)
        self._shown.fill((name, self._value(name)) for name in self._agents if self._is_shown(name))

    def put(self, row: AgentRow, before: AgentRow | None) -> None:
        """Place a row that was added or has changed. `before` is its earlier value."""
        if row.parent:
            self._children.setdefault(row.parent, set()).add(row.name)
        self._show_or_drop(row.name)
        # The sort value of a sub-agent begins with those of its parents, so it moves with them.
        has_moved = before is None or SORTS[self.sort](before) != SORTS[self.sort](row)
        if has_moved or (before is not None and before.has_left != row.has_left):
            for name in self._below(row.name):
                self._show_or_drop(name)

    def drop(self, row: AgentRow) -> None:
        """Remove an agent."""
        self._shown.drop(row.name)
        if row.parent:
            self._children.get(row.parent, set()).discard(row.name)

    def _show_or_drop(self, name: str) -> None:
        if self._is_shown(name):
            self._shown.put(name, self._value(name))
        else:
            self._shown.drop(name)

    def _below(self, name: str, depth: int = 0) -> Iterator[str]:
        for child in self._children.get(name, ()):
            yield child
            if depth < _DEEPEST:
                yield from self._below(child, depth + 1)

    def _value(self, name: str) -> SortKey:
        """Return the values of the agent's parents and its own: a parent comes directly before its rows."""
        row = self._agents[name]
        line = [(*SORTS[self.sort](row), row.name)]
        while not self.words and row.parent in self._agents and len(line) < _DEEPEST:
            row = self._agents[row.parent]
            line.insert(0, (*SORTS[self.sort](row), row.name))
        return tuple(line)

    def _is_shown(self, name: str) -> bool:
        row = self._agents.get(name)
        if row is None or (row.has_left and not self.has_departed):
            return False
        # A filter finds sub-agents also below a folded parent, which itself may not match.
        if self.words:
            return all(word in _searched(row) for word in self.words)
        depth = 0
        while row.parent in self._agents and depth < _DEEPEST:
            if row.parent not in self._open:
                return False
            row = self._agents[row.parent]
            depth += 1
        return True


def _searched(row: AgentRow) -> str:
    parts = (row.name, row.harness, row.state, row.tag, row.role, row.doing, row.waits_for, row.folder)
    return "\n".join((*parts, *row.rooms, row.last)).lower()


# --------------------
# Everything that the dashboard knows.

_NOTHING: Final = Counts(agents={})


class Store:
    """The rows of a snapshot, kept current by the changes after it."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentRow] = {}
        self.attention: dict[str, Attention] = {}
        self.talks: dict[str, ConversationRow] = {}
        self.counts = _NOTHING
        self.seq = 0
        self.epoch = ""
        self.me = ""
        self.agents_total = 0
        self.has_snapshot = False
        self.is_away = True
        self.upgraded: int | None = None
        """How much of its log a starting daemon has upgraded, in percent; None if it does not do that."""
        self.now = 0
        """The time of the snapshot."""
        self.at = 0
        """The seq in the past that is shown; 0 for the present."""
        # It keeps this dictionary, so `agents` is changed in place and never replaced.
        self.agent_list = AgentOrder(self.agents)
        self.attention_list = SortedKeys()
        self.talk_list = SortedKeys()
        self._unsure: set[str] = set()

    def apply(self, record: "Record") -> None:
        """Take over a snapshot, changes, or that the bus is away. Old rows stay while it is away."""
        if isinstance(record, Snapshot):
            self._take_snapshot(record)
        elif isinstance(record, Changes):
            self._take_changes(record)
        else:
            self.is_away, self.upgraded = True, record.upgraded

    def add_agents(self, page: AgentsPage) -> None:
        """Add a page of agents that the snapshot left out. The last page removes agents that no page had."""
        for row in page.rows:
            self._put_agent(row)
            self._unsure.discard(row.name)
        if not page.has_more:
            for name in self._unsure:
                self._drop_agent(name)
            self._unsure = set()

    def add_talk(self, row: ConversationRow) -> None:
        """Add a conversation that the snapshot left out."""
        known = self.talks.get(row.key)
        if known is None or known.seq < row.seq:
            self.talks[row.key] = row
            self.talk_list.put(row.key, (-row.seq,))

    def add_attention(self, page: AttentionPage) -> None:
        """Add the entries that the snapshot left out."""
        for entry in page.entries:
            self.attention[entry.key] = entry
            self.attention_list.put(entry.key, (entry.since,))

    def names(self) -> list[str]:
        """Return the names of all agents that have not left."""
        return sorted(name for name, row in self.agents.items() if not row.has_left)

    def request_of(self, name: str) -> int:
        """Return the seq of the newest open request of an agent to the person; 0 without one."""
        found = (
            entry.seq for entry in self.attention.values() if entry.who == name and entry.kind == "request"
        )
        return max(found, default=0)

    @property
    def bus_text(self) -> str:
        """Whether the bus can be reached, in two or three words."""
        if self.is_away and self.upgraded is not None:
            return f"bus upgrading {self.upgraded} %"
        if self.is_away:
            return "bus away" if self.has_snapshot else "bus starting"
        return f"past #{self.at}" if self.at else "bus up"

    @property
    def is_empty(self) -> bool:
        """Whether no agent has joined yet."""
        return self.has_snapshot and not self.agents and not self.agents_total

    def as_snapshot(self) -> Snapshot:
        """Return a snapshot without rows, for screens that draw everything again from this store."""
        return Snapshot(
            epoch=self.epoch,
            seq=self.seq,
            now=self.now,
            me=self.me,
            device="",
            version="",
            counts=self.counts,
        )

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        self.seq, self.epoch, self.me, self.now = snapshot.seq, snapshot.epoch, snapshot.me, snapshot.now
        self.counts, self.agents_total = snapshot.counts, snapshot.agents_total
        self.is_away, self.has_snapshot = False, True
        # A snapshot has only some of many agents. The others stay until the last page, so that the list does
        # not become short for a moment after each reconnect.
        self._unsure = set(self.agents)
        for row in snapshot.agents:
            # After a restart these rows count, whatever the seq of the rows before.
            self.agents[row.name] = row
            self._unsure.discard(row.name)
        if len(snapshot.agents) >= snapshot.agents_total:
            for name in self._unsure:
                del self.agents[name]
            self._unsure = set()
        self.agent_list.rebuild()
        self.attention.clear()
        self.attention.update((entry.key, entry) for entry in snapshot.attention)
        self.attention_list.fill((entry.key, (entry.since,)) for entry in snapshot.attention)
        self.talks.clear()
        self.talks.update((row.key, row) for row in snapshot.talks)
        self.talk_list.fill((row.key, (-row.seq,)) for row in snapshot.talks)

    def _take_changes(self, changes: Changes) -> None:
        self.seq = changes.seq
        for row in changes.agents:
            self._put_agent(row)
            self._unsure.discard(row.name)
        for entry in changes.attention:
            self.attention[entry.key] = entry
            self.attention_list.put(entry.key, (entry.since,))
        for key in changes.settled:
            self.attention.pop(key, None)
            self.attention_list.drop(key)
        for talk in changes.talks:
            self.talks[talk.key] = talk
            self.talk_list.put(talk.key, (-talk.seq,))
        if changes.counts is not None:
            self.counts = changes.counts

    def _put_agent(self, row: AgentRow) -> None:
        before = self.agents.get(row.name)
        # A page may be older than a change that came during the question.
        if before is not None and before.seq > row.seq:
            return
        self.agents[row.name] = row
        self.agent_list.put(row, before)

    def _drop_agent(self, name: str) -> None:
        row = self.agents.pop(name, None)
        if row is not None:
            self.agent_list.drop(row)
