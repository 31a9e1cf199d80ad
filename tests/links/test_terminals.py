"""Terminals of holders, over processes that a test makes up."""

from dataclasses import replace

import pytest

from palaver.links.process import Process
from palaver.links.terminals import AgentTerminals, HolderTerminals
from palaver.model.agent import Agent, Seat

BOOT = "boot"
TTY = 34817
SHELL = Process(7, 1, 7, 7, TTY, 7, 70, "bash")


@pytest.fixture
def processes() -> dict[int, Process]:
    return {7: SHELL}


@pytest.fixture
def terminals(processes: dict[int, Process]) -> HolderTerminals:
    return HolderTerminals(BOOT, processes.get)


def held(*, boot: str = BOOT, start: int = 70, holder: str = "hash", left: bool = False) -> Agent:
    seat = Seat(pid=7, start=start, boot=boot)
    return Agent(name="luna", base="luna", seat=seat, holder=holder, left=left)


def test_the_terminal_of_what_a_holder_runs_is_its_own(terminals: HolderTerminals) -> None:
    terminals.put(held())

    assert TTY in terminals
    assert TTY + 1 not in terminals


def test_it_stays_so_when_the_agent_leaves_and_its_process_is_still_there(terminals: HolderTerminals) -> None:
    terminals.put(held())

    terminals.put(held(left=True))

    assert TTY in terminals


def test_a_terminal_that_comes_later_is_found_too(
    terminals: HolderTerminals, processes: dict[int, Process]
) -> None:
    processes[7] = replace(SHELL, tty=0)
    terminals.put(held())
    was_known = TTY in terminals

    processes[7] = SHELL

    assert not was_known
    assert TTY in terminals
    assert 0 not in terminals


def test_a_process_that_gave_its_terminal_up_leaves_it_to_nobody(
    terminals: HolderTerminals, processes: dict[int, Process]
) -> None:
    terminals.put(held())
    assert TTY in terminals

    processes[7] = replace(SHELL, tty=0)

    assert TTY in terminals


@pytest.mark.parametrize("end", [None, replace(SHELL, start=71), replace(SHELL, state="Z")])
def test_with_the_process_it_is_a_terminal_like_any_other(
    terminals: HolderTerminals, processes: dict[int, Process], end: Process | None
) -> None:
    terminals.put(held())
    assert TTY in terminals

    del processes[7]
    processes |= {} if end is None else {7: end}

    assert TTY not in terminals


@pytest.mark.parametrize("agent", [held(holder=""), held(boot="before"), held(start=69)])
def test_what_no_holder_runs_has_no_such_terminal(terminals: HolderTerminals, agent: Agent) -> None:
    terminals.put(agent)

    assert TTY not in terminals


def _at(tty: int, *, start: int = 100, state: str = "S") -> Process:
    return Process(10, 1, 10, 10, tty, 10, start, "x", state)


@pytest.mark.parametrize(
    ("later", "is_shared"),
    [
        (_at(7), True),
        (_at(7, state="T"), False),
        (_at(7, state="Z"), False),
        (_at(7, start=101), False),
        (_at(8), False),
        (None, False),
    ],
)
def test_a_terminal_is_shared_while_an_agent_runs_there(later: Process | None, is_shared: bool) -> None:
    found: list[Process | None] = [_at(7)]
    terminals = AgentTerminals("boot", lambda pid: found[-1])
    terminals.put(Agent(name="luna", base="luna", seat=Seat(pid=10, start=100, boot="boot")))
    found.append(later)

    assert terminals.has_agent(7) is is_shared
    assert terminals.has_agent(7) is is_shared
    assert terminals.has_agent(8) is False


@pytest.mark.parametrize(
    "agent",
    [
        Agent(name="luna", base="luna"),
        Agent(name="luna", base="luna", seat=Seat(pid=10, start=100, boot="boot"), holder="hash"),
        Agent(name="luna", base="luna", seat=Seat(pid=10, start=100, boot="earlier")),
        Agent(name="luna", base="luna", seat=Seat(pid=10, start=99, boot="boot")),
    ],
)
def test_an_agent_that_sits_at_no_terminal_of_a_person_shares_none(agent: Agent) -> None:
    terminals = AgentTerminals("boot", lambda pid: _at(7))

    terminals.put(agent)

    assert terminals.has_agent(7) is False
