"""The currently open mailboxes."""

import pytest
from tests.fakes import FakeClock

from palaver.delivery.mailbox import Mailboxes
from palaver.log.memory import MemoryLog
from palaver.state.fold import apply


@pytest.fixture
def mailboxes() -> Mailboxes:
    clock = FakeClock()
    return Mailboxes(
        MemoryLog(apply=apply), now_ms=clock.now_ms, put_back=lambda *_: None, lost=lambda *_: None
    )


def test_agent_has_one_mailbox(mailboxes: Mailboxes) -> None:
    assert mailboxes.get("luna") is mailboxes.get("luna")
    assert mailboxes.get("luna") is not mailboxes.get("nova")


def test_message_is_in_hand_until_it_is_settled(mailboxes: Mailboxes) -> None:
    mailboxes.get("luna").hold(object(), [7])
    was = mailboxes.is_in_hand("luna", 7)

    mailboxes.settle("luna", [7])
    mailboxes.settle("nova", [7])

    assert was
    assert not mailboxes.is_in_hand("luna", 7)
    assert not mailboxes.is_in_hand("nova", 7)


def test_mailbox_with_an_open_reader_is_kept(mailboxes: Mailboxes) -> None:
    before = mailboxes.get("luna")
    reader = before.open()

    mailboxes.forget_idle("luna")
    kept = mailboxes.get("luna") is before
    reader.close()
    mailboxes.forget_idle("luna")
    mailboxes.forget_idle("nova")

    assert kept
    assert mailboxes.get("luna") is not before


async def test_reader_of_a_mailbox_is_woken(mailboxes: Mailboxes) -> None:
    reader = mailboxes.get("luna").open()
    assert reader.poll(1) == []

    mailboxes.wake("nova", is_earlier=False)
    mailboxes.wake("luna", is_earlier=True)
    reader.close()

    assert await reader.wait(1) == []
