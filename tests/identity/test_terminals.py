"""Terminals of holders, with made-up processes."""

from dataclasses import replace

import pytest

from palaver.identity.process import Process
from palaver.identity.seats import AgentTerminals, HolderTerminals
from palaver.protocol.agents import Agent, Seat

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


def test_terminal_of_a_held_process_belongs_to_the_holder(terminals: HolderTerminals) -> None:
    terminals.put(held())

    assert TTY in terminals
    assert TTY + 1 not in terminals


def test_terminal_stays_held_when_the_agent_leaves_and_its_process_lives(terminals: HolderTerminals) -> None:
    terminals.put(held())

    terminals.put(held(left=True))

    assert TTY in terminals


def test_terminal_opened_later_is_found_too(
    terminals: HolderTerminals, processes: dict[int, Process]
) -> None:
    processes[7] = replace(SHELL, tty=0)
    terminals.put(held())
    was_known = TTY in terminals

    processes[7] = SHELL

    assert not was_known
    assert TTY in terminals
    assert 0 not in terminals


def test_terminal_that_the_process_gave_up_stays_held(
    terminals: HolderTerminals, processes: dict[int, Process]
) -> None:
    terminals.put(held())
    assert TTY in terminals

    processes[7] = replace(SHELL, tty=0)

    assert TTY in terminals


@pytest.mark.parametrize("end", [None, replace(SHELL, start=71), replace(SHELL, state="Z")])
def test_terminal_is_released_with_its_process(
    terminals: HolderTerminals, processes: dict[int, Process], end: Process | None
) -> None:
    terminals.put(held())
    assert TTY in terminals

    del processes[7]
    processes |= {} if end is None else {7: end}

    assert TTY not in terminals


@pytest.mark.parametrize("agent", [held(holder=""), held(boot="before"), held(start=69)])
def test_process_without_a_holder_has_no_held_terminal(terminals: HolderTerminals, agent: Agent) -> None:
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
def test_terminal_is_shared_while_an_agent_runs_there(later: Process | None, is_shared: bool) -> None:
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
def test_agent_without_a_terminal_of_a_person_shares_none(agent: Agent) -> None:
    terminals = AgentTerminals("boot", lambda pid: _at(7))

    terminals.put(agent)

    assert terminals.has_agent(7) is False
