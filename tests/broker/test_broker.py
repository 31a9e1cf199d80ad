"""The table of requests, and how a request passes through it."""

import typing

import pytest
from tests.fakes import HUMAN, Bus, FakeClock

from palaver.broker.broker import TABLE, Broker
from palaver.broker.context import SYSTEM_CALLER, Written
from palaver.errors import NotAllowed
from palaver.ids import UlidSource
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.requests import Join, Leave, RelayLine, Request, SetStatus


def test_every_request_has_a_row() -> None:
    assert set(TABLE) == set(typing.get_args(Request))


def test_internal_requests_need_the_highest_standing() -> None:
    assert all(row.needs is Standing.HUMAN for row in TABLE.values() if row.is_internal)


async def test_external_caller_without_standing_is_refused(bus: Bus) -> None:
    nobody = Caller(name="x", standing=Standing.EXTERNAL, kind="external")

    with pytest.raises(NotAllowed, match="leave"):
        await bus.broker.submit(nobody, Leave())

    assert [kind for kind, row in TABLE.items() if row.needs is Standing.EXTERNAL] == [RelayLine]


async def test_later_broker_knows_every_agent(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, SetStatus(state="active"))
    clock = FakeClock()

    later = Broker(
        bus.log, clock=clock, ids=UlidSource(clock, bytes), is_present=lambda name: False, draw=lambda: 0
    )

    assert list(later.directory.all()) == list(bus.broker.directory.all())
    later.close()


async def test_closed_broker_does_not_follow_the_log(bus: Bus) -> None:
    await bus.join("luna")
    bus.broker.close()

    await bus.broker.submit(HUMAN, Join(name="nova"))

    assert bus.broker.directory.get("nova") is None


async def test_refused_request_that_ran_before_returns_its_result(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = await bus.broker.submit(luna, Leave(), key=b"k" * 16)

    # The process has no agent any more, so a new request would be refused.
    again = await bus.broker.submit(HUMAN, Leave(), key=b"k" * 16)

    assert first == again
    assert isinstance(again, Written)


def test_name_of_the_bus_cannot_be_taken_by_an_agent() -> None:
    assert SYSTEM_CALLER.name.startswith("[")
