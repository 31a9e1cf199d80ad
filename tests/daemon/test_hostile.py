"""Hostile input at the socket: a clear error where one is possible, and no effect on other clients."""

import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.daemon.stage import Home, new_home
from tests.daemon.wires import LinesWire, ThinWire, connect, frame, request

MANY = 1000
LIMIT_LINE = 10 * 1024 * 1024


@contextmanager
def watched(home: Home) -> Iterator[Home]:
    """A bus that must be the same daemon after the test and still serve other clients."""
    home.start_daemon()
    first = home.pid
    with LinesWire(home.path) as witness:
        witness.ask("join", name="witness")

        yield home

        assert witness.ask("whoami")["ok"]["name"] == "witness"
        assert home.ok("status", "--json").json["pid"] == first
        assert "Traceback" not in (home.path / "daemon.log").read_text()


@pytest.fixture
def unharmed(home: Home) -> Iterator[Home]:
    with watched(home):
        yield home


@pytest.fixture(scope="module")
def long_lived() -> Iterator[Home]:
    with new_home() as home:
        yield home


@pytest.fixture
def shared(long_lived: Home) -> Iterator[Home]:
    """One daemon for many bad requests that leave no state."""
    with watched(long_lived):
        yield long_lived


# The thin client's wire


@pytest.mark.parametrize(
    "data",
    [b"", b"P", b"PAL", b"PAL1", b"PAL1R", b"PAL1" + request("whoami")[:40]],
    ids=["nothing", "P", "PAL", "magic", "type", "half-a-frame"],
)
def test_caller_that_ends_in_the_middle_of_a_request_is_dropped(shared: Home, data: bytes) -> None:
    with connect(shared.path) as wire:
        wire.sendall(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (frame(b"R", b"")[:1] + b"\xff\xff\xff\xff", b"over the limit"),
        (frame(b"?"), b"unexpected frame"),
        (frame(b"A", b"\0\0\0\1") + frame(b"A", b"12345"), b"unexpected frame"),
        (frame(b"D", b"unasked"), b"unexpected frame"),
        (frame(b"Z"), b"unexpected frame"),
        (frame(b"R", b"k\0\0"), b"middle of a field"),
        (frame(b"R", b"k\0\0\0\x10short"), b"middle of a field"),
        (frame(b"R", frame(b"k", b"short")), b"no key"),
        (frame(b"R"), b"no key"),
    ],
    ids=["huge", "type", "ack", "content", "end", "field", "length", "key", "empty"],
)
def test_malformed_frame_is_answered_with_a_sentence_and_the_end(
    shared: Home, data: bytes, sentence: bytes
) -> None:
    with ThinWire(shared.path) as client:
        client.send(data)
        status, _, err = client.answer()

    assert status == 1
    assert sentence in err


def test_second_request_on_one_connection_ends_it(shared: Home) -> None:
    with ThinWire(shared.path) as client:
        client.send(request("events", "--follow", "--after", "999") + request("whoami"))
        status, _, err = client.answer()

    assert status == 1
    assert b"unexpected frame" in err


def test_other_version_of_the_wire_is_refused_in_its_own_format(shared: Home) -> None:
    with connect(shared.path) as wire:
        wire.sendall(b"PAL2" + request("whoami"))
        answer = wire.makefile("rb").read()

    assert answer == frame(
        b"E", b"pal: this daemon uses the protocol PAL1; install a client of its version\n"
    ) + frame(b"Q", b"\1")


def test_client_that_sends_more_than_requested_is_cut_off(unharmed: Home) -> None:
    with ThinWire(unharmed.path) as client:
        client.ask("send", "--stdin")
        kind, _ = client.next_frame()
        client.send(frame(b"D", b"x" * 100_001) + frame(b"D", b"x"))
        status, _, err = client.answer()

    assert kind == b"I"
    assert status == 1
    assert b"more than was requested" in err
    assert unharmed.texts() == []


def test_signal_before_a_request_ends_the_connection(shared: Home) -> None:
    with ThinWire(shared.path) as client:
        client.send(frame(b"S", b"\2"))

        assert client.is_closed()


def test_arguments_that_are_not_utf8_are_a_usage_error_in_both_forms(shared: Home) -> None:
    refused = [
        shared.pal("show", b"\xff"),
        shared.pal("show", b"\xff", "--json"),
        shared.pal("events", "--type", b"\xff"),
        shared.pal("whoami", "--as", b"\xff"),
        shared.pal(b"\xff", "--json"),
    ]

    assert [one.status for one in refused] == [2] * 5
    assert refused[1].error["error"] == "usage"


