"""`kill -9` of the daemon at any point: nothing acknowledged is lost, and nothing happens twice."""

import os
import random
import threading
from collections import Counter

import pytest
from tests.daemon.stage import Home, Shell, finish
from tests.daemon.wires import LinesWire, ThinWire
from tests.limits import LIMIT_S

KILLS = 30
SENDERS = 8


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def written(reader: LinesWire, home: Home) -> dict[str, object]:
    """Return the next event that another connection sees in the log."""
    line = reader.next_line()
    assert line["push"] == "event", line
    event: dict[str, object] = line["event"]
    return event


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("send", "@nova", "--json", "--", "once"), "message"),
        (("join", "--as", "old", "--pid", str(os.getpid()), "--json"), "agent.hello"),
        (("leave", "--as", "nova", "--json"), "agent.bye"),
        (("status", "set", "active", "--as", "nova", "--json"), "status"),
        (("ack", "--as", "nova", "6", "--json"), "delivery"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_request_repeated_after_a_crash_runs_once_and_has_the_same_result(
    bus: Home, nova: Shell, words: tuple[str, ...], kind: str
) -> None:
    gone = bus.shell()
    gone.ok("join", "--name", "old")
    assert bus.ok("send", "@nova", "--json", "--", "first").json["seq"] == 6
    gone.ok("leave")
    key = bytes(range(16))
    with LinesWire(bus.path) as reader, ThinWire(bus.path) as client:
        reader.ask("events", follow=True, after=bus.ok("status", "--json").json["last"])
        client.ask(*words, key=key)
        _, expected = client.output()
        first = written(reader, bus)
        bus.kill()

    bus.ok("up")
    with ThinWire(bus.path) as client:
        client.ask(*words, key=key)
        status, out, err = client.answer()

    assert (status, out, err) == (0, expected, b"")
    assert [event["seq"] for event in bus.events("--type", kind)].count(first["seq"]) == 1
    since = [event["payload"].get("action") for event in bus.events("--after", str(first["seq"]))]
    assert [action for action in since if action not in ("started", "stopped")] == ["daemon_started"]
    assert len(since) <= 2, "a hello and a bye are followed by their own moment of life, once"


def test_output_that_the_client_has_written_is_not_repeated_after_a_crash(bus: Home, nova: Shell) -> None:
    key = bytes(range(16))
    with ThinWire(bus.path) as client:
        client.ask("send", "@nova", "--json", "--", "once", key=key)
        token, _ = client.output()
        bus.kill()

    bus.ok("up")
    with ThinWire(bus.path) as client:
        client.ask("send", "@nova", "--json", "--", "once", key=key, token=token)
        answer = client.answer()

    assert answer == (0, b"", b"")
    assert bus.texts() == ["once"]


def test_message_that_was_flushed_but_not_recorded_is_seen_after_a_repeat(bus: Home) -> None:
    with LinesWire(bus.path) as holder:
        holder.ask("join", name="luna", secret="s")
        bus.ok("send", "@luna", "--", "read me")
        with ThinWire(bus.path) as client:
            client.ask("recv", "--as", "luna", "--json")
            token, shown = client.output()
            bus.kill()  # the client has flushed it but could not confirm it

    bus.ok("up")
    with ThinWire(bus.path) as client:
        client.ask("recv", "--as", "luna", "--json", token=token)
        answer = client.answer()

    assert b"read me" in shown
    assert answer == (0, b"", b"")
    assert bus.ok("recv", "--as", "luna", "--json").out == ""


def test_message_that_was_not_flushed_is_shown_again_by_the_repeat(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "--", "read me")
    with ThinWire(bus.path) as client:
        client.ask("recv", "--as", "nova", "--json")
        client.output()
        bus.kill()

    bus.ok("up")
    with ThinWire(bus.path) as client:
        client.ask("recv", "--as", "nova", "--json")
        _, out, _ = client.answer()

    assert b"read me" in out


def test_an_acknowledged_message_is_never_delivered_again(bus: Home, nova: Shell) -> None:
    seqs = [bus.ok("send", "@nova", "--json", "--", str(number)).json["seq"] for number in range(3)]
    nova.ok("ack", str(seqs[0]), str(seqs[2]))

    bus.kill()

    assert [line["seq"] for line in nova.ok("recv", "--json").lines] == [seqs[1]]


def test_seat_belongs_to_the_same_agent_after_a_crash(bus: Home, nova: Shell) -> None:
    bus.kill()

    assert nova.ok("whoami", "--json").json["name"] == "nova"


def test_agent_that_ended_during_a_crash_is_exited_after_the_restart(bus: Home, nova: Shell) -> None:
    seq = bus.ok("status", "--json").json["last"]
    bus.kill()
    nova.close()

    (bye,) = bus.ok("events", "--type", "agent.bye", "--after", str(seq), "--wait", "30", "--json").lines

    assert bye["from"] == "nova"


def test_follower_of_events_continues_without_a_gap_or_a_repeat(bus: Home) -> None:
    follower = bus.shell().begin("events", "--follow", "--type", "message", "--after", "0", "--json")
    sent = []

    for number in range(12):
        sent.append(bus.ok("send", "--json", "--", f"number {number}").json["seq"])
        if number % 3 == 1:
            bus.kill()

    assert [seq_of(follower.line()) for _ in sent] == sent


def test_follower_without_output_yet_misses_nothing(bus: Home) -> None:
    with ThinWire(bus.path) as client:
        client.ask("events", "--follow", "--type", "message", "--json")
        token, shown = client.output()
        bus.ok("send", "while it was deaf")
        bus.kill()

    bus.ok("up")
    with ThinWire(bus.path) as client:
        client.ask("events", "--follow", "--type", "message", "--json", token=token)
        _, line = client.output()

    assert shown == b""
    assert b"while it was deaf" in line


def test_wait_without_output_yet_misses_nothing(bus: Home) -> None:
    with ThinWire(bus.path) as client:
        client.ask("events", "--wait", "30", "--type", "message", "--json")
        token, _ = client.output()
        bus.ok("send", "while it was deaf")
        bus.kill()

    bus.ok("up")
    with ThinWire(bus.path) as client:
        client.ask("events", "--wait", "30", "--type", "message", "--json", token=token)
        last, line = client.output()
    with ThinWire(bus.path) as client:
        client.ask("events", "--wait", "30", "--type", "message", "--json", token=last)
        over = client.answer()

    assert b"while it was deaf" in line
    assert over == (0, b"", b"")


def test_follower_of_mail_continues_without_a_gap_or_a_repeat(bus: Home, nova: Shell) -> None:
    follower = nova.begin("recv", "--follow", "--json")
    sent = []

    for number in range(12):
        sent.append(bus.ok("send", "@nova", "--json", "--", f"number {number}").json["seq"])
        if number % 3 == 1:
            bus.kill()

    assert [seq_of(follower.line()) for _ in sent] == sent


def seq_of(line: str) -> int:
    """Return the seq in a line of JSON, without parsing the whole line."""
    return int(line.partition('"seq":')[2].partition(",")[0].rstrip("}"))


def test_every_acknowledged_send_is_in_the_log_once_despite_crashes(bus: Home, nova: Shell) -> None:
    chance = random.Random(20)
    is_over = threading.Event()
    news = threading.Condition()
    acknowledged: list[tuple[str, int]] = []
    unlucky: dict[str, str] = {}

    def wait_for(count: int) -> None:
        with news:
            enough = len(acknowledged) + count
            assert news.wait_for(lambda: len(acknowledged) >= enough, 4 * LIMIT_S)

    def send_on(sender: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            text = f"{sender}/{number}"
            sent = finish(bus.start("send", "@nova", "--json", "--", text), limit_s=4 * LIMIT_S)
            with news:
                if sent.status == 0:
                    acknowledged.append((text, sent.json["seq"]))
                else:
                    unlucky[text] = sent.err
                news.notify_all()

    senders = [threading.Thread(target=send_on, args=(sender,)) for sender in range(SENDERS)]
    for sender in senders:
        sender.start()
    for _ in range(KILLS):
        wait_for(chance.randint(1, 12))
        bus.kill()
    is_over.set()
    for sender in senders:
        sender.join()

    stored = [(event["payload"]["text"], event["seq"]) for event in bus.events("--type", "message")]
    assert Counter(text for text, _ in stored).most_common(1)[0][1] == 1
    assert set(acknowledged) <= set(stored)
    # A client that met only dying daemons received an error: it knows that the outcome is unknown.
    assert {text for text, _ in set(stored) - set(acknowledged)} <= set(unlucky)
    assert all("the connection to the daemon was lost" in why for why in unlucky.values())
