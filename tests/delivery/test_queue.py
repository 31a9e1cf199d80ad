"""The four priorities: fixed cases, and random ones compared with a naive queue."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.delivery.lanes import Queue, can_pass
from palaver.protocol.message import Priority, parse_priority

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "priority_queue.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_queue_returns_what_the_case_says(case: dict[str, list[list[object]]]) -> None:
    queue, seqs, names = Queue(), iter(range(1, 1000)), {}

    for op, *given_ in case["ops"]:
        if op == "enq":
            name, word = given_
            seq = next(seqs)
            names[seq] = name
            queue.add(seq, parse_priority(str(word)))
        elif op == "deq":
            idle, blocked, expected = given_
            taken = queue.next(idle=bool(idle), blocked=bool(blocked))
            assert (None if taken is None else names[taken]) == expected
        else:
            queue.is_paused = op == "pause"


class NaiveQueue:
    """The same queue in an obviously correct form: every line is searched for every message."""

    def __init__(self) -> None:
        self.lines: dict[Priority, list[int]] = {priority: [] for priority in Priority}

    def next(self, *, idle: bool, blocked: bool, paused: bool) -> int | None:
        shut = paused or blocked
        order = [(Priority.INTERRUPT, 0, True), (Priority.NORMAL, 0, not shut)]
        order += [(Priority.IDLE_FIRST, -1, idle and not shut), (Priority.IDLE, 0, idle and not shut)]
        for priority, seq, can in order:
            if can and self.lines[priority]:
                return self.lines[priority].pop(seq)
        return None


steps = st.one_of(
    st.sampled_from(Priority), st.tuples(st.booleans(), st.booleans()), st.sampled_from(["pause", "unpause"])
)


@given(st.lists(steps, max_size=60))
def test_any_sequence_returns_the_same_as_a_naive_queue(sequence: list[object]) -> None:
    queue, naive, seq = Queue(), NaiveQueue(), 0

    for step in sequence:
        if isinstance(step, Priority):
            seq += 1
            queue.add(seq, step)
            naive.lines[step].append(seq)
        elif isinstance(step, tuple):
            idle, blocked = step
            expected = naive.next(idle=idle, blocked=blocked, paused=queue.is_paused)
            assert queue.next(idle=idle, blocked=blocked) == expected
        else:
            queue.is_paused = step == "pause"

    assert len(queue) == sum(map(len, naive.lines.values()))


def test_take_stops_at_the_limit_and_at_blocked_priorities() -> None:
    queue = Queue()
    for seq in range(1, 5):
        queue.add(seq, Priority.NORMAL)
    queue.add(5, Priority.IDLE)

    assert queue.take(2, idle=False, blocked=False) == [1, 2]
    assert queue.take(9, idle=False, blocked=False) == [3, 4]
    assert len(queue) == 1


@given(st.sampled_from(Priority), st.booleans(), st.booleans(), st.booleans())
def test_interrupts_always_pass_and_only_interrupts_pass_a_pause(
    priority: Priority, idle: bool, blocked: bool, paused: bool
) -> None:
    passes = can_pass(priority, idle=idle, blocked=blocked, paused=paused)

    if priority is Priority.INTERRUPT:
        assert passes
    elif paused or blocked:
        assert not passes
    else:
        assert passes is (priority is Priority.NORMAL or idle)
