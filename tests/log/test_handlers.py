"""An event reaches the handlers of its type, once each and in the order in which they were added."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace
from tests.log.logs import draft

from palaver.log.api import ANY_EVENT, EventKey, EventKind
from palaver.log.writer import HandlerTable
from palaver.protocol.envelope import Event, event_from


def event(seq: int, type: str = "message", delivered_to: tuple[str, ...] = (), **payload: object) -> Event:
    written = draft(type=type)
    payload = {**written.payload, **payload}
    return event_from(replace(written, delivered_to=delivered_to, payload=payload), seq, "BOXE")


Calls = list[tuple[str, list[int]]]


def recorder(calls: Calls, name: str) -> Callable[[Sequence[Event]], None]:
    return lambda events: calls.append((name, [one.seq for one in events]))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("message",), [1, 5]),
        (("status", "message"), [1, 2, 5]),
        (ANY_EVENT, [1, 2, 3, 4, 5]),
        ((EventKind.DELIVERED,), [3]),
        (("foreign", EventKind.DELIVERED, EventKind.ANY), [1, 2, 3, 4, 5]),
        ((EventKind.IN_ROOM,), [4]),
        ((EventKind.EXPECTS_REPLY,), [5]),
    ],
)
def test_handler_receives_each_event_of_its_types_once(keys: Sequence[EventKey], expected: list[int]) -> None:
    calls: Calls = []
    table = HandlerTable()
    table.add(recorder(calls, "one"), keys)

    mail, claim = event(3, "foreign", ("nova",)), event(4, "claim", room="r1")
    table.call([event(1), event(2, "status"), mail, claim, event(5, expects_reply=True)])

    assert calls == [("one", expected)]


def test_handler_of_another_type_is_not_called() -> None:
    calls: Calls = []
    table = HandlerTable()
    table.add(recorder(calls, "bye"), ("agent.bye",))

    table.call([event(1)])

    assert calls == []


def test_handlers_are_called_in_the_order_in_which_they_were_added() -> None:
    calls: Calls = []
    table = HandlerTable()
    table.add(recorder(calls, "all"), ANY_EVENT)
    table.add(recorder(calls, "status"), ("status",))
    table.add(recorder(calls, "message"), ("message",))
    table.add(recorder(calls, "all again"), ANY_EVENT)

    table.call([event(1), event(2, "status")])

    assert calls == [("all", [1, 2]), ("status", [2]), ("message", [1]), ("all again", [1, 2])]


def test_removed_handler_is_not_called_and_leaves_the_others() -> None:
    calls: Calls = []
    table = HandlerTable()
    remove = table.add(recorder(calls, "first"), ("message", "status"))
    table.add(recorder(calls, "second"), ("message",))

    remove()
    remove()
    table.call([event(1), event(2, "status")])

    assert calls == [("second", [1])]


async def test_failing_handler_does_not_affect_the_others() -> None:
    calls: Calls = []
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    table = HandlerTable()

    def fail(events: Sequence[Event]) -> None:
        raise ZeroDivisionError

    table.add(fail, ("message",))
    table.add(recorder(calls, "second"), ("message",))

    table.call([event(1)])

    assert calls == [("second", [1])]
    assert isinstance(reports[0]["exception"], ZeroDivisionError)
