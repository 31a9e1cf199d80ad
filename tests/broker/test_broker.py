"""The table of requests, and the way through it."""

import typing

import pytest
from tests.fakes import HUMAN, Bus, FakeClock

from palaver.broker.broker import SYSTEM_CALLER, TABLE, Broker
from palaver.broker.outcome import Written
from palaver.errors import NotAllowed
from palaver.model.agent import Caller, Standing
from palaver.model.ids import UlidSource
from palaver.model.request import Join, Leave, Request, SetStatus


def test_every_request_has_a_row() -> None:
    assert set(TABLE) == set(typing.get_args(Request))


def test_what_only_the_bus_asks_for_needs_the_highest_standing() -> None:
    assert all(row.needs is Standing.HUMAN for row in TABLE.values() if row.is_internal)


async def test_one_from_outside_with_no_standing_gets_nothing(bus: Bus) -> None:
    nobody = Caller(name="x", standing=Standing.EXTERNAL, kind="external")

    with pytest.raises(NotAllowed, match="leave"):
        await bus.broker.submit(nobody, Leave())

    assert all(row.needs > Standing.EXTERNAL for row in TABLE.values())


async def test_a_broker_that_starts_later_knows_everybody(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, SetStatus(state="active"))
    clock = FakeClock()

    later = Broker(
        bus.log, clock=clock, ids=UlidSource(clock, bytes), is_present=lambda name: False, draw=lambda: 0
    )

    assert list(later.directory.all()) == list(bus.broker.directory.all())
    later.close()


async def test_a_broker_that_is_closed_follows_the_log_no_more(bus: Bus) -> None:
    await bus.join("luna")
    bus.broker.close()

    await bus.broker.submit(HUMAN, Join(name="nova"))

    assert bus.broker.directory.get("nova") is None


async def test_a_refused_request_that_was_done_before_gives_what_it_wrote(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = await bus.broker.submit(luna, Leave(), key=b"k" * 16)

    # By now the process is nobody, and what it asks for would be refused.
    again = await bus.broker.submit(HUMAN, Leave(), key=b"k" * 16)

    assert first == again
    assert isinstance(again, Written)


def test_the_bus_speaks_under_a_name_that_nobody_can_have() -> None:
    assert SYSTEM_CALLER.name.startswith("[")
