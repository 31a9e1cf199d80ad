"""Tickets: once, for a minute, in memory."""

from itertools import count

import pytest
from tests.fakes import HUMAN, FakeClock

from palaver.errors import NotFound
from palaver.links.tickets import LIMIT_TICKETS, TICKET_MS, Ticket, Tickets

TICKET = Ticket(by=HUMAN, name="luna", argv=("claude",))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tickets(clock: FakeClock) -> Tickets:
    numbers = count()
    return Tickets(clock, lambda: str(next(numbers)))


def test_a_ticket_is_given_for_its_word_once(tickets: Tickets) -> None:
    word = tickets.mint(TICKET)

    assert tickets.take(word) is TICKET
    with pytest.raises(NotFound, match="pal run"):
        tickets.take(word)


def test_a_ticket_that_is_older_than_a_minute_is_good_for_nothing(tickets: Tickets, clock: FakeClock) -> None:
    young, old = tickets.mint(TICKET), tickets.mint(TICKET)

    clock.advance((TICKET_MS - 1) / 1000)
    assert tickets.take(young) is TICKET
    clock.advance(0.001)

    with pytest.raises(NotFound):
        tickets.take(old)


def test_a_ticket_that_came_to_nothing_can_be_used_again(tickets: Tickets) -> None:
    word = tickets.mint(TICKET)

    tickets.give_back(word, tickets.take(word))

    assert tickets.take(word) is TICKET


def test_when_there_are_too_many_the_oldest_is_forgotten(tickets: Tickets) -> None:
    words = [tickets.mint(TICKET) for _ in range(LIMIT_TICKETS + 1)]

    with pytest.raises(NotFound):
        tickets.take(words[0])
    assert tickets.take(words[1]) is TICKET
    assert tickets.take(words[-1]) is TICKET


def test_words_cannot_be_guessed() -> None:
    drawn = Tickets(FakeClock())

    words = {drawn.mint(TICKET) for _ in range(3)}

    assert len(words) == 3
    assert all(len(word) == 32 for word in words)
