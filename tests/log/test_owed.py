"""Which answers a step of the ledger leaves nobody to wait for."""

import pytest

from palaver.log.memory import MemoryRows
from palaver.log.owed import owed_no_more, without
from palaver.model.envelope import Event
from palaver.model.mail import LEDGER, Entry, agent_key, encode_row, ledger_key


def ledger(**states: str) -> MemoryRows:
    """One message, the fifth, and what became of each one's copy of it."""
    rows = MemoryRows()
    rows.change(
        [
            (LEDGER, ledger_key(5, agent), encode_row(Entry(state=state, ts=5)))
            for agent, state in states.items()
        ]
    )
    return rows


def reported(agent: str, state: str, *messages: int, **more: object) -> Event:
    payload = {"agent": agent, "messages": list(messages), "state": state, **more}
    return Event(
        seq=9, id="id-9", type="delivery", sender="[pal]", to=(), ts=9, device="TEST", payload=payload
    )


@pytest.mark.parametrize("state", ["expired", "refused", "dead"])
def test_a_copy_that_ends_unread_is_owed_no_answer(state: str) -> None:
    rows = ledger(nova="queued")

    assert owed_no_more(rows, reported("nova", state, 5, 5)) == [("nova", 5)]


@pytest.mark.parametrize("state", ["submitted", "seen", "held"])
def test_a_copy_that_is_on_its_way_or_read_may_still_be_answered(state: str) -> None:
    assert owed_no_more(ledger(nova="queued"), reported("nova", state, 5)) == []


def test_a_step_that_moves_nothing_changes_nothing() -> None:
    rows = ledger(nova="seen")

    assert owed_no_more(rows, reported("nova", "expired", 5)) == []


def test_a_reply_that_is_let_through_is_an_answer() -> None:
    rows = ledger(luna="held")

    assert owed_no_more(rows, reported("luna", "queued", 5, author="nova", answers=3)) == [("nova", 3)]


def test_a_message_that_is_let_through_and_answers_nothing_is_none() -> None:
    assert owed_no_more(ledger(luna="held"), reported("luna", "queued", 5)) == []


def test_a_reply_that_was_never_held_is_not_let_through() -> None:
    rows = ledger(luna="seen")

    assert owed_no_more(rows, reported("luna", "queued", 5, author="nova", answers=3)) == []


def test_what_is_taken_out_is_only_what_is_there() -> None:
    rows, key = MemoryRows(), agent_key("nova", 5)
    rows.change([("watch", key, b"{}"), ("watch_due", agent_key("nova", 6), b"{}")])

    assert without(rows, ("watch", "watch_due"), "nova", 5) == [("watch", key, None)]
