"""The bus at a seq: the same rows as a fold up to there, forward and back."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.state.test_fold import MAILBOXES, NAMES, event, facts

from palaver.log.memory import MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.message import Priority
from palaver.state import fold
from palaver.state.fold import LIMIT_UNDO, KeptStates, PastRows, PastState, apply
from palaver.state.reasons import WAIT_CODES, explain_wait
from palaver.state.rows import Change, OpenMessage

Facts = Sequence[tuple[str, dict[str, object]]]


def events_of(found: Facts) -> list[Event]:
    """Return events with gaps in their seqs."""
    return [
        event(type_, payload, seq=index * 2, sender=NAMES[index % 3], delivered_to=NAMES[: index % 3])
        for index, (type_, payload) in enumerate(found, 1)
    ]


def message(seq: int, sender: str = "luna", to: str = "nova", **fields: object) -> Event:
    return event("message", {"text": f"text {seq}", "delivered_to": [to]}, seq=seq, sender=sender, **fields)


def folded_up_to(events: Sequence[Event], seq: int) -> PastState:
    state = PastState()
    for one in events:
        if one.seq <= seq:
            state.forward(one)
    return state


# Forward and back


@given(st.lists(facts, max_size=30), st.randoms(use_true_random=False))
def test_each_step_has_the_rows_of_a_fold_up_to_there(found: Facts, draw: random.Random) -> None:
    events = events_of(found)
    kept = [folded_up_to(events, one.seq - 1).rows.tables() for one in events]
    kept.append(folded_up_to(events, 10**9).rows.tables())
    state, at = PastState(), 0

    for _ in range(60):
        if at < len(events) and (at == 0 or draw.random() < 0.55):
            state.forward(events[at])
            at += 1
        elif at > 0:
            state.back()
            at -= 1
        assert state.rows.tables() == kept[at]
        assert state.seq == (events[at - 1].seq if at else 0)


@given(st.lists(facts, max_size=30))
def test_rows_equal_those_of_the_log_engine_of_the_tests(found: Facts) -> None:
    state, rows = PastState(), MemoryRows()

    for one in events_of(found):
        rows.change(apply(rows, one))
        state.forward(one)

    for table, values in state.rows.tables().items():
        assert rows.scan(table, "", limit=100_000) == sorted(values.items())
        assert state.rows.scan(table, "", limit=100_000) == sorted(values.items())


def test_state_begins_before_the_first_event() -> None:
    state = PastState()

    assert (state.seq, state.ts, state.oldest, state.rows.tables()) == (0, 0, 0, {})


def test_seq_and_time_are_those_of_the_newest_event() -> None:
    state = PastState()
    state.forward(message(3))
    state.forward(message(7))

    assert (state.seq, state.ts, state.oldest) == (7, 1007, 0)

    state.back()
    assert (state.seq, state.ts, state.oldest) == (3, 1003, 0)


def test_time_of_an_imported_event_does_not_count() -> None:
    state = PastState()
    state.forward(message(3))
    state.forward(message(9, imported=1))

    assert (state.seq, state.ts) == (9, 1003)


@pytest.mark.parametrize("seq", [0, 4, 5])
def test_event_that_is_not_newer_is_refused(seq: int) -> None:
    state = PastState()
    state.forward(message(5))
    before = state.rows.tables()

    with pytest.raises(ValueError, match="does not come after #5"):
        state.forward(message(seq))

    assert (state.seq, state.rows.tables()) == (5, before)


def test_way_back_ends_with_the_undo_record() -> None:
    state = PastState(limit_undo=2)
    for seq in (1, 2, 3):
        state.forward(message(seq))
    assert state.oldest == 1

    state.back()
    state.back()

    assert (state.seq, state.oldest) == (1, 1)
    assert state.rows.tables() == folded_up_to([message(1)], 1).rows.tables()
    with pytest.raises(IndexError):
        state.back()
    assert state.seq == 1


def test_ten_thousand_steps_can_be_taken_back() -> None:
    state = PastState()
    for seq in range(1, LIMIT_UNDO + 12):
        state.forward(message(seq, to=MAILBOXES[seq % 5]))
        if seq == 11:
            early = state.rows.tables()

    assert state.oldest == 11
    while state.seq > 11:
        state.back()

    assert state.rows.tables() == early


# Kept copies


def with_messages(count: int, kept: KeptStates) -> PastState:
    """Return a state with one row for each message, of which copies were kept on the way."""
    state = PastState()
    for seq in range(1, count + 1):
        state.forward(message(seq))
        kept.keep(state)
    return state


@given(st.lists(facts, max_size=30), st.integers(1, 70))
def test_kept_state_is_that_of_a_fold_and_stays_as_it_was(found: Facts, at: int) -> None:
    events = events_of(found)
    kept, state = KeptStates(every=10), PastState()
    for one in events:
        state.forward(one)
        kept.keep(state)

    for _ in range(2):  # A copy that is changed afterwards leaves the kept one as it was.
        found_state = kept.before(at)
        assert found_state.rows.tables() == folded_up_to(events, found_state.seq).rows.tables()
        for one in events:
            if found_state.seq < one.seq <= at:
                found_state.forward(one)
        assert found_state.rows.tables() == folded_up_to(events, at).rows.tables()
        assert found_state.rows.scan("mail", "") == folded_up_to(events, at).rows.scan("mail", "")


def test_copies_are_kept_at_a_distance() -> None:
    kept = KeptStates(every=10)

    with_messages(35, kept)

    assert kept.seqs == (10, 20, 30)
    assert [kept.before(at).seq for at in (5, 10, 29, 99)] == [0, 10, 20, 30]
    assert kept.before(20).ts == 1020
    kept.clear()
    assert kept.before(99).seq == 0


def test_full_copies_are_thinned_out_and_keep_their_distance() -> None:
    kept = KeptStates(limit_rows=200, every=10)

    with_messages(100, kept)

    seqs = kept.seqs
    assert sum(len(kept.before(seq).rows) for seq in seqs) <= 200
    assert len(seqs) >= 2
    assert min(after - before for before, after in zip((0, *seqs), seqs, strict=False)) >= 20


def test_state_that_is_too_large_is_not_kept() -> None:
    kept = KeptStates(limit_rows=20, every=5)

    with_messages(50, kept)

    assert kept.seqs == (5,)


# The rows

keys = st.text(alphabet="ab/\u00e9\U0010ffff", max_size=4)
changes = st.lists(st.tuples(st.sampled_from(["t", "u"]), keys, st.none() | st.binary(max_size=2)))


@pytest.fixture(autouse=True, scope="module")
def _small_buckets() -> object:
    """Make buckets so small that the tests fill and empty many of them."""
    patch = pytest.MonkeyPatch()
    patch.setattr(fold, "_LIMIT_BUCKET", 4)
    yield
    patch.undo()


@given(changes, keys, keys, st.integers(0, 6))
def test_scan_returns_the_same_as_the_rows_of_a_log(
    made: list[Change], prefix: str, after: str, limit: int
) -> None:
    rows, other = PastRows(), MemoryRows()

    rows.change(made)
    other.change(made)

    for table in ("t", "u", "missing"):
        for is_reversed in (False, True):
            assert rows.scan(table, prefix, after=after, limit=limit, reverse=is_reversed) == other.scan(
                table, prefix, after=after, limit=limit, reverse=is_reversed
            )
            assert rows.scan(table, prefix, reverse=is_reversed) == other.scan(
                table, prefix, reverse=is_reversed
            )
    for table, key, _ in made:
        assert rows.get(table, key) == other.get(table, key)
    assert rows.get("missing", "a") is None


@given(changes, changes)
def test_changes_can_be_undone(first: list[Change], second: list[Change]) -> None:
    rows = PastRows()
    rows.change(first)
    before = rows.tables()

    undo = rows.change(second)
    rows.change(undo)

    assert rows.tables() == before
    assert rows.scan("t", "") == sorted(before.get("t", {}).items())


@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_many_keys_stay_in_order(order: str) -> None:
    names = [f"{number:04d}" for number in range(300)]
    added = names[::-1] if order == "falling" else list(names)
    if order == "mixed":
        random.Random(5).shuffle(added)
    rows = PastRows()

    rows.change([("t", name, b"x") for name in added])
    assert [key for key, _ in rows.scan("t", "")] == names
    assert [key for key, _ in rows.scan("t", "02", after="0250", reverse=True, limit=3)] == [
        "0249",
        "0248",
        "0247",
    ]

    rows.change([("t", name, None) for name in added[::2]])
    assert [key for key, _ in rows.scan("t", "", reverse=True)] == sorted(added[1::2], reverse=True)
    rows.change([("t", name, None) for name in added])
    assert rows.scan("t", "") == []
    assert rows.tables() == {}


# Facts that the log does not have


def test_reason_of_a_message_that_waited_for_a_lane_is_not_recorded() -> None:
    agent = Agent(name="nova", base="nova", device="TEST", since=1)
    mail = OpenMessage(seq=7, state="queued", since=2)

    found = explain_wait(
        7,
        "nova",
        entry=None,
        mail=mail,
        agent=agent,
        priority=Priority.NORMAL,
        lanes=None,
        is_present=True,
        now_ms=10,
    )

    assert found is not None
    assert (found.code, found.code in WAIT_CODES) == ("not_recorded", True)
    assert found.text == "nova had not taken it yet; the log has no lanes and connections of that time"
