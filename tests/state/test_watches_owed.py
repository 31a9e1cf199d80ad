"""Expected replies that a change of the ledger ends."""

import pytest

from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.state.rows import LEDGER, LedgerEntry, agent_key, encode_row, ledger_key
from palaver.state.watches import owed_no_more, without


def ledger(**states: str) -> MemoryRows:
    """Return rows with one message, the fifth, and the state of each recipient's copy."""
    rows = MemoryRows()
    rows.change(
        [
            (LEDGER, ledger_key(5, agent), encode_row(LedgerEntry(state=state, ts=5)))
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
def test_reply_to_a_copy_that_ends_unread_is_not_owed(state: str) -> None:
    rows = ledger(nova="queued")

    assert owed_no_more(rows, reported("nova", state, 5, 5)) == [("nova", 5)]


@pytest.mark.parametrize("state", ["submitted", "seen", "held"])
def test_reply_to_a_submitted_or_read_copy_is_still_owed(state: str) -> None:
    assert owed_no_more(ledger(nova="queued"), reported("nova", state, 5)) == []


def test_report_that_changes_nothing_ends_nothing() -> None:
    rows = ledger(nova="seen")

    assert owed_no_more(rows, reported("nova", "expired", 5)) == []


def test_released_reply_is_an_answer() -> None:
    rows = ledger(luna="held")

    assert owed_no_more(rows, reported("luna", "queued", 5, author="nova", answers=3)) == [("nova", 3)]


def test_released_message_that_is_not_a_reply_answers_nothing() -> None:
    assert owed_no_more(ledger(luna="held"), reported("luna", "queued", 5)) == []


def test_reply_that_was_never_held_is_not_released() -> None:
    rows = ledger(luna="seen")

    assert owed_no_more(rows, reported("luna", "queued", 5, author="nova", answers=3)) == []


def test_only_existing_rows_are_removed() -> None:
    rows, key = MemoryRows(), agent_key("nova", 5)
    rows.change([("watch", key, b"{}"), ("watch_due", agent_key("nova", 6), b"{}")])

    assert without(rows, ("watch", "watch_due"), "nova", 5) == [("watch", key, None)]
