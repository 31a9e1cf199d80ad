"""Tickets: valid once, for a minute, in memory."""

from itertools import count

import pytest
from tests.fakes import HUMAN, FakeClock

from palaver.errors import NotFound
from palaver.identity.accounts import LIMIT_TICKETS, TICKET_MS, Ticket, Tickets
from palaver.identity.process import Process

ASKER, HOLDER = Process(7, 1, 7, 7, 0, -1, 100, "pal"), Process(9, 8, 8, 8, 0, -1, 110, "python")
CHAIN = [HOLDER, Process(8, 7, 8, 8, 0, -1, 105, "python"), ASKER]
TICKET = Ticket(by=HUMAN, asker=(7, 100), name="luna", argv=("claude",))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tickets(clock: FakeClock) -> Tickets:
    numbers = count()
    return Tickets(clock, lambda: str(next(numbers)))


def test_token_returns_its_ticket_once(tickets: Tickets) -> None:
    token = tickets.mint(TICKET)

    assert tickets.take(token, CHAIN) is TICKET
    with pytest.raises(NotFound, match="pal run"):
        tickets.take(token, CHAIN)


def test_ticket_older_than_a_minute_is_invalid(tickets: Tickets, clock: FakeClock) -> None:
    young, old = tickets.mint(TICKET), tickets.mint(TICKET)

    clock.advance((TICKET_MS - 1) / 1000)
    assert tickets.take(young, CHAIN) is TICKET
    clock.advance(0.001)

    with pytest.raises(NotFound):
        tickets.take(old, CHAIN)


def test_returned_ticket_can_be_used_again(tickets: Tickets) -> None:
    token = tickets.mint(TICKET)

    tickets.give_back(token, tickets.take(token, CHAIN))

    assert tickets.take(token, CHAIN) is TICKET


def test_oldest_ticket_is_dropped_at_the_limit(tickets: Tickets) -> None:
    words = [tickets.mint(TICKET) for _ in range(LIMIT_TICKETS + 1)]

    with pytest.raises(NotFound):
        tickets.take(words[0], CHAIN)
    assert tickets.take(words[1], CHAIN) is TICKET
    assert tickets.take(words[-1], CHAIN) is TICKET


def test_tokens_cannot_be_guessed() -> None:
    drawn = Tickets(FakeClock())

    words = {drawn.mint(TICKET) for _ in range(3)}

    assert len(words) == 3
    assert all(len(word) == 32 for word in words)


@pytest.mark.parametrize("other", [[], [HOLDER], [Process(7, 1, 7, 7, 0, -1, 101, "pal")]])
def test_only_the_requesting_process_and_its_descendants_can_use_a_ticket(
    tickets: Tickets, other: list[Process]
) -> None:
    token = tickets.mint(TICKET)

    with pytest.raises(NotFound):
        tickets.take(token, other)
    assert tickets.take(token, [ASKER]) is TICKET
