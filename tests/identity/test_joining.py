"""The choice of a new agent's seat, with made-up process chains."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import AlreadyJoined, BadRequest, PalaverError
from palaver.identity.caller import Anchor, CallerClaim, anchor_for_child, anchor_for_join
from palaver.identity.process import HarnessEnvironment, Process
from palaver.identity.seats import SeatIndex
from palaver.protocol.agents import Agent, Seat

BOOT = "this-boot"
CLAUDE_MARKS = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "c1"}
CODEX_MARKS = {"CODEX_THREAD_ID": "x1"}


def _chain(*names: str) -> list[Process]:
    """Return processes with these names, from the caller up; their pids fall to 1."""
    count = len(names)
    return [
        Process(count - index, count - index - 1, 1, 1, 0, -1, (count - index) * 10, name)
        for index, name in enumerate(names)
    ]


def _around(*marks: Mapping[str, str], named: Mapping[int, str] | None = None) -> list[HarnessEnvironment]:
    return [HarnessEnvironment(entry, (named or {}).get(index)) for index, entry in enumerate(marks)]


def _agent(name: str, pid: int, key: str = "") -> Agent:
    return Agent(name=name, base=name, seat=Seat(pid=pid, start=pid * 10, boot=BOOT, key=key))


def _join(
    chain: Sequence[Process],
    around: Sequence[HarnessEnvironment],
    *agents: Agent,
    claim: CallerClaim | None = None,
    pid: int | None = None,
) -> Anchor:
    return anchor_for_join(chain, claim or CallerClaim(), pid, SeatIndex(BOOT, agents), around)


def test_without_a_harness_the_parent_of_the_caller_is_the_anchor() -> None:
    anchor = _join(_chain("pal", "bash", "tmux", "init"), _around({}, {}, {}, {}))

    assert anchor == Anchor(seat=Seat(pid=3, start=30, boot=BOOT))


def test_anchor_is_the_process_without_the_marks_that_its_child_has() -> None:
    chain = _chain("pal", "bash", "sh", "node", "bash", "init")

    anchor = _join(chain, _around(CLAUDE_MARKS, CLAUDE_MARKS, CLAUDE_MARKS, {}, {}, {}))

    assert (anchor.seat.pid, anchor.seat.key) == (3, "")
    assert (anchor.harness, anchor.session) == ("claude", "c1")


def test_marks_of_the_command_itself_count_too() -> None:
    claim = CallerClaim(marks=CODEX_MARKS | {"CLAUDECODE": ""})

    anchor = _join(_chain("pal", "node", "bash", "init"), _around({}, {}, {}, {}), claim=claim)

    assert (anchor.seat.pid, anchor.seat.key) == (3, "x1")
    assert (anchor.harness, anchor.session) == ("codex", "x1")


def test_harness_without_marks_is_found_by_its_name() -> None:
    chain = _chain("pal", "sh", "codex", "bash", "init")

    anchor = _join(chain, _around({}, {}, {}, {}, {}, named={2: "codex"}), claim=CallerClaim(key="x7"))

    assert (anchor.seat.pid, anchor.seat.key) == (3, "x7")
    assert (anchor.harness, anchor.session) == ("codex", "x7")


def test_harness_inside_another_is_seated_at_the_inner_one() -> None:
    chain = _chain("pal", "bash", "inner", "bash", "outer", "init")
    both = CLAUDE_MARKS | CODEX_MARKS

    anchor = _join(chain, _around(both, both, CLAUDE_MARKS, CLAUDE_MARKS, {}, {}), _agent("luna", 2))

    assert (anchor.seat.pid, anchor.harness, anchor.session) == (4, "codex", "x1")


def test_nested_session_of_the_same_harness_is_separated_by_its_id() -> None:
    chain = _chain("pal", "bash", "inner", "bash", "outer", "init")
    inside = CLAUDE_MARKS | {"CLAUDE_CODE_SESSION_ID": "c2"}

    anchor = _join(chain, _around(inside, inside, CLAUDE_MARKS, CLAUDE_MARKS, {}, {}))

    assert (anchor.seat.pid, anchor.session) == (4, "c2")


def test_key_without_a_harness_is_stored_in_the_seat() -> None:
    anchor = _join(_chain("pal", "app", "init"), _around({}, {}, {}), claim=CallerClaim(key="k"))

    assert (anchor.seat.key, anchor.session, anchor.harness) == ("k", "k", "")


def test_orphan_with_marks_is_seated_at_its_parent_and_not_at_its_adopter() -> None:
    around = _around(CLAUDE_MARKS, CLAUDE_MARKS, {}, {})

    anchor = _join(_chain("pal", "script", "systemd", "init"), around)

    assert (anchor.seat.pid, anchor.harness) == (3, "")


@pytest.mark.parametrize("names", [("pal",), ("pal", "init"), ("pal", "systemd", "init")])
def test_caller_without_its_own_parent_cannot_join(names: Sequence[str]) -> None:
    with pytest.raises(BadRequest, match="--pid"):
        _join(_chain(*names), _around(*[CLAUDE_MARKS for _ in names]))


@pytest.mark.parametrize("pid", [1, 2])
def test_joined_caller_is_refused_whichever_process_it_chooses(pid: int) -> None:
    with pytest.raises(AlreadyJoined, match="luna"):
        _join(_chain("pal", "bash", "tmux", "init"), _around({}, {}, {}, {}), _agent("luna", 3), pid=pid)


def test_harness_that_is_the_first_process_of_a_container_is_an_anchor() -> None:
    anchor = _join(_chain("pal", "claude"), _around({}, {}, named={1: "claude"}))

    assert (anchor.seat.pid, anchor.harness) == (1, "claude")


def test_caller_without_a_process_cannot_join() -> None:
    with pytest.raises(BadRequest, match="has ended or runs in another container"):
        _join([], [])


def test_process_that_already_has_an_agent_learns_its_name() -> None:
    chain, around = _chain("pal", "bash", "node", "init"), _around(CLAUDE_MARKS, CLAUDE_MARKS, {}, {})

    with pytest.raises(AlreadyJoined, match="luna"):
        _join(chain, around, _agent("luna", 2))


def test_seat_below_the_harness_counts_as_joined_too() -> None:
    chain, around = _chain("pal", "bash", "node", "init"), _around(CLAUDE_MARKS, CLAUDE_MARKS, {}, {})

    with pytest.raises(AlreadyJoined, match="nova"):
        _join(chain, around, _agent("nova", 3))


@pytest.mark.parametrize(
    ("old", "new", "is_free"), [("a", "b", True), ("a", "a", False), ("", "b", False), ("a", "", False)]
)
def test_process_has_several_seats_only_if_each_has_a_key(old: str, new: str, is_free: bool) -> None:
    chain, around = _chain("pal", "codex", "init"), _around({}, {}, {}, named={1: "codex"})
    claim = CallerClaim(key=new)

    if is_free:
        assert _join(chain, around, _agent("luna", 2, old), claim=claim).seat.key == new
    else:
        with pytest.raises(AlreadyJoined, match="luna"):
            _join(chain, around, _agent("luna", 2, old), claim=claim)


def test_pid_may_be_between_the_caller_and_its_own_seat() -> None:
    chain, around = _chain("pal", "worker", "bash", "node", "init"), _around(*[CODEX_MARKS] * 3, {}, {})

    anchor = _join(chain, around, _agent("luna", 2), pid=3)

    assert anchor == Anchor(seat=Seat(pid=3, start=30, boot=BOOT), harness="codex")


@pytest.mark.parametrize("pid", [2, 1])
def test_pid_at_or_above_the_own_seat_is_refused(pid: int) -> None:
    chain, around = _chain("pal", "bash", "node", "bash", "init"), _around({}, {}, {}, {}, {})

    with pytest.raises(PalaverError):
        _join(chain, around, _agent("luna", 3), pid=pid)


def test_caller_without_a_seat_may_choose_any_of_its_parents() -> None:
    chain, around = _chain("pal", "bash", "node", "bash", "init"), _around({}, {}, {}, {}, {})

    assert [_join(chain, around, pid=pid).seat.pid for pid in (5, 4, 3, 2)] == [5, 4, 3, 2]


@pytest.mark.parametrize("pid", [1, 77, 0, -1])
def test_foreign_process_or_the_first_process_cannot_be_a_seat(pid: int) -> None:
    chain, around = _chain("pal", "bash", "init"), _around({}, {}, {})

    with pytest.raises(BadRequest):
        _join(chain, around, pid=pid)


_MARKS = st.dictionaries(
    st.sampled_from(["CLAUDECODE", *CODEX_MARKS, "PALAVER_SEAT"]), st.sampled_from(["1", "2"])
)


@given(
    marks=st.lists(_MARKS, min_size=2, max_size=5),
    pid=st.none() | st.integers(0, 6),
    taken=st.lists(st.integers(2, 6), max_size=2),
)
def test_new_seat_is_always_below_the_seat_of_the_caller(
    marks: list[dict[str, str]], pid: int | None, taken: list[int]
) -> None:
    chain = _chain("pal", *["x"] * (len(marks) - 2), "init")
    agents = [_agent(f"a{number}", number) for number in taken]
    try:
        anchor = _join(chain, _around(*marks), *agents, pid=pid)
    except PalaverError:
        return

    own = SeatIndex(BOOT, agents).nearest(chain)
    index = [process.pid for process in chain].index(anchor.seat.pid)
    assert anchor.seat.pid != 1
    assert own is None or index < own.index


def test_holder_assigns_a_seat_to_its_child() -> None:
    child = _chain("claude", "holder", "init")

    seat = anchor_for_child(child[1], child, SeatIndex(BOOT), key="k")

    assert seat == Seat(pid=3, start=30, boot=BOOT, key="k")


def test_caller_cannot_assign_a_seat_to_a_process_it_did_not_start() -> None:
    child = _chain("claude", "holder", "init")
    same_number = Process(2, 1, 1, 1, 0, -1, 99, "holder")

    for caller in (same_number, child[0]):
        with pytest.raises(BadRequest, match="that you started"):
            anchor_for_child(caller, child, SeatIndex(BOOT))


def test_child_that_already_has_an_agent_cannot_be_assigned() -> None:
    child = _chain("claude", "holder", "init")

    with pytest.raises(AlreadyJoined, match="luna"):
        anchor_for_child(child[1], child, SeatIndex(BOOT, [_agent("luna", 3)]))


def test_holder_that_reconnects_finds_its_own_agent() -> None:
    child = _chain("claude", "holder", "init")
    seats = SeatIndex(BOOT, [_agent("luna", 3)])

    seat = anchor_for_child(child[1], child, seats, own="luna")

    assert seat == Seat(pid=3, start=30, boot=BOOT)
    with pytest.raises(AlreadyJoined, match="luna"):
        anchor_for_child(child[1], child, seats, own="nova")
