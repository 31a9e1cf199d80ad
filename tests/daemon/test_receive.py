"""The receive contract: stored cursors, one reader at a time, signals, restarts and filters."""

import json
import os
import signal
from collections.abc import Callable

import pytest
from tests.daemon.followers import CI, FOLLOW, Follower, begun, kept, send
from tests.daemon.stage import Home, Shell, check_output, run_as_person, wait_until
from tests.daemon.wires import ThinWire
from tests.limits import LIMIT_S

ENDS = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def follow(bus: Home) -> Callable[..., Follower]:
    return lambda *arguments: Follower(bus, *arguments)


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


# Cursors


def test_consumer_continues_where_it_stopped(bus: Home, follow: Callable[..., Follower]) -> None:
    first = follow(*CI)
    begun(bus)
    send(bus, "one", "two")
    before = first.texts(2)
    first.end()
    send(bus, "three")

    second = follow(*CI)

    assert before == ["one", "two"]
    assert second.texts(1) == ["three"]


def test_consumer_killed_before_it_showed_anything_misses_nothing(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    first = follow(*CI)
    begun(bus)
    first.kill()
    send(bus, "one")

    assert follow(*CI).texts(1) == ["one"]


def test_without_a_consumer_name_no_cursor_is_stored(bus: Home, follow: Callable[..., Follower]) -> None:
    first = follow(*FOLLOW, "--after", "0")
    send(bus, "one")

    assert first.texts(1) == ["one"]
    assert not (bus.path / "consumers").exists()


def test_given_seq_overrides_the_stored_cursor_and_is_stored(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    seqs = send(bus, "one", "two", "three")
    first = follow(*CI, "--after", str(seqs[1]))
    first.texts(1)
    first.end()

    again = follow(*CI, "--after", str(seqs[0]))
    seen = again.texts(2)
    again.end()

    assert seen == ["two", "three"]
    assert kept(bus) == seqs[2]


def test_different_filter_continues_from_the_same_cursor(bus: Home, follow: Callable[..., Follower]) -> None:
    first = follow(*CI)
    begun(bus)
    send(bus, "one")
    first.texts(1)
    first.end()
    bus.ok("send", "@all", "--thread", "t", "--", "two")
    send(bus, "three")

    other = follow("events", "--follow", "--json", "--thread", "t", "--consumer", "ci")

    assert other.texts(1) == ["two"]


def test_each_wait_shows_the_events_since_the_previous_one(bus: Home) -> None:
    wait = ("events", "--wait", "30", "--type", "message", "--json", "--consumer", "ci")
    bus.pal("events", "--wait", "0.01", "--type", "message", "--json", "--consumer", "ci")
    send(bus, "one", "two")

    first = bus.ok(*wait).lines
    send(bus, "three")
    second = bus.ok(*wait).lines

    assert [line["payload"]["text"] for line in first] == ["one", "two"]
    assert [line["payload"]["text"] for line in second] == ["three"]


def test_each_caller_has_its_own_consumers(bus: Home, nova: Shell) -> None:
    of_nova = nova.begin(*CI, "--after", "0")
    of_a_script = Follower(bus, *CI, "--after", "0")

    send(bus, "one")

    assert json.loads(of_nova.line())["payload"]["text"] == "one"
    assert of_a_script.texts(1) == ["one"]


def test_archived_events_are_not_missed(bus: Home, follow: Callable[..., Follower]) -> None:
    first = follow(*CI)
    begun(bus)
    first.kill()
    send(bus, "one", "two")
    check_output(run_as_person(bus, "archive", "--before", "#1000"))
    send(bus, "three")

    assert follow(*CI).texts(3) == ["one", "two", "three"]


def test_stored_cursor_after_the_end_of_the_log_is_reported(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    folder = bus.path / "consumers" / "script"
    folder.mkdir(parents=True)
    (folder / "ci").write_text(f"{10**9:020d}\n")
    follower = follow(*CI)
    wait_until(lambda: kept(bus) < 10**9)

    send(bus, "one")
    seen = follower.texts(1)
    _, _, err = follower.end()

    assert seen == ["one"]
    assert b"the stored seq is #1000000000, but the log ends at" in err


def test_unreadable_cursor_is_an_error_that_says_what_to_do(bus: Home) -> None:
    folder = bus.path / "consumers" / "script"
    folder.mkdir(parents=True)
    (folder / "ci").write_text("nonsense")

    refused = bus.pal(*CI)

    assert (refused.status, refused.error["error"]) == (1, "storage_failed")
    assert "--after" in refused.error["message"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (("recv", "--follow", "--consumer", "ci"), "--consumer works only with 'pal events'"),
        (("events", "--consumer", "ci"), "--consumer requires --follow or --wait"),
        (("events", "--follow", "--consumer", "../ci"), "letters, digits, and the characters _ . -"),
    ],
)
def test_invalid_use_of_a_consumer_is_refused(bus: Home, line: tuple[str, ...], sentence: str) -> None:
    refused = bus.pal(*line)

    assert refused.status in (1, 2)
    assert sentence in refused.err


# One at a time


def test_second_reader_of_a_consumer_learns_which_process_uses_it(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    first = follow(*CI)
    begun(bus)

    refused = bus.pal(*CI)

    assert (refused.status, refused.error["error"]) == (1, "duplicate_listener")
    assert refused.error["details"] == {"consumer": "ci", "listener": "script", "pid": first.process.pid}


def test_killed_reader_frees_its_consumer_at_once(bus: Home, follow: Callable[..., Follower]) -> None:
    for number in range(10):
        follower = follow(*CI)
        begun(bus)
        send(bus, str(number))
        while follower.texts(1) != [str(number)]:
            pass  # the last output of a killed follower may come again
        follower.kill()


# Signals


@pytest.mark.parametrize("number", ENDS)
def test_follower_ended_by_a_signal_prints_its_cursor(
    bus: Home, follow: Callable[..., Follower], number: int
) -> None:
    follower = follow(*CI)
    begun(bus)
    seq = send(bus, "one")[0]
    follower.texts(1)

    status, out, err = follower.end(number)

    assert (status, out, err) == (0, b"", b"cursor_event_seq=%d\n" % seq)
    assert kept(bus) == seq


def test_follower_without_a_consumer_prints_its_cursor_too(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    seqs = send(bus, "one", "two")
    follower = follow(*FOLLOW, "--after", "0")
    follower.texts(2)

    assert follower.end() == (0, b"", b"cursor_event_seq=%d\n" % seqs[1])


def test_follower_of_mail_ended_by_a_signal_has_recorded_its_output(bus: Home, nova: Shell) -> None:
    os.mkfifo(bus.path.parent / "stop")
    follower = nova.begin_script(
        "pal recv --follow --json & pid=$!; read -r _ <stop; kill -TERM $pid; wait $pid"
    )
    seq = bus.ok("send", "@nova", "--json", "--", "one").json["seq"]
    seen = json.loads(follower.line())
    (bus.path.parent / "stop").write_text("\n")
    ended = follower.end()

    assert seen["text"] == "one"
    assert (ended.status, ended.out, ended.err) == (0, "", f"cursor_event_seq={seq}\n")
    assert nova.ok("recv", "--json").out == ""


def test_wait_dies_of_the_signal_that_ends_it(bus: Home) -> None:
    waiter = bus.start("events", "--wait", "60", "--consumer", "ci")
    begun(bus)

    waiter.send_signal(signal.SIGTERM)

    assert waiter.wait(LIMIT_S) == -signal.SIGTERM


def test_old_client_ended_by_a_signal_frees_its_consumer(bus: Home) -> None:
    with ThinWire(bus.path) as old:
        old.ask(*CI)
        old.output()
        old.acknowledge()
        old.send(b"S\0\0\0\1" + bytes([signal.SIGTERM]))

        assert old.is_closed()
    assert bus.pal("events", "--wait", "0.01", "--consumer", "ci").status == 3


# Restarts of the daemon, and filters


def test_consumer_continues_over_restarts_without_a_gap_or_a_repeat(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    follower = follow(*CI)
    begun(bus)
    texts = []
    for number in range(6):
        texts += [f"{number} before", f"{number} after"]
        send(bus, f"{number} before")
        bus.kill(signal.SIGKILL if number % 2 else signal.SIGTERM)
        bus.ok("up")
        send(bus, f"{number} after")

    assert follower.texts(12) == texts
    assert follower.end()[0] == 0


def test_target_self_is_the_caller_and_any_is_every_agent(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "--", "for nova")
    bus.ok("send", "--", "for all")
    kira = bus.shell()
    kira.ok("join", "--name", "kira")
    bus.ok("send", "@kira", "--", "for kira")

    own = nova.ok("events", "--target", "self", "--type", "message_sent", "--all", "--json").lines
    every = nova.ok("events", "--target", "any", "--type", "message_sent", "--all", "--json").lines

    assert [line["payload"]["text"] for line in own] == ["for nova", "for all"]
    assert [line["type"] for line in own] == ["message_sent"] * 2
    assert [line["payload"]["text"] for line in every] == ["for nova", "for all", "for kira"]


def test_under_a_harness_a_stream_is_json_and_flushed_per_line(bus: Home) -> None:
    process = bus.start("events", "--follow", "--type", "message", "--after", "0", env={"CLAUDECODE": "1"})
    assert process.stdout is not None

    for number in range(3):
        send(bus, str(number))
        assert json.loads(process.stdout.readline())["payload"]["text"] == str(number)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0


def test_in_text_form_each_message_is_one_line(bus: Home, nova: Shell) -> None:
    for text in ("one", "two"):
        bus.ok("send", "@nova", "--", text)
    follower = nova.begin("recv", "--follow", "--text")

    lines = [follower.line(), follower.line()]

    assert ["one" in lines[0], "two" in lines[1]] == [True, True]
    assert "two" not in lines[0]


def test_follower_of_mail_gets_only_messages_that_its_state_lets_pass(bus: Home, nova: Shell) -> None:
    check_output(run_as_person(bus, "pause", "nova"))
    bus.ok("send", "@nova", "--", "later")
    follower = nova.begin("recv", "--follow", "--json")

    bus.ok("send", "@nova", "--interrupt", "--", "stop!")
    first = json.loads(follower.line())["text"]
    check_output(run_as_person(bus, "unpause", "nova"))

    assert (first, json.loads(follower.line())["text"]) == ("stop!", "later")


def test_fetched_mail_includes_messages_that_a_pause_holds_back(bus: Home, nova: Shell) -> None:
    check_output(run_as_person(bus, "pause", "nova"))
    bus.ok("send", "@nova", "--", "later")

    assert nova.ok("recv", "--wait", "--json").json["text"] == "later"


def test_room_is_found_by_its_id_or_its_short_name(bus: Home, nova: Shell) -> None:
    folder = bus.path.parent / "attic"
    folder.mkdir()
    nova.ok("room", "join", str(folder))
    room = bus.events("--type", "member_joined")[0]["payload"]["room"]

    for word in (room, "attic", "#attic"):
        shown = bus.ok("events", "--room", word, "--all", "--json").lines
        assert [event["type"] for event in shown] == ["member_joined"]
    refused = bus.pal("events", "--room", "cellar", "--all", "--json")
    assert (refused.status, refused.error["error"]) == (1, "room_not_found")
