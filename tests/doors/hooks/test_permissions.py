"""The requests that wait: how many, and which of them can be answered."""

import pytest

from palaver.doors.hooks.permissions import PermissionBook
from palaver.errors import BadRequest, NotFound
from palaver.harness.claude_hooks import read_claude_hook
from palaver.model.agent import Caller, Standing

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance", harness="claude")
ASKED = read_claude_hook(
    "PermissionRequest",
    {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls\x1b[2J"}},
)


async def test_a_request_is_shown_harmlessly_and_kept_exactly() -> None:
    pending = PermissionBook().add(ASKED, LUNA, 1000, 5000)

    assert pending is not None
    assert (pending.agent, pending.tool, pending.text) == ("luna", "Bash", "Bash: ls [2J")
    assert pending.input == {"command": "ls\x1b[2J"}
    assert (pending.since_ms, pending.until_ms) == (1000, 6000)


async def test_a_request_is_answered_by_one_person_at_a_time() -> None:
    book = PermissionBook()
    pending = book.add(ASKED, LUNA, 0, 1)
    assert pending is not None

    assert book.take(pending.id) is pending
    with pytest.raises(BadRequest, match="is being answered"):
        book.take(pending.id)


async def test_what_is_over_says_why() -> None:
    book = PermissionBook()
    pending = book.add(ASKED, LUNA, 0, 1)
    assert pending is not None

    book.close(pending, "the first reason")
    book.close(pending, "another one")

    assert book.all() == ()
    with pytest.raises(NotFound, match="the first reason"):
        book.take(pending.id)


async def test_only_so_many_wait_and_only_so_many_are_remembered() -> None:
    book = PermissionBook()
    waiting = [book.add(ASKED, LUNA, 0, 1) for _ in range(501)]

    assert waiting[-1] is None
    for one in waiting[:-1]:
        assert one is not None
        book.close(one, "over")
    first, last = waiting[0], waiting[-2]
    assert first is not None
    assert last is not None
    with pytest.raises(NotFound, match="'pal pending' shows"):
        book.take(first.id)
    with pytest.raises(NotFound, match="over"):
        book.take(last.id)


async def test_a_hook_that_has_gone_decides_nothing_and_has_nothing() -> None:
    pending = PermissionBook().add(ASKED, LUNA, 0, 1)
    assert pending is not None

    pending.leave()
    pending.leave()
    pending.arrive(has_it=True)

    assert pending.decided.result() is None
    assert pending.arrived.result() is False
