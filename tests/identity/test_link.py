"""One connection and the names that depend on it."""

import pytest

from palaver.doors.connection import Link, Outbox
from palaver.errors import BadRequest, NotAllowed
from palaver.protocol.agents import Caller, Standing


@pytest.fixture
async def link() -> Link:
    caller = Caller(name="luna", standing=Standing.WORKER, kind="instance")
    return Link(id="1", caller=caller, outbox=Outbox())


async def test_names_up_to_the_standing_of_the_link_can_be_opened(link: Link) -> None:
    link.open_name("luna_reviewer_1", Standing.WORKER)
    link.open_name("alice", Standing.GUEST)
    link.open_name("luna_reviewer_1", Standing.OBSERVER)

    assert dict(link.names) == {"luna_reviewer_1": Standing.OBSERVER, "alice": Standing.GUEST}


async def test_link_cannot_open_a_name_above_its_standing(link: Link) -> None:
    with pytest.raises(NotAllowed, match="operator"):
        link.open_name("boss", Standing.OPERATOR)

    assert dict(link.names) == {}


async def test_name_can_be_closed_repeatedly(link: Link) -> None:
    link.open_name("alice", Standing.GUEST)

    link.close_name("alice")
    link.close_name("alice")

    assert dict(link.names) == {}


async def test_close_calls_every_callback_once_and_the_last_one_first(link: Link) -> None:
    calls: list[str] = []
    link.on_close(lambda: calls.append("first"))
    link.on_close(lambda: calls.append("second"))

    link.close()
    link.close()

    assert calls == ["second", "first"]
    assert link.is_closed
    assert link.outbox.is_closed


async def test_failing_callback_does_not_prevent_the_others(link: Link) -> None:
    calls: list[str] = []
    link.on_close(lambda: calls.append("reached"))
    link.on_close(lambda: calls.remove("missing"))

    with pytest.raises(ValueError, match="not in list"):
        link.close()

    assert calls == ["reached"]


async def test_closed_link_calls_back_at_once_and_opens_nothing(link: Link) -> None:
    calls: list[str] = []
    link.close()

    link.on_close(lambda: calls.append("at once"))

    assert calls == ["at once"]
    with pytest.raises(BadRequest, match="closed"):
        link.open_name("alice", Standing.GUEST)
