"""Which processes are holders, over processes that a test makes up."""

from dataclasses import replace

import pytest

from palaver.agents.launch import MODULE
from palaver.links.environment import HOLDER_MODULE
from palaver.links.holders import Below, Holders
from palaver.links.process import Process
from palaver.model.agent import Agent, Seat

BOOT = "boot"
FIRST = Process(1, 0, 1, 1, 0, -1, 1, "init")
HOLDER = Process(5, 1, 5, 5, 0, -1, 50, "python3")
CHILD = Process(7, 5, 7, 7, 34817, 7, 70, "bash")
ORPHAN = Process(9, 5, 9, 9, 0, -1, 90, "bash")
SEAT = Seat(pid=7, start=70, boot=BOOT)


@pytest.fixture
def processes() -> dict[int, Process]:
    return {process.pid: process for process in (FIRST, HOLDER, CHILD, ORPHAN)}


@pytest.fixture
def holders(processes: dict[int, Process]) -> Holders:
    return Holders(BOOT, processes.get, lambda pid: pid == HOLDER.pid)


def held(name: str = "luna", *, seat: Seat = SEAT, holder: str = "hash") -> Agent:
    return Agent(name=name, base=name, seat=seat, holder=holder)


def test_our_own_holder_is_known_by_what_it_runs() -> None:
    assert HOLDER_MODULE == MODULE


def test_a_holder_is_found_above_what_it_runs(holders: Holders) -> None:
    holders.put(held())

    assert holders.above([ORPHAN, HOLDER, FIRST]) == Below(1, (SEAT,))
    assert holders.above([ORPHAN, FIRST]) is None


def test_a_holder_itself_stands_below_none(holders: Holders) -> None:
    holders.put(held())

    assert holders.above([HOLDER, FIRST]) is None


def test_an_agent_is_looked_at_once(holders: Holders, processes: dict[int, Process]) -> None:
    holders.put(held())
    del processes[CHILD.pid]

    holders.put(held())

    assert holders.above([ORPHAN, HOLDER]) == Below(1, (SEAT,))


def test_whoever_adopted_what_lost_its_holder_is_none(
    holders: Holders, processes: dict[int, Process]
) -> None:
    processes[CHILD.pid] = replace(CHILD, ppid=FIRST.pid)

    holders.put(held())

    assert holders.above([ORPHAN, FIRST]) is None


@pytest.mark.parametrize(
    "agent",
    [
        held(holder=""),
        held(seat=Seat(pid=7, start=70, boot="before")),
        held(seat=Seat(pid=7, start=69, boot=BOOT)),
        held(seat=Seat(pid=8, start=80, boot=BOOT)),
        Agent(name="luna", base="luna", holder="hash"),
    ],
    ids=["not held", "another boot", "another process", "ended", "no seat"],
)
def test_where_no_holder_runs_it_there_is_none(holders: Holders, agent: Agent) -> None:
    holders.put(agent)

    assert holders.above([ORPHAN, HOLDER, FIRST]) is None


def test_another_program_that_holds_is_known_and_whom_it_runs_is_not(holders: Holders) -> None:
    program = replace(HOLDER, pid=6, start=60)

    holders.meet(program)
    holders.meet(program)

    assert holders.above([ORPHAN, program]) == Below(1, ())


def test_a_number_used_again_is_no_holder(holders: Holders) -> None:
    holders.put(held())

    assert holders.above([ORPHAN, replace(HOLDER, start=51)]) is None


def test_what_has_ended_is_forgotten(holders: Holders) -> None:
    holders.put(held())
    gone = replace(HOLDER, pid=6, start=60)
    holders.meet(gone)

    holders.meet(replace(HOLDER, pid=4, start=40))

    assert holders.above([ORPHAN, gone]) is None
    assert holders.above([ORPHAN, HOLDER]) is not None
