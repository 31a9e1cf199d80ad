"""Brakes: hops in a chain, messages per minute, and uncounted senders."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from palaver.domain import rights
from palaver.domain.rights import Brakes, Chain, chain_of, chain_of_batch
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event

CODER = Caller(name="luna", standing=Standing.WORKER, kind="instance", harness="claude")
PROGRAM = Caller(name="cron", standing=Standing.WORKER, kind="instance")


def message(**payload: object) -> Event:
    return Event(
        seq=7,
        id="01M7",
        type="message",
        sender="nova",
        to=("luna",),
        ts=1,
        device="BOXE",
        payload=dict(payload),
    )


def test_reply_to_an_agent_is_one_hop_more() -> None:
    answered = message(sender_kind="instance", chain="first", hops=4)

    assert chain_of(CODER, answered) == Chain(id="first", hops=5)


def test_first_reply_starts_a_chain_at_the_original_message() -> None:
    assert chain_of(CODER, message(sender_kind="instance")) == Chain(id="01M7", hops=1)


def test_human_in_between_restarts_the_chain() -> None:
    answered = message(sender_kind="human", chain="first", hops=39)

    assert chain_of(CODER, answered) == Chain(id="01M7", hops=1)


def test_human_that_speaks_as_an_agent_counts_as_human() -> None:
    answered = structs.replace(message(sender_kind="instance", chain="first", hops=39), by="human")

    assert chain_of(CODER, answered) == Chain(id="01M7", hops=1)


@pytest.mark.parametrize(
    ("by", "counted"), [(None, True), ("nova", True), ("human", False), ("script", False)]
)
def test_only_agents_that_speak_as_an_agent_are_counted(by: str | None, counted: bool) -> None:
    speaking = replace(CODER, by=by)
    held = Brakes(limit_hops=1, limit_a_minute=60)

    reason = held.check(speaking, ("nova",), Chain(id="c", hops=2), 0)

    assert (reason is not None) is counted
    assert (chain_of(speaking, message()) is not None) is counted


def test_person_is_notified_of_one_sender_once_a_minute() -> None:
    held = Brakes(limit_hops=1, limit_a_minute=1)

    unreported = [held.untold("luna", seq, time_ms) for seq, time_ms in ((1, 0), (2, 59_999), (3, 60_000))]

    assert unreported == [(), None, (2,)]
    assert held.untold("nova", 4, 60_000) == ()


def test_person_is_notified_once_of_each_held_message() -> None:
    held = Brakes(limit_hops=1, limit_a_minute=1)
    for seq in (1, 2, 3, 2, 1):
        held.untold("luna", seq, 0)

    unreported = held.untold("luna", 4, 60_000), held.untold("luna", 5, 120_000)

    assert unreported == ((2, 3), ())


def test_message_that_is_not_a_reply_has_no_chain() -> None:
    assert chain_of(CODER, None) is None


def test_program_has_no_chain() -> None:
    assert chain_of(PROGRAM, message(hops=3)) is None


def test_message_with_too_many_hops_is_held_with_a_reason() -> None:
    held = Brakes(limit_hops=40, limit_a_minute=60)

    at_limit = held.check(CODER, ("nova",), Chain(id="c", hops=40), 0)
    above = held.check(CODER, ("nova",), Chain(id="c", hops=41), 0)

    assert at_limit is None
    assert above is not None
    assert "41" in above


def test_too_many_messages_per_minute_to_one_recipient_are_held() -> None:
    held = Brakes(limit_hops=40, limit_a_minute=3)

    reasons = [held.check(CODER, ("nova",), None, time_ms) for time_ms in (0, 1, 2, 3)]

    assert reasons[:3] == [None, None, None]
    assert reasons[3] is not None
    assert "luna" in reasons[3]


def test_sending_is_possible_again_after_a_minute() -> None:
    held = Brakes(limit_hops=40, limit_a_minute=1)
    held.check(CODER, ("nova",), None, 0)

    assert held.check(CODER, ("nova",), None, 60_000) is None


def test_each_recipient_has_its_own_count() -> None:
    held = Brakes(limit_hops=40, limit_a_minute=1)
    held.check(CODER, ("nova",), None, 0)

    assert held.check(CODER, ("kira",), None, 0) is None


def test_programs_are_not_counted() -> None:
    held = Brakes(limit_hops=1, limit_a_minute=1)

    reasons = [held.check(PROGRAM, ("nova",), Chain(id="c", hops=9), 0) for _ in range(5)]

    assert reasons == [None] * 5


def test_message_without_recipients_is_not_held() -> None:
    assert Brakes(limit_hops=1, limit_a_minute=1).check(CODER, (), None, 0) is None


def test_limit_of_zero_disables_the_brake() -> None:
    open_ = Brakes(limit_hops=0, limit_a_minute=0)

    reasons = [open_.check(CODER, ("nova",), Chain(id="c", hops=999), 0) for _ in range(5)]

    assert reasons == [None] * 5


def test_number_of_counted_pairs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "_LIMIT_PAIRS", 2)
    held = Brakes(limit_hops=40, limit_a_minute=1)
    for name in ("nova", "kira", "mila"):
        held.check(CODER, (name,), None, 0)

    forgotten = held.check(CODER, ("nova",), None, 0)
    known = held.check(CODER, ("mila",), None, 0)

    assert forgotten is None
    assert known is not None


def test_number_of_remembered_notices_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "_LIMIT_PAIRS", 2)
    held = Brakes(limit_hops=40, limit_a_minute=1)
    for name in ("nova", "kira", "mila"):
        held.untold(name, 1, 0)

    unreported = [held.untold(name, 2, 0) for name in ("mila", "nova")]

    assert unreported == [None, ()]


@given(st.lists(st.integers(0, 200_000), max_size=60), st.integers(1, 5))
def test_no_minute_lets_more_through_than_the_limit(times_ms: list[int], limit: int) -> None:
    held = Brakes(limit_hops=0, limit_a_minute=limit)

    passed = [time_ms for time_ms in sorted(times_ms) if held.check(CODER, ("nova",), None, time_ms) is None]

    assert all(sum(start <= time_ms < start + 60_000 for time_ms in passed) <= limit for start in passed)


# Automatic turns


def test_every_message_of_a_turn_continues_its_chain() -> None:
    runner = replace(PROGRAM, turn="luna+main")
    turn = Chain(id="first", hops=3)

    assert chain_of(runner, None, turn) == Chain(id="first", hops=4)
    assert chain_of(runner, message(sender_kind="human"), turn) == Chain(id="first", hops=4)
    answered = message(sender_kind="instance", chain="longer", hops=7)
    assert chain_of(runner, answered, turn) == Chain(id="longer", hops=8)
    assert chain_of(runner, None) is None
    assert chain_of(PROGRAM, None, turn) is None


def test_turn_continues_the_longest_chain_of_its_batch() -> None:
    short, human = message(sender_kind="instance", chain="a", hops=1), message(sender_kind="human", hops=9)

    found = chain_of_batch([short, message(sender_kind="instance", chain="b", hops=2), human])

    assert found == Chain(id="b", hops=2)
    assert chain_of_batch([human]) == Chain(id="01M7", hops=0)
    assert chain_of_batch([]) is None
