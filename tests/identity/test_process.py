"""Reading processes: hostile names, reused pids, exits, and the clock."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.identity.process import Process, ancestors, boot_id, is_alive, parse_stat, read_process
from palaver.protocol.agents import Seat

_NUMBERS = st.integers(min_value=0, max_value=2**31 - 1)


@contextmanager
def _running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that waits for the end of its input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def _stat_line(process: Process) -> bytes:
    numbers = [process.ppid, process.pgrp, process.session, process.tty, process.foreground]
    behind = [*numbers, *([0] * 13), process.start, *([0] * 27), process.image, 0, 0]
    head = b"%d (" % process.pid + process.name.encode() + b") " + process.state.encode()
    return head + b"".join(b" %d" % number for number in behind) + b"\n"


def _seat(process: Process) -> Seat:
    return Seat(pid=process.pid, start=process.start, boot=boot_id())


def test_own_process_is_read_as_the_system_knows_it() -> None:
    process = read_process(os.getpid())

    assert process is not None
    assert (process.pid, process.ppid, process.pgrp) == (os.getpid(), os.getppid(), os.getpgrp())
    assert process.session == os.getsid(0)
    assert not process.is_zombie


def test_missing_process_is_not_found() -> None:
    assert read_process(2**22 + 1) is None


@given(
    pid=_NUMBERS,
    parent=_NUMBERS,
    start=st.integers(min_value=0, max_value=2**63),
    name=st.text(st.characters(blacklist_categories=["Cs"])),
    state=st.sampled_from("RSDZTtXI"),
)
def test_stat_line_is_parsed_whatever_the_name_contains(
    pid: int, parent: int, start: int, name: str, state: str
) -> None:
    process = Process(pid, parent, 7, 8, 34816, 7, start, name, state, 99)

    assert parse_stat(_stat_line(process)) == process


@given(st.binary())
def test_invalid_stat_line_returns_no_process_and_no_error(line: bytes) -> None:
    assert parse_stat(line[:20]) is None


def test_process_with_a_forged_name_is_read_correctly() -> None:
    rename = "ctypes.CDLL(None).prctl(15, b') S 1 1 (x')"
    program = f"import ctypes; {rename}; print('up', flush=True); input()"
    with _running(sys.executable, "-c", program) as child:
        assert child.stdout is not None
        child.stdout.readline()

        process = read_process(child.pid)

    assert process is not None
    assert (process.name, process.ppid) == (") S 1 1 (x", os.getpid())


def test_chain_goes_from_the_process_itself_to_the_first_process() -> None:
    chain = ancestors(os.getpid())

    assert [process.pid for process in chain[:2]] == [os.getpid(), os.getppid()]
    assert chain[-1].ppid == 0
    assert all(child.ppid == parent.pid for child, parent in itertools.pairwise(chain))


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_missing_process_has_no_chain(pid: int) -> None:
    assert ancestors(pid) == []


def test_parent_younger_than_its_child_ends_the_chain() -> None:
    child = Process(30, 20, 30, 10, 0, -1, 500, "child")
    stranger = Process(20, 1, 20, 20, 0, -1, 501, "stranger")

    chain = ancestors(30, {30: child, 20: stranger}.get)

    assert chain == [child]


def test_chain_continues_with_the_process_that_adopts_an_orphan() -> None:
    first = Process(1, 0, 1, 1, 0, -1, 1, "init")
    before = Process(30, 20, 30, 10, 0, -1, 500, "child")
    adopted = replace(before, ppid=1)
    reads: dict[int, list[Process | None]] = {30: [before, adopted], 20: [None], 1: [first]}

    chain = ancestors(30, lambda pid: reads[pid].pop(0))

    assert chain == [adopted, first]


@pytest.mark.parametrize("later", [None, Process(30, 1, 30, 10, 0, -1, 900, "stranger")])
def test_chain_ends_if_the_child_has_exited_as_well(later: Process | None) -> None:
    child = Process(30, 20, 30, 10, 0, -1, 500, "child")
    reads: dict[int, list[Process | None]] = {30: [child, later], 20: [None]}

    assert ancestors(30, lambda pid: reads[pid].pop(0)) == [child]


def test_cycle_of_parents_ends() -> None:
    one, two = Process(1, 2, 1, 1, 0, -1, 5, "one"), Process(2, 1, 1, 1, 0, -1, 5, "two")

    chain = ancestors(1, {1: one, 2: two}.get)

    assert chain[:3] == [one, two, one]
    assert chain[-1].ppid != 0


def test_seat_is_alive_as_long_as_its_process() -> None:
    with _running("cat") as child:
        process = read_process(child.pid)
        assert process is not None
        seat = _seat(process)

        alive_before = is_alive(seat)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        zombie = read_process(child.pid)
        alive_as_zombie = is_alive(seat)
        child.wait()

    assert zombie is not None
    assert zombie.is_zombie
    assert (alive_before, alive_as_zombie, is_alive(seat)) == (True, False, False)


def test_reused_pid_or_another_boot_is_not_the_seat() -> None:
    process = read_process(os.getpid())
    assert process is not None
    seat = _seat(process)

    assert is_alive(seat)
    assert not is_alive(Seat(pid=seat.pid, start=seat.start - 1, boot=seat.boot))
    assert not is_alive(Seat(pid=seat.pid, start=seat.start, boot="another"))


def test_start_ticks_count_from_boot_and_ignore_clock_changes() -> None:
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    with _running("cat") as child:
        process = read_process(child.pid)
    after_s = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert process is not None
    ticks = os.sysconf("SC_CLK_TCK")
    assert int(before_s * ticks) <= process.start <= int(after_s * ticks) + 1


def test_exec_keeps_pid_and_start_and_changes_the_image() -> None:
    with _running(
        "sh", "-c", "echo up; read go; PADDING=xxxxxxxxxxxxxxxx exec sh -c 'echo up; read end'"
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        before = read_process(child.pid)
        child.stdin.write(b"go\n")
        child.stdin.flush()
        child.stdout.readline()

        after = read_process(child.pid)

    assert before is not None
    assert after is not None
    assert (before.pid, before.start) == (after.pid, after.start)
    assert before.image != after.image


def test_walk_ends_at_the_first_process_that_is_enough() -> None:
    whole = ancestors(os.getpid())

    short = ancestors(os.getpid(), is_enough=lambda process: process.pid == whole[1].pid)

    assert [process.pid for process in short] == [process.pid for process in whole[:2]]
