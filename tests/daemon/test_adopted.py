"""Callers that holders forward: the process at the end of the descriptor is the caller; nothing leaks."""

import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, Result, Shell, run_script_as_person, wait_until
from tests.daemon.wires import LinesWire
from tests.limits import LIMIT_S

READ = b'{"do": "read", "name": "luna"}\n'
CALLER = """\
import socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
wire.sendall(sys.argv[2].encode() + b"\\n")
sys.stdout.write(wire.makefile().readline())
"""


class Reception:
    """The agent's own socket: accepts one caller, forwards it, and keeps the daemon's response."""

    def __init__(self, holder: FakeHolder) -> None:
        self.holder = holder
        self.path = holder.home.path / "agents" / "luna.sock"
        self.path.parent.mkdir(exist_ok=True)
        self.script = holder.home.spare_path()
        self.script.write_text(CALLER)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._listener.settimeout(LIMIT_S)
        self._pool = ThreadPoolExecutor(1)

    def serve(self, call: Callable[[str], Result]) -> tuple[dict[str, Any], Result]:
        """Let a caller connect, and forward it. Return the daemon's response and the caller's result."""
        reply = self._pool.submit(self._pass_on)
        result = call(shlex.join([sys.executable, str(self.script), str(self.path)]))
        return reply.result(LIMIT_S), result

    def connected(self) -> tuple[socket.socket, socket.socket]:
        """Return a connection to the agent's socket: the holder's end and the caller's end."""
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(str(self.path))
        return self._listener.accept()[0], caller

    def _pass_on(self) -> dict[str, Any]:
        caller, _ = self._listener.accept()
        with caller:
            return self.holder.pass_on(READ, caller.fileno())

    def close(self) -> None:
        self._pool.shutdown()
        self._listener.close()


@pytest.fixture
def luna(bus: Home) -> Iterator[FakeHolder]:
    with FakeHolder(bus) as holder:
        ticket = ticket_of(words_of(bus, "run", "--name", "luna", "--", "bash"))
        yield holder.hold(ticket).open_lane()


@pytest.fixture(scope="module")
def shared_luna(shared_bus: Home) -> Iterator[FakeHolder]:
    with FakeHolder(shared_bus) as holder:
        ticket = ticket_of(words_of(shared_bus, "run", "--name", "luna", "--", "bash"))
        yield holder.hold(ticket).open_lane()


@pytest.fixture
def reception(luna: FakeHolder) -> Iterator[Reception]:
    made = Reception(luna)
    yield made
    made.close()


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def by(shell: Shell, **request: Any) -> Callable[[str], Result]:
    return lambda command: shell.begin_script(f"{command} '{json.dumps(request)}'").end()


def open_files(home: Home) -> set[str]:
    """Return the daemon's open files by number and name; that of a caller that exited may just be closing."""
    found = set()
    for file in Path(f"/proc/{home.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{file.name} {os.readlink(file)}")
    return found


def test_forwarded_message_is_from_the_connected_process(
    bus: Home, luna: FakeHolder, reception: Reception, nova: Shell
) -> None:
    reply, result = reception.serve(by(nova, type="send", body="hello", priority="normal"))

    assert reply == {"ok": True, "replied": True}
    (sent,) = bus.events("--type", "message")
    assert result.json == {"ok": True, "message_id": sent["id"], "seq": sent["seq"]}
    assert (sent["from"], sent["to"], sent["payload"]["text"]) == ("nova", ["luna"], "hello")
    assert luna.take() == "hello"


def test_forwarded_person_keeps_the_rights_of_a_person(
    bus: Home, luna: FakeHolder, reception: Reception
) -> None:
    def call(command: str) -> Result:
        return run_script_as_person(bus, f"""{command} '{{"body": "y", "raw": true, "type": "send"}}'""")

    reply, result = reception.serve(call)

    assert (reply["ok"], result.json["ok"]) == (True, True)
    assert luna.offered()["message"]["raw"] == "eQ=="


