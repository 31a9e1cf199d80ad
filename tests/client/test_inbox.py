"""The inbox: each message once, and the record of seen messages."""

from palaver.client.connection import Inbox
from palaver.client.values import Message, Receipt


async def _ack(seq: int) -> None: ...


async def _answer(*words: object, **options: object) -> Receipt:
    return Receipt()


def message(seq: int) -> Message:
    return Message(seq=seq, id="", ts=0, sender="nova", text="", fields={}, acknowledge=_ack, answer=_answer)


async def test_repeated_message_is_stored_once() -> None:
    inbox = Inbox()

    assert inbox.put(message(1))
    assert inbox.put(message(1))

    assert len(inbox.waiting) == 1


async def test_taken_message_is_not_returned_again() -> None:
    inbox = Inbox()
    inbox.put(message(1))
    await anext(inbox.waiting)

    inbox.put(message(1))

    assert len(inbox.waiting) == 0


async def test_message_repeated_after_its_ack_means_the_ack_was_lost() -> None:
    inbox = Inbox()
    inbox.put(message(1))
    inbox.acked(1)

    assert not inbox.put(message(1))
    assert inbox.put(message(2))


async def test_unacknowledged_message_is_known_however_many_came_since() -> None:
    inbox = Inbox()
    inbox.put(message(0))
    for seq in range(1, 20_001):
        inbox.put(message(seq))
        inbox.acked(seq)

    inbox.put(message(0))

    assert len(inbox.waiting) == 20_001
    assert not inbox.put(message(20_000))
