"""Tickets: once, for a minute, in memory."""

from itertools import count

import pytest
from tests.fakes import HUMAN, FakeClock

from palaver.errors import NotFound
from palaver.links.process import Process
from palaver.links.tickets import LIMIT_TICKETS, TICKET_MS, Ticket, Tickets

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


def test_a_ticket_is_given_for_its_word_once(tickets: Tickets) -> None:
    word = tickets.mint(TICKET)

    assert tickets.take(word, CHAIN) is TICKET
    with pytest.raises(NotFound, match="pal run"):
        tickets.take(word, CHAIN)


def test_a_ticket_that_is_older_than_a_minute_is_good_for_nothing(tickets: Tickets, clock: FakeClock) -> None:
    young, old = tickets.mint(TICKET), tickets.mint(TICKET)

    clock.advance((TICKET_MS - 1) / 1000)
    assert tickets.take(young, CHAIN) is TICKET
    clock.advance(0.001)

    with pytest.raises(NotFound):
        tickets.take(old, CHAIN)


def test_a_ticket_that_came_to_nothing_can_be_used_again(tickets: Tickets) -> None:
    word = tickets.mint(TICKET)

    tickets.give_back(word, tickets.take(word, CHAIN))

    assert tickets.take(word, CHAIN) is TICKET


def test_when_there_are_too_many_the_oldest_is_forgotten(tickets: Tickets) -> None:
    words = [tickets.mint(TICKET) for _ in range(LIMIT_TICKETS + 1)]

    with pytest.raises(NotFound):
        tickets.take(words[0], CHAIN)
    assert tickets.take(words[1], CHAIN) is TICKET
    assert tickets.take(words[-1], CHAIN) is TICKET


def test_words_cannot_be_guessed() -> None:
    drawn = Tickets(FakeClock())

    words = {drawn.mint(TICKET) for _ in range(3)}

    assert len(words) == 3
    assert all(len(word) == 32 for word in words)


@pytest.mark.parametrize("other", [[], [HOLDER], [Process(7, 1, 7, 7, 0, -1, 101, "pal")]])
def test_only_the_process_that_asked_and_those_below_it_can_use_a_ticket(
    tickets: Tickets, other: list[Process]
) -> None:
    word = tickets.mint(TICKET)

    with pytest.raises(NotFound):
        tickets.take(word, other)
    assert tickets.take(word, [ASKER]) is TICKET