def test_forwarded_person_can_write_without_a_head_and_an_agent_cannot(
    bus: Home, luna: FakeHolder, reception: Reception, nova: Shell
) -> None:
    def call(command: str) -> Result:
        return run_script_as_person(
            bus, f"""{command} '{{"body": "blue", "bare": true, "priority": "idle"}}'"""
        )

    _, refused = reception.serve(by(nova, body="blue", bare=True))
    _, sent = reception.serve(call)

    assert refused.json["code"] == "not_allowed"
    assert sent.json["ok"] is True
    message = luna.offered()["message"]
    assert (message["bare"], message["priority"], message["from"]) == (True, "idle", "human")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"type": "send", "body": "y", "raw": True}, "not_allowed"),
        ({"type": "send", "body": "x", "from": "human"}, "not_you"),
        ({"type": "send", "body": "x", "priority": "urgent"}, "bad_request"),
        ({"type": "send", "body": "x", "priority": ""}, "bad_request"),
        ({"type": "send", "body": ""}, "bad_request"),
        ({"type": "send", "body": "\x1b[2J"}, "bad_text"),
    ],
)
def test_refusal_of_a_forwarded_request_reaches_its_caller(
    bus: Home, reception: Reception, nova: Shell, request_: dict[str, Any], code: str
) -> None:
    reply, result = reception.serve(by(nova, **request_))

    assert reply["ok"] is True
    assert (result.json["ok"], result.json["code"]) == (False, code)
    assert bus.texts() == []


def test_refusal_names_the_priority_as_the_wire_does(reception: Reception, nova: Shell) -> None:
    _, result = reception.serve(by(nova, type="send", body="x", priority="urgent"))

    assert result.json["error"] == "invalid priority: urgent"


def test_caller_may_state_its_own_name_as_the_sender(bus: Home, reception: Reception, nova: Shell) -> None:
    _, result = reception.serve(by(nova, **{"body": "x", "from": "nova"}))

    assert result.json["ok"] is True


def test_forwarded_message_goes_only_to_this_agent_not_to_its_base_name(
    bus: Home, luna: FakeHolder, reception: Reception, nova: Shell
) -> None:
    bus.shell().ok("join", "--name", "luna", "--tag", "api")

    reception.serve(by(nova, body="x"))

    (sent,) = bus.events("--type", "message")
    assert sent["payload"]["delivered_to"] == ["luna"]


@pytest.mark.parametrize("who", ["nova", "human", "luna"])
def test_daemon_reports_to_the_holder_which_caller_connected(
    bus: Home, luna: FakeHolder, reception: Reception, nova: Shell, who: str
) -> None:
    calls: dict[str, Callable[[str], Result]] = {
        "nova": by(nova, type="stop"),
        "human": lambda command: run_script_as_person(bus, f"""{command} '{{"type": "stop"}}'"""),
        "luna": lambda command: luna.run(f"""{command} '{{"type": "stop"}}'"""),
    }

    reply, _ = reception.serve(calls[who])

    kind, standing = ("human", "human") if who == "human" else ("instance", "worker")
    asked = {"request": {"type": "stop"}}
    assert reply == {"ok": True, "name": who, "standing": standing, "kind": kind, **asked}


# Failures


def test_only_the_holder_of_an_agent_forwards_callers_for_it(bus: Home, luna: FakeHolder) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        refused = luna.pass_on(b'{"do": "read", "name": "nova"}\n', ours.fileno())

    assert (refused["ok"], refused["code"]) == (False, "not_you")


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"nonsense\n",
        b"{}\n",
        b'{"do": "what", "name": "luna"}\n',
        b'{"do": "send", "name": "luna", "request": {"body": "x"}}\n',
        b'{"do": "read", "name": "\xff"}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_unreadable_line_from_a_holder_returns_bad_request(shared_luna: FakeHolder, line: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        refused = shared_luna.pass_on(line, ours.fileno())

    assert (refused["ok"], refused["code"]) == (False, "bad_request")


