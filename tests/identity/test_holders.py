"""Detection of holder processes, with made-up processes."""

from dataclasses import replace

import pytest

from palaver.holder.spawn import MODULE
from palaver.identity.process import HOLDER_MODULE, Process
from palaver.identity.seats import HolderAbove, Holders
from palaver.protocol.agents import Agent, Seat

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


def test_name_of_the_holder_module_is_the_same_in_both_packages() -> None:
    assert HOLDER_MODULE == MODULE


def test_holder_is_found_above_the_process_it_runs(holders: Holders) -> None:
    holders.put(held())

    assert holders.above([ORPHAN, HOLDER, FIRST]) == HolderAbove(1, (SEAT,))
    assert holders.above([ORPHAN, FIRST]) is None


def test_holder_itself_is_not_below_a_holder(holders: Holders) -> None:
    holders.put(held())

    assert holders.above([HOLDER, FIRST]) is None


def test_agent_is_checked_only_once(holders: Holders, processes: dict[int, Process]) -> None:
    holders.put(held())
    del processes[CHILD.pid]

    holders.put(held())

    assert holders.above([ORPHAN, HOLDER]) == HolderAbove(1, (SEAT,))


def test_adopter_of_a_process_without_its_holder_is_not_a_holder(
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
def test_agent_without_a_running_holder_is_not_held(holders: Holders, agent: Agent) -> None:
    holders.put(agent)

    assert holders.above([ORPHAN, HOLDER, FIRST]) is None


def test_other_holding_program_is_known_without_its_agents(holders: Holders) -> None:
    program = replace(HOLDER, pid=6, start=60)

    holders.meet(program)
    holders.meet(program)

    assert holders.above([ORPHAN, program]) == HolderAbove(1, ())


def test_process_with_a_reused_pid_is_not_a_holder(holders: Holders) -> None:
    holders.put(held())

    assert holders.above([ORPHAN, replace(HOLDER, start=51)]) is None


def test_ended_holder_is_dropped(holders: Holders) -> None:
    holders.put(held())
    gone = replace(HOLDER, pid=6, start=60)
    holders.meet(gone)

    holders.meet(replace(HOLDER, pid=4, start=40))

    assert holders.above([ORPHAN, gone]) is None
    assert holders.above([ORPHAN, HOLDER]) is not None
