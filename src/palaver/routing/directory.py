"""All named agents, found by any part of their name. Pure: the caller knows who is present.

The cost of a lookup does not grow with the number of agents, except for groups of that size.
"""

import difflib
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from palaver.model.agent import LAUNCHED, Agent
from palaver.model.path import AGENT
from palaver.routing.paths import PathIndex

_LOOKED_AT: Final = 500
_LEAST_ALIKE: Final = 0.3
"""The minimum similarity of a suggestion: low, because suggestions appear only if nothing matches."""
# The character after the underscore: bisecting for it skips all names that continue with an underscore.
_AFTER_UNDERSCORE: Final = chr(ord("_") + 1)
_LAST: Final = chr(0x10FFFF)


class Directory:
    """Agents by full name, base name, tag, role and prefix.

    Results are in the order in which agents were first added. Not thread-safe.
    """

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        self._agents: dict[str, Agent] = {}
        self._by_base: dict[str, dict[str, None]] = {}
        self._by_tag: dict[str, dict[str, None]] = {}
        self._by_role: dict[str, dict[str, None]] = {}
        self._bases: list[str] = []
        self._names: list[str] = []
        self._paths: PathIndex[str] = PathIndex()
        for agent in agents:
            self.put(agent)

    def __len__(self) -> int:
        return len(self._agents)

    def put(self, agent: Agent) -> None:
        """Add or replace an agent; a replaced agent keeps its position."""
        old = self._agents.get(agent.name)
        if old is not None and _placed(old) == _placed(agent):
            self._agents[agent.name] = agent
            return
        if old is not None:
            self._forget(old)
        self._agents[agent.name] = agent
        if agent.base not in self._by_base:
            self._by_base[agent.base] = {}
            insort(self._bases, agent.base)
        self._by_base[agent.base][agent.name] = None
        if agent.tag:
            self._by_tag.setdefault(agent.tag, {})[agent.name] = None
        self._by_role.setdefault(agent.role, {})[agent.name] = None
        insort(self._names, agent.name)
        for path in own_paths(agent.name, agent.parent):
            self._paths.add(path, agent.name)

    def drop(self, name: str) -> None:
        """Remove an agent; an unknown name is not an error. Its tag stays known."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            self._forget(agent)

    def _forget(self, agent: Agent) -> None:
        twins = self._by_base[agent.base]
        del twins[agent.name]
        if not twins:
            del self._by_base[agent.base]
            del self._bases[bisect_left(self._bases, agent.base)]
        if agent.tag:
            del self._by_tag[agent.tag][agent.name]
        del self._by_role[agent.role][agent.name]
        del self._names[bisect_left(self._names, agent.name)]
        for path in own_paths(agent.name, agent.parent):
            self._paths.remove(path, agent.name)

    def get(self, full_name: str) -> Agent | None:
        """Return the agent with this full name."""
        return self._agents.get(full_name)

    def is_launched(self, full_name: str) -> bool:
        """Return whether `pal HARNESS` started the agent and gave it hooks.

        An agent started by `pal run` has only the hooks that its harness finds by itself.
        """
        agent = self.get(full_name)
        return agent is not None and agent.argv[: len(LAUNCHED)] == LAUNCHED

    def find(self, written: str) -> Agent | None:
        """Return the agent with a full name as people write it: in any case, with or without `@`."""
        name, colon, device = written.removeprefix("@").partition(":")
        return self.get(name.lower() + colon + device.upper())

    def all(self) -> Iterator[Agent]:
        """Return all agents."""
        return iter(self._agents.values())

    def by_base(self, base: str) -> list[Agent]:
        """Return all agents with a base name, tagged or not, local or remote."""
        return [self._agents[name] for name in self._by_base.get(base, ())]

    def by_tag(self, tag: str) -> list[Agent]:
        """Return all agents with a tag."""
        return [self._agents[name] for name in self._by_tag.get(tag, ())]

    def has_tag(self, tag: str) -> bool:
        """Return whether any agent has or had a tag."""
        return tag in self._by_tag

    def by_role(self, role: str) -> list[Agent]:
        """Return all agents with a role."""
        return [self._agents[name] for name in self._by_role.get(role, ())]

    def by_glob(self, prefix: str) -> list[Agent]:
        """Return all agents whose full name starts with a prefix, sorted by name."""
        first = bisect_left(self._names, prefix)
        last = bisect_left(self._names, prefix + _LAST, first)
        return [self._agents[name] for name in self._names[first:last]]

    def paths_of(self, name: str) -> tuple[str, ...]:
        """Return the default paths of a name, whether it is in the directory or not."""
        agent = self._agents.get(name)
        return own_paths(name, "" if agent is None else agent.parent)

    def by_path(self, path: str) -> set[str]:
        """Return the names of the agents whose paths match a delivery path."""
        return self._paths.match(path)

    def bases_with(self, prefix: str, limit: int) -> list[str]:
        """Return the first base names with a prefix, sorted. An underscore stops a prefix.

        That is the first underscore of a name, which separates a sub-agent from its parent. A prefix that
        contains an underscore stops only right before another one.
        """
        found: list[str] = []
        has_chosen = "_" in prefix
        place = bisect_left(self._bases, prefix)
        while place < len(self._bases) and len(found) < limit:
            base = self._bases[place]
            if not base.startswith(prefix):
                break
            underscore = len(prefix) if has_chosen else base.find("_", len(prefix))
            if underscore < 0 or base[underscore : underscore + 1] != "_":
                found.append(base)
                place += 1
            else:
                place = bisect_left(self._bases, base[:underscore] + _AFTER_UNDERSCORE, place)
        return found

    def nearest(self, name: str, n: int = 3) -> list[str]:
        """Return the `n` most similar full names, best first; names with the same first letter come first.

        Ended sub-agents are not suggested, because no message can reach them.
        """
        pool = [agent.name for agent in self.by_glob(name[:1])[:_LOOKED_AT]] if name else []
        known = set(pool)
        for other in self._names:
            if len(pool) >= _LOOKED_AT:
                break
            if other not in known:
                pool.append(other)
        pool = [one for one in pool if not _is_over(self._agents[one])]
        return difflib.get_close_matches(name, pool, n, _LEAST_ALIKE)


def _is_over(agent: Agent) -> bool:
    return bool(agent.parent) and agent.left


def own_paths(name: str, parent: str = "") -> tuple[str, ...]:
    """Return the default paths of an agent, without subscriptions.

    A sub-agent `luna_reviewer_1` also has a path below its parent: `agent/luna/reviewer_1`. An underscore in
    the name of the parent does not split it.
    """
    first, _, rest = name.partition("_")
    child = name.removeprefix(f"{parent}_") if parent else ""
    below = [(first, rest), (parent, child)]
    paths = [f"{AGENT}/{name}", *(f"{AGENT}/{above}/{own}" for above, own in below if above and own)]
    return tuple(dict.fromkeys(paths))


def _placed(agent: Agent) -> tuple[str, ...]:
    """Return the fields that decide where an agent is found."""
    return agent.base, agent.tag, agent.role, agent.parent