def test_holder_must_pass_exactly_one_stream_socket(bus: Home, luna: FakeHolder) -> None:
    before = open_files(bus)
    line = READ
    ours, theirs = socket.socketpair()
    null = os.open("/dev/null", os.O_RDONLY)
    with ours, theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
        none = luna.pass_on(line)
        two = luna.pass_on(line, ours.fileno(), theirs.fileno())
        many = luna.pass_on(line, *[ours.fileno()] * 40)
        file = luna.pass_on(line, null)
        other = luna.pass_on(line, datagram.fileno())
    os.close(null)

    assert [answer["code"] for answer in (none, two, many, file, other)] == ["bad_request"] * 5
    wait_until(lambda: open_files(bus) <= before)


def test_half_a_line_and_a_caller_that_never_reads_leak_no_descriptors(
    bus: Home, luna: FakeHolder, reception: Reception
) -> None:
    before = open_files(bus)
    ours, theirs = reception.connected()
    with ours, theirs:
        theirs.sendall(b'{"type": "send", "body": "hello"}')
        ours.setblocking(False)
        try:
            while True:
                ours.send(b"x" * 65536)
        except BlockingIOError:
            pass
        full = luna.pass_on(READ, ours.fileno())
        known = open_files(bus)
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(str(bus.path / "adopt.sock"))
            socket.send_fds(wire, [b'{"do": "re'], [ours.fileno()])
            wait_until(lambda: open_files(bus) - known)

    assert full == {"ok": True, "replied": True}
    wait_until(lambda: open_files(bus) <= before)


def test_line_without_an_end_is_cut_off(bus: Home, luna: FakeHolder) -> None:
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(LIMIT_S)
        wire.connect(str(bus.path / "adopt.sock"))
        try:
            while True:
                wire.sendall(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass

    with LinesWire(bus.path) as program:
        assert program.ask("whoami")["ok"]["name"] == "script"


def test_forwarding_socket_is_private_and_removed_with_the_daemon(bus: Home) -> None:
    path = bus.path / "adopt.sock"
    mode = path.stat().st_mode & 0o777

    bus.ok("down")

    assert mode == 0o600
    wait_until(lambda: not path.exists())


def test_unreadable_or_empty_request_is_reported_to_the_holder(
    bus: Home, luna: FakeHolder, reception: Reception
) -> None:
    words = []
    for request in (b"hello?\n", b'{"type": "send", "body": 7}', b'{"type": "se', b""):
        ours, theirs = reception.connected()
        with ours, theirs:
            theirs.sendall(request)
            theirs.shutdown(socket.SHUT_WR)
            words.append(luna.pass_on(READ, ours.fileno()))

    assert [word.get("code") for word in words] == ["bad_request"] * 3 + [None]
    assert words[3] == {"ok": True, "replied": True}


def test_request_in_pieces_and_a_long_request_are_read_completely(
    bus: Home, luna: FakeHolder, reception: Reception, nova: Shell
) -> None:
    text = "x" * 90_000
    program = f'import json; print(json.dumps({{"body": "{text[:10]}" * 9000}}))'
    script = shlex.join([sys.executable, "-c", program])

    _, result = reception.serve(lambda command: nova.begin_script(f'{command} "$({script})"').end())

    assert result.json["ok"] is True
    assert luna.take() == text


def test_bytes_after_the_request_are_left_for_the_holder(
    bus: Home, luna: FakeHolder, reception: Reception
) -> None:
    ours, theirs = reception.connected()
    with ours, theirs:
        theirs.sendall(b'{"type": "attach"}\nframes')

        reply = luna.pass_on(READ, ours.fileno())

        assert (reply["ok"], ours.recv(100)) == (True, b"\nframes")


def test_caller_that_never_ends_its_request_times_out(
    bus: Home, luna: FakeHolder, reception: Reception
) -> None:
    ours, theirs = reception.connected()
    with ours, theirs:
        theirs.sendall(b'{"type": ')

        reply = luna.pass_on(READ, ours.fileno())

    assert (reply["code"], "no request came in time" in reply["error"]) == ("bad_request", True)
