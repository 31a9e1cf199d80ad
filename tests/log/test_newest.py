"""The newest events are in memory, and published once."""

from tests.log.logs import draft

from palaver.log.api import ANY_EVENT
from palaver.log.writer import Newest
from palaver.protocol.envelope import Event, event_from


async def test_empty_batch_is_not_published() -> None:
    heard: list[object] = []
    newest = Newest(5)
    newest.handlers.add(heard.append, ANY_EVENT)

    newest.add([])

    assert heard == []
    assert newest.last() == 5


async def test_memory_begins_where_the_log_ended() -> None:
    newest = Newest(5)
    event = event_from(draft(), 7, "BOXE")

    newest.add([event])

    assert newest.tail(4, 10) is None
    assert newest.tail(5, 10) == [event]
    assert newest.tail(6, 10) == [event]
    assert newest.tail(7, 10) == []


async def test_subscriber_removed_during_a_publication_is_called_one_last_time() -> None:
    newest = Newest(0)
    calls: list[str] = []

    def first(events: object) -> None:
        calls.append("first")
        stop()

    newest.handlers.add(first, ANY_EVENT)
    stop = newest.handlers.add(lambda events: calls.append("second"), ANY_EVENT)

    newest.add([event_from(draft(), 1, "BOXE")])
    newest.add([event_from(draft(), 2, "BOXE")])

    assert calls == ["first", "second", "first"]


def test_event_is_published_with_its_seq() -> None:
    newest = Newest(0)
    heard: list[Event] = []
    newest.handlers.add(heard.extend, ANY_EVENT)

    newest.add([event_from(draft(), 3, "BOXE"), event_from(draft(), 9, "BOXE")])

    assert [event.seq for event in heard] == [3, 9]
    assert newest.last() == 9