def test_malformed_resume_token_is_ignored(shared: Home) -> None:
    for token in (b"", b"x", b"+", b"+99999999999", b"[1,", b'["a"]', b"\xff" * 100, b"1" * 99):
        with ThinWire(shared.path) as client:
            client.ask("whoami", token=token)

            assert client.answer()[0] == 0


def test_resume_token_acknowledges_only_the_callers_own_mail(unharmed: Home) -> None:
    nova, luna = unharmed.shell(), unharmed.shell()
    nova.ok("join", "--name", "nova")
    luna.ok("join", "--name", "luna")
    seq = unharmed.ok("send", "@nova", "--json", "--", "for nova").json["seq"]

    for token in (f"[{seq}]", f"[{seq}, -5, {10**30}]"):
        with ThinWire(unharmed.path) as client:
            client.ask("recv", "--as", "luna", token=token.encode())
            client.answer()

    assert nova.ok("recv", "--json").json["seq"] == seq


# Lines of JSON


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"garbage", "cannot be read"),
        (b"Please", "cannot be read"),
        (b"\x00\xff\xfe", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "op"),
        (b'{"op": "frobnicate"}', "frobnicate"),
        (b'{"op": "whoami", "extra": 1}', "extra"),
        (b'{"op": "send"}', "text"),
        (b'{"op": "send", "text": 5}', "text"),
        (b'{"op": "send", "text": "x", "to": "nova"}', "to"),
        (b'{"op": "ack", "messages": [-1]}', "messages"),
        (b'{"op": "ack", "messages": [99999999999999999999]}', "messages"),
        (b'{"op": "events", "after": 1e300}', "after"),
        (b'{"op": "whoami", "req": "seven"}', "req"),
        (b'{"op": "put", "envelope": {}}', "envelope"),
        (b'{"op": "put", "envelope": 7}', ""),
        (b'{"op": "lane", "kind": "magic"}', "join first"),
        (b'{"op": "answer", "lane": 1, "offer": 1, "answer": "seen"}', "lane 1"),
        (b'{"op": "receipts", "message": "99999"}', "99999"),
        (b'{"op": "listen"}', "join first"),
        (b'{"op": "whoami", "name": "nova"}', "nova"),
        (b'{"op": "whoami", "req": ' + b"[" * 100_000 + b"}", "cannot be read"),
        (b'{"op": "put", "envelope": ' + b'{"a":' * 100_000 + b"}", "cannot be read"),
        (b'{"op": "send", "text": "\xff"}', "cannot be read"),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_bad_line_is_an_error_and_the_connection_continues(shared: Home, line: bytes, word: str) -> None:
    with LinesWire(shared.path) as program:
        program.send(line + b"\n")
        refused = program.next_line()

        assert refused["error"] in ("bad_request", "who_are_you", "not_found", "not_you")
        assert word in refused["message"]
        assert program.ask("whoami")["ok"]["name"] == "script"


def test_error_has_the_number_of_its_request(shared: Home) -> None:
    with LinesWire(shared.path) as program:
        program.send(b'{"req": 41, "op": "frobnicate"}\n{"req": 42, "op": "whoami"}\n')

        assert [program.next_line()["req"] for _ in range(2)] == [41, 42]


def test_line_over_the_limit_is_dropped_completely_with_its_remainder(unharmed: Home) -> None:
    with LinesWire(unharmed.path) as program:
        long = b" " * LIMIT_LINE
        program.send(long + b'{"op": "send", "text": "smuggled"}\n')
        refused = program.next_line()

        assert refused["error"] == "bad_request"
        assert "10485760" in refused["message"]
        assert program.ask("whoami")["ok"]["name"] == "script"
    assert unharmed.texts() == []


def test_request_that_arrives_byte_by_byte_is_served(shared: Home) -> None:
    with LinesWire(shared.path) as program:
        for byte in b'{"req": 1, "op": "whoami"}\n':
            program.send(bytes([byte]))

        assert program.next_line()["ok"]["name"] == "script"


def test_program_that_stops_sending_still_receives_its_responses(unharmed: Home) -> None:
    with LinesWire(unharmed.path) as program:
        program.tell("join", name="luna")
        program.tell("send", text="the last word", to=["@luna"])
        program.send(b'{"op": "half')
        program.wire.shutdown(socket.SHUT_WR)
        lines = list(iter(program.next_line, {}))

    assert sorted(line["req"] for line in lines) == [0, 1, 2]
    assert [line["error"] for line in lines if "error" in line] == ["bad_request"]
    assert unharmed.texts() == ["the last word"]


