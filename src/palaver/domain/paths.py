"""Match delivery paths with patterns, and find the subscriptions that a path reaches. Pure.

`*` is one whole segment, `**` any number of segments. Everything else is literal: `#*` has no wildcard. All
matching subscribers are returned; `recipients` decides whether a sender is included.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from palaver.protocol.address import MANY, ONE, split_path

Subscriber = TypeVar("Subscriber", bound=Hashable)


def path_matches(pattern: str | None, path: str | None) -> bool:
    """Return whether a pattern matches a literal path. None is the empty path.

    The cost is at most the product of their lengths, for any number of `**`.
    """
    return _matches(split_path(pattern or ""), split_path(path or ""))


def has_wildcard(path: str) -> bool:
    """Return whether a path contains a wildcard segment."""
    segments = split_path(path)
    return ONE in segments or MANY in segments


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Match greedily: only the last `**` is tried again, one segment longer each time.

    An earlier `**` needs no second try. It ends at the first possible segment, which leaves the longest rest
    for the later ones. So the time is a product of the lengths and not exponential.
    """
    at, index = 0, 0
    last_many, resume = -1, 0
    while index < len(path):
        if at < len(pattern) and pattern[at] == MANY:
            last_many, resume = at, index
            at += 1
        elif at < len(pattern) and pattern[at] in (ONE, path[index]):
            at += 1
            index += 1
        elif last_many >= 0:
            resume += 1
            at, index = last_many + 1, resume
        else:
            return False
    # `**` at the end may match no segment.
    return all(segment == MANY for segment in pattern[at:])


class _Node(Generic[Subscriber]):
    """One segment in the tree of patterns."""

    __slots__ = ("children", "is_many", "subscribers")

    def __init__(self, segment: str) -> None:
        self.is_many = segment == MANY
        self.children: dict[str, _Node[Subscriber]] = {}
        self.subscribers: set[Subscriber] = set()


class PathIndex(Generic[Subscriber]):
    """Subscriptions by pattern, stored as a tree of segments.

    A lookup visits only branches that can still match, so unrelated subscriptions cost nothing. Not
    thread-safe. Patterns and paths must be normalized by `check_path`.
    """

    def __init__(self) -> None:
        self._root: _Node[Subscriber] = _Node("")

    def add(self, pattern: str, subscriber: Subscriber) -> None:
        """Add a subscription; a repeat has no effect."""
        node = self._root
        for segment in split_path(pattern):
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node(segment)
            node = child
        node.subscribers.add(subscriber)

    def remove(self, pattern: str, subscriber: Subscriber) -> None:
        """Remove a subscription; a missing one is not an error."""
        branch = [self._root]
        segments = split_path(pattern)
        for segment in segments:
            child = branch[-1].children.get(segment)
            if child is None:
                return
            branch.append(child)
        branch[-1].subscribers.discard(subscriber)
        # Remove empty branches, because sessions come and go for as long as the daemon runs.
        for segment in reversed(segments):
            node = branch.pop()
            if node.children or node.subscribers:
                return
            del branch[-1].children[segment]

    def match(self, path: str) -> set[Subscriber]:
        """Return all subscribers whose subscription the path reaches, in either direction."""
        segments = split_path(path)
        found = self._found_by_patterns(segments)
        # A path with wildcards selects literal subscriptions too. Most paths have no wildcard and skip this.
        if ONE in segments or MANY in segments:
            found |= self._found_by_path(segments)
        return found

    def _found_by_patterns(self, segments: Sequence[str]) -> set[Subscriber]:
        """Match subscriptions as patterns against a path read literally; all branches are walked in parallel.

        One step for each segment, so that several `**` in one pattern cannot multiply the work.
        """
        nodes = _with_many_below([self._root])
        for segment in segments:
            reached = []
            for node in nodes:
                if node.is_many:
                    reached.append(node)
                reached.extend(node.children[key] for key in {segment, ONE} & node.children.keys())
            nodes = _with_many_below(reached)
        return set().union(*(node.subscribers for node in nodes))

    def _found_by_path(self, segments: Sequence[str]) -> set[Subscriber]:
        """Match the path as a pattern against literal subscriptions. Each node is visited at most once.

        A node is visited with all positions in the path that its branch can have reached, one bit each.
        Otherwise a path with several `**` would visit a node once for each way to reach it.
        """
        positions: dict[str, int] = {}
        for at, segment in enumerate(segments):
            positions[segment] = positions.get(segment, 0) | 1 << at
        many = positions.get(MANY, 0)
        wild = many | positions.get(ONE, 0)
        end = 1 << len(segments)
        found: set[Subscriber] = set()
        waiting = [(self._root, _past_many(1, many))]
        while waiting:
            node, reached = waiting.pop()
            if reached & end:
                found |= node.subscribers
            # Without a wildcard at a reached position, only children named in the path can match.
            for name in node.children if reached & wild else positions.keys() & node.children.keys():
                fits = reached & (wild | positions.get(name, 0))
                # `**` also stays where it is: it may match the next segment too.
                if after := _past_many((fits & ~many) << 1 | (fits & many), many):
                    waiting.append((node.children[name], after))
        return found


def _with_many_below(nodes: Iterable[_Node[Subscriber]]) -> list[_Node[Subscriber]]:
    """Add the `**` right below each node, which may match no segment. Return no node twice."""
    reached = dict.fromkeys(nodes)
    waiting = list(reached)
    while waiting:
        many = waiting.pop().children.get(MANY)
        if many is not None and many not in reached:
            reached[many] = None
            waiting.append(many)
    return list(reached)


def _past_many(reached: int, many: int) -> int:
    """Add the position after each reached `**`, which may match no segment."""
    while (further := reached | (reached & many) << 1) != reached:
        reached = further
    return reached
