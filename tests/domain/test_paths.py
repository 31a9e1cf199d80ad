import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from _typeshed import TraceFunction

from palaver.domain.paths import PathIndex, has_wildcard, path_matches
from palaver.protocol.address import check_path

_ROWS = json.loads((Path(__file__).parent.parent / "vectors" / "path_match.json").read_text())

segments = st.sampled_from(["a", "b", "agent", "*", "**", "***", "#*"])
paths = st.lists(segments, max_size=6).map("/".join)


def _slow_matches(pattern: str, path: str) -> bool:
    """Return the result of the definition, by recursion."""
    wanted, given_ = pattern.split("/"), path.split("/")

    @cache
    def fits(at: int, seq: int) -> bool:
        if at == len(wanted):
            return seq == len(given_)
        if wanted[at] == "**":
            return fits(at + 1, seq) or (seq < len(given_) and fits(at, seq + 1))
        return seq < len(given_) and wanted[at] in ("*", given_[seq]) and fits(at + 1, seq + 1)

    return fits(0, 0)


def _routes_to(subscription: str, path: str) -> bool:
    """Return whether a message to a path reaches a subscription: either may be the pattern of the other."""
    return _slow_matches(subscription, path) or _slow_matches(path, subscription)


def _index_of(subscription: str) -> PathIndex[int]:
    index: PathIndex[int] = PathIndex()
    index.add(subscription, 1)
    return index


@pytest.mark.parametrize("row", _ROWS)
def test_paths_match_as_in_the_vectors(row: dict[str, str | bool]) -> None:
    pattern, path = str(row["pattern"]), str(row["path"])

    assert path_matches(pattern, path) is row["matches"]
    assert path_matches(path, pattern) is row["reverse"]
    assert _index_of(pattern).match(path) == ({1} if row["routes"] else set())


def test_none_is_the_empty_path() -> None:
    assert path_matches(None, None)
    assert not path_matches(None, "x")


@given(paths, paths)
def test_matcher_agrees_with_its_definition(pattern: str, path: str) -> None:
    assert path_matches(pattern, path) is _slow_matches(pattern, path)


def test_many_wildcards_do_not_make_the_matcher_slow() -> None:
    pattern = "/".join(["**", "a"] * 31)
    path = "/".join(["a"] * 30 + ["b"])

    assert not path_matches(pattern, path)


@pytest.mark.parametrize(
    ("path", "expected"), [("a/*", True), ("**", True), ("a/b", False), ("a/#*", False), ("", False)]
)
def test_only_a_whole_segment_is_a_wildcard(path: str, expected: bool) -> None:
    assert has_wildcard(path) is expected


@given(st.lists(st.tuples(paths, st.integers(0, 5)), max_size=12), paths)
@example([("a/b", 1)], "**/**")
def test_index_finds_the_same_subscribers_as_a_scan(subscriptions: list[tuple[str, int]], path: str) -> None:
    index: PathIndex[int] = PathIndex()
    for pattern, subscriber in subscriptions:
        index.add(pattern, subscriber)

    found = index.match(path)

    assert found == {subscriber for pattern, subscriber in subscriptions if _routes_to(pattern, path)}


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "a/b", "a/*", "**", "a/**"]), st.integers(0, 2))),
    paths,
)
def test_removed_subscription_is_not_found(steps: list[tuple[bool, str, int]], path: str) -> None:
    index: PathIndex[int] = PathIndex()
    held = set()
    for is_added, pattern, subscriber in steps:
        if is_added:
            index.add(pattern, subscriber)
            held.add((pattern, subscriber))
        else:
            index.remove(pattern, subscriber)
            held.discard((pattern, subscriber))

    found = index.match(path)

    assert found == {subscriber for pattern, subscriber in held if _routes_to(pattern, path)}


def test_removing_a_missing_subscription_is_not_an_error() -> None:
    index: PathIndex[str] = PathIndex()
    index.add("a/b/c", "luna")

    index.remove("a/b", "luna")
    index.remove("x/y", "luna")
    index.remove("a/b/c", "nova")

    assert index.match("a/b/c") == {"luna"}


def test_path_is_checked_and_normalized() -> None:
    assert check_path("/agent//Luna") == "agent/luna"


def _steps(work: Callable[[], object]) -> int:
    """Return how many lines of the path module run: a cost that is independent of time."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> "TraceFunction | None":
        nonlocal count
        if not frame.f_code.co_filename.endswith("domain/paths.py"):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _index_with(patterns: int, pattern: str) -> PathIndex[int]:
    index: PathIndex[int] = PathIndex()
    for number in range(patterns):
        index.add(pattern.format(number), number)
    return index


@pytest.mark.parametrize("path", ["**", "/".join(["**"] * 64), "/".join(["**", "*"] * 8), "agent/**/x/**/*"])
def test_path_with_wildcards_costs_a_few_steps_for_each_subscription(path: str) -> None:
    index = _index_with(1000, "agent/worker{}/main")

    steps = _steps(lambda: index.match(path))

    assert steps < 40 * 1000


@pytest.mark.parametrize("pattern", ["**/a{}", "**/a/**/b/**/c/**/d{}", "*/**/*/**/{}"])
def test_long_path_costs_a_few_steps_for_each_node_of_the_patterns(pattern: str) -> None:
    index = _index_with(200, pattern)
    nodes = 200 + pattern.count("/")

    steps = _steps(lambda: index.match("/".join("abcd" * 16)))

    assert steps < 10 * 64 * nodes


def test_long_pattern_costs_at_most_its_product_with_the_path() -> None:
    pattern, path = "/".join(["**", "a"] * 8 + ["b"]), "/".join(["a"] * 64)

    assert _steps(lambda: path_matches(pattern, path)) < 10 * 17 * 64
