"""One connection and what hangs on it."""

import pytest

from palaver.errors import BadRequest, NotAllowed
from palaver.links.link import Link
from palaver.links.outbox import Outbox
from palaver.model.agent import Caller, Standing


@pytest.fixture
async def link() -> Link:
    caller = Caller(name="luna", standing=Standing.WORKER, kind="instance")
    return Link(id="1", caller=caller, outbox=Outbox())


async def test_names_of_at_most_its_own_standing_are_opened_on_a_link(link: Link) -> None:
    link.open_name("luna_reviewer_1", Standing.WORKER)
    link.open_name("alice", Standing.GUEST)
    link.open_name("luna_reviewer_1", Standing.OBSERVER)

    assert dict(link.names) == {"luna_reviewer_1": Standing.OBSERVER, "alice": Standing.GUEST}


async def test_a_link_raises_nobody_above_itself(link: Link) -> None:
    with pytest.raises(NotAllowed, match="operator"):
        link.open_name("boss", Standing.OPERATOR)

    assert dict(link.names) == {}


async def test_a_name_can_be_given_up_once_or_twice(link: Link) -> None:
    link.open_name("alice", Standing.GUEST)

    link.close_name("alice")
    link.close_name("alice")

    assert dict(link.names) == {}


async def test_closing_tells_everyone_once_the_last_one_first(link: Link) -> None:
    told: list[str] = []
    link.on_close(lambda: told.append("first"))
    link.on_close(lambda: told.append("second"))

    link.close()
    link.close()

    assert told == ["second", "first"]
    assert link.is_closed
    assert link.outbox.is_closed


async def test_a_callback_that_fails_keeps_no_other_from_its_call(link: Link) -> None:
    told: list[str] = []
    link.on_close(lambda: told.append("reached"))
    link.on_close(lambda: told.remove("missing"))

    with pytest.raises(ValueError, match="not in list"):
        link.close()

    assert told == ["reached"]


async def test_a_closed_link_calls_back_at_once_and_opens_nothing(link: Link) -> None:
    told: list[str] = []
    link.close()

    link.on_close(lambda: told.append("at once"))

    assert told == ["at once"]
    with pytest.raises(BadRequest, match="closed"):
        link.open_name("alice", Standing.GUEST)
