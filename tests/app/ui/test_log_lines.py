"""Filters, jumps and rows of the log."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.app.ui.log import (
    CHUNK,
    LIMIT_CHUNKS,
    LIMIT_FOUND,
    FoundEvents,
    Jump,
    UnclearLine,
    WholeLog,
    event_line,
    marked_text,
    parse_filters,
    parse_jump,
    parse_time,
)
from palaver.app.ui.messages import Look
from palaver.protocol.views import AskLog, EventRow, LogPage

LOOK = Look(me="human", is_ascii=False, clock=lambda ms: "12:03")
NOW_MS = int(datetime(2026, 3, 5, 12, 0).timestamp() * 1000)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("", AskLog()),
        ("flaky test", AskLog(search="flaky test")),
        ("type:message from:luna words", AskLog(types=("message",), senders=("luna",), search="words")),
        ("from:luna from:nova,kira", AskLog(senders=("luna", "nova", "kira"))),
        ("since:10m tool:Bash", AskLog(since=NOW_MS - 600_000, tools=("Bash",))),
        ("http://x.org", AskLog(search="http://x.org")),
        ('"form:luna x" y', AskLog(search="form:luna x y")),
        ("it's fine", AskLog(search="it's fine")),
        (
            "reply-to:42 file:*.py status:seen",
            AskLog(replies_to=("42",), files=("*.py",), statuses=("seen",)),
        ),
    ],
)
def test_filters_are_parsed(line: str, meant: AskLog) -> None:
    assert parse_filters(line, NOW_MS) == meant


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("form:luna", "no such filter: form"),
        ("from:", "from: needs a value"),
        ('"open', "is not closed"),
        ("since:soon", "not a time: soon"),
    ],
)
def test_bad_filters_are_refused_with_a_reason(line: str, reason: str) -> None:
    with pytest.raises(UnclearLine, match=reason):
        parse_filters(line, NOW_MS)


@given(st.text(max_size=60))
def test_any_line_is_parsed_or_refused(line: str) -> None:
    for parse in (parse_filters, parse_jump):
        try:
            parse(line, NOW_MS)
        except UnclearLine as error:
            assert str(error)  # noqa: PT017 - a property of every refusal


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("10m", datetime(2026, 3, 5, 11, 50)),
        ("2d", datetime(2026, 3, 3, 12, 0)),
        ("09:30", datetime(2026, 3, 5, 9, 30)),
        ("23:30:05", datetime(2026, 3, 4, 23, 30, 5)),
        ("2026-03-01", datetime(2026, 3, 1)),
        ("2026-03-01 09:00", datetime(2026, 3, 1, 9, 0)),
    ],
)
def test_times_are_ages_times_of_day_or_dates(text: str, time: datetime) -> None:
    assert parse_time(text, NOW_MS) == int(time.timestamp() * 1000)


def test_jump_is_a_seq_or_a_time() -> None:
    assert parse_jump("#412", NOW_MS) == parse_jump(" 412 ", NOW_MS) == Jump(seq=412)
    assert parse_jump("10m", NOW_MS) == Jump(ts=NOW_MS - 600_000)
    for text in ("", "0", "9" * 20, "25:00", "2026-13-01"):
        with pytest.raises(UnclearLine):
            parse_jump(text, NOW_MS)


def _event(seq: int, text: str = "hello", hits: tuple[tuple[int, int], ...] = ()) -> EventRow:
    return EventRow(seq=seq, ts=1, type="message", sender="luna", to=("@nova",), text=text, hits=hits)


def test_hits_are_marked_in_safe_text() -> None:
    content = marked_text("a\x1bb flaky c", ((4, 9), (2, 2), (50, 60)))

    assert content.plain == "a␛b flaky c"
    assert [
        content.plain[span.start : span.end] for span in content.spans if "underline" in str(span.style)
    ] == ["flaky"]


def test_narrow_lists_omit_time_and_type() -> None:
    assert event_line(_event(5), LOOK, 80).plain == "#5 12:03 luna → @nova: hello"
    assert event_line(_event(5), LOOK, 30).plain == "#5 luna → @nova: hello"
    assert event_line(_event(5), LOOK, 12).cell_length <= 12


def _page(first: int, last: int, *, seq: int, has_more: bool = False) -> LogPage:
    return LogPage(seq=seq, first=1, rows=tuple(map(_event, range(first, last + 1))), has_more=has_more)


def test_whole_log_reads_only_the_chunks_that_are_shown() -> None:
    asked: list[AskLog] = []
    log = WholeLog(LOOK, asked.append)
    log.add((), 1_000_000)

    log.want(499_990, 500_010)
    log.want(499_990, 500_010)

    assert [question.before for question in asked] == [500_000, 500_100]
    assert log.total == 1_000_000
    assert log.row(499_999, 80) is None

    log.take(asked[1], _page(500_000, 500_099, seq=1_000_000))
    shown = log.row(499_999, 80)
    assert shown is not None
    assert shown.plain.startswith("#500000 ")
    assert log.find("500000") == 499_999
    assert log.find("1000001") == -1


def test_whole_log_keeps_a_limited_number_of_chunks() -> None:
    log = WholeLog(LOOK, lambda question: None)
    log.add((), 1_000_000)

    for number in range(LIMIT_CHUNKS + 5):
        start = number * CHUNK
        log.take(AskLog(before=start + CHUNK), _page(max(start, 1), start + CHUNK - 1, seq=1_000_000))

    assert log.event("5") is None
    assert log.event(str((LIMIT_CHUNKS + 4) * CHUNK)) is not None


def test_new_events_are_added_without_a_question() -> None:
    asked: list[AskLog] = []
    log = WholeLog(LOOK, asked.append)
    log.take(AskLog(before=CHUNK), _page(1, 98, seq=98))

    log.add([_event(99), _event(100), _event(101)], 101)

    log.want(90, 100)
    assert asked == []
    assert [log.event(str(seq)) is not None for seq in (98, 99, 100, 101)] == [True] * 4


def test_log_reads_a_page_before_and_after_the_visible_one() -> None:
    asked: list[AskLog] = []
    log = WholeLog(LOOK, asked.append)
    log.add((), 1_000)
    log.first = 150

    log.want(440, 460)  # the events 590 to 610
    assert [question.before for question in asked] == [600, 700]
    log.want(380, 419)  # the events 530 to 569
    assert [question.before for question in asked] == [600, 700, 500]
    log.want(0, 20)
    log.want(830, 850)

    assert [question.before for question in asked] == [600, 700, 500, 200, 1000, 1100]


def test_seq_without_an_event_says_so() -> None:
    log = WholeLog(LOOK, lambda question: None)
    log.take(AskLog(before=CHUNK), LogPage(seq=3, first=1, rows=(_event(1), _event(3))))

    shown = log.row(1, 80)

    assert shown is not None
    assert shown.plain == "#2 (no event)"


def test_found_events_are_read_in_both_directions() -> None:
    asked: list[AskLog] = []
    found = FoundEvents(LOOK, AskLog(search="x"), asked.append)

    found.start(before=500)
    found.take(asked[-1], _page(400, 499, seq=900, has_more=True))
    found.want(0, 20)
    assert (asked[-1].before, asked[-1].search) == (400, "x")
    found.take(asked[-1], _page(300, 399, seq=900))
    assert not found.has_older
    found.want(180, 199)
    assert asked[-1].after == 499
    found.take(asked[-1], _page(500, 510, seq=900))

    assert [row.seq for row in found.rows] == list(range(300, 511))
    assert found.find("300") == 0
    found.grow()
    assert asked[-1].after == 900


def test_found_events_ask_once_at_a_time() -> None:
    asked: list[AskLog] = []
    found = FoundEvents(LOOK, AskLog(search="x"), asked.append)
    found.start()

    found.grow()
    found.grow()
    assert len(asked) == 1

    found.take(asked[0], _page(1, 5, seq=10))
    assert (len(asked), asked[-1].after) == (2, 10)
    found.fail(asked[-1])
    found.grow()
    assert len(asked) == 3


def test_found_events_far_from_the_reader_are_dropped() -> None:
    asked: list[AskLog] = []
    found = FoundEvents(LOOK, AskLog(search="x"), asked.append)
    found.start()
    found.take(asked[-1], _page(10_001, 10_000 + LIMIT_FOUND, seq=99_999, has_more=True))

    found.want(0, 20)
    found.take(asked[-1], _page(9_901, 10_000, seq=99_999, has_more=True))

    assert (found.total, found.has_newer) == (LIMIT_FOUND, True)
