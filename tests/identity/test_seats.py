"""Lookup of seats by process, by mark and by harness session."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.marks import SEAT_MARK
from palaver.identity.process import Process
from palaver.identity.seats import SeatIndex, TurnSeat, seat_mark
from palaver.protocol.agents import Agent, Seat

BOOT = "this-boot"
_WORDS = st.text("ab\0|:1", max_size=3)


def _seat(pid: int = 10, *, start: int = 100, boot: str = BOOT, key: str = "") -> Seat:
    return Seat(pid=pid, start=start, boot=boot, key=key)


def _agent(name: str, seat: Seat | None = None, *, session: str = "", joined: int = 0) -> Agent:
    return Agent(name=name, base=name, seat=seat, harness="claude", session=session, joined=joined)


def _process(pid: int = 10, *, start: int = 100) -> Process:
    return Process(pid, 1, pid, pid, 0, -1, start, "x")


def _names(agents: list[Agent]) -> list[str]:
    return [agent.name for agent in agents]


def test_agents_of_a_process_are_found_by_pid_and_start() -> None:
    seats = SeatIndex(BOOT, [_agent("nova", _seat(key="b")), _agent("luna", _seat(key="a"))])

    assert _names(seats.at(_process())) == ["luna", "nova"]
    assert seats.at(_process(start=101)) == []
    assert seats.at(_process(11)) == []


def test_nearest_process_of_a_chain_with_an_agent_is_found() -> None:
    seats = SeatIndex(BOOT, [_agent("outer", _seat(10)), _agent("inner", _seat(20))])

    anchored = seats.nearest([_process(30), _process(20), _process(10)])

    assert anchored is not None
    assert (anchored.index, _names(list(anchored.agents))) == (1, ["inner"])
    assert seats.nearest([_process(30)]) is None


def test_seat_of_an_earlier_boot_has_no_process_but_keeps_its_mark() -> None:
    old = _seat(boot="earlier")
    seats = SeatIndex(BOOT, [_agent("luna", old)])

    assert seats.at(_process()) == []
    assert _names(seats.marked({SEAT_MARK: seat_mark(old, "luna")})) == ["luna"]


def test_agent_that_left_or_is_remote_has_no_seat_here() -> None:
    left = Agent(name="luna", base="luna", seat=_seat(), left=True)
    remote = Agent(name="luna:BOXE", base="luna", seat=_seat(), remote=True)

    seats = SeatIndex(BOOT, [left, remote])

    assert seats.at(_process()) == []
    assert seats.marked({SEAT_MARK: seat_mark(_seat(), "luna")}) == []


def test_agent_that_moves_leaves_its_old_seat_and_session() -> None:
    seats = SeatIndex(BOOT, [_agent("luna", _seat(10), session="s1")])

    seats.put(_agent("luna", _seat(20), session="s2"))

    assert seats.at(_process(10)) == []
    assert _names(seats.at(_process(20))) == ["luna"]
    assert seats.marked({"CLAUDE_CODE_SESSION_ID": "s1"}) == []
    assert _names(seats.marked({"CLAUDE_CODE_SESSION_ID": "s2"})) == ["luna"]


def test_dropping_one_agent_keeps_others_and_unknown_names_are_ignored() -> None:
    seats = SeatIndex(BOOT, [_agent("luna", _seat(key="a")), _agent("nova", _seat(key="b"))])

    seats.drop("luna")
    seats.drop("nobody")

    assert _names(seats.at(_process())) == ["nova"]


def test_session_belongs_to_its_harness_and_not_to_a_link() -> None:
    linked = Agent(name="nova", base="nova", harness="claude", session="s", link=True)
    seats = SeatIndex(BOOT, [_agent("luna", session="s"), linked])

    assert _names(seats.marked({"CLAUDE_CODE_SESSION_ID": "s"})) == ["luna"]
    assert seats.marked({"CODEX_THREAD_ID": "s", "CLAUDECODE": "1"}) == []


def test_most_recently_started_process_comes_first() -> None:
    outer, inner = _seat(10, start=100), _seat(20, start=200)
    absent = _agent("gone", _seat(5, boot="earlier", start=999), session="s")
    seats = SeatIndex(BOOT, [_agent("outer", outer), _agent("inner", inner, session="s"), absent])

    meant = seats.marked({SEAT_MARK: seat_mark(outer, "outer"), "CLAUDE_CODE_SESSION_ID": "s"})

    assert _names(meant) == ["inner", "outer", "gone"]


@given(st.tuples(_WORDS, _WORDS, _WORDS), st.tuples(_WORDS, _WORDS, _WORDS))
def test_two_seats_share_a_mark_only_if_they_are_equal(
    one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    marks = [seat_mark(_seat(boot=boot, key=key), name) for boot, key, name in (one, two)]

    assert (marks[0] == marks[1]) == (one == two)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2), st.sampled_from(["", "s", "t"])))
)
def test_incrementally_built_index_equals_a_fresh_one(steps: list[tuple[str, int, str]]) -> None:
    grown = SeatIndex(BOOT)
    now: dict[str, Agent] = {}
    for name, pid, session in steps:
        if pid == 0:
            grown.drop(name)
            now.pop(name, None)
        else:
            now[name] = _agent(name, _seat(pid), session=session)
            grown.put(now[name])

    fresh = SeatIndex(BOOT, list(now.values()))

    for pid in (1, 2):
        assert grown.at(_process(pid)) == fresh.at(_process(pid))
    for session in ("s", "t"):
        marks = {"CLAUDE_CODE_SESSION_ID": session}
        assert grown.marked(marks) == fresh.marked(marks)


def test_sub_agents_are_separate_from_the_agents_of_their_process() -> None:
    luna = _agent("luna", _seat(), session="s1")
    child = Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=_seat(key="a1"), session="a1")
    seats = SeatIndex(BOOT, [luna, child])

    anchored = seats.nearest([_process(30), _process()])

    assert anchored is not None
    assert (_names(list(anchored.agents)), _names(list(anchored.subagents))) == (["luna"], ["luna_x_1"])
    assert _names(seats.at(_process())) == ["luna"]
    assert _names(seats.subagents_at(_seat())) == ["luna_x_1"]
    assert seats.marked({"CLAUDE_CODE_SESSION_ID": "a1"}) == []

    seats.drop("luna_x_1")

    assert seats.subagents_at(_process()) == []


def test_sub_agent_of_an_earlier_boot_or_without_a_seat_has_no_process() -> None:
    old = Agent(name="a_x_1", base="a_x_1", parent="a", seat=_seat(boot="earlier"))
    none = Agent(name="a_x_2", base="a_x_2", parent="a")
    seats = SeatIndex(BOOT, [old, none])

    assert seats.subagents_at(_process()) == []
    assert not seats.is_anchor(_process())


def test_former_seat_of_a_process_is_remembered() -> None:
    seats = SeatIndex(BOOT, [_agent("luna", _seat(10)), _agent("old", _seat(11, boot="earlier"))])
    seats.put(Agent(name="luna", base="luna", seat=_seat(10), left=True))
    seats.remember(_seat(12))

    assert seats.at(_process(10)) == []
    assert [seats.was_seat([_process(30), _process(pid)]) for pid in (10, 11, 12, 13)] == [
        True,
        False,
        True,
        False,
    ]
    assert not seats.was_seat([_process(10, start=101)])


def test_process_of_an_automatic_turn_and_its_children_are_part_of_it() -> None:
    luna = _agent("luna")
    seats = SeatIndex(BOOT, [_agent("nova", _seat(30, start=300))])
    turn = TurnSeat(agent=luna, session="mon")
    child, nested = _process(20, start=200), _process(30, start=300)

    seats.begin_turn(_seat(10), turn)

    assert seats.turn_above([child, _process(10)]) is turn
    assert seats.turn_above([child]) is None
    assert seats.turn_above([_process(10, start=999)]) is None, "a reused pid"
    assert seats.turn_above([child, nested, _process(10)]) is None, "nova's own process is nearer"
    assert seats.was_seat([_process(10)])

    seats.end_turn(_seat(10))
    seats.end_turn(_seat(10))

    assert seats.turn_above([child, _process(10)]) is None
    assert seats.was_seat([_process(10)])
