"""The receive contract: readers that do not read, that disconnect, or that have fallen far back."""

import json
import os
import re
import signal
from collections.abc import Callable

import pytest
from tests.daemon.followers import CI, FOLLOW, Follower, begun, kept, send
from tests.daemon.stage import Home, Shell, finish, wait_until
from tests.daemon.wires import ThinWire
from tests.limits import LIMIT_S


@pytest.fixture
def follow(bus: Home) -> Callable[..., Follower]:
    return lambda *arguments: Follower(bus, *arguments)


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


# Readers that do not read


def test_reader_that_never_reads_blocks_no_other_and_has_seen_only_output(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    blocked = follow(*CI)
    begun(bus)
    seqs = send(bus, *(f"{number} {'x' * 5000}" for number in range(300)))
    other = follow(*FOLLOW, "--after", str(seqs[-2]))
    arrived = other.texts(1)
    wait_until(lambda: kept(bus) >= seqs[0])
    before = kept(bus)

    flushed = [json.loads(line)["seq"] for line in blocked.kill()]
    next_one = follow(*CI, "--all")
    seq = next_one.line()["seq"]

    assert arrived[0].startswith("299 ")
    assert flushed[-1] < seqs[-1]  # a pipe and a window are far smaller than all messages
    # It may not have reported everything it flushed: no gap, and nothing from before its last report.
    assert kept_next(seqs, before) <= seq <= kept_next(seqs, flushed[-1])


def kept_next(seqs: list[int], seq: int) -> int:
    return next(one for one in seqs if one > seq)


def test_memory_of_the_bus_does_not_grow_with_readers_that_never_read(bus: Home) -> None:
    followers = [bus.start(*FOLLOW, "--after", "0") for _ in range(5)]
    send(bus, *(f"{number} {'x' * 20_000}" for number in range(100)))
    before = memory_kib(bus)

    send(bus, *(f"{number} {'x' * 20_000}" for number in range(1500)))

    assert memory_kib(bus) - before < 5 * 1500 * 20  # one page per follower is far less than all messages
    assert all(follower.poll() is None for follower in followers)


def memory_kib(home: Home) -> int:
    with open(f"/proc/{home.pid}/status", encoding="ascii") as status:
        found = re.search(r"VmRSS:\s+(\d+)", status.read())
    assert found is not None
    return int(found[1])


def test_closed_pipe_leaves_the_rest_for_the_next_reader(bus: Home) -> None:
    reading, writing = os.pipe()
    first = bus.start(*CI, stdout=writing)
    os.close(writing)
    begun(bus)
    send(bus, "one")
    with os.fdopen(reading, "rb") as pipe:
        seen = pipe.readline()
    seqs = send(bus, "two", "three")
    status = first.wait(LIMIT_S)
    second = bus.start(*CI)
    assert second.stdout is not None

    assert b'"one"' in seen
    assert status == -signal.SIGPIPE
    assert [json.loads(second.stdout.readline())["seq"] for _ in range(2)] == seqs


def test_mail_that_a_closed_pipe_did_not_accept_is_unread(bus: Home, nova: Shell) -> None:
    follower = nova.begin_script("pal recv --follow --json | head -n 1")
    bus.ok("send", "@nova", "--", "one")
    seen = json.loads(follower.line())
    bus.ok("send", "@nova", "--", "two")
    follower.end()

    assert seen["text"] == "one"
    assert [line["text"] for line in nova.ok("recv", "--wait", "--timeout", "30", "--json").lines] == ["two"]


def test_mail_is_recorded_message_by_message(bus: Home, nova: Shell) -> None:
    for text in ("one", "two", "three"):
        bus.ok("send", "@nova", "--", text)
    with ThinWire(bus.path) as client:
        client.ask("recv", "--follow", "--json", "--as", "nova")
        lines = [client.output()[1]]
        client.acknowledge()
        lines += [client.output()[1], client.output()[1]]

    rest = nova.ok("recv", "--wait", "--timeout", "30", "--json").lines

    assert [json.loads(line)["text"] for line in lines] == ["one", "two", "three"]
    assert [line["text"] for line in rest] == ["two", "three"]


# Far back


def test_reader_that_is_far_back_gets_the_newest_events_and_a_count(
    bus: Home, follow: Callable[..., Follower]
) -> None:
    first = follow(*CI)
    begun(bus)
    first.kill()
    start = kept(bus)
    seqs = send(bus, *map(str, range(150)))

    second = follow(*CI)
    skipped, texts = second.line(), second.texts(100)
    missed = bus.ok(*skipped["command"].split()[1:], "--json").lines

    assert skipped == {
        "skipped": 50,
        "after": start,
        "before": seqs[50],
        "command": f"pal events --after {start} --before {seqs[50]} --all --type message",
    }
    assert texts == list(map(str, range(50, 150)))
    assert [line["seq"] for line in missed] == seqs[:50]


@pytest.mark.parametrize(
    ("options", "count", "rest"), [(["--all"], None, 8), (["--last", "3"], 5, 3), (["--last", "0"], 8, 0)]
)
def test_number_of_older_events_can_be_chosen(
    bus: Home, follow: Callable[..., Follower], options: list[str], count: int | None, rest: int
) -> None:
    first = follow(*CI)
    begun(bus)
    first.kill()
    send(bus, *map(str, range(8)))

    second = follow(*CI, *options)
    skipped = None if count is None else second.line()["skipped"]
    texts = second.texts(rest)
    wait_until(lambda: kept(bus) == bus_end(bus))
    send(bus, "last")

    assert skipped == count
    assert texts == list(map(str, range(8 - rest, 8)))
    assert second.texts(1) == ["last"]


def bus_end(home: Home) -> int:
    seq: int = home.ok("events", "--last", "1", "--json").json["seq"]
    return seq


def test_skipped_events_are_skipped_once(bus: Home, follow: Callable[..., Follower]) -> None:
    first = follow(*CI)
    begun(bus)
    first.kill()
    send(bus, *map(str, range(150)))
    second = follow(*CI)
    second.line()
    second.texts(100)
    second.end()
    send(bus, "last")

    assert follow(*CI).texts(1) == ["last"]


def test_skipped_events_are_reported_as_a_sentence_in_text_form(bus: Home) -> None:
    seqs = send(bus, *map(str, range(5)))

    shown = bus.start("events", "--follow", "--after", "0", "--last", "2", "--before", str(seqs[-1] + 1))
    lines = finish(shown).out.splitlines()

    assert lines[0].startswith("… ")
    assert "older events left out; to see them: pal events --after 0 --before" in lines[0]
    assert len(lines) == 3