def test_requests_after_a_join_use_the_name_it_assigned(unharmed: Home) -> None:
    with LinesWire(unharmed.path) as program:
        program.tell("join", name="luna")
        program.tell("whoami")
        program.tell("leave")
        program.tell("whoami")
        lines = {line["req"]: line["ok"] for line in (program.next_line() for _ in range(4))}

    assert (lines[2]["name"], lines[4]["name"]) == ("luna", "script")


def test_all_requests_over_the_concurrency_limit_are_answered(unharmed: Home) -> None:
    with LinesWire(unharmed.path) as program:
        numbers = range(1, 10_001)
        lines = b"".join(b'{"req": %d, "op": "whoami"}\n' % number for number in numbers)
        program.wire.settimeout(None)
        with LinesWire(unharmed.path) as other:
            send_aside(program, lines)

            assert other.ask("whoami")["ok"]["name"] == "script"
        answered = [program.next_line()["req"] for _ in numbers]

    assert answered == list(numbers)


def send_aside(program: LinesWire, lines: bytes) -> None:
    """Send from another thread: the daemon may accept more only when its responses are read."""
    threading.Thread(target=program.send, args=(lines,), daemon=True).start()


def test_program_that_never_reads_is_not_read_from_and_blocks_no_other(unharmed: Home) -> None:
    for _ in range(20):
        unharmed.ok("send", "--stdin", content=b"x" * 100_000)
    with LinesWire(unharmed.path) as deaf, LinesWire(unharmed.path) as other:
        line = json.dumps({"op": "events", "types": ["message"]}).encode() + b"\n"
        deaf.wire.setblocking(False)
        flood(deaf.wire.send, line)

        assert other.ask("send", text="still here", to=["@witness"])["ok"]["delivered_to"] == ["witness"]


def flood(send: Callable[[bytes], int], line: bytes) -> None:
    """Send until the daemon accepts no more data."""
    sent = 0
    try:
        while sent < 100 * LIMIT_LINE:
            sent += send(line)
    except BlockingIOError:
        return


def test_follower_that_never_reads_blocks_no_other(unharmed: Home) -> None:
    with ThinWire(unharmed.path) as deaf:
        deaf.ask("events", "--follow", "--after", "0", "--json")
        for number in range(30):
            unharmed.ok("send", "@witness", "--stdin", content=b"%d" % number * 50_000)

        assert len(unharmed.texts()) == 30


def test_response_over_the_line_limit_is_cut_and_says_so(unharmed: Home) -> None:
    for _ in range(60):
        unharmed.ok("send", "--stdin", content=b"x" * 100_000)
    with LinesWire(unharmed.path) as program:
        first = program.ask("events", types=["message"])["ok"]
        newest = program.ask("events", types=["message"], last=60)["ok"]

    assert first["more"] is newest["more"] is True
    assert first["events"][0]["seq"] < newest["events"][0]["seq"]
    assert newest["events"][-1]["seq"] == newest["last"]


def test_thousand_idle_connections_do_not_prevent_service(unharmed: Home) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * MANY:
        pytest.skip(f"this system allows only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * MANY), hard))
    try:
        with ExitStack() as connections:
            for _ in range(MANY):
                connections.enter_context(connect(unharmed.path))

            assert unharmed.ok("whoami", "--json").json["name"] == "script"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connection_cannot_act_for_an_agent_that_has_left(unharmed: Home) -> None:
    with LinesWire(unharmed.path) as program:
        program.ask("join", name="luna")
        unharmed.ok("leave", "--as", "luna")

        refused = program.ask("send", text="x", to=["@witness"])

    assert refused["error"] == "who_are_you"
    assert unharmed.texts() == []


def test_payload_that_fills_a_line_can_be_put_and_received(unharmed: Home) -> None:
    with LinesWire(unharmed.path) as program:
        program.ask("join", name="luna")
        envelope = {"v": 1, "type": "x.big", "id": "big-1", "from": "luna", "to": ["luna"]}
        put = program.ask("put", envelope={**envelope, "payload": {"data": "x" * (LIMIT_LINE - 1000)}})

        assert "ok" in put, put
        received = unharmed.ok("recv", "--as", "luna", "--json").json

    assert len(received["payload"]["data"]) == LIMIT_LINE - 1000
