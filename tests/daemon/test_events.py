"""`pal events`: filters, pages, waiting, and SQL conditions of callers."""

import hashlib
from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, finish, new_home
from tests.daemon.wires import LinesWire, ThinWire

from palaver.log.storage import FILE_NAME

RECURSIVE = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n) > 0"
ENDLESS = "(SELECT count(*) FROM events_v a, events_v b, events_v c, events_v d, events_v e, events_v f) > 0"
"""Not endless by itself, but with a few dozen events in the log it takes too long to finish."""


@pytest.fixture(scope="module")
def quiet() -> Iterator[Home]:
    """A bus in which nothing happens."""
    with new_home() as home:
        home.start_daemon()
        yield home


@pytest.fixture
def stage(bus: Home) -> Home:
    """A bus with three messages in a thread and one outside."""
    for text in ("one", "two", "three"):
        bus.ok("send", "@all", "--thread", "t", "--intent", "inform", "--", f"number {text}")
    bus.ok("send", "--", "outside")
    return bus


def test_without_filters_the_newest_events_are_shown(stage: Home) -> None:
    for number in range(30):
        stage.ok("send", "--", str(number))

    shown = stage.ok("events", "--json").lines

    assert len(shown) == 20
    assert shown[-1]["payload"]["text"] == "29"


def test_same_filter_twice_is_or_and_different_filters_are_and(stage: Home) -> None:
    either = stage.ok("events", "--type", "life", "--type", "message", "--all", "--json").lines
    both = stage.ok("events", "--type", "message", "--thread", "t", "--all", "--json").lines

    assert len(either) == 5
    assert len(both) == 3


def test_more_than_a_page_of_the_newest_events_is_complete_and_in_order(bus: Home) -> None:
    with LinesWire(bus.path) as program:
        for number in range(1200):
            program.tell("send", text=str(number))
        seqs = [program.next_line()["ok"]["seq"] for _ in range(1200)]

    shown = bus.ok("events", "--last", "1100", "--type", "message", "--json").lines

    assert [line["seq"] for line in shown] == seqs[-1100:]


def test_message_looks_the_same_under_either_name_of_its_type(stage: Home) -> None:
    plain = stage.ok("events", "--type", "message").out.splitlines()
    named = stage.ok("events", "--type", "message_sent").out.splitlines()

    assert [line.replace(" message_sent ", " message ") for line in named] == plain
    assert plain[0].endswith(": number one")


def test_wait_shows_the_next_event_and_ends(stage: Home) -> None:
    waiter = stage.start("events", "--type", "message", "--wait", "30", "--after", "5", "--json")

    stage.ok("send", "--", "next")
    shown = finish(waiter)

    assert shown.status == 0
    assert [line["payload"]["text"] for line in shown.lines] == ["next"]


def test_wait_after_a_seq_shows_existing_events_at_once(stage: Home) -> None:
    shown = stage.ok("events", "--type", "message", "--after", "3", "--wait", "30", "--json").lines

    assert [line["payload"]["text"] for line in shown] == ["number three", "outside"]


def test_follow_with_last_begins_with_earlier_events(stage: Home) -> None:
    follower = stage.shell().begin("events", "--last", "2", "--follow", "--type", "message", "--json")

    first, second = follower.line(), follower.line()
    stage.ok("send", "--", "new")
    third = follower.line()

    assert ["number three" in first, "outside" in second, '"new"' in third] == [True] * 3


def test_follow_up_to_a_seq_ends_there(stage: Home) -> None:
    shown = stage.ok("events", "--after", "1", "--before", "4", "--follow", "--json").lines

    assert [line["seq"] for line in shown] == [2, 3]


def test_search_finds_words(stage: Home) -> None:
    shown = stage.ok("events", "--search", "number two", "--json").lines

    assert [line["payload"]["text"] for line in shown] == ["number two"]


@pytest.mark.parametrize("option", ["--search", "--sql", "--agent", "--thread", "--file", "--target"])
def test_empty_filter_is_refused(quiet: Home, option: str) -> None:
    result = quiet.pal("events", option, "")

    assert (result.status, f"{option} requires a value" in result.err) == (2, True)


def test_subscription_with_an_empty_filter_is_refused(quiet: Home) -> None:
    result = quiet.pal("events", "sub", "--agent", "")

    assert (result.status, "--agent requires a value" in result.err) == (2, True)


def test_sql_condition_is_a_filter(stage: Home) -> None:
    shown = stage.ok("events", "--sql", "thread = 't' AND text LIKE '%t%o%'", "--json").lines

    assert [line["payload"]["text"] for line in shown] == ["number two"]


@pytest.mark.parametrize(
    "sql",
    [
        "1); ATTACH DATABASE '/tmp/stolen' AS x; --",
        "1) UNION SELECT 1 --",
        "1; DELETE FROM events",
        "(SELECT load_extension('/tmp/x'))",
        "(SELECT 1 FROM pragma_table_info('events'))",
        "(SELECT writefile('/tmp/x', 'y'))",
        "(SELECT value FROM meta) IS NOT NULL",
        "PRAGMA journal_mode = DELETE",
        "length(zeroblob(1000000000)) > 0",
        "nonsense(",
        RECURSIVE,
    ],
)
def test_sql_beyond_a_filter_is_refused_and_changes_nothing(quiet: Home, sql: str) -> None:
    before = fingerprint(quiet)

    refused = quiet.pal("events", "--sql", sql, "--json")

    assert (refused.status, refused.error["error"]) == (1, "bad_query")
    assert fingerprint(quiet) == before


def test_endless_condition_times_out_and_other_requests_are_served(home: Home) -> None:
    home.ok("up", env={"PALAVER_SQL_TIMEOUT_MS": "1000"})
    say_much(home)
    before = fingerprint(home)
    with ThinWire(home.path) as slow:
        slow.ask("events", "--sql", ENDLESS, "--json")

        seen = [home.ok("whoami", "--json").json["name"] for _ in range(3)]
        status, out, err = slow.answer()

    assert seen == ["script"] * 3
    assert (status, out) == (1, b"")
    assert b"too_slow" in err
    assert fingerprint(home) == before


def test_send_succeeds_during_an_endless_condition(bus: Home) -> None:
    say_much(bus)
    with ThinWire(bus.path) as slow:
        slow.ask("events", "--sql", ENDLESS, "--json")

        sent = bus.ok("send", "--json", "--", "beside it").json

    assert bus.ok("show", str(sent["seq"]), "--json").json["text"] == "beside it"


def say_much(home: Home) -> None:
    with LinesWire(home.path) as program:
        for number in range(60):
            program.ask("send", text=str(number))


def fingerprint(home: Home) -> str:
    """Return a hash of the log file."""
    return hashlib.sha256((home.path / FILE_NAME).read_bytes()).hexdigest()
